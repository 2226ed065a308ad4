// GGUF blocks to panels. Not here: what panels look like (panel.h), and threads: callers share the
// work by ranges of panels.
#pragma once

#include <cstdint>

#include "fmt/panel.h"

namespace fw {

// The panel format of a ggml type id (0 F32, 1 F16, 2 Q4_0, ...). False: no format holds it.
bool panel_format(int32_t ggml_type, Format* format);

// Bytes of one row of k values in the file; k is a multiple of the type's block.
int64_t row_bytes(int32_t ggml_type, int64_t k);

// Writes panels [first_panel, last_panel) of a matrix. Ranges may run in parallel.
//   ggml_type: one that panel_format takes.
//   src: all n rows of k values as they lie in the file, n * row_bytes(ggml_type, k) bytes.
//   dst: the whole matrix, panel_bytes(format, n, k) bytes; no overlap with src.
void repack(int32_t ggml_type, const uint8_t* src, int64_t n, int64_t k, uint8_t* dst,
            int64_t first_panel, int64_t last_panel);

}  // namespace fw
