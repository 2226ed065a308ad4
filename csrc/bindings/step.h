// One step's arrays, checked and kept alive while it runs.
#pragma once

#include <utility>
#include <vector>

#include "bindings/bindings.h"
#include "bindings/pages.h"
#include "core/plan.h"

namespace fw {

using Ints = Array<int32_t, 1>;
using IntTable = Array<int32_t, 2>;
using FloatTable = Array<float, 2>;

struct Step {
  Ints token_ids, positions, query_start_loc, seq_lens, logits_rows;
  std::vector<IntTable> block_tables;
  std::vector<Ints> slot_mapping;
  std::vector<std::pair<FloatTable, FloatTable>> ropes;
  IntTable block_copies;  // [C, 3]: source, destination, tokens

  int64_t num_tokens() const { return static_cast<int64_t>(token_ids.size()); }
  int64_t num_seqs() const { return static_cast<int64_t>(seq_lens.size()); }
  int64_t num_logits() const { return static_cast<int64_t>(logits_rows.size()); }
  // The first position that any row of a sequence sees, and one past the last.
  std::pair<int64_t, int64_t> visible(int64_t sequence, int64_t window) const;

  // Throws std::invalid_argument where a number would lead outside an array.
  void check(int64_t vocab_size, int64_t num_blocks, const std::vector<int64_t>& windows) const;
  StepInput input(const Pages& pages) const;
};

}  // namespace fw
