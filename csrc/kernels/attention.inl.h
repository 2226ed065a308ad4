// Body of attention on vectors: a tile of queries (rows x heads of a group) meets each page once.
//
// Per split, three passes over the tile's pages: scores of groups of up to 6 queries by a register
// tile over K, then the softmax of each query, then the same over V. How queries are grouped
// changes no bit: each has chains of its own.

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Scores of every query that sees anything of the page; those of other positions are never used.
template <typename Pages>
inline void score_tile(const Tile& tile, const Page<typename Pages::Value>& page) {
  for (int64_t g = 0; g < tile.groups; ++g) {
    const Group group = tile.group(g);
    if (tile.seen_by_any(group, page.range).empty()) continue;
    float* scores =
        tile.scores + group.first * kScoreStride + page.range.begin % kSplitPositions;
    Pages::score(tile, group, page, scores);
  }
}

template <typename Value>
inline void attend_group(int size, const float* p, const Page<Value>& page, Range range,
                         int64_t head_dim, float* const* acc) {
  if (range.empty()) return;
  for_size(size, [&](auto known) {
    attend_page<decltype(known)::value>(p, page, range, head_dim, acc);
  });
}

// The queries of a group one by one, over what each sees of `range`.
template <typename Value>
inline void attend_alone(const Tile& tile, Group group, const Page<Value>& page, Range range,
                         float* const* acc) {
  for (int m = 0; m < group.size; ++m) {
    const int64_t index = group.first + m;
    attend_group(1, tile.scores + index * kScoreStride, page,
                 intersect(tile.queries[index].visible, range), tile.args.head_dim, acc + m);
  }
}

// Where the queries of a group see different positions of the page, each goes alone before and
// after those that all see.
template <typename Pages>
inline void attend_tile(const Tile& tile, const Page<typename Pages::Value>& page, int64_t split) {
  const int64_t d = tile.args.head_dim;
  for (int64_t g = 0; g < tile.groups; ++g) {
    const Group group = tile.group(g);
    if (tile.seen_by_any(group, page.range).empty()) continue;
    Pages::weigh(tile, group, page);
    const float* p = tile.scores + group.first * kScoreStride;
    float* acc[kMaxGroup];
    for (int m = 0; m < group.size; ++m) acc[m] = tile.part(group.first + m, split);
    Range common = tile.seen_by_all(group, page.range);
    if (common.empty()) common = {page.range.end, page.range.end};
    if (common.begin > page.range.begin) {
      attend_alone(tile, group, page, {page.range.begin, common.begin}, acc);
    }
    attend_group(group.size, p, page, common, d, acc);
    if (common.end < page.range.end) {
      attend_alone(tile, group, page, {common.end, page.range.end}, acc);
    }
  }
}

inline float finite_or_zero(float maximum) { return maximum == -kInfinity ? 0.0F : maximum; }

// Makes the scores outside `range` -inf in the run of 16 positions from `start` on.
inline void mask_run(float* scores, int64_t start, Range range) {
#pragma GCC unroll 2
  for (int64_t j = 0; j < kVectors16; ++j) {
    float* s = scores + start + j * kWidth;
    const Mask seen = between(start + j * kWidth, range.begin, range.end);
    store(s, select(seen, load(s), splat(-kInfinity)));
  }
}

// Scores to weights: p = exp(s - max), 0 where not seen, in whole runs of 16 positions; their sum
// to `sum`. scores: [512].
inline void softmax(float* scores, Range range, float softcap, float& maximum, float& sum) {
  const int64_t begin = range.begin / 16 * 16, end = (range.end + 15) / 16 * 16;
  if (softcap > 0) softcap_body(scores + begin, end - begin, softcap);
  mask_run(scores, begin, range);
  mask_run(scores, end - 16, range);
  Vec top = splat(-kInfinity);
  for (int64_t t = begin; t < end; t += kWidth) top = max(load(scores + t), top);
  maximum = largest(top);
  const Vec base = splat(finite_or_zero(maximum));
  Vec lanes[kVectors16];
#pragma GCC unroll 2
  for (int j = 0; j < kVectors16; ++j) lanes[j] = zero();
  const auto weigh = [&](int64_t t) {
    return [=](int k) { return sub(load(scores + t + k * kWidth), base); };
  };
  const auto keep = [&](int64_t t) {
    return [=, &lanes](int k, Vec p) {
      store(scores + t + k * kWidth, p);
      lanes[k % kVectors16] = add(lanes[k % kVectors16], p);
    };
  };
  int64_t t = begin;
  constexpr int64_t kStep = kExpVectors * kWidth;
  for (; t + kStep <= end; t += kStep) exp_block<kExpVectors>(weigh(t), keep(t));
  for (; t < end; t += 16) exp_block<kVectors16>(weigh(t), keep(t));
  sum = sum16(lanes);
}

inline void softmax_tile(const Tile& tile, int64_t split) {
  const int64_t d = tile.args.head_dim, start = split * kSplitPositions;
  for (int64_t index = 0; index < tile.size; ++index) {
    const Range seen = intersect(tile.queries[index].visible, split_range(split));
    if (seen.empty()) continue;
    float* part = tile.part(index, split);
    softmax(tile.scores + index * kScoreStride, {seen.begin - start, seen.end - start},
            tile.args.softcap, part[d], part[d + 1]);
    for (int64_t i = 0; i < d; i += kWidth) store(part + i, zero());
  }
}

