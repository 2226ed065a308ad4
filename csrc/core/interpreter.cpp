// Runs a plan: what every thread does at each stage.
#include <algorithm>
#include <chrono>
#include <cstring>

#include "core/plan.h"
#include "core/quantized.h"
#include "kernels/embedding.h"

namespace fw {

namespace {

using Clock = std::chrono::steady_clock;

// A stop is asked for this often, so that it acts within 100 ms.
constexpr auto kPollInterval = std::chrono::milliseconds(25);
// Pieces of work per thread: enough that a thread that was held up holds up nobody else.
constexpr int64_t kPiecesPerThread = 8;
constexpr int64_t kMaxRowsPerPiece = 16;
constexpr int64_t kItemsPerPanel = 2;
constexpr int64_t kMaxPanelsPerPiece = 32;  // 64 tokens of a wide layer: 10 ms or so
// So few rows are done sooner by one thread than shared out, which takes one more barrier.
constexpr int64_t kMaxRowsAlone = 2;

// The rows that a stage runs over.
struct RowSpace {
  int64_t count;
  const int32_t* positions;        // [count]
  const int32_t* query_start_loc;  // [N + 1]
};

}  // namespace

// How `count` items are dealt out: in runs of `piece`, from `shares` parts of equal size. A thread
// takes from a share of its own first, then from others'.
struct Cut {
  int64_t count, piece;
  int64_t shares = 1;
};

// One step on its way through a plan; lives for the step.
class Interpreter {
 public:
  Interpreter(Plan& plan, const StepInput& step, const Poll& poll);
  // What thread `thread` does.
  void walk(int thread);
  bool stopped() const { return plan_.stop_.load(std::memory_order_relaxed); }

 private:
  friend class RowRunner;
  struct AttentionCall {
    AttentionArgs args;
    int64_t items = 0;
    bool merges = false;
  };

  void narrow();
  void prepare_attention();
  AttentionArgs attention_args(const AttentionStage& stage) const;
  LinearArgs linear_args(const LinearStage& stage) const;
  KVPages pages_of(const AttentionLayer& layer) const;

  template <typename Work>
  void share(int thread, const Cut& cut, Work work);
  template <typename Finish>
  void barrier(Finish finish);
  // A stage of rows that are too few to be shared out, or null.
  const RowsStage* small_rows(const Stage& stage) const;
  void run_ops(const RowsStage& stage, int thread, int64_t first, int64_t last) const;
  void run_stage(int thread, size_t i);
  void run_alone(const RowsStage& stage, int thread, size_t i);
  Clock::time_point note_time(size_t stage, Clock::time_point start);
  void run_rows(int thread, const RowsStage& stage);
  void run_linear(int thread, const LinearStage& stage);
  void run_attention(int thread, const AttentionCall& call, int64_t rows);
  bool may_go_on(int thread);

  const RowSpace& space(Rows rows) const { return rows == Rows::kTokens ? tokens_ : logits_; }
  int64_t piece(int64_t items) const {
    return std::max<int64_t>(1, items / (plan_.pool_.size() * kPiecesPerThread));
  }
  float* row(const Operand& value, int64_t r) const {
    return plan_.memory_[Plan::index(value.buffer)].as<float>() + r * value.width;
  }
  uint8_t* scratch(int thread) const { return plan_.scratch_[Plan::index(thread)].data(); }
  Quantized quantized(int32_t buffer, int64_t width) const {
    const BufferSpec& spec = plan_.buffers_[Plan::index(buffer)];
    return quantized_at(plan_.memory_[Plan::index(buffer)].data(), space(spec.rows).count, width,
                        spec.run);
  }

  Plan& plan_;
  const StepInput& step_;
  const Poll& poll_;
  RowSpace tokens_, logits_;
  std::vector<int32_t> logits_positions_, logits_start_loc_;
  std::vector<AttentionCall> attention_;  // per stage; empty entries for the others
  Clock::time_point last_poll_ = Clock::now();
};

// Runs operations on one row, one after the other: its values stay in the nearest cache.
class RowRunner {
 public:
  RowRunner(const Interpreter& in, Rows rows, int thread, int64_t r)
      : in_(in), table_(in.plan_.table_), step_(in.step_), rows_(rows), thread_(thread), r_(r) {}

