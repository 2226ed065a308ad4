#include "core/plan.h"

#include <algorithm>
#include <utility>

#include "core/quantized.h"

namespace fw {

Plan::Plan(ThreadPool& pool, const Weights& weights, const KernelTable& table,
           std::vector<BufferSpec> buffers)
    : pool_(pool), weights_(weights), table_(table), buffers_(std::move(buffers)),
      queues_(static_cast<size_t>(pool.size())) {
  memory_.resize(buffers_.size());
  scratch_.resize(static_cast<size_t>(pool.size()));
}

void Plan::reserve(int64_t num_tokens, int64_t num_logits) {
  if (num_tokens <= max_tokens_ && num_logits <= max_logits_) return;
  max_tokens_ = std::max(max_tokens_, num_tokens);
  max_logits_ = std::max(max_logits_, num_logits);
  for (size_t i = 0; i < buffers_.size(); ++i) {
    const BufferSpec& spec = buffers_[i];
    const int64_t rows = capacity(spec.rows);
    const int64_t bytes = spec.run == 0 ? rows * spec.width * static_cast<int64_t>(sizeof(float))
                                        : quantized_bytes(rows, spec.width, spec.run);
    memory_[i].reserve(static_cast<size_t>(bytes));
  }
}

int64_t Plan::scratch_bytes() const {
  size_t total = partials_.size();
  for (const Memory& memory : memory_) total += memory.size();
  for (const Memory& memory : scratch_) total += memory.size();
  return static_cast<int64_t>(total);
}

}  // namespace fw
