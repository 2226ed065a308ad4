// How attention is cut into items. Not here: any arithmetic.
#include "kernels/attention.h"

namespace fw {
namespace {

constexpr int64_t kTileQueries = 72;  // rows x heads of a group, unless a group has more
constexpr int64_t kFewRows = 8;       // up to here a sequence's splits are items of their own
constexpr int64_t kTiles = 8;         // at least, if they have kMinTileRows: threads want work
constexpr int64_t kMinTileRows = 4;

int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

int64_t max_tile_rows(int64_t heads, int64_t kv_heads) {
  const int64_t rows = kTileQueries / (heads / kv_heads);
  return rows > 0 ? rows : 1;
}

int64_t tile_rows(const AttentionArgs& args, int64_t num_rows) {
  const int64_t most = max_tile_rows(args.heads, args.kv_heads);
  const int64_t wanted = divide_up(num_rows, kTiles);
  const int64_t rows = wanted < kMinTileRows ? kMinTileRows : wanted;
  return rows < most ? rows : most;
}

int64_t first_visible(const AttentionArgs& args, int64_t row) {
  const int64_t position = args.positions[row];
  return args.window > 0 && position >= args.window ? position - args.window + 1 : 0;
}

struct SequencePlan {
  int64_t first_row, num_rows, tile_rows, tiles, split0, splits;
  bool by_split;

  int64_t items(int64_t kv_heads) const { return kv_heads * (by_split ? splits : tiles); }
  int64_t floats(const AttentionArgs& args) const {
    return by_split ? num_rows * args.heads * splits * partial_stride(args.head_dim) : 0;
  }
};

// Splits that rows first_row .. first_row + num_rows - 1 see.
void set_splits(const AttentionArgs& args, int64_t first_row, int64_t num_rows, int64_t& split0,
                int64_t& splits) {
  split0 = first_visible(args, first_row) / kSplitPositions;
  splits = args.positions[first_row + num_rows - 1] / kSplitPositions + 1 - split0;
}

SequencePlan plan_of(const AttentionArgs& args, int64_t sequence) {
  SequencePlan plan{};
  plan.first_row = args.query_start_loc[sequence];
  plan.num_rows = args.query_start_loc[sequence + 1] - plan.first_row;
  plan.tile_rows = tile_rows(args, plan.num_rows);
  plan.tiles = divide_up(plan.num_rows, plan.tile_rows);
  if (plan.num_rows > 0 && args.seq_lens[sequence] > 0) {
    set_splits(args, plan.first_row, plan.num_rows, plan.split0, plan.splits);
    plan.by_split = plan.num_rows <= kFewRows && plan.splits > 1 &&
                    plan.num_rows <= max_tile_rows(args.heads, args.kv_heads);
  }
  return plan;
}

}  // namespace

int64_t attention_items(const AttentionArgs& args) {
  int64_t items = 0;
  for (int64_t n = 0; n < args.num_seqs; ++n) items += plan_of(args, n).items(args.kv_heads);
  return items;
}

int64_t attention_partial_floats(const AttentionArgs& args) {
  int64_t floats = 0;
  for (int64_t n = 0; n < args.num_seqs; ++n) floats += plan_of(args, n).floats(args);
  return floats;
}

int64_t attention_scratch_bytes(int64_t heads, int64_t kv_heads, int64_t head_dim,
                                int64_t max_positions) {
  const int64_t queries = max_tile_rows(heads, kv_heads) * (heads / kv_heads);
  const int64_t splits = divide_up(max_positions, kSplitPositions);
  // Query, scores, parts, and its description.
  const int64_t per_query =
      head_dim + kSplitPositions + 16 + splits * partial_stride(head_dim) + 32;
  return 4 * queries * per_query;
}

AttentionItem attention_item(const AttentionArgs& args, int64_t index, AttentionCursor& cursor) {
  SequencePlan plan = plan_of(args, cursor.sequence);
  while (index - cursor.items >= plan.items(args.kv_heads)) {
    cursor.items += plan.items(args.kv_heads);
    cursor.floats += plan.floats(args);
    plan = plan_of(args, ++cursor.sequence);
  }
  const int64_t local = index - cursor.items;
  AttentionItem item{};
  item.sequence = cursor.sequence;
  item.kv_head = local % args.kv_heads;
  const int64_t part = local / args.kv_heads;
  item.row0 = plan.first_row;
  if (plan.by_split) {
    item.first_row = plan.first_row;
    item.num_rows = plan.num_rows;
    item.first_split = plan.split0 + part;
    item.num_splits = 1;
    item.partials = args.partials + cursor.floats;
    item.split0 = plan.split0;
    item.splits = plan.splits;
    return item;
  }
  // Late tiles see the most positions: they come first, so that no thread starts one last.
  const int64_t rows = plan.tile_rows;
  const int64_t start = (plan.tiles - 1 - part) * rows;
  const int64_t left = plan.num_rows - start;
  item.first_row = plan.first_row + start;
  item.num_rows = left < rows ? left : rows;
  if (plan.splits > 0) {
    set_splits(args, item.first_row, item.num_rows, item.first_split, item.num_splits);
  }
  return item;
}

}  // namespace fw
