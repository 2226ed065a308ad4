// Activations to 8 bits, as the docstring of firstword/ops/int8.py defines it bit for bit.
//
// Per run of 32 (A32) or 256 (A256) values of a row: d = max |x| / 127, code = x / d rounded half
// to even and clamped to -127 .. 127. d == 0: codes 0. An infinity or NaN in the run: codes 0, d
// NaN. Sums of codes serve the offsets and mins of the weights: per 32 in A32, per 16 in A256.
#pragma once

#include <cstdint>

namespace fw {

// x: one row [k]; k % 32 == 0. q: [k]. d, sum: [k / 32].
using QuantizeA32 = void(const float* x, int64_t k, int8_t* q, float* d, int32_t* sum);
// x: one row [k]; k % 256 == 0. q: [k]. d: [k / 256]. sum16: [k / 16].
using QuantizeA256 = void(const float* x, int64_t k, int8_t* q, float* d, int16_t* sum16);

namespace generic {
QuantizeA32 quantize_a32;
QuantizeA256 quantize_a256;
}  // namespace generic
namespace avx2 {
QuantizeA32 quantize_a32;
QuantizeA256 quantize_a256;
}  // namespace avx2

}  // namespace fw
