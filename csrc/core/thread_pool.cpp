#include "core/thread_pool.h"

#include <sched.h>
#include <signal.h>

#include "core/float_env.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace fw {

namespace {

constexpr int kSpins = 200;
constexpr int kIdleYields = 300;  // some 150 microseconds: a step is followed by the next within them

void pause_once() {
#if defined(__SSE2__)
  _mm_pause();
#endif
}

}  // namespace

uint32_t Gate::wait(uint32_t seen, int yields) {
  for (int i = 0; i < kSpins; ++i) {
    const uint32_t now = value();
    if (now != seen) return now;
    pause_once();
  }
  for (int i = 0; i < yields; ++i) {
    const uint32_t now = value();
    if (now != seen) return now;
    sched_yield();
  }
  std::unique_lock<std::mutex> lock(mutex_);
  // Announced before the counter is looked at, as `open` counts before it looks for sleepers: one
  // of the two sees the other.
  sleepers_.fetch_add(1);
  changed_.wait(lock, [&] { return value_.load() != seen; });
  sleepers_.fetch_sub(1);
  return value();
}

void Gate::open() {
  value_.fetch_add(1);
  if (sleepers_.load() == 0) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  changed_.notify_all();
}

ThreadPool::ThreadPool(int num_threads) : num_threads_(num_threads), barrier_(num_threads) {
  // Signals are for the threads of Python: a worker takes none.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    for (int thread = 1; thread < num_threads; ++thread) {
      workers_.emplace_back([this, thread] { work(thread); });
    }
  } catch (...) {
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    ending_ = true;
    start_.open();
    for (std::thread& worker : workers_) worker.join();
    throw;
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

ThreadPool::~ThreadPool() {
  ending_ = true;
  start_.open();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::run(Function function, void* context) {
  const std::lock_guard<std::mutex> lock(running_);
  const FloatEnv environment;
  function_ = function;
  context_ = context;
  if (num_threads_ > 1) start_.open();
  function(context, 0);
  barrier();
}

void ThreadPool::work(int thread) {
  const FloatEnv environment;
  uint32_t seen = 0;
  while (true) {
    seen = start_.wait(seen, kIdleYields);
    if (ending_) return;
    function_(context_, thread);
    barrier();
  }
}

}  // namespace fw
