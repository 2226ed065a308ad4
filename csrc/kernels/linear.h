// Linear layers: out = x times the transpose of up to three weights, plus bias.
//
// Arithmetic: the docstring of firstword/ops/int8.py, bit for bit on every instruction set (any NaN
// counts as any other). It does not depend on t, on the items' order or on who runs them.
#pragma once

#include <cstdint>

#include "fmt/panel.h"

namespace fw {

// Activations of t rows, row-major. Only what the weights' formats need is filled: x [t, k] for
// float formats; q32 [t, k], d32 and sum32 [t, k / 32] for A32; q256 [t, k], d256 [t, k / 256] and
// sum256 [t, k / 16] for A256.
struct Activations {
  int64_t t, k;
  const float* x;
  const int8_t* q32;
  const float* d32;
  const int32_t* sum32;
  const int8_t* q256;
  const float* d256;
  const int16_t* sum256;
};

// One weight and its outputs. bias: [n] or null. out: [t, n], rows out_stride floats apart; it
// overlaps no input.
struct Segment {
  Panels w;
  const float* bias;
  float* out;
  int64_t out_stride;
};

struct LinearArgs {
  Activations a;
  int32_t num_segments;
  Segment segment[3];
};

// An item is 16 outputs (half a panel) of one segment for a tile of the tokens.
constexpr int64_t kItemRows = 16;
constexpr int64_t kMaxItemTokens = 64;

struct LinearItem {
  int32_t segment;
  int64_t first_row;    // within the segment, a multiple of 16
  int64_t first_token;
  int64_t num_tokens;   // at most kMaxItemTokens
};

// How many items the call has. Neighbours are halves of one panel, so ranges best start at an even
// item; then come the other outputs of the same tokens.
int64_t linear_items(const LinearArgs& args);
LinearItem linear_item(const LinearArgs& args, int64_t item);

// Bytes that `scratch` must have for each thread, aligned to 64.
constexpr int64_t kLinearScratchBytes = 32 << 10;

// Runs items [first_item, last_item): any thread may run any range, in any order.
using Linear = void(const LinearArgs& args, int64_t first_item, int64_t last_item,
                    uint8_t* scratch);

namespace generic {
Linear linear;
}
namespace avx2 {
Linear linear;
}
namespace avx512 {
Linear linear;
}

}  // namespace fw
