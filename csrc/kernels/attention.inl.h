// Body of attention on vectors: a tile of queries (rows x heads of a group) meets each page once.
//
// Per split, three passes over the tile's pages: scores of groups of up to 6 queries by a register
// tile over K, then the softmax of each query, then the same over V. How queries are grouped
// changes no bit: each has chains of its own.

constexpr int kMaxGroup = 6;  // queries of a register tile
constexpr int64_t kScoreStride = kSplitPositions + 16;  // rows start in different cache sets
constexpr int64_t kDirectQueries = 12;  // a page met by more is widened once, to a buffer
constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct Range {
  int64_t begin, end;
  bool empty() const { return begin >= end; }
};
inline Range intersect(Range a, Range b) {
  return {a.begin > b.begin ? a.begin : b.begin, a.end < b.end ? a.end : b.end};
}
inline Range visible(const AttentionArgs& args, int64_t row) {
  const int64_t position = args.positions[row];
  const int64_t begin = args.window > 0 ? position - args.window + 1 : 0;
  return {begin > 0 ? begin : 0, position + 1};
}
inline Range split_range(int64_t split) {
  return {split * kSplitPositions, (split + 1) * kSplitPositions};
}
inline Range page_range(int64_t page) {
  return {page * kPagePositions, (page + 1) * kPagePositions};
}

// Queries first .. first + size - 1 of the tile.
struct Group {
  int64_t first;
  int size;
};

// One query of a tile.
struct Query {
  const float* q;  // [head_dim]
  float* out;      // [head_dim]
  float* part;     // of the item's first split; the next split's is partial_stride on
  Range visible;   // positions
};

// Queries in the order (row, head), and a thread's memory for them.
struct Tile {
  const AttentionArgs& args;
  const AttentionItem& item;
  int64_t size, groups;
  Query* queries;  // [size]
  float* q;        // per group [head_dim][its size]
  float* scores;   // [size][kScoreStride]: position % 512
  float* page;     // [32 head_dim]: a widened K or V
  float* parts;    // [size][item.num_splits], where the item merges itself

  Tile(const AttentionArgs& a, const AttentionItem& i, uint8_t* scratch)
      : args(a), item(i), size(i.num_rows * (a.heads / a.kv_heads)),
        groups((size + kMaxGroup - 1) / kMaxGroup) {
    scores = reinterpret_cast<float*>(scratch);
    page = scores + size * kScoreStride;
    q = page + kPagePositions * a.head_dim;
    parts = q + size * a.head_dim;
    queries = reinterpret_cast<Query*>(parts + size * item_part());
    int64_t index = 0;
    for (int64_t row = 0; row < i.num_rows; ++row) {
      for (int64_t head = 0; head < a.heads / a.kv_heads; ++head, ++index) {
        queries[index] = query(index, i.first_row + row, i.kv_head * (a.heads / a.kv_heads) + head);
      }
    }
  }
  // Floats between the parts of two queries, where the item merges itself.
  int64_t item_part() const {
    return item.partials ? 0 : item.num_splits * partial_stride(args.head_dim);
  }
  Query query(int64_t index, int64_t row, int64_t head) const {
    const int64_t d = args.head_dim, in_row = head * d;
    const int64_t shared = ((row - item.row0) * args.heads + head) * item.splits +
                           item.first_split - item.split0;
    float* part = item.partials ? item.partials + shared * partial_stride(d)
                                : parts + index * item_part();
    return {args.q + row * args.q_stride + in_row, args.out + row * args.out_stride + in_row, part,
            visible(args, row)};
  }
  Group group(int64_t index) const {  // sizes differ by one at most
    const int64_t small = size / groups, large = size % groups;
    const int64_t extra = index < large ? index : large;
    return {index * small + extra, static_cast<int>(small + (index < large))};
  }
  // What any and what all of the group's queries see of `within`; rows' positions increase.
  Range seen_by_any(Group group, Range within) const {
    const Query &first = queries[group.first], &last = queries[group.first + group.size - 1];
    return intersect({first.visible.begin, last.visible.end}, within);
  }
  Range seen_by_all(Group group, Range within) const {
    const Query &first = queries[group.first], &last = queries[group.first + group.size - 1];
    return intersect({last.visible.begin, first.visible.end}, within);
  }
  float* part(int64_t index, int64_t split) const {
    return queries[index].part + (split - item.first_split) * partial_stride(args.head_dim);
  }
  const uint16_t* keys(int64_t page_index) const {
    const int32_t block = args.block_table[item.sequence * args.table_stride + page_index];
    return head_page(args.pages, block, item.kv_head, args.head_dim);
  }
  const uint16_t* values(int64_t page_index) const {
    return keys(page_index) + kPagePositions * args.head_dim;
  }
};

