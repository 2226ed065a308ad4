// Pages of the KV cache, and storing keys and values in them.
//
// A page holds 32 positions of all layers of its group:
//   page [page_bytes] > layer, at layer_offset > kv head > block of keys, block of values
// In f16 the blocks are K [head_dim][32] and V [32][head_dim]: keys lie transposed, so that a vector
// holds one value of neighbouring positions. In q8 they are
//   K [head_dim / 4][32][4] and V [32][head_dim] of 8-bit codes, each followed by f16 scales [32],
// and a dot product of four codes has neighbouring positions beside it. The docstring of
// firstword/ops/int8_kv.py defines codes and scales, and the rotation of keys, bit for bit.
#pragma once

#include <cstdint>

namespace fw {

constexpr int64_t kPagePositions = 32;
constexpr int64_t kMaxQ8HeadDim = 512;  // a head is worked on in buffers of this size

enum class KVType : int32_t { kF16, kQ8 };

// One layer's part of all pages.
struct KVPages {
  uint8_t* data;         // page 0; best aligned to 64
  int64_t page_bytes;    // from a page to the next
  int64_t layer_offset;  // bytes: index in group x kv_layer_bytes(type, kv_heads, head_dim)
  KVType type;
};

// Bytes of the keys, or of the values, of one kv head in one page.
constexpr int64_t kv_block_bytes(KVType type, int64_t head_dim) {
  return kPagePositions * (type == KVType::kQ8 ? head_dim + 2 : 2 * head_dim);
}

constexpr int64_t kv_layer_bytes(KVType type, int64_t kv_heads, int64_t head_dim) {
  return kv_heads * 2 * kv_block_bytes(type, head_dim);
}

// Values of a key that q8 rotates together: the largest power of two that divides head_dim.
constexpr int64_t rotation_size(int64_t head_dim) { return head_dim & -head_dim; }

// k, v: [T, kv_heads, head_dim], rows k_stride and v_stride floats apart. slots: [T] page * 32 +
// offset, -1 for nowhere. head_dim % 16 == 0; in q8 it is at most kMaxQ8HeadDim.
struct StoreKVArgs {
  const float *k, *v;
  int64_t k_stride, v_stride;
  const int32_t* slots;
  KVPages pages;
  int64_t kv_heads, head_dim;
};

// Stores rows [first_row, last_row). Values are clamped to +-65504 and rounded half to even: one
// infinite key would turn a whole softmax into NaN. NaN stays NaN, in q8 that of the whole head.
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
