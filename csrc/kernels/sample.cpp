// The choice of a token, in the steps of firstword/sampling/sampler.py. Sets of tokens are found
// exactly, in whatever way is quick; only the order of sums matters, and that is the Python's.
#include "kernels/sample.h"

#include <algorithm>
#include <functional>

#include "kernels/sample_parts.h"

namespace fw {
namespace {

class Sampler {
 public:
  Sampler(const SampleKernels& kernels, int64_t vocab_size, const SampleRow& row, uint8_t* scratch)
      : kernels_(kernels), n_(vocab_size), row_(row) {
    s_.lay_out(scratch, n_);
  }

  void run(const float* logits, SampleResult& result, const SampleCandidates& candidates) {
    result = SampleResult{};
    result.uniform = -1;
    model_ = clean(logits);
    model_max_ = largest_maximum();
    if (model_max_ == -kInfinity) return fail(result, SampleStatus::kNoFiniteLogit);
    list_candidates(candidates, result);
    if (!alter(result)) return;
    const double log_total = log_sum_exp();
    if (row_.temperature == 0) {
      result.token = arg_max();
      result.probability = 1;
      result.num_survivors = 1;
      mass_ = 1;
    } else {
      weights_ = strategy_weights();
      result.uniform = uniform(row_.seed, row_.position, row_.sample_index, 0);
      result.token = draw(result.uniform);
      result.probability = static_cast<double>(weights_.of(result.token)) / mass_;
      result.num_survivors = weights_.count;
    }
    fill_probabilities(candidates, result);
    result.logprob = static_cast<double>(model_[result.token]) - log_total;
    for (int64_t i = 0; i < result.num_candidates; ++i) {
      candidates.logprobs[i] = static_cast<double>(model_[candidates.ids[i]]) - log_total;
    }
  }

 private:
  static void fail(SampleResult& result, SampleStatus status) { result.status = status; }

  float largest_maximum() const {
    return *std::max_element(s_.maxima, s_.maxima + divide_up(n_, kMaximaBlock));
  }

  // The row itself, or a copy in which NaN and +inf are -inf; fills the maxima.
  const float* clean(const float* logits) {
    if (!kernels_.row_maxima(logits, n_, s_.maxima)) return logits;
    for (int64_t i = 0; i < n_; ++i) s_.logits[i] = logits[i] < kInfinity ? logits[i] : -kInfinity;
    return s_.logits;
  }

  // The k best of x [n] by key, unordered, to s_.keys; x's maxima are in s_.maxima. How many.
  int64_t best(const float* x, int64_t k) {
    k = std::min(k, n_);
    const int64_t blocks = divide_up(n_, kMaximaBlock);
    float bound = -kInfinity;
    if (k <= blocks) {  // the k-th largest of the blocks' maxima is a bound from below
      float* maxima = s_.weights;
      std::copy(s_.maxima, s_.maxima + blocks, maxima);
      std::nth_element(maxima, maxima + k - 1, maxima + blocks, std::greater<float>());
      bound = maxima[k - 1];
    }
    const int64_t found = kernels_.gather_at_least(x, n_, bound, s_.ids);
    for (int64_t i = 0; i < found; ++i) s_.keys[i] = key_of(x[s_.ids[i]], s_.ids[i]);
    if (k < found) std::nth_element(s_.keys, s_.keys + k - 1, s_.keys + found);
    return k;
  }

  void list_candidates(const SampleCandidates& candidates, SampleResult& result) {
    if (row_.num_candidates <= 0) return;
    const int64_t count = best(model_, row_.num_candidates);
    std::sort(s_.keys, s_.keys + count);
    for (int64_t i = 0; i < count; ++i) {
      const int32_t id = id_of(s_.keys[i]);
      if (model_[id] != -kInfinity) candidates.ids[result.num_candidates++] = id;
    }
  }

  void fill_probabilities(const SampleCandidates& candidates, const SampleResult& result) const {
    for (int64_t i = 0; i < result.num_candidates; ++i) {
      const int32_t id = candidates.ids[i];
      candidates.probabilities[i] = row_.temperature == 0
                                        ? (id == result.token ? 1.0 : 0.0)
                                        : static_cast<double>(weights_.of(id)) / mass_;
    }
  }

  bool known(int32_t token, SampleResult& result) const {
    if (token >= 0 && token < n_) return true;
    result.token = token;
    fail(result, SampleStatus::kUnknownToken);
    return false;
  }

  bool check_row(SampleResult& result) const {
    for (int64_t i = 0; i < row_.num_bias; ++i) {
      if (!known(row_.bias_ids[i], result)) return false;
    }
    for (int64_t i = 0; i < row_.num_banned; ++i) {
      if (!known(row_.banned[i], result)) return false;
    }
    for (int64_t i = 0; i < row_.num_penalized; ++i) {
      if (!known(row_.penalized[i], result)) return false;
    }
    if (row_.allowed && row_.num_allowed_words != divide_up(n_, 32)) {
      fail(result, SampleStatus::kMaskSize);
      return false;
    }
    return true;
  }