inline void pack_queries(const Tile& tile) {
  const int64_t d = tile.args.head_dim;
  for (int64_t g = 0; g < tile.groups; ++g) {
    const Group group = tile.group(g);
    for (int m = 0; m < group.size; ++m) {
      const float* q = tile.queries[group.first + m].q;
      float* packed = tile.q + group.first * d + m;
      for (int64_t i = 0; i < d; ++i, packed += group.size) *packed = q[i];
    }
  }
}

// A register tile of M chains by N vectors: sum[m][n] += x[m] * y[n], y from N vectors at `y`. The
// shorter side is kept in registers, the longer one streamed: 16 are enough for 12 chains.
template <int M, int N, typename T>
inline void multiply_add(const float* x, int64_t x_stride, const T* y, Vec (&sum)[M][N]) {
  if constexpr (M < N) {
    Vec held[M];
#pragma GCC unroll 6
    for (int m = 0; m < M; ++m) held[m] = splat(x[m * x_stride]);
#pragma GCC unroll 8
    for (int n = 0; n < N; ++n) {
      const Vec streamed = load(y + n * kWidth);
#pragma GCC unroll 6
      for (int m = 0; m < M; ++m) sum[m][n] = fma(held[m], streamed, sum[m][n]);
    }
  } else {
    Vec held[N];
#pragma GCC unroll 8
    for (int n = 0; n < N; ++n) held[n] = load(y + n * kWidth);
#pragma GCC unroll 6
    for (int m = 0; m < M; ++m) {
      const Vec streamed = splat(x[m * x_stride]);
#pragma GCC unroll 8
      for (int n = 0; n < N; ++n) sum[m][n] = fma(streamed, held[n], sum[m][n]);
    }
  }
}

// K or V of one kv head in one page: in place (f16), or widened.
template <typename T>
struct Page {
  const T* data;
  const uint16_t* next;  // what is read after it, to be fetched while this is at work
  Range range;           // its positions
};

// Fetches what lies in the next page where `at` lies in this one.
inline void fetch_ahead(const Page<uint16_t>& page, const uint16_t* at) {
  prefetch(page.next + (at - page.data));
}
inline void fetch_ahead(const Page<float>&, const float*) {}

// Dot products of M queries and 32 positions. q: [head_dim][M]. k: [head_dim][32]. scores: [M]
// rows of 32.
template <int M, typename T>
inline void score_page(const float* q, const Page<T>& page, int64_t head_dim, Vec scale,
                       float* scores) {
  constexpr int N = static_cast<int>((M <= 3 ? 32 : 16) / kWidth);
  for (int64_t column = 0; column < kPagePositions; column += N * kWidth) {
    Vec sum[M][N];
#pragma GCC unroll 6
    for (int m = 0; m < M; ++m) {
#pragma GCC unroll 4
      for (int n = 0; n < N; ++n) sum[m][n] = zero();
    }
    for (int64_t i = 0; i < head_dim; ++i) {
      const T* k = page.data + i * kPagePositions + column;
      fetch_ahead(page, k);
      multiply_add<M, N>(q + i * M, 1, k, sum);
    }
#pragma GCC unroll 6
    for (int m = 0; m < M; ++m) {
#pragma GCC unroll 4
      for (int n = 0; n < N; ++n) {
        store(scores + m * kScoreStride + column + n * kWidth, mul(scale, sum[m][n]));
      }
    }
  }
}

// acc[m] += p[m][t] * v[t] for t in `range`, in N vectors from `column` on. p: [M] rows of scores.
template <int M, int N, typename T>
inline void attend_columns(const float* p, const Page<T>& page, Range range, int64_t head_dim,
                           int64_t column, float* const* acc) {
  Vec sum[M][N];
#pragma GCC unroll 6
  for (int m = 0; m < M; ++m) {
#pragma GCC unroll 8
    for (int n = 0; n < N; ++n) sum[m][n] = load(acc[m] + column + n * kWidth);
  }
  for (int64_t t = range.begin; t < range.end; ++t) {
    const T* v = page.data + t % kPagePositions * head_dim + column;
    fetch_ahead(page, v);
    multiply_add<M, N>(p + t % kSplitPositions, kScoreStride, v, sum);
  }
#pragma GCC unroll 6
  for (int m = 0; m < M; ++m) {
#pragma GCC unroll 8
    for (int n = 0; n < N; ++n) store(acc[m] + column + n * kWidth, sum[m][n]);
  }
}

template <int M, typename T>
inline void attend_page(const float* p, const Page<T>& page, Range range, int64_t head_dim,
                        float* const* acc) {
  constexpr int kNarrow = static_cast<int>(16 / kWidth);
  constexpr int kWide = M == 1 ? 4 * kNarrow : M <= 3 ? 2 * kNarrow : kNarrow;
  int64_t column = 0;
  for (; column + kWide * kWidth <= head_dim; column += kWide * kWidth) {
    attend_columns<M, kWide>(p, page, range, head_dim, column, acc);
  }
  for (; column < head_dim; column += 16) {
    attend_columns<M, kNarrow>(p, page, range, head_dim, column, acc);
  }
}

