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

struct Tile {
  const AttentionArgs& args;
  const AttentionItem& item;
  int64_t heads;    // that share a kv head
  int64_t queries;  // query i: row i / heads, head i % heads
  int64_t groups;
  float* q;       // per group [head_dim][size]
  float* scores;  // [queries][kScoreStride]: position % 512
  float* page;    // [32 head_dim]: a widened K or V
  float* parts;   // [queries][item.num_splits], where the item merges itself

  Tile(const AttentionArgs& a, const AttentionItem& i, float* scratch)
      : args(a), item(i), heads(a.heads / a.kv_heads), queries(i.num_rows * heads),
        groups((queries + kMaxGroup - 1) / kMaxGroup), q(scratch) {
    scores = q + queries * args.head_dim;
    page = scores + queries * kScoreStride;
    parts = page + kPagePositions * args.head_dim;
  }
  int64_t row(int64_t query) const { return item.first_row + query / heads; }
  int64_t head(int64_t query) const { return item.kv_head * heads + query % heads; }
  Range seen(int64_t query, Range within) const {
    return intersect(visible(args, row(query)), within);
  }
  Group group(int64_t index) const {  // sizes differ by one at most
    const int64_t small = queries / groups, large = queries % groups;
    const int64_t extra = index < large ? index : large;
    return {index * small + extra, static_cast<int>(small + (index < large))};
  }
  // All that any of the group's queries sees of `within`; rows' positions increase.
  Range seen_by_any(Group group, Range within) const {
    const Range first = visible(args, row(group.first));
    const Range last = visible(args, row(group.first + group.size - 1));
    return intersect({first.begin, last.end}, within);
  }
  Range seen_by_all(Group group, Range within) const {
    const Range first = visible(args, row(group.first));
    const Range last = visible(args, row(group.first + group.size - 1));
    return intersect({last.begin, first.end}, within);
  }
  float* part(int64_t query, int64_t split) const {
    const int64_t stride = partial_stride(args.head_dim);
    if (!item.partials) {
      return parts + (query * item.num_splits + split - item.first_split) * stride;
    }
    const int64_t index = (row(query) - item.row0) * args.heads + head(query);
    return item.partials + (index * item.splits + split - item.split0) * stride;
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
    float* packed = tile.q + group.first * d;
    for (int m = 0; m < group.size; ++m) {
      const int64_t query = group.first + m;
      const float* q = tile.args.q + tile.row(query) * tile.args.q_stride + tile.head(query) * d;
      for (int64_t i = 0; i < d; ++i) packed[i * group.size + m] = q[i];
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
    for (int m = 0; m < group.size; ++m) {
      const Range before = tile.seen(group.first + m, {page.range.begin, common.begin});
      attend_group(1, p + m * kScoreStride, page, before, d, acc + m);
    }
    attend_group(group.size, p, page, common, d, acc);
    for (int m = 0; m < group.size; ++m) {
      const Range after = tile.seen(group.first + m, {common.end, page.range.end});
      attend_group(1, p + m * kScoreStride, page, after, d, acc + m);
    }
  }
}

inline float finite_or_zero(float maximum) { return maximum == -kInfinity ? 0.0F : maximum; }

// Scores to weights: p = exp(s - max), 0 where not seen, in whole runs of 16 positions; their sum
// to l. scores: [512].
inline void softmax(float* scores, Range range, float softcap, float& maximum, float& sum) {
  const int64_t begin = range.begin / 16 * 16, end = (range.end + 15) / 16 * 16;
  const Vec low = splat(-kInfinity), cap = splat(softcap);
  Vec top = low;
  for (int64_t t = begin; t < end; t += kWidth) {
    Vec s = load(scores + t);
    if (softcap > 0) s = softcap_of(s, cap);
    s = select(between(t, range.begin, range.end), s, low);
    store(scores + t, s);
    top = max(s, top);
  }
  maximum = largest(top);
  const Vec base = splat(finite_or_zero(maximum));
  Vec lanes[2] = {zero(), zero()};
  for (int64_t t = begin; t < end; t += 16) {
#pragma GCC unroll 2
    for (int64_t j = 0; j < kVectors16; ++j) {
      const Vec p = exp_nonpositive(sub(load(scores + t + j * kWidth), base));
      store(scores + t + j * kWidth, p);
      lanes[j] = add(lanes[j], p);
    }
  }
  sum = sum16(lanes[0], lanes[1]);
}

inline void softmax_tile(const Tile& tile, int64_t split) {
  const int64_t d = tile.args.head_dim, start = split * kSplitPositions;
  for (int64_t query = 0; query < tile.queries; ++query) {
    const Range seen = tile.seen(query, split_range(split));
    if (seen.empty()) continue;
    float* part = tile.part(query, split);
    softmax(tile.scores + query * kScoreStride, {seen.begin - start, seen.end - start},
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
  const Range seen = tile.seen_by_any({0, static_cast<int>(tile.queries)}, split_range(split));
  if (seen.empty()) return;
  const int64_t first = seen.begin / kPagePositions, last = (seen.end - 1) / kPagePositions;
  const int64_t size = kPagePositions * tile.args.head_dim;
  const bool direct = tile.queries <= kDirectQueries;
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

// parts: [splits], partial_stride floats apart.
inline void merge(const float* parts, int64_t splits, int64_t head_dim, float* out) {
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

// The splits that a row sees: first and one past the last.
inline Range splits_of(const AttentionArgs& args, int64_t row) {
  const Range seen = visible(args, row);
  return {seen.begin / kSplitPositions, (seen.end - 1) / kSplitPositions + 1};
}

inline float* out_of(const AttentionArgs& args, int64_t row, int64_t head) {
  return args.out + row * args.out_stride + head * args.head_dim;
}

inline void attention_body(const AttentionArgs& args, int64_t first_item, int64_t last_item,
                           uint8_t* scratch) {
  AttentionCursor cursor;
  for (int64_t index = first_item; index < last_item; ++index) {
    const AttentionItem item = attention_item(args, index, cursor);
    const Tile tile(args, item, reinterpret_cast<float*>(scratch));
    pack_queries(tile);
    for (int64_t i = 0; i < item.num_splits; ++i) attend_split(tile, item.first_split + i);
    if (item.partials) continue;
    for (int64_t query = 0; query < tile.queries; ++query) {
      const int64_t row = tile.row(query);
      float* out = out_of(args, row, tile.head(query));
      if (item.num_splits == 0) {  // a padded sequence
        for (int64_t i = 0; i < args.head_dim; i += kWidth) store(out + i, zero());
        continue;
      }
      const Range splits = splits_of(args, row);
      merge(tile.part(query, splits.begin), splits.end - splits.begin, args.head_dim, out);
    }
  }
}

inline void merge_rows(const AttentionArgs& args, const AttentionItem& item, Range rows) {
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    const Range splits = splits_of(args, row);
    for (int64_t head = 0; head < args.heads; ++head) {
      const int64_t index = (row - item.row0) * args.heads + head;
      const float* parts = item.partials + (index * item.splits + splits.begin - item.split0) *
                                               partial_stride(args.head_dim);
      merge(parts, splits.end - splits.begin, args.head_dim, out_of(args, row, head));
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
