// The vectors that kernel bodies are written on, for AVX2 with FMA and F16C. Included inside the
// anonymous namespace of an ISA unit, after <immintrin.h>.

constexpr int64_t kWidth = 8;
using Vec = __m256;
using Mask = __m256;  // lanes of all ones or all zeros
using IntVec = __m256i;

inline Vec load(const float* p) { return _mm256_loadu_ps(p); }
inline Vec load(const uint16_t* p) {  // f16, widened
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
inline Vec load(const int8_t* p) {  // codes, widened
  const __m128i codes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
  return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(codes));
}
inline void store(float* p, Vec x) { _mm256_storeu_ps(p, x); }
inline void store(uint16_t* p, Vec x) {  // f16, rounded half to even
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p),
                   _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
// To the second-level cache: twice as fast as to the first where pages come from memory.
inline void prefetch(const void* p) {
  _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T1);
}
inline Vec splat(float x) { return _mm256_set1_ps(x); }
inline float first_of(Vec x) { return _mm256_cvtss_f32(x); }
inline Vec zero() { return _mm256_setzero_ps(); }
inline Vec add(Vec a, Vec b) { return _mm256_add_ps(a, b); }
inline Vec sub(Vec a, Vec b) { return _mm256_sub_ps(a, b); }
inline Vec mul(Vec a, Vec b) { return _mm256_mul_ps(a, b); }
inline Vec div(Vec a, Vec b) { return _mm256_div_ps(a, b); }
inline Vec fma(Vec a, Vec b, Vec c) { return _mm256_fmadd_ps(a, b, c); }
// The larger; b where either is NaN. min alike.
inline Vec max(Vec a, Vec b) { return _mm256_max_ps(a, b); }
inline Vec min(Vec a, Vec b) { return _mm256_min_ps(a, b); }
inline Vec abs(Vec x) { return _mm256_andnot_ps(splat(-0.0F), x); }
inline Vec copy_sign(Vec magnitude, Vec sign) {  // of a magnitude >= 0
  return _mm256_or_ps(magnitude, _mm256_and_ps(sign, splat(-0.0F)));
}
inline Vec round_to_even(Vec x) {
  return _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
inline Vec power_of_two(Vec n) {  // 2^n of whole n in -126 .. 127
  const IntVec biased = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
  return _mm256_castsi256_ps(_mm256_slli_epi32(biased, 23));
}

inline Mask less(Vec a, Vec b) { return _mm256_cmp_ps(a, b, _CMP_LT_OQ); }
inline Mask at_least(Vec a, Vec b) { return _mm256_cmp_ps(a, b, _CMP_GE_OQ); }
inline Vec select(Mask mask, Vec yes, Vec no) { return _mm256_blendv_ps(no, yes, mask); }
inline Mask both(Mask a, Mask b) { return _mm256_and_ps(a, b); }
inline Vec clear_where(Mask mask, Vec x) { return _mm256_andnot_ps(mask, x); }
inline int bits_of(Mask mask) { return _mm256_movemask_ps(mask); }

// Lanes i with begin <= start + i < end.
inline Mask between(int64_t start, int64_t begin, int64_t end) {
  const IntVec lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  const IntVec low = _mm256_set1_epi32(static_cast<int>(begin - start) - 1);
  const IntVec high = _mm256_set1_epi32(static_cast<int>(end - start));
  return _mm256_castsi256_ps(
      _mm256_and_si256(_mm256_cmpgt_epi32(lane, low), _mm256_cmpgt_epi32(high, lane)));
}

// Neighbouring pairs of 16 values apart, and together again.
inline void load_pairs(const float* p, Vec& first, Vec& second) {
  const Vec a = load(p), b = load(p + 8);
  const Vec low = _mm256_permute2f128_ps(a, b, 0x20), high = _mm256_permute2f128_ps(a, b, 0x31);
  first = _mm256_shuffle_ps(low, high, 0x88);
  second = _mm256_shuffle_ps(low, high, 0xDD);
}
inline void store_pairs(float* p, Vec first, Vec second) {
  const Vec low = _mm256_unpacklo_ps(first, second), high = _mm256_unpackhi_ps(first, second);
  store(p, _mm256_permute2f128_ps(low, high, 0x20));
  store(p + 8, _mm256_permute2f128_ps(low, high, 0x31));
}

// 16 lanes in two vectors, added by halves: l[i] += l[i + w] for w = 8, 4, 2, 1.
inline float sum16(const Vec* lanes) {
  const Vec eight = add(lanes[0], lanes[1]);
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}
inline float largest(Vec x) {
  const __m128 four = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
  const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}

constexpr int64_t kDoubleWidth = 4;
using DoubleVec = __m256d;

inline DoubleVec load_doubles(const float* p) { return _mm256_cvtps_pd(_mm_loadu_ps(p)); }
inline DoubleVec load(const double* p) { return _mm256_loadu_pd(p); }
inline void store(double* p, DoubleVec x) { _mm256_storeu_pd(p, x); }
inline DoubleVec add(DoubleVec a, DoubleVec b) { return _mm256_add_pd(a, b); }

inline IntVec splat(int32_t x) { return _mm256_set1_epi32(x); }
inline Vec to_floats(IntVec x) { return _mm256_cvtepi32_ps(x); }

// kWidth groups of four codes, for dot products with other codes. None is -128, so the signs of one
// side can be moved to the other, and two products fit 16 bits.
struct Codes {
  IntVec values, magnitudes;
};

inline Codes load_codes(const int8_t* p) {
  const IntVec values = _mm256_loadu_si256(reinterpret_cast<const IntVec*>(p));
  return {values, _mm256_abs_epi8(values)};
}
// What a lane of sums starts from, for dot products with q [n].
inline int32_t start_of_dots(const int8_t*, int64_t) { return 0; }
// Adds to each lane the dot product of its group and the four codes at `q`.
inline IntVec add_dots(const Codes& codes, const int8_t* q, IntVec sum) {
  int32_t four;
  __builtin_memcpy(&four, q, sizeof four);
  const IntVec signed_q = _mm256_sign_epi8(_mm256_set1_epi32(four), codes.values);
  const IntVec pairs = _mm256_maddubs_epi16(codes.magnitudes, signed_q);
  return _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}
