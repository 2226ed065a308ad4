// Threads that stay: all run the same function at once, the caller's thread among them as number 0.
// Not here: what they compute, and how work is cut into items.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace fw {

// A counter that threads wait on: a short spin, then yields, then sleep.
//
// The spin is no longer than a fair wait at a barrier takes. Where threads outnumber cores, the one
// that is waited for may need the very core of the one that spins: decoding on a machine with three
// other threads per core went at 25 tokens/s with ten times these spins, at 60 to 90 with these.
class Gate {
 public:
  // Waits until the counter is no longer `seen`; returns its new value. Yields `yields` times
  // before it sleeps.
  uint32_t wait(uint32_t seen, int yields);
  // Adds one and wakes whoever sleeps.
  void open();
  uint32_t value() const { return value_.load(std::memory_order_acquire); }

 private:
  alignas(64) std::atomic<uint32_t> value_{0};
  alignas(64) std::atomic<int> sleepers_{0};
  std::mutex mutex_;
  std::condition_variable changed_;
};

// All threads of a pool meet here; reusable.
class Barrier {
 public:
  explicit Barrier(int count) : count_(count) {}
  // The thread that comes last runs `finish` before it lets the others go on: work too small to be
  // shared then costs no barrier of its own.
  template <typename Finish>
  void wait(Finish finish) {
    const uint32_t seen = gate_.value();
    if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == count_) {
      finish();
      arrived_.store(0, std::memory_order_relaxed);  // before the gate lets anyone come again
      gate_.open();
    } else {
      gate_.wait(seen, kYields);
    }
  }

 private:
  static constexpr int kYields = 1000;  // about a millisecond: longer than an uneven share takes
  const int count_;
  alignas(64) std::atomic<int> arrived_{0};
  Gate gate_;
};

class ThreadPool {
 public:
  using Function = void (*)(void* context, int thread);

  explicit ThreadPool(int num_threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const { return num_threads_; }
  // Runs function(context, t) for every t in [0, size), t = 0 on the caller's thread; returns when
  // all are done. One run at a time: further callers wait. `function` must not throw.
  void run(Function function, void* context);
  // Called from within `run` by every thread: returns when all have called it and the last one has
  // run its `finish`.
  template <typename Finish>
  void barrier(Finish finish) {
    if (num_threads_ > 1) {
      barrier_.wait(finish);
    } else {
      finish();
    }
  }
  void barrier() {
    barrier([] {});
  }

 private:
  void work(int thread);

  const int num_threads_;
  std::mutex running_;
  Function function_ = nullptr;
  void* context_ = nullptr;
  std::atomic<bool> ending_{false};
  Gate start_;
  Barrier barrier_;
  std::vector<std::thread> workers_;
};

// Hands out the items 0 .. n - 1 in runs, to whoever asks first.
class alignas(64) WorkQueue {
 public:
  void reset() { next_.store(0, std::memory_order_relaxed); }
  // The first item of a run of `size`; at or beyond the end there is none left.
  int64_t take(int64_t size) { return next_.fetch_add(size, std::memory_order_relaxed); }

 private:
  std::atomic<int64_t> next_{0};
};

}  // namespace fw
