// Sampler: the compiled twin of sampling.sampler.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <stdexcept>
#include <vector>

#include "bindings/sample.h"
#include "core/backend.h"

using namespace nb::literals;

namespace fw {

SampleRow Strategy::complete() const {
  SampleRow whole = row;
  whole.banned = banned.data();
  whole.num_banned = static_cast<int64_t>(banned.size());
  whole.bias_ids = bias_ids.data();
  whole.bias = bias.data();
  whole.num_bias = static_cast<int64_t>(bias_ids.size());
  whole.allowed = allowed ? allowed->data() : nullptr;
  whole.num_allowed_words = allowed ? static_cast<int64_t>(allowed->size()) : 0;
  if (penalties) {
    whole.penalized = penalties->token_ids.data();
    whole.counts = penalties->counts.data();
    whole.num_penalized = static_cast<int64_t>(penalties->token_ids.size());
    whole.repetition = penalties->repetition;
    whole.frequency = penalties->frequency;
    whole.presence = penalties->presence;
  }
  return whole;
}

SampleCall::SampleCall(const std::vector<const Strategy*>& strategies,
                       const Array<int32_t, 1>& rows, size_t num_logits)
    : rows_(rows.data(), rows.data() + rows.size()), rooms_(strategies.size()) {
  if (rows.size() != strategies.size()) throw std::invalid_argument("one strategy for each row");
  for (size_t i = 0; i < strategies.size(); ++i) {
    if (rows_[i] < 0 || static_cast<size_t>(rows_[i]) >= num_logits) {
      throw std::invalid_argument("no such row of logits");
    }
    const SampleRow row = strategies[i]->complete();
    const auto count = static_cast<size_t>(row.num_candidates);
    CandidateRoom& room = rooms_[i];
    room.ids.resize(count), room.logprobs.resize(count), room.probabilities.resize(count);
    tasks_.push_back(
        {nullptr, row, {}, {room.ids.data(), room.logprobs.data(), room.probabilities.data()}});
  }
}

void SampleCall::run(Sampler& sampler, const float* logits, int64_t vocab_size) {
  for (size_t i = 0; i < tasks_.size(); ++i) tasks_[i].logits = logits + rows_[i] * vocab_size;
  sampler.run(tasks_, vocab_size);
}

std::vector<Outcome> SampleCall::outcomes() const {
  std::vector<Outcome> outcomes;
  for (size_t i = 0; i < tasks_.size(); ++i) {
    Outcome& outcome = outcomes.emplace_back(Outcome{tasks_[i].result, {}});
    if (outcome.result.status != SampleStatus::kOk) continue;
    for (size_t c = 0; c < static_cast<size_t>(outcome.result.num_candidates); ++c) {
      outcome.candidates.emplace_back(rooms_[i].ids[c], rooms_[i].logprobs[c],
                                      rooms_[i].probabilities[c]);
    }
  }
  return outcomes;
}

namespace {

std::vector<Outcome> sample(Sampler& sampler, const Array<float, 2>& logits,
                            const Array<int32_t, 1>& rows,
                            const std::vector<const Strategy*>& strategies) {
  SampleCall call(strategies, rows, logits.shape(0));
  {
    const nb::gil_scoped_release release;
    call.run(sampler, logits.data(), static_cast<int64_t>(logits.shape(1)));
  }
  return call.outcomes();
}

void make_strategy(Strategy* self, double temperature, double top_p, int64_t top_k, uint64_t seed,
                   uint32_t position, uint32_t sample_index, std::vector<int32_t> banned,
                   std::vector<int32_t> bias_ids, std::vector<float> bias,
                   std::optional<Array<uint32_t, 1>> allowed, int64_t num_candidates,
                   std::optional<Penalties> penalties) {
  if (bias_ids.size() != bias.size()) throw std::invalid_argument("one bias for each id");
  SampleRow row = {};
  row.temperature = temperature;
  row.top_p = top_p;
  row.top_k = top_k;
  row.seed = seed;
  row.position = position;
  row.sample_index = sample_index;
  row.num_candidates = num_candidates;
  new (self) Strategy{row,     std::move(banned),    std::move(bias_ids), std::move(bias),
                      allowed, std::move(penalties)};
}

void make_penalties(Penalties* self, Array<int32_t, 1> token_ids, Array<int32_t, 1> counts,
                    float repetition, float frequency, float presence) {
  if (token_ids.size() != counts.size()) throw std::invalid_argument("one count for each token");
  new (self) Penalties{std::move(token_ids), std::move(counts), repetition, frequency, presence};
}

}  // namespace

void bind_sample(nb::module_& m) {
  nb::enum_<SampleStatus>(m, "SampleStatus")
      .value("OK", SampleStatus::kOk)
      .value("NO_FINITE_LOGIT", SampleStatus::kNoFiniteLogit)
      .value("NOTHING_ALLOWED", SampleStatus::kNothingAllowed)
      .value("UNKNOWN_TOKEN", SampleStatus::kUnknownToken)
      .value("MASK_SIZE", SampleStatus::kMaskSize);
  nb::class_<Penalties>(m, "Penalties")
      .def("__init__", &make_penalties, nb::kw_only(), "token_ids"_a, "counts"_a, "repetition"_a,
           "frequency"_a, "presence"_a);
  nb::class_<Strategy>(m, "Strategy")
      .def("__init__", &make_strategy, nb::kw_only(), "temperature"_a, "top_p"_a, "top_k"_a,
           "seed"_a, "position"_a, "sample_index"_a, "banned"_a, "bias_ids"_a, "bias"_a,
           "allowed"_a.none(), "num_candidates"_a, "penalties"_a.none());
  nb::class_<Outcome>(m, "Outcome")
      .def_prop_ro("status", [](const Outcome& self) { return self.result.status; })
      .def_prop_ro("token", [](const Outcome& self) { return self.result.token; })
      .def_prop_ro("logprob", [](const Outcome& self) { return self.result.logprob; })
      .def_prop_ro("probability", [](const Outcome& self) { return self.result.probability; })
      .def_prop_ro("uniform", [](const Outcome& self) { return self.result.uniform; })
      .def_prop_ro("num_survivors", [](const Outcome& self) { return self.result.num_survivors; })
      .def_ro("candidates", &Outcome::candidates);
  nb::class_<Sampler>(m, "Sampler")
      .def(nb::init<Backend&>(), "backend"_a, nb::keep_alive<1, 2>())
      .def("sample", &sample, "logits"_a, "rows"_a, "strategies"_a);
}

}  // namespace fw
