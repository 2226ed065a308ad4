// Bodies of the KV pages on vectors.

// The block of keys of one kv head in one page; that of its values follows.
inline uint8_t* head_page(const KVPages& pages, int64_t page, int64_t kv_head, int64_t head_dim) {
  return pages.data + page * pages.page_bytes + pages.layer_offset +
         kv_head * kv_layer_bytes(pages.type, 1, head_dim);
}

// One position of one head. k, v: [head_dim].
inline void store_f16(const float* k, const float* v, int64_t head_dim, uint16_t* page,
                      int64_t offset) {
  alignas(64) uint16_t halves[kWidth];
  uint16_t* values = page + kPagePositions * head_dim + offset * head_dim;
  for (int64_t i = 0; i < head_dim; i += kWidth) {
    store(halves, clamp_to_half(load(k + i)));
    for (int64_t j = 0; j < kWidth; ++j) page[(i + j) * kPagePositions + offset] = halves[j];
    store(values + i, clamp_to_half(load(v + i)));
  }
}

inline void store_q8(const float* k, const float* v, int64_t head_dim, uint8_t* page,
                     int64_t offset) {
  alignas(64) float clamped[kMaxQ8HeadDim], rotated[kMaxQ8HeadDim];
  alignas(64) int8_t codes[kMaxQ8HeadDim];
  const auto scale_at = [=](uint8_t* block) {
    return reinterpret_cast<uint16_t*>(block + kPagePositions * head_dim) + offset;
  };
  for (int64_t i = 0; i < head_dim; i += kWidth) store(clamped + i, clamp_to_half(load(k + i)));
  rotate(clamped, head_dim, rotated);
  *scale_at(page) = encode_head(rotated, head_dim, codes);
  for (int64_t i = 0; i < head_dim / 4; ++i) {
    std::memcpy(page + (i * kPagePositions + offset) * 4, codes + 4 * i, 4);
  }
  for (int64_t i = 0; i < head_dim; i += kWidth) store(clamped + i, clamp_to_half(load(v + i)));
  uint8_t* values = page + kv_block_bytes(KVType::kQ8, head_dim);
  *scale_at(values) = encode_head(clamped, head_dim, codes);
  std::memcpy(values + offset * head_dim, codes, static_cast<size_t>(head_dim));
}

inline void store_kv_body(const StoreKVArgs& args, int64_t first_row, int64_t last_row) {
  const int64_t d = args.head_dim;
  for (int64_t row = first_row; row < last_row; ++row) {
    const int32_t slot = args.slots[row];
    if (slot < 0) continue;
    const int64_t offset = slot % kPagePositions;
    for (int64_t h = 0; h < args.kv_heads; ++h) {
      const float* k = args.k + row * args.k_stride + h * d;
      const float* v = args.v + row * args.v_stride + h * d;
      uint8_t* page = head_page(args.pages, slot / kPagePositions, h, d);
      if (args.pages.type == KVType::kQ8) {
        store_q8(k, v, d, page, offset);
      } else {
        store_f16(k, v, d, reinterpret_cast<uint16_t*>(page), offset);
      }
    }
  }
}
