// The sampler's passes over the vocabulary as their header words them, one value at a time: what
// every vector body is compared with, bit for bit.
#include <limits>

#include "isa/generic_math.h"
#include "kernels/sample.h"

namespace fw {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

bool row_maxima(const float* x, int64_t n, float* maxima) {
  bool unsound = false;
  for (int64_t i = 0; i < n; ++i) {
    float& maximum = maxima[i / kMaximaBlock];
    if (i % kMaximaBlock == 0) maximum = -kInfinity;
    if (!(x[i] < kInfinity)) {
      unsound = true;
    } else if (x[i] > maximum) {
      maximum = x[i];
    }
  }
  return unsound;
}

int64_t gather_at_least(const float* x, int64_t n, float bound, int32_t* ids) {
  int64_t count = 0;
  for (int64_t i = 0; i < n; ++i) {
    if (x[i] >= bound) ids[count++] = static_cast<int32_t>(i);
  }
  return count;
}

void softmax_weights(const float* x, int64_t n, float largest, float divisor, float* weights) {
  for (int64_t i = 0; i < n; ++i) {
    const float distance = x[i] - largest;
    weights[i] = generic::exp_nonpositive(divisor == 1.0F ? distance : distance / divisor);
  }
}

void chunk_sums(const float* weights, int64_t n, double* sums) {
  double folded[kSampleChunk];
  for (int64_t start = 0; start < n; start += kSampleChunk) {
    for (int64_t i = 0; i < kSampleChunk; ++i) {
      folded[i] = start + i < n ? static_cast<double>(weights[start + i]) : 0.0;
    }
    for (int64_t half = kSampleChunk / 2; half > 0; half /= 2) {
      for (int64_t i = 0; i < half; ++i) folded[i] += folded[i + half];
    }
    *sums++ = folded[0];
  }
}

}  // namespace

namespace generic {
const SampleKernels sample_kernels = {row_maxima, gather_at_least, softmax_weights, chunk_sums};
}

}  // namespace fw