  void operator()(const EmbedOp& op) const {
    const Panels& weight = in_.plan_.weights_.matrix(op.weight);
    embed_row(weight, step_.token_ids[r_], op.scale, row(op.out));
  }
  void operator()(const AddOp& op) const {
    table_.add(row(op.a), row(op.b), op.out.width, row(op.out));
  }
  void operator()(const NormOp& op) const {
    const float* weight = in_.plan_.weights_.vector(op.weight);
    const int64_t size = in_.plan_.weights_.vector_size(op.weight);
    for (int64_t i = 0; i < op.x.width; i += size) {
      table_.rms_norm(row(op.x) + i, weight, op.eps, size, row(op.out) + i);
    }
  }
  void operator()(const RopeOp& op) const {
    const RopeTable& angles = step_.ropes[Plan::index(op.table)];
    const int64_t half = op.head_dim / 2;
    const int64_t at = in_.space(rows_).positions[r_] * half;
    copy(op.x, op.out);
    table_.rope(row(op.out), angles.cos + at, angles.sin + at, op.head_dim,
                op.x.width / op.head_dim, op.interleaved);
  }
  void operator()(const StoreKVOp& op) const {
    StoreKVArgs args = {};
    args.k = row(op.k);
    args.v = row(op.v);
    args.k_stride = op.k.width;
    args.v_stride = op.v.width;
    args.slots = step_.slot_mappings[Plan::index(op.layer.group)] + r_;
    args.pages = in_.pages_of(op.layer);
    args.kv_heads = op.layer.kv_heads;
    args.head_dim = op.layer.head_dim;
    table_.store_kv(args, 0, 1);
  }
  void operator()(const ActivateOp& op) const {
    GatedActivation* activate = op.gelu ? table_.gelu_mul : table_.silu_mul;
    activate(row(op.gate), row(op.up), op.out.width, row(op.out));
  }
  void operator()(const SoftcapOp& op) const {
    copy(op.x, op.out);
    table_.softcap(row(op.out), op.out.width, op.cap);
  }
  void operator()(const TakeOp& op) const {
    std::memcpy(row(op.out), in_.row(op.x, step_.logits_rows[r_]), bytes(op.x));
  }
  void operator()(const QuantizeOp& op) const {
    const int64_t k = op.x.width;
    const Quantized to = in_.quantized(op.out, k);
    if (in_.plan_.buffers_[Plan::index(op.out)].run == 32) {
      auto* sums = reinterpret_cast<int32_t*>(to.sums) + r_ * (k / 32);
      table_.quantize_a32(row(op.x), k, to.codes + r_ * k, to.scales + r_ * (k / 32), sums);
    } else {
      auto* sums = reinterpret_cast<int16_t*>(to.sums) + r_ * (k / 16);
      table_.quantize_a256(row(op.x), k, to.codes + r_ * k, to.scales + r_ * (k / 256), sums);
    }
  }

 private:
  // The row at hand of a value: in a buffer of threads, this thread's only one.
  float* row(const Operand& value) const {
    const bool own = in_.plan_.buffers_[Plan::index(value.buffer)].rows == Rows::kThreads;
    return in_.row(value, own ? thread_ : r_);
  }
  static size_t bytes(const Operand& value) {
    return static_cast<size_t>(value.width) * sizeof(float);
  }
  void copy(const Operand& from, const Operand& to) const {
    if (from.buffer != to.buffer) std::memcpy(row(to), row(from), bytes(from));
  }

