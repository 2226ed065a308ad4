// What is sampled from a step's logits, on its way between Python and core/sample_rows.h.
#pragma once

#include <optional>
#include <tuple>
#include <vector>

#include "bindings/bindings.h"
#include "core/sample_rows.h"

namespace fw {

using Candidate = std::tuple<int32_t, double, double>;  // id, log probability, probability

// batch.PenaltyTable. Its arrays are Python's own.
struct Penalties {
  Array<int32_t, 1> token_ids, counts;
  float repetition, frequency, presence;
};

// A row's strategy with its lists.
struct Strategy {
  SampleRow row;
  std::vector<int32_t> banned, bias_ids;
  std::vector<float> bias;
  std::optional<Array<uint32_t, 1>> allowed;
  std::optional<Penalties> penalties;

  SampleRow complete() const;
};

struct Outcome {
  SampleResult result;
  std::vector<Candidate> candidates;
};

// One call of the sampler. Constructed and read with the GIL held; `run` needs none.
class SampleCall {
 public:
  // rows: which of the num_logits rows of logits each strategy chooses from.
  SampleCall(const std::vector<const Strategy*>& strategies, const Array<int32_t, 1>& rows,
             size_t num_logits);
  // logits: [num_logits, vocab_size].
  void run(Sampler& sampler, const float* logits, int64_t vocab_size);
  std::vector<Outcome> outcomes() const;

 private:
  // Room for the candidates of one row.
  struct CandidateRoom {
    std::vector<int32_t> ids;
    std::vector<double> logprobs, probabilities;
  };
  std::vector<int32_t> rows_;
  std::vector<CandidateRoom> rooms_;
  std::vector<SampleTask> tasks_;
};

}  // namespace fw
