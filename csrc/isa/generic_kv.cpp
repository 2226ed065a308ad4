// KV pages one value at a time: what every vector body is compared with, bit for bit.
#include "isa/generic_kv.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "isa/generic_math.h"

namespace fw {
namespace generic {

uint16_t half_of(float x) {
  if (x > 65504.0F) x = 65504.0F;
  if (x < -65504.0F) x = -65504.0F;
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  const uint32_t sign = bits >> 16 & 0x8000;
  const uint32_t magnitude = bits & 0x7FFFFFFF;
  if (magnitude > 0x7F800000) {
    return static_cast<uint16_t>(sign | 0x7E00 | (magnitude >> 13 & 0x3FF));
  }
  // Below 2^-14 the spacing is 2^-24; adding 0.5, whose own spacing is 2^-24, rounds to that.
  if (magnitude < 0x38800000) {
    float value;
    std::memcpy(&value, &magnitude, sizeof value);
    const float shifted = value + 0.5F;
    std::memcpy(&bits, &shifted, sizeof bits);
    return static_cast<uint16_t>(sign | (bits - 0x3F000000));
  }
  const uint32_t odd = magnitude >> 13 & 1;
  return static_cast<uint16_t>(sign | ((magnitude + 0xFFF + odd - 0x38000000) >> 13));
}

float float_of(uint16_t half) {
  const float sign = half & 0x8000 ? -1.0F : 1.0F;
  const int exponent = half >> 10 & 31, mantissa = half & 0x3FF;
  if (exponent == 31) return mantissa ? std::nanf("") : sign * std::numeric_limits<float>::infinity();
  if (exponent == 0) return sign * static_cast<float>(mantissa) * 0x1p-24F;
  const uint32_t bits = static_cast<uint32_t>((exponent + 112) << 23 | mantissa << 13);
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return sign * value;
}

uint8_t* HeadPage::at(int64_t block, int64_t byte) const {
  const int64_t block_bytes = kv_block_bytes(pages.type, head_dim);
  return pages.data + page * pages.page_bytes + pages.layer_offset +
         (2 * kv_head + block) * block_bytes + byte;
}
uint16_t& HeadPage::key_half(int64_t t, int64_t d) const {
  return *reinterpret_cast<uint16_t*>(at(0, 2 * (d * kPagePositions + t)));
}
uint16_t& HeadPage::value_half(int64_t t, int64_t d) const {
  return *reinterpret_cast<uint16_t*>(at(1, 2 * (t * head_dim + d)));
}
int8_t& HeadPage::key_code(int64_t t, int64_t d) const {
  return *reinterpret_cast<int8_t*>(at(0, (d / 4 * kPagePositions + t) * 4 + d % 4));
}
int8_t& HeadPage::value_code(int64_t t, int64_t d) const {
  return *reinterpret_cast<int8_t*>(at(1, t * head_dim + d));
}
uint16_t& HeadPage::key_scale_half(int64_t t) const {
  return *reinterpret_cast<uint16_t*>(at(0, kPagePositions * head_dim + 2 * t));
}
uint16_t& HeadPage::value_scale_half(int64_t t) const {
  return *reinterpret_cast<uint16_t*>(at(1, kPagePositions * head_dim + 2 * t));
}
float HeadPage::key_scale(int64_t t) const { return float_of(key_scale_half(t)); }
float HeadPage::value_scale(int64_t t) const {
  return pages.type == KVType::kQ8 ? float_of(value_scale_half(t)) : 1.0F;
}
float HeadPage::value(int64_t t, int64_t d) const {
  return pages.type == KVType::kQ8 ? static_cast<float>(value_code(t, d))
                                   : float_of(value_half(t, d));
}

void rotate(float* x, int64_t head_dim) {
  const int64_t n = rotation_size(head_dim);
  float rotated[kMaxQ8HeadDim];
  for (float* run = x; run < x + head_dim; run += n) {
    for (int64_t factor = 1; factor < n; factor *= 2) {
      for (int64_t i = 0; i < n / 2; ++i) {
        rotated[i] = run[2 * i] + run[2 * i + 1];
        rotated[n / 2 + i] = run[2 * i] - run[2 * i + 1];
      }
      for (int64_t i = 0; i < n; ++i) run[i] = rotated[i];
    }
  }
}

float code_scale(const float* x, int64_t n) {
  float largest = 0;
  for (int64_t i = 0; i < n; ++i) {
    if (!std::isfinite(x[i])) return std::nanf("");
    if (std::fabs(x[i]) > largest) largest = std::fabs(x[i]);
  }
  return largest / 127.0F;
}

void encode_values(const float* x, int64_t n, float scale, int8_t* codes) {
  for (int64_t i = 0; i < n; ++i) {
    float code = scale > 0 ? std::nearbyint(x[i] / scale) : 0.0F;
    if (code > 127) code = 127;
    if (code < -127) code = -127;
    codes[i] = static_cast<int8_t>(code);
  }
}

namespace {

// The codes of x [n] and their scale as f16.
uint16_t encode_head(const float* x, int64_t n, int8_t* codes) {
  const uint16_t scale = half_of(code_scale(x, n));
  encode_values(x, n, float_of(scale), codes);
  return scale;
}

// Values as f16 bounds them; NaN stays.
void clamp(const float* x, int64_t n, float* out) {
  for (int64_t i = 0; i < n; ++i) {
    out[i] = x[i] > 65504.0F ? 65504.0F : x[i] < -65504.0F ? -65504.0F : x[i];
  }
}

void store_q8(const float* k, const float* v, const HeadPage& page, int64_t t) {
  float x[kMaxQ8HeadDim];
  int8_t codes[kMaxQ8HeadDim];
  clamp(k, page.head_dim, x);
  rotate(x, page.head_dim);
  page.key_scale_half(t) = encode_head(x, page.head_dim, codes);
  for (int64_t d = 0; d < page.head_dim; ++d) page.key_code(t, d) = codes[d];
  clamp(v, page.head_dim, x);
  page.value_scale_half(t) = encode_head(x, page.head_dim, codes);
  for (int64_t d = 0; d < page.head_dim; ++d) page.value_code(t, d) = codes[d];
}

}  // namespace

void store_kv(const StoreKVArgs& args, int64_t first_row, int64_t last_row) {
  for (int64_t row = first_row; row < last_row; ++row) {
    const int32_t slot = args.slots[row];
    if (slot < 0) continue;
    const int64_t t = slot % kPagePositions;
    for (int64_t head = 0; head < args.kv_heads; ++head) {
      const float* k = args.k + row * args.k_stride + head * args.head_dim;
      const float* v = args.v + row * args.v_stride + head * args.head_dim;
      const HeadPage page{args.pages, slot / kPagePositions, head, args.head_dim};
      if (args.pages.type == KVType::kQ8) {
        store_q8(k, v, page, t);
        continue;
      }
      for (int64_t d = 0; d < args.head_dim; ++d) {
        page.key_half(t, d) = half_of(k[d]);
        page.value_half(t, d) = half_of(v[d]);
      }
    }
  }
}

}  // namespace generic
}  // namespace fw