  const Interpreter& in_;
  const KernelTable& table_;
  const StepInput& step_;
  const Rows rows_;
  const int thread_;
  const int64_t r_;
};

Interpreter::Interpreter(Plan& plan, const StepInput& step, const Poll& poll)
    : plan_(plan), step_(step), poll_(poll) {
  tokens_ = {step.num_tokens, step.positions, step.query_start_loc};
  narrow();
  prepare_attention();
}

// The positions of the logits rows, and where each sequence's begin among them.
void Interpreter::narrow() {
  for (int64_t i = 0; i < step_.num_logits; ++i) {
    logits_positions_.push_back(step_.positions[step_.logits_rows[i]]);
  }
  const int32_t* end = step_.logits_rows + step_.num_logits;
  for (int64_t s = 0; s <= step_.num_seqs; ++s) {
    const int32_t* first = std::lower_bound(step_.logits_rows, end, step_.query_start_loc[s]);
    logits_start_loc_.push_back(static_cast<int32_t>(first - step_.logits_rows));
  }
  logits_ = {step_.num_logits, logits_positions_.data(), logits_start_loc_.data()};
}

// Counts the items and makes room for the parts of split attention and for each thread's scratch.
void Interpreter::prepare_attention() {
  int64_t max_len = 0;
  for (int64_t s = 0; s < step_.num_seqs; ++s) {
    max_len = std::max<int64_t>(max_len, step_.seq_lens[s]);
  }
  int64_t partial_floats = 0;
  int64_t scratch_bytes = kLinearScratchBytes;
  attention_.resize(plan_.stages_.size());
  for (size_t i = 0; i < plan_.stages_.size(); ++i) {
    const auto* stage = std::get_if<AttentionStage>(&plan_.stages_[i]);
    if (stage == nullptr) continue;
    AttentionCall& call = attention_[i];
    call.args = attention_args(*stage);
    call.items = attention_items(call.args);
    const int64_t floats = attention_partial_floats(call.args);
    call.merges = floats > 0;
    partial_floats = std::max(partial_floats, floats);
    const AttentionLayer& layer = stage->layer;
    scratch_bytes = std::max(scratch_bytes, attention_scratch_bytes(layer.heads, layer.kv_heads,
                                                                    layer.head_dim, max_len));
  }
  plan_.partials_.reserve(static_cast<size_t>(partial_floats) * sizeof(float));
  for (AttentionCall& call : attention_) call.args.partials = plan_.partials_.as<float>();
  for (Memory& memory : plan_.scratch_) memory.reserve(static_cast<size_t>(scratch_bytes));
}

KVPages Interpreter::pages_of(const AttentionLayer& layer) const {
  const int64_t layer_bytes = kv_layer_bytes(step_.kv_type, layer.kv_heads, layer.head_dim);
  return {step_.pages, step_.page_bytes, layer.index_in_group * layer_bytes, step_.kv_type};
}

AttentionArgs Interpreter::attention_args(const AttentionStage& stage) const {
  const RowSpace& rows = space(stage.rows);
  const AttentionLayer& layer = stage.layer;
  const BlockTable& table = step_.block_tables[Plan::index(layer.group)];
  AttentionArgs args = {};
  args.q = row(stage.q, 0);
  args.q_stride = stage.q.width;
  args.out = row(stage.out, 0);
  args.out_stride = stage.out.width;
  args.positions = rows.positions;
  args.query_start_loc = rows.query_start_loc;
  args.seq_lens = step_.seq_lens;
  args.block_table = table.blocks;
  args.num_seqs = step_.num_seqs;
  args.table_stride = table.stride;
  args.pages = pages_of(layer);
  args.heads = layer.heads;
  args.kv_heads = layer.kv_heads;
  args.head_dim = layer.head_dim;
  args.scale = layer.scale;
  args.window = layer.window;
  args.softcap = layer.softcap;
  return args;
}

LinearArgs Interpreter::linear_args(const LinearStage& stage) const {
  LinearArgs args = {};
  args.a.t = space(stage.rows).count;
  args.a.k = stage.x.width;
  args.a.x = row(stage.x, 0);
  if (stage.a32 >= 0) {
    const Quantized a = quantized(stage.a32, stage.x.width);
    args.a.q32 = a.codes;
    args.a.d32 = a.scales;
    args.a.sum32 = reinterpret_cast<const int32_t*>(a.sums);
  }
  if (stage.a256 >= 0) {
    const Quantized a = quantized(stage.a256, stage.x.width);
    args.a.q256 = a.codes;
    args.a.d256 = a.scales;
    args.a.sum256 = reinterpret_cast<const int16_t*>(a.sums);
  }
  for (const LinearSegment& segment : stage.segments) {
    const float* bias = segment.bias < 0 ? nullptr : plan_.weights_.vector(segment.bias);
    args.segment[args.num_segments++] = {plan_.weights_.matrix(segment.weight), bias,
                                         row(segment.out, 0), segment.out.width};
  }
  return args;
}

void Interpreter::walk(int thread) {
  const size_t count = plan_.stages_.size();
  const bool measures = thread == 0 && !plan_.stage_ns_.empty();
  Clock::time_point start = measures ? Clock::now() : Clock::time_point();
  for (size_t i = 0; i < count; ++i) {
    const size_t measured = i;
    run_stage(thread, i);
    const RowsStage* next = i + 1 < count ? small_rows(plan_.stages_[i + 1]) : nullptr;
    barrier([&] {
      if (next != nullptr && !stopped()) run_alone(*next, thread, i + 1);
      plan_.progress_.fetch_add(next == nullptr ? 1 : 2, std::memory_order_relaxed);
    });
    if (next != nullptr) ++i;
    if (measures) start = note_time(measured, start);
  }
}

void Interpreter::run_alone(const RowsStage& stage, int thread, size_t i) {
  const bool measures = !plan_.stage_ns_.empty();
  const Clock::time_point start = measures ? Clock::now() : Clock::time_point();
  run_ops(stage, thread, 0, space(stage.rows).count);
  if (measures) note_time(i, start);
}

Clock::time_point Interpreter::note_time(size_t stage, Clock::time_point start) {
  const Clock::time_point now = Clock::now();
  plan_.stage_ns_[stage] +=
      std::chrono::duration_cast<std::chrono::nanoseconds>(now - start).count();
  return now;
}

void Interpreter::run_stage(int thread, size_t i) {
  const Stage& stage = plan_.stages_[i];
  if (const auto* rows = std::get_if<RowsStage>(&stage)) {
    run_rows(thread, *rows);
  } else if (const auto* linear = std::get_if<LinearStage>(&stage)) {
    run_linear(thread, *linear);
  } else {
    const Rows over = std::get<AttentionStage>(stage).rows;
    run_attention(thread, attention_[i], space(over).count);
  }
}

const RowsStage* Interpreter::small_rows(const Stage& stage) const {
  const auto* rows = std::get_if<RowsStage>(&stage);
  return rows != nullptr && space(rows->rows).count <= kMaxRowsAlone ? rows : nullptr;
}

// Takes items until none is left. A stopped step goes on through all barriers without work: threads
// may see the flag at different stages.
template <typename Work>
void Interpreter::share(int thread, const Cut& cut, Work work) {
  const int64_t pieces = (cut.count + cut.piece - 1) / cut.piece;
  for (int64_t turn = 0; turn < cut.shares; ++turn) {
    const int64_t owner = (thread + turn) % cut.shares;
    WorkQueue& queue = plan_.queues_[static_cast<size_t>(owner)];
    const int64_t begin = pieces * owner / cut.shares;
    const int64_t size = pieces * (owner + 1) / cut.shares - begin;
    while (may_go_on(thread)) {
      const int64_t taken = queue.take(1);
      if (taken >= size) break;
      const int64_t first = (begin + taken) * cut.piece;
      work(first, std::min(first + cut.piece, cut.count));
    }
  }
}

// Waits for all threads; the last to come makes ready the next shares, then runs `finish`.
template <typename Finish>
void Interpreter::barrier(Finish finish) {
  plan_.pool_.barrier([&] {
    for (WorkQueue& queue : plan_.queues_) queue.reset();
    finish();
  });
}

bool Interpreter::may_go_on(int thread) {
  if (thread == 0 && Clock::now() - last_poll_ >= kPollInterval) {
    if (poll_.wants_stop != nullptr && poll_.wants_stop(poll_.context)) plan_.stop();
    last_poll_ = Clock::now();
  }
  return !stopped();
}

void Interpreter::run_rows(int thread, const RowsStage& stage) {
  const int64_t count = space(stage.rows).count;
  share(thread, {count, std::min(piece(count), kMaxRowsPerPiece)},
        [&](int64_t first, int64_t last) { run_ops(stage, thread, first, last); });
}

void Interpreter::run_ops(const RowsStage& stage, int thread, int64_t first,
                          int64_t last) const {
  for (int64_t r = first; r < last; ++r) {
    const RowRunner runner(*this, stage.rows, thread, r);
    for (const RowOp& op : stage.ops) std::visit(runner, op);
  }
}

void Interpreter::run_linear(int thread, const LinearStage& stage) {
  const LinearArgs args = linear_args(stage);
  const int64_t items = args.a.t == 0 ? 0 : linear_items(args);
  const int64_t panels =
      std::clamp<int64_t>(piece(items) / kItemsPerPanel, 1, kMaxPanelsPerPiece);
  share(thread, {items, panels * kItemsPerPanel, plan_.pool_.size()}, [&](int64_t first, int64_t last) {
    plan_.table_.linear(args, first, last, scratch(thread));
  });
}

void Interpreter::run_attention(int thread, const AttentionCall& call, int64_t rows) {
  share(thread, {call.items, 1}, [&](int64_t first, int64_t last) {
    plan_.table_.attention(call.args, first, last, scratch(thread));
  });
  if (!call.merges) return;
  barrier([] {});
  share(thread, {rows, std::min(piece(rows), kMaxRowsPerPiece)},
        [&](int64_t first, int64_t last) { plan_.table_.attention_merge(call.args, first, last); });
}

bool Plan::run(const StepInput& step, const Poll& poll) {
  reserve(step.num_tokens, step.num_logits);
  for (WorkQueue& queue : queues_) queue.reset();
  for (const BlockCopy& copy : step.copies) {
    std::memcpy(step.pages + copy.destination * step.page_bytes,
                step.pages + copy.source * step.page_bytes, static_cast<size_t>(step.page_bytes));
  }
  Interpreter interpreter(*this, step, poll);
  pool_.run([](void* context, int thread) { static_cast<Interpreter*>(context)->walk(thread); },
            &interpreter);
  // Cleared here rather than at the start: a stop asked for just before the step is not lost.
  return !stop_.exchange(false, std::memory_order_relaxed);
}

}  // namespace fw
