#include "core/sample_rows.h"

#include "core/float_env.h"

namespace fw {

namespace {

struct Job {
  std::vector<SampleTask>& tasks;
  const SampleKernels& kernels;
  int64_t vocab_size;
  std::vector<Memory>& scratch;
  WorkQueue queue;
};

void sample_some(void* context, int thread) {
  auto& job = *static_cast<Job*>(context);
  const auto count = static_cast<int64_t>(job.tasks.size());
  for (int64_t i = job.queue.take(1); i < count; i = job.queue.take(1)) {
    SampleTask& task = job.tasks[static_cast<size_t>(i)];
    sample_row(job.kernels, task.logits, job.vocab_size, task.row,
               job.scratch[static_cast<size_t>(thread)].data(), task.result, task.candidates);
  }
}

}  // namespace

Sampler::Sampler(Backend& backend)
    : backend_(backend), scratch_(static_cast<size_t>(backend.pool.size())) {}

void Sampler::run(std::vector<SampleTask>& tasks, int64_t vocab_size) {
  for (Memory& memory : scratch_) {
    memory.reserve(static_cast<size_t>(sample_scratch_bytes(vocab_size)));
  }
  Job job = {tasks, *backend_.table.sample, vocab_size, scratch_, {}};
  if (tasks.size() > 1) {
    backend_.pool.run(sample_some, &job);
  } else {  // not worth waking anybody
    const FloatEnv environment;
    sample_some(&job, 0);
  }
}

}  // namespace fw
