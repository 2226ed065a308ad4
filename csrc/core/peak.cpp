#include "core/peak.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>

#include "kernels/peak.h"

namespace fw {

namespace {

constexpr int kPasses = 10;
constexpr int64_t kRounds = 1 << 20;  // some 3 ms

Peaks peaks_of(const char* isa) {
#if defined(FIRSTWORD_HAS_AVX512)
  if (std::strcmp(isa, "avx512") == 0) return {avx512::peak_vnni, avx512::peak_vnni};
#endif
#if defined(FIRSTWORD_HAS_AVX2)
  if (std::strcmp(isa, "avx2") == 0) return {avx2::peak_narrow, avx2::peak_wide};
#endif
  return {nullptr, nullptr};
}

struct Pass {
  Peak* peak;
  std::atomic<int64_t> macs{0};
};

}  // namespace

double mac_rate(Backend& backend, bool wide) {
  const Peaks peaks = peaks_of(backend.table.isa);
  Peak* peak = wide ? peaks.wide : peaks.narrow;
  if (peak == nullptr) return 0;
  double best = 0;
  for (int i = 0; i < kPasses; ++i) {
    Pass pass{peak};
    const auto start = std::chrono::steady_clock::now();
    backend.pool.run(
        [](void* context, int) {
          Pass& shared = *static_cast<Pass*>(context);
          shared.macs += shared.peak(kRounds);
        },
        &pass);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    best = std::max(best, static_cast<double>(pass.macs.load()) / seconds.count());
  }
  return best;
}

}  // namespace fw