  // Bias, penalties, bans and the allowed tokens, on a copy if there are any.
  bool alter(SampleResult& result) {
    altered_ = model_;
    altered_max_ = model_max_;
    if (!row_.num_bias && !row_.num_penalized && !row_.num_banned && !row_.allowed) return true;
    if (!check_row(result)) return false;
    float* altered = s_.altered;
    std::copy(model_, model_ + n_, altered);
    for (int64_t i = 0; i < row_.num_bias; ++i) altered[row_.bias_ids[i]] += row_.bias[i];
    penalize(altered);
    for (int64_t i = 0; i < row_.num_banned; ++i) altered[row_.banned[i]] = -kInfinity;
    if (row_.allowed) keep_allowed(altered);
    kernels_.row_maxima(altered, n_, s_.maxima);
    altered_ = altered;
    altered_max_ = largest_maximum();
    if (altered_max_ != -kInfinity) return true;
    fail(result, SampleStatus::kNothingAllowed);
    return false;
  }

  // The operations of processors.penalize, one after the other.
  void penalize(float* altered) const {
    const float repetition = std::max(row_.repetition, kSmallest);
    for (int64_t i = 0; i < row_.num_penalized; ++i) {
      float& logit = altered[row_.penalized[i]];
      logit = logit > 0 ? logit / repetition : logit * repetition;
      logit -= row_.frequency * static_cast<float>(row_.counts[i]);
      logit -= row_.presence;
      logit = std::min(logit, kLargest);
    }
  }

  void keep_allowed(float* altered) const {
    for (int64_t start = 0; start < n_; start += 32) {
      const uint32_t word = row_.allowed[start / 32];
      if (word == 0xFFFFFFFF) continue;
      const int64_t length = std::min<int64_t>(32, n_ - start);
      for (int64_t i = 0; i < length; ++i) {
        if (!(word >> i & 1)) altered[start + i] = -kInfinity;
      }
    }
  }

  int32_t arg_max() const {
    int64_t block = 0;
    while (s_.maxima[block] != altered_max_) ++block;
    int64_t i = block * kMaximaBlock;
    while (altered_[i] != altered_max_) ++i;
    return static_cast<int32_t>(i);
  }

  float divisor() const {
    return std::max(static_cast<float>(row_.temperature), kSmallest);
  }

  // What temperature, top-k and top-p leave. Fills mass_ and s_.sums for the draw.
  Weights strategy_weights() {
    Weights weights;
    weights.n = n_;
    if (row_.top_k > 0 && row_.top_k < n_) {
      weights = of_best(best(altered_, row_.top_k));
      sum_chunks(weights);
    } else {
      weights.dense = s_.weights;
      if (altered_ != model_ || divisor() != 1.0F) {  // else log_sum_exp left just these
        kernels_.softmax_weights(altered_, n_, altered_max_, divisor(), s_.weights);
        sum_chunks(weights);
      }
    }
    if (row_.top_p < 1) {
      weights = nucleus(weights, row_.top_p * mass_);
      sum_chunks(weights);
    }
    if (weights.dense) weights.count = kernels_.gather_at_least(s_.weights, n_, kSmallest, s_.ids);
    return weights;
  }

  // Sparse weights of the first `count` keys' logits.
  Weights of_best(int64_t count) {
    for (int64_t i = 0; i < count; ++i) s_.ids[i] = id_of(s_.keys[i]);
    std::sort(s_.ids, s_.ids + count);
    float* values = s_.weights;
    for (int64_t i = 0; i < count; ++i) values[i] = altered_[s_.ids[i]];
    kernels_.softmax_weights(values, count, altered_max_, divisor(), values);
    int64_t left = 0;
    for (int64_t i = 0; i < count; ++i) {
      if (values[i] == 0) continue;
      s_.ids[left] = s_.ids[i];
      values[left++] = values[i];
    }
    return sparse(left);
  }

  Weights sparse(int64_t count) const {
    Weights weights;
    weights.n = n_;
    weights.ids = s_.ids;
    weights.values = s_.weights;
    weights.count = count;
    return weights;
  }

  // The chunks' sums to s_.sums and their total to mass_.
  void sum_chunks(const Weights& weights) {
    const int64_t chunks = divide_up(n_, kSampleChunk);
    if (weights.dense) {
      kernels_.chunk_sums(weights.dense, n_, s_.sums);
    } else {
      std::fill(s_.sums, s_.sums + chunks, 0.0);
      for (int64_t i = 0; i < weights.count;) {
        const int64_t index = weights.ids[i] / kSampleChunk;
        int64_t length;
        const float* chunk = weights.chunk(index, s_.chunk, length);
        kernels_.chunk_sums(chunk, length, s_.sums + index);
        while (i < weights.count && weights.ids[i] / kSampleChunk == index) ++i;
      }
    }
    mass_ = 0;
    for (int64_t i = 0; i < chunks; ++i) mass_ += s_.sums[i];
  }

