// Plan, its operations and stages.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include <chrono>
#include <optional>
#include <stdexcept>
#include <tuple>
#include <utility>
#include <vector>

#include "bindings/bindings.h"
#include "bindings/pages.h"
#include "bindings/sample.h"
#include "bindings/step.h"
#include "core/backend.h"
#include "core/plan.h"

using namespace nb::literals;

namespace fw {

namespace {

// A class whose constructor takes the fields of a struct in order.
template <typename T, typename... Fields, typename... Names>
void bind_struct(nb::module_& m, const char* name, const Names&... names) {
  nb::class_<T>(m, name).def(
      "__init__", [](T* self, Fields... fields) { new (self) T{fields...}; }, names...);
}

void bind_row_ops(nb::module_& m) {
  bind_struct<EmbedOp, int32_t, float, Operand>(m, "Embed", "weight"_a, "scale"_a, "out"_a);
  bind_struct<AddOp, Operand, Operand, Operand>(m, "Add", "a"_a, "b"_a, "out"_a);
  bind_struct<NormOp, Operand, int32_t, float, Operand>(m, "Norm", "x"_a, "weight"_a, "eps"_a,
                                                        "out"_a);
  bind_struct<RopeOp, Operand, int32_t, int64_t, bool, Operand>(
      m, "Rope", "x"_a, "table"_a, "head_dim"_a, "interleaved"_a, "out"_a);
  bind_struct<StoreKVOp, Operand, Operand, AttentionLayer>(m, "StoreKV", "k"_a, "v"_a, "layer"_a);
  bind_struct<ActivateOp, bool, Operand, Operand, Operand>(m, "Activate", "gelu"_a, "gate"_a,
                                                           "up"_a, "out"_a);
  bind_struct<SoftcapOp, Operand, float, Operand>(m, "Softcap", "x"_a, "cap"_a, "out"_a);
  bind_struct<TakeOp, Operand, Operand>(m, "Take", "x"_a, "out"_a);
  bind_struct<QuantizeOp, Operand, int32_t>(m, "Quantize", "x"_a, "out"_a);
}

void bind_operands(nb::module_& m) {
  nb::enum_<Rows>(m, "Rows")
      .value("TOKENS", Rows::kTokens)
      .value("LOGITS", Rows::kLogits)
      .value("THREADS", Rows::kThreads);
  bind_struct<BufferSpec, Rows, int64_t, int32_t>(m, "BufferSpec", "rows"_a, "width"_a, "run"_a);
  bind_struct<Operand, int32_t, int64_t>(m, "Operand", "buffer"_a, "width"_a);
  bind_struct<LinearSegment, int32_t, int32_t, Operand>(m, "LinearSegment", "weight"_a, "bias"_a,
                                                        "out"_a);
  bind_struct<AttentionLayer, int32_t, int32_t, int64_t, int64_t, int64_t, float, int32_t, float>(
      m, "AttentionLayer", "group"_a, "index_in_group"_a, "heads"_a, "kv_heads"_a, "head_dim"_a,
      "scale"_a, "window"_a, "softcap"_a);
}

void bind_stages(nb::module_& m) {
  bind_struct<RowsStage, Rows, std::vector<RowOp>>(m, "RowsStage", "rows"_a, "ops"_a);
  bind_struct<LinearStage, Rows, Operand, int32_t, int32_t, std::vector<LinearSegment>>(
      m, "LinearStage", "rows"_a, "x"_a, "a32"_a, "a256"_a, "segments"_a);
  bind_struct<AttentionStage, Rows, Operand, AttentionLayer, Operand>(
      m, "AttentionStage", "rows"_a, "q"_a, "layer"_a, "out"_a);
}

// Whether a signal handler, Ctrl-C's most of all, has raised an exception; it stays set.
bool signal_raised(void*) {
  const nb::gil_scoped_acquire acquire;
  return PyErr_CheckSignals() != 0;
}

// Tokens, and how many of the step's seconds it took to choose them.
using Sampled = std::pair<std::vector<Outcome>, double>;

// Runs a step and chooses its tokens; nothing where it was stopped.
std::optional<Sampled> run_plan(Plan& plan, Sampler& sampler, const Step& step,
                                const Pages& pages, int64_t vocab_size,
                                const std::vector<int64_t>& windows, int32_t logits,
                                const Array<int32_t, 1>& rows,
                                const std::vector<const Strategy*>& strategies,
                                bool poll_signals) {
  step.check(vocab_size, pages.num_blocks, windows);
  const StepInput input = step.input(pages);
  const Poll poll = {poll_signals ? &signal_raised : nullptr, nullptr};
  SampleCall call(strategies, rows, static_cast<size_t>(step.num_logits()));
  bool done = false;
  double seconds = 0;
  {
    const nb::gil_scoped_release release;
    done = plan.run(input, poll);
    const auto start = std::chrono::steady_clock::now();
    if (done) call.run(sampler, plan.floats(logits), vocab_size);
    seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }
  if (PyErr_Occurred() != nullptr) throw nb::python_error();
  if (!done) return std::nullopt;
  return Sampled{call.outcomes(), seconds};
}

nb::ndarray<const float, nb::numpy, nb::ndim<2>> view_floats(nb::handle_t<Plan> self,
                                                             int32_t buffer, size_t rows,
                                                             size_t width) {
  const auto& plan = nb::cast<const Plan&>(self);
  return {plan.floats(buffer), {rows, width}, self};
}

}  // namespace

void bind_plan(nb::module_& m) {
  bind_operands(m);
  bind_row_ops(m);
  bind_stages(m);
  nb::class_<Plan>(m, "Plan")
      .def(
          "__init__",
          [](Plan* self, Backend& backend, const Weights& weights,
             std::vector<BufferSpec> buffers) {
            new (self) Plan(backend.pool, weights, backend.table, std::move(buffers));
          },
          "backend"_a, "weights"_a, "buffers"_a, nb::keep_alive<1, 2>(), nb::keep_alive<1, 3>())
      .def("add", &Plan::add, "stage"_a)
      .def("reserve", &Plan::reserve, "num_tokens"_a, "num_logits"_a)
      .def("run", &run_plan, "sampler"_a, "step"_a, "pages"_a, "vocab_size"_a, "windows"_a,
           "logits"_a, "rows"_a, "strategies"_a, "poll_signals"_a)
      .def("stop", &Plan::stop)
      .def("clear_stop", &Plan::clear_stop)
      .def("measure", &Plan::measure, "on"_a)
      .def_prop_ro("stage_ns", &Plan::stage_ns)
      .def("floats", &view_floats, "buffer"_a, "rows"_a, "width"_a)
      .def_prop_ro("progress", &Plan::progress)
      .def_prop_ro("scratch_bytes", &Plan::scratch_bytes);
}

}  // namespace fw
