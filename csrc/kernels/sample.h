// From a row of logits to a token: the twin of firstword/sampling (sampler.py has the contract),
// bit for bit: token, uniform, probability, log probability and candidates.
//
// What takes a pass over the vocabulary is a kernel per instruction set; the choice itself is one
// body for all (sample.cpp).
#pragma once

#include <cstdint>

namespace fw {

constexpr int64_t kMaximaBlock = 64;  // logits per entry of row_maxima
constexpr int64_t kSampleChunk = 4096;

// maxima: [ceil(n / 64)] of x [n], NaN and +inf counted as -inf. Whether there are any of those.
using RowMaxima = bool(const float* x, int64_t n, float* maxima);
// ids: the i with x[i] >= bound, increasing; room for n. How many.
using GatherAtLeast = int64_t(const float* x, int64_t n, float bound, int32_t* ids);
// weights: [n] exp((x - largest) / divisor) as in math.h, x finite or -inf; without the division
// when divisor is 1.
using SoftmaxWeights = void(const float* x, int64_t n, float largest, float divisor,
                            float* weights);
// sums: [ceil(n / 4096)], each chunk (its end filled up with zeros) added by halves in double:
// entry i of the first half takes up entry i of the second, twelve times.
using ChunkSums = void(const float* weights, int64_t n, double* sums);

struct SampleKernels {
  RowMaxima* row_maxima;
  GatherAtLeast* gather_at_least;
  SoftmaxWeights* softmax_weights;
  ChunkSums* chunk_sums;
};

namespace generic {
extern const SampleKernels sample_kernels;
}
namespace avx2 {
extern const SampleKernels sample_kernels;
}
namespace avx512 {
extern const SampleKernels sample_kernels;
}

// batch.SamplingRow. Lists may be null when their length is 0.
struct SampleRow {
  double temperature;  // 0: greedy
  double top_p;        // (0, 1]
  int64_t top_k;       // 0: all
  uint64_t seed;
  uint32_t position, sample_index;
  const int32_t* banned;
  int64_t num_banned;
  const int32_t* bias_ids;
  const float* bias;
  int64_t num_bias;
  const uint32_t* allowed;  // bit i % 32 of word i / 32; null: all
  int64_t num_allowed_words;
  int64_t num_candidates;  // wanted
  const int32_t* penalized;  // tokens that have occurred, each once
  const int32_t* counts;     // how often
  int64_t num_penalized;
  float repetition, frequency, presence;  // batch.PenaltyTable
};

enum class SampleStatus : int32_t {
  kOk,
  kNoFiniteLogit,   // every logit is NaN or infinite
  kNothingAllowed,  // bias, bans and mask leave no token
  kUnknownToken,    // a banned, biased or penalized id is outside the vocabulary: `token`
  kMaskSize,        // num_allowed_words is not ceil(V / 32)
};

// batch.SampledToken. On any status but kOk only that and `token` mean anything.
struct SampleResult {
  SampleStatus status;
  int32_t token;
  double logprob, probability;
  double uniform;  // -1: greedy
  int64_t num_survivors;
  int64_t num_candidates;
};

// batch.Candidate, in arrays with room for SampleRow::num_candidates.
struct SampleCandidates {
  int32_t* ids;
  double* logprobs;
  double* probabilities;
};

int64_t sample_scratch_bytes(int64_t vocab_size);

// logits: [vocab_size], left alone; vocab_size > 0. scratch: sample_scratch_bytes, aligned to 64.
void sample_row(const SampleKernels& kernels, const float* logits, int64_t vocab_size,
                const SampleRow& row, uint8_t* scratch, SampleResult& result,
                const SampleCandidates& candidates);

// Philox4x32-10 (Salmon et al., SC 2011) with key seed and counter (position, sample_index, draw,
// 0): the first word's upper 24 bits as a multiple of 2^-24 in [0, 1).
double uniform(uint64_t seed, uint32_t position, uint32_t sample_index, uint32_t draw);

}  // namespace fw
