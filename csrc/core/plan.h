// A network as a flat list of stages, and the scratch memory that they work in. Every thread walks
// the list; after each stage all wait for each other. Not here: what a stage computes
// (interpreter.cpp), which operations there are and where values lie (ops/passes.py).
#pragma once

#include <atomic>
#include <cstdint>
#include <variant>
#include <vector>

#include "core/memory.h"
#include "core/thread_pool.h"
#include "core/weights.h"
#include "kernels/table.h"

namespace fw {

// What a buffer has one row for: each position of the step, each row that needs logits, or each
// thread (of values that are made and read in one stage).
enum class Rows : int32_t { kTokens, kLogits, kThreads };

// run: 0 for float32, 32 or 256 for 8-bit codes with the scales and sums of their runs.
struct BufferSpec {
  Rows rows;
  int64_t width;
  int32_t run;
};

// A value: rows of `width` floats, one after the other, in a buffer.
struct Operand {
  int32_t buffer;
  int64_t width;
};

// One layer's attention: see ops.protocol.AttentionSpec.
struct AttentionLayer {
  int32_t group, index_in_group;
  int64_t heads, kv_heads, head_dim;
  float scale;
  int32_t window;  // 0: none
  float softcap;   // 0: none
};

struct EmbedOp {
  int32_t weight;
  float scale;
  Operand out;
};
struct AddOp {
  Operand a, b, out;
};
struct NormOp {
  Operand x;
  int32_t weight;
  float eps;
  Operand out;
};
struct RopeOp {
  Operand x;
  int32_t table;
  int64_t head_dim;
  bool interleaved;
  Operand out;
};
struct StoreKVOp {
  Operand k, v;
  AttentionLayer layer;
};
struct ActivateOp {
  bool gelu;  // else silu
  Operand gate, up, out;
};
struct SoftcapOp {
  Operand x;
  float cap;
  Operand out;
};
struct TakeOp {
  Operand x, out;
};
struct QuantizeOp {
  Operand x;
  int32_t out;  // its buffer says in which runs
};

using RowOp = std::variant<EmbedOp, AddOp, NormOp, RopeOp, StoreKVOp, ActivateOp, SoftcapOp, TakeOp,
                           QuantizeOp>;

// Operations that each thread runs on rows of its own, one after the other.
struct RowsStage {
  Rows rows;
  std::vector<RowOp> ops;
};

struct LinearSegment {
  int32_t weight;
  int32_t bias;  // -1: none
  Operand out;
};

// x and its quantized forms, -1 where no weight wants it.
struct LinearStage {
  Rows rows;
  Operand x;
  int32_t a32, a256;
  std::vector<LinearSegment> segments;
};

struct AttentionStage {
  Rows rows;
  Operand q;
  AttentionLayer layer;
  Operand out;
};

using Stage = std::variant<RowsStage, LinearStage, AttentionStage>;

struct BlockTable {
  const int32_t* blocks;  // [N, stride]
  int64_t stride;
};

// cos and sin of every position so far: [positions, head_dim / 2].
struct RopeTable {
  const float* cos;
  const float* sin;
};

struct BlockCopy {
  int32_t source, destination, num_tokens;
};

// One step: batch.ForwardBatch as pointers, checked by the caller.
struct StepInput {
  int64_t num_tokens, num_seqs, num_logits;
  const int32_t* token_ids;        // [T]
  const int32_t* positions;        // [T]
  const int32_t* query_start_loc;  // [N + 1]
  const int32_t* seq_lens;         // [N]
  const int32_t* logits_rows;      // [R], increasing
  std::vector<BlockTable> block_tables;        // per group
  std::vector<const int32_t*> slot_mappings;   // per group, [T]
  std::vector<RopeTable> ropes;                // per table that RopeOps name
  std::vector<BlockCopy> copies;               // run first, in order
  uint8_t* pages;
  int64_t page_bytes;
  KVType kv_type;
};

// Asked now and then by the calling thread, between pieces of work; true stops the step.
struct Poll {
  bool (*wants_stop)(void* context);
  void* context;
};

class Plan {
 public:
  // Both must outlive the plan.
  Plan(ThreadPool& pool, const Weights& weights, const KernelTable& table,
       std::vector<BufferSpec> buffers);

  void add(Stage stage) { stages_.push_back(std::move(stage)); }
  // Makes room for steps of this size; a larger one makes more when it comes.
  void reserve(int64_t num_tokens, int64_t num_logits);
  int64_t scratch_bytes() const;

  // Runs a step on all threads, the caller's included. False: it was stopped, and what it has
  // computed, keys and values included, is incomplete.
  bool run(const StepInput& step, const Poll& poll);
  // Ends the running step soon; any thread may call it.
  void stop() { stop_.store(true, std::memory_order_relaxed); }
  void clear_stop() { stop_.store(false, std::memory_order_relaxed); }
  // Stages run so far, over all steps.
  uint64_t progress() const { return progress_.load(std::memory_order_relaxed); }

  // Adds up the nanoseconds of every stage from now on, or does so no longer. Between steps only.
  void measure(bool on) { stage_ns_.assign(on ? stages_.size() : 0, 0); }
  // [stages], or empty: from one barrier to the next, as the calling thread saw it. Rows that
  // one thread did at the barrier before are counted there too.
  const std::vector<int64_t>& stage_ns() const { return stage_ns_; }

  // The floats of a buffer after a run.
  const float* floats(int32_t buffer) const { return memory_.at(index(buffer)).as<float>(); }

 private:
  friend class Interpreter;
  friend class RowRunner;
  static size_t index(int32_t i) { return static_cast<size_t>(i); }
  int64_t capacity(Rows rows) const {
    if (rows == Rows::kThreads) return pool_.size();
    return rows == Rows::kTokens ? max_tokens_ : max_logits_;
  }

  ThreadPool& pool_;
  const Weights& weights_;
  const KernelTable& table_;
  const std::vector<BufferSpec> buffers_;
  std::vector<Stage> stages_;
  std::vector<Memory> memory_;   // per buffer
  std::vector<Memory> scratch_;  // per thread
  Memory partials_;              // of split attention
  int64_t max_tokens_ = 0;
  int64_t max_logits_ = 0;
  std::vector<WorkQueue> queues_;  // one per thread, of the work at hand
  std::vector<int64_t> stage_ns_;
  std::atomic<bool> stop_{false};
  std::atomic<uint64_t> progress_{0};
};

}  // namespace fw