  // The smallest set of largest weights whose running sum reaches `wanted`. Sets of all weights
  // above a falling bound are tried: each is the beginning of the order.
  Weights nucleus(const Weights& all, double wanted) {
    for (float bound = 1.0F / 64;; bound /= 32) {
      const bool complete = bound < kSmallest;
      const int64_t found = keys_of(all, complete ? kSmallest : bound);
      sort_keys(s_.keys, s_.spare, found);
      double sum = 0;
      for (int64_t i = 0; i < found; ++i) {
        sum += static_cast<double>(weight_of(s_.keys[i]));
        if (sum >= wanted) return of_weights(i + 1);
      }
      if (complete) return of_weights(found);
    }
  }

  // Keys of the tokens with at least this weight, by increasing id. How many.
  int64_t keys_of(const Weights& all, float bound) {
    int64_t found = 0;
    if (all.dense) {
      found = kernels_.gather_at_least(all.dense, n_, bound, s_.ids);
      for (int64_t i = 0; i < found; ++i) s_.keys[i] = key_of(all.dense[s_.ids[i]], s_.ids[i]);
      return found;
    }
    for (int64_t i = 0; i < all.count; ++i) {
      if (all.values[i] >= bound) s_.keys[found++] = key_of(all.values[i], all.ids[i]);
    }
    return found;
  }

  static float weight_of(uint64_t key) {  // of a key made from a weight >= 0
    const uint32_t bits = ~static_cast<uint32_t>(key >> 32) & 0x7FFFFFFF;
    float value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
  }

  // Sparse weights of the first `count` keys, which hold them.
  Weights of_weights(int64_t count) {
    // Ids and weights change places, to be sorted by id.
    for (int64_t i = 0; i < count; ++i) s_.keys[i] = s_.keys[i] << 32 | s_.keys[i] >> 32;
    sort_keys(s_.keys, s_.spare, count);
    for (int64_t i = 0; i < count; ++i) {
      s_.ids[i] = static_cast<int32_t>(s_.keys[i] >> 32);
      s_.weights[i] = weight_of(s_.keys[i] << 32);
    }
    return sparse(count);
  }

  // The token that u falls on.
  int32_t draw(double u) {
    const int64_t chunks = divide_up(n_, kSampleChunk);
    const double target = u * mass_;
    double before = 0, end = s_.sums[0];
    int64_t index = 0;
    while (end <= target && index + 1 < chunks) {
      before = end;
      end += s_.sums[++index];
    }
    int64_t length;
    const float* weights = weights_.chunk(index, s_.chunk, length);
    double sum = before;
    for (int64_t i = 0; i < length; ++i) {
      sum += static_cast<double>(weights[i]);
      if (sum > target) return static_cast<int32_t>(index * kSampleChunk + i);
    }
    while (length > 1 && weights[length - 1] == 0) --length;
    return static_cast<int32_t>(index * kSampleChunk + length - 1);
  }

  // log of the sum of exp of the model's logits. Leaves its weights and sums in s_ and mass_.
  double log_sum_exp() {
    kernels_.softmax_weights(model_, n_, model_max_, 1.0F, s_.weights);
    Weights all;
    all.dense = s_.weights;
    sum_chunks(all);
    return static_cast<double>(model_max_) + log_of(mass_);
  }

  const SampleKernels& kernels_;
  const int64_t n_;
  const SampleRow& row_;
  Scratch s_;
  const float* model_ = nullptr;    // [n] without NaN and +inf
  const float* altered_ = nullptr;  // [n] with bias, penalties, bans and mask
  float model_max_ = 0, altered_max_ = 0;
  Weights weights_;
  double mass_ = 0;
};

}  // namespace

int64_t sample_scratch_bytes(int64_t vocab_size) {
  return Scratch{}.lay_out(nullptr, vocab_size);
}

void sample_row(const SampleKernels& kernels, const float* logits, int64_t vocab_size,
                const SampleRow& row, uint8_t* scratch, SampleResult& result,
                const SampleCandidates& candidates) {
  Sampler(kernels, vocab_size, row, scratch).run(logits, result, candidates);
}

double uniform(uint64_t seed, uint32_t position, uint32_t sample_index, uint32_t draw) {
  uint32_t c[4] = {position, sample_index, draw, 0};
  uint32_t key0 = static_cast<uint32_t>(seed), key1 = static_cast<uint32_t>(seed >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t left = uint64_t{0xD2511F53} * c[0], right = uint64_t{0xCD9E8D57} * c[2];
    c[0] = static_cast<uint32_t>(right >> 32) ^ c[1] ^ key0;
    c[1] = static_cast<uint32_t>(right);
    c[2] = static_cast<uint32_t>(left >> 32) ^ c[3] ^ key1;
    c[3] = static_cast<uint32_t>(left);
    key0 += 0x9E3779B9;
    key1 += 0xBB67AE85;
  }
  return static_cast<double>(c[0] >> 8) * 0x1p-24;
}

}  // namespace fw
