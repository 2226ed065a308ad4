// Rotation and 8-bit codes of heads, for keys, values and queries (firstword/ops/int8_kv.py). A head
// is short: its codes are made eight values at a time by quantize.inl.h on every x86 set.

inline Vec clamp_to_half(Vec x) {  // NaN stays
  return min(splat(65504.0F), max(splat(-65504.0F), x));
}

// y[i] = x[2 i] + x[2 i + 1], y[n / 2 + i] = x[2 i] - x[2 i + 1] for i < n / 2.
inline void rotate_once(const float* x, int64_t n, float* y) {
  if (n < 2 * kWidth) {
    for (int64_t i = 0; i < n / 2; ++i) {
      y[i] = x[2 * i] + x[2 * i + 1];
      y[n / 2 + i] = x[2 * i] - x[2 * i + 1];
    }
    return;
  }
  for (int64_t i = 0; i < n / 2; i += kWidth) {
    Vec first, second;
    load_pairs(x + 2 * i, first, second);
    store(y + i, add(first, second));
    store(y + n / 2 + i, sub(first, second));
  }
}

// x, out: [head_dim], not the same.
inline void rotate(const float* x, int64_t head_dim, float* out) {
  alignas(64) float other[kMaxQ8HeadDim];
  const int64_t n = rotation_size(head_dim);
  for (int64_t start = 0; start < head_dim; start += n) {
    const float* from = x + start;
    for (int left = __builtin_ctzll(static_cast<uint64_t>(n)); left > 0; --left) {
      float* to = left % 2 ? out + start : other;
      rotate_once(from, n, to);
      from = to;
    }
  }
}

// Codes of x [n], n % 16 == 0; a scale of 0 or NaN gives codes 0.
inline void encode(const float* x, int64_t n, float scale, int8_t* codes) {
  const __m256 divisor = _mm256_set1_ps(scale);
  for (int64_t i = 0; i < n; i += 16) {
    __m128i bytes = _mm_setzero_si128();
    if (scale > 0) {
      const __m256i words =
          _mm256_packs_epi32(round_codes(x + i, divisor), round_codes(x + i + 8, divisor));
      // Packing works within 128-bit lanes: put the groups of four back in order.
      const __m256i ordered = _mm256_permute4x64_epi64(words, 0xD8);
      bytes = _mm_packs_epi16(_mm256_castsi256_si128(ordered),
                              _mm256_extracti128_si256(ordered, 1));
    }
    _mm_storeu_si128(reinterpret_cast<__m128i*>(codes + i), bytes);
  }
}

// Codes of a key or value [n], and its scale as f16.
inline uint16_t encode_head(const float* x, int64_t n, int8_t* codes) {
  const float scale = first_of(clamp_to_half(splat(run_scale(x, n))));
  const auto half = static_cast<uint16_t>(
      _cvtss_sh(scale, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  encode(x, n, _cvtsh_ss(half), codes);
  return half;
}
