// The sampler's passes over the vocabulary for AVX-512.
// GCC 12 takes the undefined operands in its own header for mistakes.
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <immintrin.h>

#include <cmath>
#include <limits>

#include "kernels/activation.h"
#include "kernels/math.h"
#include "kernels/sample.h"

namespace fw {
namespace {
#include "kernels/simd/avx512.inl.h"
#include "kernels/math.inl.h"
#include "kernels/rows.inl.h"
#include "kernels/sample.inl.h"
}  // namespace

namespace avx512 {
const SampleKernels sample_kernels = {row_maxima_body, gather_at_least_body, softmax_weights_body,
                                      chunk_sums_body};
}

}  // namespace fw
