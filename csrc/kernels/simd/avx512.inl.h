// The vectors that kernel bodies are written on, for AVX-512 (F, BW, DQ, VL, VNNI). Included inside the
// anonymous namespace of an ISA unit, after <immintrin.h>.

constexpr int64_t kWidth = 16;
using Vec = __m512;
using Mask = __mmask16;
using IntVec = __m512i;

inline Vec load(const float* p) { return _mm512_loadu_ps(p); }
inline Vec load(const uint16_t* p) {  // f16, widened
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
inline Vec load(const int8_t* p) {  // codes, widened
  const __m128i codes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(codes));
}
inline void store(float* p, Vec x) { _mm512_storeu_ps(p, x); }
inline void store(uint16_t* p, Vec x) {  // f16, rounded half to even
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p),
                      _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
// To the second-level cache, as for AVX2.
inline void prefetch(const void* p) {
  _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T1);
}
inline Vec splat(float x) { return _mm512_set1_ps(x); }
inline float first_of(Vec x) { return _mm512_cvtss_f32(x); }
inline Vec zero() { return _mm512_setzero_ps(); }
inline Vec add(Vec a, Vec b) { return _mm512_add_ps(a, b); }
inline Vec sub(Vec a, Vec b) { return _mm512_sub_ps(a, b); }
inline Vec mul(Vec a, Vec b) { return _mm512_mul_ps(a, b); }
inline Vec div(Vec a, Vec b) { return _mm512_div_ps(a, b); }
inline Vec fma(Vec a, Vec b, Vec c) { return _mm512_fmadd_ps(a, b, c); }
// The larger; b where either is NaN. min alike.
inline Vec max(Vec a, Vec b) { return _mm512_max_ps(a, b); }
inline Vec min(Vec a, Vec b) { return _mm512_min_ps(a, b); }
inline Vec abs(Vec x) { return _mm512_andnot_ps(splat(-0.0F), x); }
inline Vec copy_sign(Vec magnitude, Vec sign) {  // of a magnitude >= 0
  return _mm512_or_ps(magnitude, _mm512_and_ps(sign, splat(-0.0F)));
}
inline Vec round_to_even(Vec x) {
  return _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
inline Vec power_of_two(Vec n) {  // 2^n of whole n in -126 .. 127
  const __m512i biased = _mm512_add_epi32(_mm512_cvtps_epi32(n), _mm512_set1_epi32(127));
  return _mm512_castsi512_ps(_mm512_slli_epi32(biased, 23));
}

inline Mask less(Vec a, Vec b) { return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ); }
inline Mask at_least(Vec a, Vec b) { return _mm512_cmp_ps_mask(a, b, _CMP_GE_OQ); }
inline Vec select(Mask mask, Vec yes, Vec no) { return _mm512_mask_blend_ps(mask, no, yes); }
inline Mask both(Mask a, Mask b) { return _kand_mask16(a, b); }
inline Vec clear_where(Mask mask, Vec x) { return _mm512_maskz_mov_ps(_knot_mask16(mask), x); }
inline int bits_of(Mask mask) { return static_cast<int>(_cvtmask16_u32(mask)); }

// Lanes i with begin <= start + i < end.
inline Mask between(int64_t start, int64_t begin, int64_t end) {
  const __m512i lane =
      _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  const __m512i low = _mm512_set1_epi32(static_cast<int>(begin - start));
  const __m512i high = _mm512_set1_epi32(static_cast<int>(end - start));
  return both(_mm512_cmpge_epi32_mask(lane, low), _mm512_cmplt_epi32_mask(lane, high));
}

// Neighbouring pairs of 32 values apart, and together again.
inline void load_pairs(const float* p, Vec& first, Vec& second) {
  const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
  const __m512i odd = _mm512_add_epi32(even, _mm512_set1_epi32(1));
  const Vec a = load(p), b = load(p + 16);
  first = _mm512_permutex2var_ps(a, even, b);
  second = _mm512_permutex2var_ps(a, odd, b);
}
inline void store_pairs(float* p, Vec first, Vec second) {
  const __m512i low = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
  const __m512i high = _mm512_add_epi32(low, _mm512_set1_epi32(8));
  store(p, _mm512_permutex2var_ps(first, low, second));
  store(p + 16, _mm512_permutex2var_ps(first, high, second));
}

inline __m256 low_half(Vec x) { return _mm512_castps512_ps256(x); }
inline __m256 high_half(Vec x) { return _mm512_extractf32x8_ps(x, 1); }

// 16 lanes added by halves: l[i] += l[i + w] for w = 8, 4, 2, 1.
inline float sum16(const Vec* lanes) {
  const __m256 eight = _mm256_add_ps(low_half(lanes[0]), high_half(lanes[0]));
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}
inline float largest(Vec x) {
  const __m256 eight = _mm256_max_ps(low_half(x), high_half(x));
  const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}

constexpr int64_t kDoubleWidth = 8;
using DoubleVec = __m512d;

inline DoubleVec load_doubles(const float* p) { return _mm512_cvtps_pd(_mm256_loadu_ps(p)); }
inline DoubleVec load(const double* p) { return _mm512_loadu_pd(p); }
inline void store(double* p, DoubleVec x) { _mm512_storeu_pd(p, x); }
inline DoubleVec add(DoubleVec a, DoubleVec b) { return _mm512_add_pd(a, b); }

inline IntVec splat(int32_t x) { return _mm512_set1_epi32(x); }
inline Vec to_floats(IntVec x) { return _mm512_cvtepi32_ps(x); }

// kWidth groups of four codes, for dot products with other codes. One side of vpdpbusd is unsigned:
// 128 is added to each, and 128 times the sum of the other side left out from the start.
struct Codes {
  IntVec above_minus_128;
};

inline Codes load_codes(const int8_t* p) {
  return {_mm512_xor_si512(_mm512_loadu_si512(p), _mm512_set1_epi8(-128))};
}
// What a lane of sums starts from, for dot products with q [n].
inline int32_t start_of_dots(const int8_t* q, int64_t n) {
  int32_t sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += q[i];
  return -128 * sum;
}
// Adds to each lane the dot product of its group and the four codes at `q`.
inline IntVec add_dots(const Codes& codes, const int8_t* q, IntVec sum) {
  int32_t four;
  __builtin_memcpy(&four, q, sizeof four);
  return _mm512_dpbusd_epi32(sum, codes.above_minus_128, _mm512_set1_epi32(four));
}
