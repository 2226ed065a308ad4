// One token from each of several rows of logits, rows shared out among threads. Not here: how a row
// gives its token (kernels/sample.h).
#pragma once

#include <cstdint>
#include <vector>

#include "core/backend.h"
#include "core/memory.h"

namespace fw {

struct SampleTask {
  const float* logits;  // [vocab_size]
  SampleRow row;
  SampleResult result;
  SampleCandidates candidates;
};

class Sampler {
 public:
  // `backend` must outlive the sampler.
  explicit Sampler(Backend& backend);
  Sampler(const Sampler&) = delete;
  Sampler& operator=(const Sampler&) = delete;

  // Fills the results of all tasks.
  void run(std::vector<SampleTask>& tasks, int64_t vocab_size);

 private:
  Backend& backend_;
  std::vector<Memory> scratch_;  // per thread
};

}  // namespace fw
