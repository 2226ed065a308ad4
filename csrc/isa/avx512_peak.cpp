// Peak rate of int8 multiply-adds for AVX-512 with VNNI.
// The intrinsics of GCC 12 warn about themselves (GCC bug 105593).
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <immintrin.h>
#pragma GCC diagnostic pop

#include "kernels/dot/macros.h"
#include "kernels/peak.h"

namespace fw {
namespace {

constexpr int kChains = 16;  // independent sums, enough to hide the latency of one
constexpr int kMacs = 64;    // of one vector

inline void touch(__m512i& value) { asm volatile("" : "+v"(value)); }

}  // namespace

namespace avx512 {

int64_t peak_vnni(int64_t rounds) {
  __m512i sum[kChains], codes = _mm512_set1_epi8(9), values = _mm512_set1_epi8(-7);
  FW_UNROLL for (__m512i& chain : sum) chain = _mm512_setzero_si512();
  for (int64_t round = 0; round < rounds; ++round) {
    FW_UNROLL for (__m512i& chain : sum) {
      touch(codes);
      chain = _mm512_dpbusd_epi32(chain, codes, values);
    }
  }
  FW_UNROLL for (__m512i& chain : sum) touch(chain);
  return rounds * kChains * kMacs;
}

}  // namespace avx512
}  // namespace fw
