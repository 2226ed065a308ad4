// Quantization of activations on AVX2: eight values at a time; the reductions are exact (a maximum,
// integer sums), so their order is free. Included inside an anonymous namespace.

// Scale of a run, from the bits of |x|: as integers, NaN and infinity compare above all numbers.
inline float run_scale(const float* x, int64_t run) {
  const __m256i magnitude = _mm256_set1_epi32(0x7fffffff);
  __m256i top = _mm256_setzero_si256();
  for (int64_t i = 0; i < run; i += 8) {
    const __m256i bits = _mm256_castps_si256(_mm256_loadu_ps(x + i));
    top = _mm256_max_epi32(top, _mm256_and_si256(bits, magnitude));
  }
  __m128i four = _mm_max_epi32(_mm256_castsi256_si128(top), _mm256_extracti128_si256(top, 1));
  four = _mm_max_epi32(four, _mm_shuffle_epi32(four, 0x4e));
  four = _mm_max_epi32(four, _mm_shuffle_epi32(four, 0xb1));
  const int32_t largest = _mm_cvtsi128_si32(four);
  if (largest >= 0x7f800000) return __builtin_nanf("");
  return _mm_cvtss_f32(_mm_castsi128_ps(four)) / 127.0f;
}

inline __m256i round_codes(const float* x, __m256 d) {
  const __m256 limit = _mm256_set1_ps(127.0f);
  const __m256 ratio = _mm256_div_ps(_mm256_loadu_ps(x), d);
  const __m256 clamped = _mm256_max_ps(_mm256_min_ps(ratio, limit), _mm256_set1_ps(-127.0f));
  return _mm256_cvtps_epi32(clamped);  // half to even: the rounding mode of every thread
}

// Codes of 32 values.
inline __m256i quantize_32(const float* x, float d) {
  if (!(d > 0.0f)) return _mm256_setzero_si256();  // 0 or NaN
  const __m256 scale = _mm256_set1_ps(d);
  const __m256i low = _mm256_packs_epi32(round_codes(x, scale), round_codes(x + 8, scale));
  const __m256i high = _mm256_packs_epi32(round_codes(x + 16, scale), round_codes(x + 24, scale));
  // Packing works within 128-bit lanes: put the groups of four back in order.
  const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
  return _mm256_permutevar8x32_epi32(_mm256_packs_epi16(low, high), order);
}

// Sums of the first and of the last 16 codes, in 32-bit lanes 0 and 4.
inline __m256i sums_of_16(__m256i codes) {
  const __m256i pairs = _mm256_maddubs_epi16(_mm256_set1_epi8(1), codes);
  const __m256i fours = _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
  const __m256i eights = _mm256_add_epi32(fours, _mm256_shuffle_epi32(fours, 0xb1));
  return _mm256_add_epi32(eights, _mm256_shuffle_epi32(eights, 0x4e));
}

inline void quantize_row_a32(const float* x, int64_t k, int8_t* q, float* d, int32_t* sum) {
  for (int64_t run = 0; run < k / 32; ++run) {
    d[run] = run_scale(x + 32 * run, 32);
    const __m256i codes = quantize_32(x + 32 * run, d[run]);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(q + 32 * run), codes);
    const __m256i sums = sums_of_16(codes);
    sum[run] = _mm256_extract_epi32(sums, 0) + _mm256_extract_epi32(sums, 4);
  }
}

inline void quantize_row_a256(const float* x, int64_t k, int8_t* q, float* d, int16_t* sum16) {
  for (int64_t run = 0; run < k / 256; ++run) d[run] = run_scale(x + 256 * run, 256);
  for (int64_t i = 0; i < k / 32; ++i) {
    const __m256i codes = quantize_32(x + 32 * i, d[i / 8]);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(q + 32 * i), codes);
    const __m256i sums = sums_of_16(codes);
    sum16[2 * i] = static_cast<int16_t>(_mm256_extract_epi32(sums, 0));
    sum16[2 * i + 1] = static_cast<int16_t>(_mm256_extract_epi32(sums, 4));
  }
}
