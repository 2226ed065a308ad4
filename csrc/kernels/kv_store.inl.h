// Bodies of the KV pages on vectors.

// K, then V, of one kv head in one page.
inline uint16_t* head_page(const KVPages& pages, int64_t page, int64_t kv_head, int64_t head_dim) {
  return reinterpret_cast<uint16_t*>(pages.data + page * pages.page_bytes + pages.layer_offset +
                                     kv_head * kv_layer_bytes(1, head_dim));
}

inline Vec clamp_to_half(Vec x) {  // NaN stays
  return min(splat(65504.0F), max(splat(-65504.0F), x));
}

// One position of one head. k, v: [head_dim].
inline void store_head(const float* k, const float* v, int64_t head_dim, uint16_t* page,
                       int64_t offset) {
  alignas(64) uint16_t halves[kWidth];
  uint16_t* values = page + kPagePositions * head_dim + offset * head_dim;
  for (int64_t i = 0; i < head_dim; i += kWidth) {
    store(halves, clamp_to_half(load(k + i)));
    for (int64_t j = 0; j < kWidth; ++j) page[(i + j) * kPagePositions + offset] = halves[j];
    store(values + i, clamp_to_half(load(v + i)));
  }
}

inline void store_kv_body(const StoreKVArgs& args, int64_t first_row, int64_t last_row) {
  const int64_t d = args.head_dim;
  for (int64_t row = first_row; row < last_row; ++row) {
    const int32_t slot = args.slots[row];
    if (slot < 0) continue;
    const float* k = args.k + row * args.k_stride;
    const float* v = args.v + row * args.v_stride;
    for (int64_t h = 0; h < args.kv_heads; ++h) {
      store_head(k + h * d, v + h * d, d, head_page(args.pages, slot / kPagePositions, h, d),
                 slot % kPagePositions);
    }
  }
}
