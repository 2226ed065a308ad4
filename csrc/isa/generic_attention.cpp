// Attention as its header words it, one query and one position at a time: what every vector body is
// compared with, bit for bit.
#include "kernels/attention.h"

#include <cmath>
#include <limits>

#include "isa/generic_kv.h"
#include "isa/generic_math.h"

namespace fw {
namespace generic {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

namespace {

struct Range {
  int64_t begin, end;
};

Range visible(const AttentionArgs& args, int64_t row) {
  const int64_t position = args.positions[row];
  const int64_t begin = args.window > 0 ? position - args.window + 1 : 0;
  return {begin > 0 ? begin : 0, position + 1};
}

Range visible_in_split(const AttentionArgs& args, int64_t row, int64_t split) {
  const Range all = visible(args, row);
  const int64_t begin = split * kSplitPositions, end = begin + kSplitPositions;
  return {all.begin > begin ? all.begin : begin, all.end < end ? all.end : end};
}

// The codes of a rotated query, where keys are codes.
struct QueryCodes {
  int8_t codes[kMaxQ8HeadDim];
  float weight;
};

struct Query {
  const AttentionArgs& args;
  int64_t sequence, row, head;

  HeadPage page_of(int64_t position) const {
    const int32_t page =
        args.block_table[sequence * args.table_stride + position / kPagePositions];
    return {args.pages, page, head / (args.heads / args.kv_heads), args.head_dim};
  }
  const float* values() const { return args.q + row * args.q_stride + head * args.head_dim; }
  void encode(QueryCodes& to) const {
    float rotated[kMaxQ8HeadDim];
    for (int64_t d = 0; d < args.head_dim; ++d) rotated[d] = values()[d];
    rotate(rotated, args.head_dim);
    const float scale = code_scale(rotated, args.head_dim);
    encode_values(rotated, args.head_dim, scale, to.codes);
    to.weight = args.scale / static_cast<float>(rotation_size(args.head_dim)) * scale;
  }
  float product(int64_t position, const QueryCodes& codes) const {
    const HeadPage page = page_of(position);
    const int64_t t = position % kPagePositions;
    if (args.pages.type == KVType::kQ8) {
      int32_t sum = 0;
      for (int64_t d = 0; d < args.head_dim; ++d) sum += codes.codes[d] * page.key_code(t, d);
      return codes.weight * page.key_scale(t) * static_cast<float>(sum);
    }
    float sum = 0;
    for (int64_t d = 0; d < args.head_dim; ++d) {
      sum = std::fmaf(values()[d], float_of(page.key_half(t, d)), sum);
    }
    return args.scale * sum;
  }
  float score(int64_t position, const QueryCodes& codes) const {
    const float scaled = product(position, codes);
    return args.softcap > 0 ? args.softcap * tanh_of(scaled / args.softcap) : scaled;
  }
};

float finite_or_zero(float maximum) { return maximum == -kInfinity ? 0.0F : maximum; }

// part: acc [head_dim], m, l.
void attend(const Query& query, int64_t split, float* part) {
  const int64_t head_dim = query.args.head_dim;
  const Range range = visible_in_split(query.args, query.row, split);
  QueryCodes codes;
  if (query.args.pages.type == KVType::kQ8) query.encode(codes);
  float p[kSplitPositions];
  float maximum = -kInfinity;
  for (int64_t t = range.begin; t < range.end; ++t) {
    const float score = query.score(t, codes);
    p[t % kSplitPositions] = score;
    if (score > maximum) maximum = score;
  }
  float lanes[16] = {};
  for (int64_t d = 0; d < head_dim; ++d) part[d] = 0;
  for (int64_t t = range.begin; t < range.end; ++t) {
    const float weight = exp_nonpositive(p[t % kSplitPositions] - finite_or_zero(maximum));
    lanes[t % 16] += weight;
    const HeadPage page = query.page_of(t);
    const float in_sum = weight * page.value_scale(t % kPagePositions);
    for (int64_t d = 0; d < head_dim; ++d) {
      part[d] = std::fmaf(in_sum, page.value(t % kPagePositions, d), part[d]);
    }
  }
  part[head_dim] = maximum;
  part[head_dim + 1] = sum16(lanes);
}

// parts: [splits], partial_stride floats apart.
void merge(const float* parts, int64_t splits, int64_t head_dim, float* out) {
  const int64_t stride = partial_stride(head_dim);
  float maximum = -kInfinity, total = 0;
  for (int64_t i = 0; i < splits; ++i) {
    if (parts[i * stride + head_dim] > maximum) maximum = parts[i * stride + head_dim];
  }
  for (int64_t d = 0; d < head_dim; ++d) out[d] = 0;
  for (int64_t i = 0; i < splits; ++i) {
    const float* part = parts + i * stride;
    const float weight = exp_nonpositive(part[head_dim] - finite_or_zero(maximum));
    total = std::fmaf(weight, part[head_dim + 1], total);
    for (int64_t d = 0; d < head_dim; ++d) out[d] = std::fmaf(weight, part[d], out[d]);
  }
  for (int64_t d = 0; d < head_dim; ++d) out[d] = out[d] / total;
}

void attend_query(const Query& query, const AttentionItem& item, float* scratch) {
  const AttentionArgs& args = query.args;
  float* out = args.out + query.row * args.out_stride + query.head * args.head_dim;
  const int64_t stride = partial_stride(args.head_dim);
  const Range range = visible(args, query.row);
  if (item.num_splits == 0) {
    for (int64_t d = 0; d < args.head_dim; ++d) out[d] = 0;
    return;
  }
  if (item.partials) {
    const int64_t index = (query.row - item.row0) * args.heads + query.head;
    const int64_t split = item.first_split;
    attend(query, split, item.partials + (index * item.splits + split - item.split0) * stride);
    return;
  }
  const int64_t first = range.begin / kSplitPositions;
  const int64_t splits = (range.end - 1) / kSplitPositions + 1 - first;
  for (int64_t i = 0; i < splits; ++i) attend(query, first + i, scratch + i * stride);
  merge(scratch, splits, args.head_dim, out);
}

}  // namespace

void attention(const AttentionArgs& args, int64_t first_item, int64_t last_item,
               uint8_t* scratch) {
  const int64_t group = args.heads / args.kv_heads;
  AttentionCursor cursor;
  for (int64_t index = first_item; index < last_item; ++index) {
    const AttentionItem item = attention_item(args, index, cursor);
    for (int64_t r = 0; r < item.num_rows; ++r) {
      for (int64_t g = 0; g < group; ++g) {
        const Query query{args, item.sequence, item.first_row + r, item.kv_head * group + g};
        attend_query(query, item, reinterpret_cast<float*>(scratch));
      }
    }
  }
}

void attention_merge(const AttentionArgs& args, int64_t first_row, int64_t last_row) {
  const int64_t items = attention_items(args);
  AttentionCursor cursor;
  for (int64_t index = 0; index < items; ++index) {
    const AttentionItem item = attention_item(args, index, cursor);
    if (!item.partials || item.first_split != item.split0 || item.kv_head != 0) continue;
    for (int64_t r = 0; r < item.num_rows; ++r) {
      const int64_t row = item.first_row + r;
      if (row < first_row || row >= last_row) continue;
      const Range range = visible(args, row);
      const int64_t first = range.begin / kSplitPositions;
      const int64_t splits = (range.end - 1) / kSplitPositions + 1 - first;
      for (int64_t head = 0; head < args.heads; ++head) {
        const float* parts = item.partials + ((r * args.heads + head) * item.splits + first -
                                              item.split0) * partial_stride(args.head_dim);
        merge(parts, splits, args.head_dim,
              args.out + row * args.out_stride + head * args.head_dim);
      }
    }
  }
}

}  // namespace generic
}  // namespace fw
