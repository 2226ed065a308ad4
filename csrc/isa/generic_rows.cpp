// Norm, rope and activations as their headers word them, one value at a time: what every vector
// body is compared with, bit for bit.
#include <cmath>
#include <cstring>

#include "isa/generic_math.h"
#include "kernels/activation.h"
#include "kernels/rms_norm.h"
#include "kernels/rope.h"

namespace fw {
namespace generic {

float exp_nonpositive(float z) {
  if (std::isnan(z)) return z;
  const float r0 = z < kExpLowest ? kExpLowest : z;
  // Adding and taking away 1.5 x 2^23 leaves no fraction: rounds half to even.
  const float n = (r0 * kLog2E + 12582912.0F) - 12582912.0F;
  const float r = (r0 - n * kLn2High) - n * kLn2Low;
  float p = r * kExpCoefficients[0];
  for (int i = 1; i < 7; ++i) p = (p + kExpCoefficients[i]) * r;
  p = p + kExpCoefficients[7];
  const uint32_t bits = static_cast<uint32_t>(static_cast<int32_t>(n) + 127) << 23;
  float power;
  std::memcpy(&power, &bits, sizeof power);
  return z < kExpLowest ? 0.0F : p * power;
}

float tanh_of(float y) {
  const float t = exp_nonpositive(-2.0F * std::fabs(y));
  return std::copysign((1.0F - t) / (1.0F + t), y);
}

float sum16(float* lanes) {
  for (int width = 8; width > 0; width /= 2) {
    for (int i = 0; i < width; ++i) lanes[i] += lanes[i + width];
  }
  return lanes[0];
}

void rms_norm(const float* x, const float* w, float eps, int64_t n, float* out) {
  float lanes[16] = {};
  for (int64_t i = 0; i < n; ++i) lanes[i % 16] = std::fmaf(x[i], x[i], lanes[i % 16]);
  const float inv = 1.0F / std::sqrt(sum16(lanes) / static_cast<float>(n) + eps);
  for (int64_t i = 0; i < n; ++i) out[i] = (x[i] * inv) * w[i];
}

void add(const float* a, const float* b, int64_t n, float* out) {
  for (int64_t i = 0; i < n; ++i) out[i] = a[i] + b[i];
}

void rope(float* x, const float* cos, const float* sin, int64_t head_dim, int64_t heads,
          bool interleaved) {
  const int64_t half = head_dim / 2;
  for (int64_t h = 0; h < heads; ++h) {
    for (int64_t i = 0; i < half; ++i) {
      float& first = x[h * head_dim + (interleaved ? 2 * i : i)];
      float& second = x[h * head_dim + (interleaved ? 2 * i + 1 : i + half)];
      const float a = first, b = second;
      first = a * cos[i] - b * sin[i];
      second = b * cos[i] + a * sin[i];
    }
  }
}

void silu_mul(const float* gate, const float* up, int64_t n, float* out) {
  for (int64_t i = 0; i < n; ++i) {
    const float x = gate[i];
    const float e = exp_nonpositive(-std::fabs(x));
    out[i] = (x >= 0 ? x : x * e) / (1.0F + e) * up[i];
  }
}

void gelu_mul(const float* gate, const float* up, int64_t n, float* out) {
  for (int64_t i = 0; i < n; ++i) {
    const float x = gate[i];
    const float inner = kGeluScale * (x + kGeluCubic * ((x * x) * x));
    out[i] = (0.5F * x) * (1.0F + tanh_of(inner)) * up[i];
  }
}

void softcap(float* x, int64_t n, float cap) {
  for (int64_t i = 0; i < n; ++i) x[i] = cap * tanh_of(x[i] / cap);
}

}  // namespace generic
}  // namespace fw
