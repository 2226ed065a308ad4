// Causal attention over pages: prefill, decode and any mixture of them in one call.
//
// A query at position n sees positions max(0, n - window + 1) .. n. Positions are cut into splits
// of 512 at absolute positions. In each split, over the positions t that the query sees:
//   s[t] = scale * (fused chain over d of q[d] * k[t][d]); capped: softcap * tanh(s / softcap)
//   m = max s[t]; p[t] = exp(s[t] - m); l = sum of p in 16 lanes (t % 16), halved as in rms_norm.h
//   acc[d] = fused chain over t of p[t] * v[t][d]
// Splits are merged in increasing order: M = max m_i; w_i = exp(m_i - M);
//   out[d] = (fused chain of w_i * acc_i[d]) / (fused chain of w_i * l_i)
// In q8 (kv_store.h), k and v are codes with scales, and with the codes of the rotated query and their
// scale q, and n = rotation_size(head_dim),
//   s[t] = ((scale / n * q_scale) * k_scale[t]) * float(integer sum over d of q[d] * k[t][d])
//   acc[d] = fused chain over t of (p[t] * v_scale[t]) * float(v[t][d])
// Chains start at +0. Where a maximum is -inf, 0 is subtracted in its place. NaN counts in no
// maximum, but makes its p NaN. So a row's bits depend on its query and on the keys and values it
// sees alone; what lies in a page beyond them is never multiplied.
//
// Not built: attention sinks.
#pragma once

#include <cstdint>

#include "kernels/kv_store.h"

namespace fw {

constexpr int64_t kSplitPositions = 512;

// T rows, N sequences. A sequence's rows have consecutive positions. seq_lens: 0 for a padded
// sequence, whose rows become 0. block_table: [N][table_stride], page of positions 32 b .. 32 b +
// 31; entries that no query sees are not read.
struct AttentionArgs {
  const float* q;  // [T, heads, head_dim]
  int64_t q_stride;
  float* out;  // [T, heads, head_dim]
  int64_t out_stride;
  const int32_t* positions;        // [T]
  const int32_t* query_start_loc;  // [N + 1]
  const int32_t* seq_lens;         // [N]
  const int32_t* block_table;
  int64_t num_seqs, table_stride;
  KVPages pages;
  int64_t heads, kv_heads, head_dim;  // head_dim % 16 == 0
  float scale;
  int32_t window;   // 0: none
  float softcap;    // 0: none
  float* partials;  // [attention_partial_floats(args)]
};

// An item is a tile of a sequence's rows for one kv head. A sequence of few rows and several splits
// has an item for each split, which leaves its part in `partials` for attention_merge; any other
// item goes through all splits and writes `out`.
struct AttentionItem {
  int64_t sequence;
  int64_t first_row, num_rows;
  int64_t kv_head;
  int64_t first_split, num_splits;  // what the item computes
  // Where part (row, head, split) lies: float ((row - row0) * heads + head) * splits + split -
  // split0, times partial_stride(head_dim), from `partials`; null when the item merges itself.
  float* partials;
  int64_t row0, split0, splits;
};

// Where the search for an item went on from; starts as {}.
struct AttentionCursor {
  int64_t sequence = 0;
  int64_t items = 0;   // of the sequences before
  int64_t floats = 0;  // of their parts
};

// A part: acc [head_dim], m, l, and the rest of a cache line.
constexpr int64_t partial_stride(int64_t head_dim) { return head_dim + 16; }

// How many items the call has; any thread may run any range, in any order.
int64_t attention_items(const AttentionArgs& args);
// Item `index`; with one cursor, indices must not decrease.
AttentionItem attention_item(const AttentionArgs& args, int64_t index, AttentionCursor& cursor);
// Floats that `partials` must have; with 0, attention_merge has nothing to do.
int64_t attention_partial_floats(const AttentionArgs& args);
// Bytes of a thread's scratch, aligned to 64, for sequences of up to max_positions.
int64_t attention_scratch_bytes(int64_t heads, int64_t kv_heads, int64_t head_dim,
                                int64_t max_positions);

using Attention = void(const AttentionArgs& args, int64_t first_item, int64_t last_item,
                       uint8_t* scratch);
// Merges the parts of rows [first_row, last_row), once all items are done; other rows are left.
using AttentionMerge = void(const AttentionArgs& args, int64_t first_row, int64_t last_row);

namespace generic {
Attention attention;
AttentionMerge attention_merge;
}  // namespace generic
namespace avx2 {
Attention attention;
AttentionMerge attention_merge;
}  // namespace avx2
namespace avx512 {
Attention attention;
AttentionMerge attention_merge;
}  // namespace avx512

}  // namespace fw
