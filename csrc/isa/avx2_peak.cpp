// Peak rates of int8 multiply-adds for AVX2.
#include <immintrin.h>

#include "kernels/dot/macros.h"
#include "kernels/peak.h"

namespace fw {
namespace {

constexpr int kChains = 8;  // independent sums, enough to hide the latency of one
constexpr int kMacs = 32;   // of one vector

// Tells the compiler that a register has changed, so that no product is computed only once.
inline void touch(__m256i& value) { asm volatile("" : "+x"(value)); }

}  // namespace

namespace avx2 {

int64_t peak_narrow(int64_t rounds) {
  __m256i sum[kChains], codes = _mm256_set1_epi8(9), values = _mm256_set1_epi8(-7);
  FW_UNROLL for (__m256i& chain : sum) chain = _mm256_setzero_si256();
  for (int64_t round = 0; round < rounds; ++round) {
    FW_UNROLL for (__m256i& chain : sum) {
      touch(codes);
      chain = _mm256_add_epi16(chain, _mm256_maddubs_epi16(codes, values));
    }
  }
  FW_UNROLL for (__m256i& chain : sum) touch(chain);
  return rounds * kChains * kMacs;
}

int64_t peak_wide(int64_t rounds) {
  __m256i sum[kChains], codes = _mm256_set1_epi8(-9), values = _mm256_set1_epi8(7);
  const __m256i ones = _mm256_set1_epi16(1), magnitudes = _mm256_abs_epi8(codes);
  FW_UNROLL for (__m256i& chain : sum) chain = _mm256_setzero_si256();
  for (int64_t round = 0; round < rounds; ++round) {
    FW_UNROLL for (__m256i& chain : sum) {
      touch(values);
      const __m256i pairs = _mm256_maddubs_epi16(magnitudes, _mm256_sign_epi8(values, codes));
      chain = _mm256_add_epi32(chain, _mm256_madd_epi16(pairs, ones));
    }
  }
  FW_UNROLL for (__m256i& chain : sum) touch(chain);
  return rounds * kChains * kMacs;
}

}  // namespace avx2
}  // namespace fw
