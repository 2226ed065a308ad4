// Activations, element by element; exp and tanh are those of math.h and nothing is fused.
//
//   silu(x) = x / (1 + e) where x >= 0, else (x * e) / (1 + e), with e = exp(-|x|)
//   gelu(x) = (0.5 * x) * (1 + tanh(kGeluScale * (x + kGeluCubic * ((x * x) * x))))
//   softcap(x) = cap * tanh(x / cap)
#pragma once

#include <cstdint>

namespace fw {

constexpr float kGeluScale = 0.7978845608028654F;  // sqrt(2 / pi)
constexpr float kGeluCubic = 0.044715F;

// out = silu(gate) * up or gelu(gate) * up, [n]; out may be gate or up.
using GatedActivation = void(const float* gate, const float* up, int64_t n, float* out);
// x: [n], in place; cap > 0.
using Softcap = void(float* x, int64_t n, float cap);

namespace generic {
GatedActivation silu_mul;
GatedActivation gelu_mul;
Softcap softcap;
}  // namespace generic
namespace avx2 {
GatedActivation silu_mul;
GatedActivation gelu_mul;
Softcap softcap;
}  // namespace avx2
namespace avx512 {
GatedActivation silu_mul;
GatedActivation gelu_mul;
Softcap softcap;
}  // namespace avx512

}  // namespace fw
