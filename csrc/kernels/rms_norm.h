// Root-mean-square norm of one run of values, and the sum of two.
//
// Squares are added in 16 lanes (lane = index % 16, increasing index, fused), then lanes by halves:
// l[i] += l[i + w] for w = 8, 4, 2, 1. With inv = 1 / sqrtf(l[0] / n + eps), an output is
// (x * inv) * w, each operation rounded on its own.
#pragma once

#include <cstdint>

namespace fw {

// x, w, out: [n]; out may be x.
using RmsNorm = void(const float* x, const float* w, float eps, int64_t n, float* out);
// out = a + b, [n]; out may be a or b.
using Add = void(const float* a, const float* b, int64_t n, float* out);

namespace generic {
RmsNorm rms_norm;
Add add;
}  // namespace generic
namespace avx2 {
RmsNorm rms_norm;
Add add;
}  // namespace avx2
namespace avx512 {
RmsNorm rms_norm;
Add add;
}  // namespace avx512

}  // namespace fw