template <typename T>
inline void score_group(int size, const float* q, const Page<T>& page, int64_t head_dim, Vec scale,
                        float* scores) {
  switch (size) {
    case 1: return score_page<1>(q, page, head_dim, scale, scores);
    case 2: return score_page<2>(q, page, head_dim, scale, scores);
    case 3: return score_page<3>(q, page, head_dim, scale, scores);
    case 4: return score_page<4>(q, page, head_dim, scale, scores);
    case 5: return score_page<5>(q, page, head_dim, scale, scores);
    default: return score_page<6>(q, page, head_dim, scale, scores);
  }
}

template <typename T>
inline void attend_group(int size, const float* p, const Page<T>& page, Range range,
                         int64_t head_dim, float* const* acc) {
  if (range.empty()) return;
  switch (size) {
    case 1: return attend_page<1>(p, page, range, head_dim, acc);
    case 2: return attend_page<2>(p, page, range, head_dim, acc);
    case 3: return attend_page<3>(p, page, range, head_dim, acc);
    case 4: return attend_page<4>(p, page, range, head_dim, acc);
    case 5: return attend_page<5>(p, page, range, head_dim, acc);
    default: return attend_page<6>(p, page, range, head_dim, acc);
  }
}

// Scores of every query that sees anything of the page; those of other positions are never used.
template <typename T>
inline void score_tile(const Tile& tile, const Page<T>& page) {
  const Vec scale = splat(tile.args.scale);
  for (int64_t g = 0; g < tile.groups; ++g) {
    const Group group = tile.group(g);
    if (tile.seen_by_any(group, page.range).empty()) continue;
    float* scores =
        tile.scores + group.first * kScoreStride + page.range.begin % kSplitPositions;
    score_group(group.size, tile.q + group.first * tile.args.head_dim, page, tile.args.head_dim,
                scale, scores);
  }
}

// The queries of a group one by one, over what each sees of `range`.
template <typename T>
inline void attend_alone(const Tile& tile, Group group, const Page<T>& page, Range range,
                         float* const* acc) {
  for (int m = 0; m < group.size; ++m) {
    const int64_t index = group.first + m;
    attend_group(1, tile.scores + index * kScoreStride, page,
                 intersect(tile.queries[index].visible, range), tile.args.head_dim, acc + m);
  }
}

// Where the queries of a group see different positions of the page, each goes alone before and
// after those that all see.
template <typename T>
inline void attend_tile(const Tile& tile, const Page<T>& page, int64_t split) {
  const int64_t d = tile.args.head_dim;
  for (int64_t g = 0; g < tile.groups; ++g) {
    const Group group = tile.group(g);
    if (tile.seen_by_any(group, page.range).empty()) continue;
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
  Vec lanes[2] = {zero(), zero()};
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
  sum = sum16(lanes[0], lanes[1]);
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

inline Page<float> widen(const Page<uint16_t>& page, int64_t n, float* buffer) {
  for (int64_t i = 0; i < n; i += kWidth) {
    fetch_ahead(page, page.data + i);
    store(buffer + i, load(page.data + i));
  }
  return {buffer, nullptr, page.range};
}

inline void attend_split(const Tile& tile, int64_t split) {
  const Range seen = tile.seen_by_any({0, static_cast<int>(tile.size)}, split_range(split));
  if (seen.empty()) return;
  const int64_t first = seen.begin / kPagePositions, last = (seen.end - 1) / kPagePositions;
  const int64_t size = kPagePositions * tile.args.head_dim;
  const bool direct = tile.size <= kDirectQueries;
  for (int64_t i = first; i <= last; ++i) {
    const uint16_t* next = i < last ? tile.keys(i + 1) : tile.values(first);
    const Page<uint16_t> page{tile.keys(i), next, page_range(i)};
    if (direct) {
      score_tile(tile, page);
    } else {
      score_tile(tile, widen(page, size, tile.page));
    }
  }
  softmax_tile(tile, split);
  for (int64_t i = first; i <= last; ++i) {
    const Page<uint16_t> page{tile.values(i), tile.values(i < last ? i + 1 : i), page_range(i)};
    if (direct) {
      attend_tile(tile, page, split);
    } else {
      attend_tile(tile, widen(page, size, tile.page), split);
    }
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

inline void attention_body(const AttentionArgs& args, int64_t first_item, int64_t last_item,
                           uint8_t* scratch) {
  AttentionCursor cursor;
  for (int64_t index = first_item; index < last_item; ++index) {
    const AttentionItem item = attention_item(args, index, cursor);
    const Tile tile(args, item, scratch);
    if (item.num_splits > 0) pack_queries(tile);
    for (int64_t i = 0; i < item.num_splits; ++i) attend_split(tile, item.first_split + i);
    if (item.partials) continue;
    for (int64_t i = 0; i < tile.size; ++i) finish_query(tile, i);
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
