// KV pages and their codes, one value at a time, for the generic units.
#pragma once

#include <cstdint>

#include "kernels/kv_store.h"

namespace fw {
namespace generic {

// One kv head in one page; t: position in the page, d: value.
struct HeadPage {
  const KVPages& pages;
  int64_t page, kv_head, head_dim;

  uint16_t& key_half(int64_t t, int64_t d) const;
  uint16_t& value_half(int64_t t, int64_t d) const;
  int8_t& key_code(int64_t t, int64_t d) const;
  int8_t& value_code(int64_t t, int64_t d) const;
  uint16_t& key_scale_half(int64_t t) const;
  uint16_t& value_scale_half(int64_t t) const;

  float key_scale(int64_t t) const;
  float value_scale(int64_t t) const;  // 1 in f16
  float value(int64_t t, int64_t d) const;  // without its scale

 private:
  uint8_t* at(int64_t block, int64_t byte) const;
};

// In place; x: [head_dim].
void rotate(float* x, int64_t head_dim);
// max |x| / 127, or NaN where x [n] holds an infinity or NaN.
float code_scale(const float* x, int64_t n);
// Codes of x [n]: 0 where the scale is 0 or NaN.
void encode_values(const float* x, int64_t n, float scale, int8_t* codes);

}  // namespace generic
}  // namespace fw
