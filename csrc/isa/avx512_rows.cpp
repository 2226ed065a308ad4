// Norm, rope and activations for AVX-512.
// GCC 12 takes the undefined operands in its own header for mistakes.
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <immintrin.h>

#include <cmath>

#include "kernels/activation.h"
#include "kernels/math.h"
#include "kernels/rms_norm.h"
#include "kernels/rope.h"

namespace fw {
namespace {
#include "kernels/simd/avx512.inl.h"
#include "kernels/math.inl.h"
#include "kernels/rows.inl.h"
}  // namespace

namespace avx512 {

void rms_norm(const float* x, const float* w, float eps, int64_t n, float* out) {
  rms_norm_body(x, w, eps, n, out);
}
void add(const float* a, const float* b, int64_t n, float* out) { add_body(a, b, n, out); }
void rope(float* x, const float* cos, const float* sin, int64_t head_dim, int64_t heads,
          bool interleaved) {
  rope_body(x, cos, sin, head_dim, heads, interleaved);
}
void silu_mul(const float* gate, const float* up, int64_t n, float* out) {
  silu_mul_body(gate, up, n, out);
}
void gelu_mul(const float* gate, const float* up, int64_t n, float* out) {
  gelu_mul_body(gate, up, n, out);
}
void softcap(float* x, int64_t n, float cap) { softcap_body(x, n, cap); }

}  // namespace avx512
}  // namespace fw
