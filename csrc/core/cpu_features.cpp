#include "core/cpu_features.h"

#include <cstdint>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace fw {

#if defined(__x86_64__)
namespace {

constexpr uint64_t kYmmState = 0x6;   // XCR0 bits 1, 2: xmm and the upper halves of ymm
constexpr uint64_t kZmmState = 0xE6;  // and bits 5 to 7: mask registers and the parts of zmm

bool bit(uint32_t word, int index) { return ((word >> index) & 1u) != 0; }

uint64_t enabled_state() {
  uint32_t low = 0;
  uint32_t high = 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (static_cast<uint64_t>(high) << 32) | low;
}

}  // namespace

CpuFeatures detect_cpu_features() {
  CpuFeatures features;
  uint32_t a = 0;
  uint32_t b = 0;
  uint32_t c = 0;
  uint32_t d = 0;
  if (__get_cpuid(1, &a, &b, &c, &d) == 0) return features;
  const bool osxsave = bit(c, 27);
  const bool fma_f16c = bit(c, 12) && bit(c, 29);
  if (!osxsave || !fma_f16c || __get_cpuid_count(7, 0, &a, &b, &c, &d) == 0) return features;
  const uint64_t state = enabled_state();
  features.avx2 = bit(b, 5) && (state & kYmmState) == kYmmState;
  const bool foundation = bit(b, 16) && bit(b, 17) && bit(b, 30) && bit(b, 31);  // F DQ BW VL
  const bool vnni = bit(c, 11);
  features.avx512 = features.avx2 && foundation && vnni && (state & kZmmState) == kZmmState;
  return features;
}
#else
CpuFeatures detect_cpu_features() { return {}; }
#endif

}  // namespace fw
