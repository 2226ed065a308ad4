// Pages of the KV cache, and storing keys and values in them.
//
// A page holds 32 positions of all layers of its group:
//   page [page_bytes] > layer, at layer_offset > kv head > K [head_dim][32], V [32][head_dim]
// All are f16. Keys lie transposed: a vector holds one value of neighbouring positions.
#pragma once

#include <cstdint>

namespace fw {

constexpr int64_t kPagePositions = 32;

// One layer's part of all pages.
struct KVPages {
  uint8_t* data;         // page 0; best aligned to 64
  int64_t page_bytes;    // from a page to the next
  int64_t layer_offset;  // bytes: index in group x kv_layer_bytes(kv_heads, head_dim)
};

constexpr int64_t kv_layer_bytes(int64_t kv_heads, int64_t head_dim) {
  return kv_heads * 2 * kPagePositions * head_dim * 2;
}

// k, v: [T, kv_heads, head_dim], rows k_stride and v_stride floats apart. slots: [T] page * 32 +
// offset, -1 for nowhere. head_dim % 16 == 0.
struct StoreKVArgs {
  const float *k, *v;
  int64_t k_stride, v_stride;
  const int32_t* slots;
  KVPages pages;
  int64_t kv_heads, head_dim;
};

// Stores rows [first_row, last_row). Values are clamped to +-65504 and rounded half to even: one
// infinite key would turn a whole softmax into NaN. NaN stays NaN.
using StoreKV = void(const StoreKVArgs& args, int64_t first_row, int64_t last_row);

namespace generic {
StoreKV store_kv;
}
namespace avx2 {
StoreKV store_kv;
}
namespace avx512 {
StoreKV store_kv;
}

}  // namespace fw
