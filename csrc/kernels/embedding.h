// One row of a panel matrix as float32. One body for every instruction set: a row is a gather of
// four-byte groups 128 bytes apart, a microsecond or two, and leaves vectors nothing to do.
#pragma once

#include <cstdint>

#include "fmt/panel.h"

namespace fw {

// out: [k] = dequantized row `row` (of w.n), bit for bit as firstword.quant.dequantize rounds it,
// times `scale` in float32.
void embed_row(const Panels& w, int64_t row, float scale, float* out);

}  // namespace fw
