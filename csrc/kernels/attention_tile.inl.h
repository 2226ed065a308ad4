// Which queries an attention item has, what they see, and where their results go. Not here: any
// arithmetic.

constexpr int kMaxGroup = 6;  // queries of a register tile
constexpr int64_t kScoreStride = kSplitPositions + 16;  // rows start in different cache sets

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

// How scores are made of integer dot products with a query's codes.
struct CodedQuery {
  float weight;   // attention scale / rotation size x scale of the query
  int32_t start;  // of the sum of products
};

// Queries in the order (row, head), and a thread's memory for them.
struct Tile {
  const AttentionArgs& args;
  const AttentionItem& item;
  int64_t size, groups;
  Query* queries;     // [size]
  CodedQuery* coded;  // [size], where keys are codes
  float* q;           // per group [head_dim][its size], or [head_dim / 4][its size][4] of codes
  float* scores;      // [size][kScoreStride]: position % 512
  float* parts;       // [size][item.num_splits], where the item merges itself

  Tile(const AttentionArgs& a, const AttentionItem& i, uint8_t* scratch)
      : args(a), item(i), size(i.num_rows * (a.heads / a.kv_heads)),
        groups((size + kMaxGroup - 1) / kMaxGroup) {
    scores = reinterpret_cast<float*>(scratch);
    q = scores + size * kScoreStride;
    parts = q + size * a.head_dim;
    queries = reinterpret_cast<Query*>(parts + size * item_part());
    coded = reinterpret_cast<CodedQuery*>(queries + size);
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
  const uint8_t* keys(int64_t page_index) const {
    const int32_t block = args.block_table[item.sequence * args.table_stride + page_index];
    return head_page(args.pages, block, item.kv_head, args.head_dim);
  }
  const uint8_t* values(int64_t page_index) const {
    return keys(page_index) + kv_block_bytes(args.pages.type, args.head_dim);
  }
};
