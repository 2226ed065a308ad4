// Linear layers and quantization of activations for AVX2, FMA and F16C.
#include <immintrin.h>

#include <cstddef>

#include "kernels/dot/macros.h"
#include "kernels/linear.h"
#include "kernels/quantize.h"

namespace fw {
namespace {
#include "kernels/dot/avx2.inl.h"
#include "kernels/linear.inl.h"
#include "kernels/quantize.inl.h"
}  // namespace

namespace avx2 {

void quantize_a32(const float* x, int64_t k, int8_t* q, float* d, int32_t* sum) {
  quantize_row_a32(x, k, q, d, sum);
}

void quantize_a256(const float* x, int64_t k, int8_t* q, float* d, int16_t* sum16) {
  quantize_row_a256(x, k, q, d, sum16);
}

void linear(const LinearArgs& args, int64_t first_item, int64_t last_item, uint8_t* scratch) {
  run_items(args, first_item, last_item, scratch);
}

}  // namespace avx2
}  // namespace fw
