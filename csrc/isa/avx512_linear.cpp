// Linear layers for AVX-512 (F, BW, DQ, VL) with VNNI.
// The intrinsics of GCC 12 warn about themselves (GCC bug 105593).
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <immintrin.h>
#pragma GCC diagnostic pop

#include <cstddef>

#include "kernels/dot/macros.h"
#include "kernels/linear.h"

namespace fw {
namespace {
#include "kernels/dot/avx512.inl.h"
#include "kernels/linear.inl.h"
}  // namespace

namespace avx512 {

void linear(const LinearArgs& args, int64_t first_item, int64_t last_item, uint8_t* scratch) {
  run_items(args, first_item, last_item, scratch);
}

}  // namespace avx512
}  // namespace fw
