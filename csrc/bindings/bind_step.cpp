// Step: the arrays of a ForwardBatch.
#include <nanobind/stl/pair.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <stdexcept>
#include <string>

#include "bindings/step.h"

using namespace nb::literals;

namespace fw {

namespace {

void require(bool holds, const char* what) {
  if (!holds) throw std::invalid_argument(std::string("a step does not hold together: ") + what);
}

bool all_within(const int32_t* values, size_t count, int64_t low, int64_t high) {
  return std::all_of(values, values + count, [&](int32_t v) { return v >= low && v < high; });
}

void check_lengths(const Step& step) {
  const auto t = static_cast<size_t>(step.num_tokens());
  const auto n = static_cast<size_t>(step.num_seqs());
  require(step.positions.size() == t, "positions");
  require(step.query_start_loc.size() == n + 1, "query_start_loc");
  const int32_t* starts = step.query_start_loc.data();
  require(starts[0] == 0 && starts[n] == step.num_tokens(), "query_start_loc");
  require(std::is_sorted(starts, starts + n + 1), "query_start_loc");
  for (const Ints& slots : step.slot_mapping) require(slots.size() == t, "slot_mapping");
  for (const IntTable& table : step.block_tables) require(table.shape(0) == n, "block_tables");
  require(step.block_tables.size() == step.slot_mapping.size(), "groups");
}

void check_values(const Step& step, int64_t vocab_size, int64_t num_blocks) {
  const auto t = static_cast<size_t>(step.num_tokens());
  int64_t limit = INT32_MAX;
  for (const auto& [cos, sin] : step.ropes) {
    require(cos.shape(0) == sin.shape(0) && cos.shape(1) == sin.shape(1), "rope tables");
    limit = std::min(limit, static_cast<int64_t>(cos.shape(0)));
  }
  require(all_within(step.token_ids.data(), t, 0, vocab_size), "token_ids");
  require(all_within(step.positions.data(), t, 0, limit), "positions");
  const int64_t num_slots = num_blocks * kPagePositions;
  for (const Ints& slots : step.slot_mapping) {
    require(all_within(slots.data(), t, -1, num_slots), "slot_mapping");
  }
  const int32_t* rows = step.logits_rows.data();
  const auto r = static_cast<size_t>(step.num_logits());
  require(all_within(rows, r, 0, step.num_tokens()) && std::is_sorted(rows, rows + r),
          "logits_rows");
  require(step.block_copies.shape(1) == 3, "block_copies");
  for (size_t i = 0; i < step.block_copies.shape(0); ++i) {
    require(all_within(step.block_copies.data() + 3 * i, 2, 0, num_blocks), "block_copies");
  }
}

// Every page that a query reads is there.
void check_tables(const Step& step, int64_t num_blocks, const std::vector<int64_t>& windows) {
  require(windows.size() == step.block_tables.size(), "groups");
  for (size_t g = 0; g < windows.size(); ++g) {
    const IntTable& table = step.block_tables[g];
    const auto width = static_cast<int64_t>(table.shape(1));
    for (int64_t s = 0; s < step.num_seqs(); ++s) {
      const auto [first, last] = step.visible(s, windows[g]);
      if (first == last) continue;
      const int64_t begin = first / kPagePositions;
      const int64_t end = (last - 1) / kPagePositions + 1;
      require(end <= width, "block_tables");
      require(all_within(table.data() + s * width + begin, static_cast<size_t>(end - begin), 0,
                         num_blocks),
              "block_tables");
    }
  }
}

}  // namespace

std::pair<int64_t, int64_t> Step::visible(int64_t sequence, int64_t window) const {
  const int32_t* begin = positions.data() + query_start_loc.data()[sequence];
  const int32_t* end = positions.data() + query_start_loc.data()[sequence + 1];
  if (begin == end || seq_lens.data()[sequence] == 0) return {0, 0};
  const auto [least, most] = std::minmax_element(begin, end);
  const int64_t first = window == 0 ? 0 : std::max<int64_t>(0, *least - window + 1);
  require(*most < seq_lens.data()[sequence], "seq_lens");
  return {first, int64_t{*most} + 1};
}

void Step::check(int64_t vocab_size, int64_t num_blocks,
                 const std::vector<int64_t>& windows) const {
  check_lengths(*this);
  check_values(*this, vocab_size, num_blocks);
  check_tables(*this, num_blocks, windows);
}

StepInput Step::input(const Pages& pages) const {
  StepInput in = {};
  in.num_tokens = num_tokens();
  in.num_seqs = num_seqs();
  in.num_logits = num_logits();
  in.token_ids = token_ids.data();
  in.positions = positions.data();
  in.query_start_loc = query_start_loc.data();
  in.seq_lens = seq_lens.data();
  in.logits_rows = logits_rows.data();
  for (const IntTable& table : block_tables) {
    in.block_tables.push_back({table.data(), static_cast<int64_t>(table.shape(1))});
  }
  for (const Ints& slots : slot_mapping) in.slot_mappings.push_back(slots.data());
  for (const auto& [cos, sin] : ropes) in.ropes.push_back({cos.data(), sin.data()});
  for (size_t i = 0; i < block_copies.shape(0); ++i) {
    const int32_t* copy = block_copies.data() + 3 * i;
    in.copies.push_back({copy[0], copy[1], copy[2]});
  }
  in.pages = pages.memory.data();
  in.page_bytes = pages.page_bytes;
  in.kv_type = pages.kv_type;
  return in;
}

void bind_step(nb::module_& m) {
  nb::class_<Step>(m, "Step")
      .def(
          "__init__",
          [](Step* self, Ints token_ids, Ints positions, Ints query_start_loc, Ints seq_lens,
             Ints logits_rows, std::vector<IntTable> block_tables, std::vector<Ints> slot_mapping,
             std::vector<std::pair<FloatTable, FloatTable>> ropes, IntTable block_copies) {
            new (self) Step{token_ids, positions, query_start_loc, seq_lens, logits_rows,
                            std::move(block_tables), std::move(slot_mapping), std::move(ropes),
                            block_copies};
          },
          nb::kw_only(), "token_ids"_a, "positions"_a, "query_start_loc"_a, "seq_lens"_a,
          "logits_rows"_a, "block_tables"_a, "slot_mapping"_a, "ropes"_a, "block_copies"_a);
}

}  // namespace fw