template <typename Pages>
inline void attend_split(const Tile& tile, int64_t split) {
  using Value = typename Pages::Value;
  const Range seen = tile.seen_by_any({0, static_cast<int>(tile.size)}, split_range(split));
  if (seen.empty()) return;
  const auto as_values = [](const uint8_t* p) { return reinterpret_cast<const Value*>(p); };
  const int64_t first = seen.begin / kPagePositions, end = (seen.end - 1) / kPagePositions + 1;
  // The blocks in the order in which they are read: those of keys, then those of values.
  const auto block = [&](int64_t i) {
    if (i < end) return as_values(tile.keys(i));
    const int64_t value = first + i - end;
    return as_values(tile.values(value < end ? value : end - 1));
  };
  for (int64_t i = first; i < end; ++i) {
    score_tile<Pages>(tile, {block(i), block(i + Pages::kAhead), page_range(i)});
  }
  softmax_tile(tile, split);
  for (int64_t i = first; i < end; ++i) {
    const int64_t j = end + i - first;
    attend_tile<Pages>(tile, {block(j), block(j + Pages::kAhead), page_range(i)}, split);
  }
}

// The same as `merge` of one part, whose weight is 1.
inline void finish(const float* part, int64_t head_dim, float* out) {
  const Vec divisor = splat(part[head_dim + 1]);
  for (int64_t i = 0; i < head_dim; i += kWidth) {
    store(out + i, div(add(load(part + i), zero()), divisor));  // adding 0 makes -0 +0
  }
}

// parts: [splits], partial_stride floats apart.
inline void merge(const float* parts, int64_t splits, int64_t head_dim, float* out) {
  if (splits == 1) return finish(parts, head_dim, out);
  const int64_t stride = partial_stride(head_dim);
  float maximum = -kInfinity, total = 0;
  for (int64_t i = 0; i < splits; ++i) {
    const float m = parts[i * stride + head_dim];
    maximum = m > maximum ? m : maximum;
  }
  const Vec base = splat(finite_or_zero(maximum));
  for (int64_t i = 0; i < head_dim; i += kWidth) store(out + i, zero());
  for (int64_t s = 0; s < splits; ++s) {
    const float* part = parts + s * stride;
    const Vec weight = exp_nonpositive(sub(splat(part[head_dim]), base));
    total = std::fmaf(first_of(weight), part[head_dim + 1], total);
    for (int64_t i = 0; i < head_dim; i += kWidth) {
      store(out + i, fma(weight, load(part + i), load(out + i)));
    }
  }
  const Vec divisor = splat(total);
  for (int64_t i = 0; i < head_dim; i += kWidth) store(out + i, div(load(out + i), divisor));
}

// The splits that a query sees: first and one past the last.
inline Range splits_of(Range visible) {
  return {visible.begin / kSplitPositions, (visible.end - 1) / kSplitPositions + 1};
}

inline void finish_query(const Tile& tile, int64_t index) {
  const Query& query = tile.queries[index];
  const int64_t d = tile.args.head_dim;
  if (tile.item.num_splits == 0) {  // a padded sequence
    for (int64_t i = 0; i < d; i += kWidth) store(query.out + i, zero());
    return;
  }
  const Range splits = splits_of(query.visible);
  merge(tile.part(index, splits.begin), splits.end - splits.begin, d, query.out);
}

template <typename Pages>
inline void run_items(const AttentionArgs& args, int64_t first_item, int64_t last_item,
                      uint8_t* scratch) {
  AttentionCursor cursor;
  for (int64_t index = first_item; index < last_item; ++index) {
    const AttentionItem item = attention_item(args, index, cursor);
    const Tile tile(args, item, scratch);
    if (item.num_splits > 0) {
      for (int64_t g = 0; g < tile.groups; ++g) Pages::pack(tile, tile.group(g));
    }
    for (int64_t i = 0; i < item.num_splits; ++i) attend_split<Pages>(tile, item.first_split + i);
    if (item.partials) continue;
    for (int64_t i = 0; i < tile.size; ++i) finish_query(tile, i);
  }
}

inline void attention_body(const AttentionArgs& args, int64_t first_item, int64_t last_item,
                           uint8_t* scratch) {
  if (args.pages.type == KVType::kQ8) {
    run_items<Q8Pages>(args, first_item, last_item, scratch);
  } else {
    run_items<F16Pages>(args, first_item, last_item, scratch);
  }
}

inline void merge_rows(const AttentionArgs& args, const AttentionItem& item, Range rows) {
  const int64_t d = args.head_dim;
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    const Range splits = splits_of(visible(args, row));
    for (int64_t head = 0; head < args.heads; ++head) {
      const int64_t index = (row - item.row0) * args.heads + head;
      const int64_t part = index * item.splits + splits.begin - item.split0;
      merge(item.partials + part * partial_stride(d), splits.end - splits.begin, d,
            args.out + row * args.out_stride + head * d);
    }
  }
}

inline void attention_merge_body(const AttentionArgs& args, int64_t first_row, int64_t last_row) {
  AttentionCursor cursor;
  const int64_t items = attention_items(args);
  for (int64_t index = 0; index < items; ++index) {
    const AttentionItem item = attention_item(args, index, cursor);
    if (!item.partials || item.kv_head != 0 || item.first_split != item.split0) continue;
    merge_rows(args, item,
               intersect({item.first_row, item.first_row + item.num_rows}, {first_row, last_row}));
  }
}
