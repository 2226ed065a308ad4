// Attention as its header words it, one query and one position at a time: what every vector body is
// compared with, bit for bit.
#include "kernels/attention.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "isa/generic_math.h"

namespace fw {
namespace generic {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

uint16_t half_of(float x) {
  if (x > 65504.0F) x = 65504.0F;
  if (x < -65504.0F) x = -65504.0F;
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  const uint32_t sign = bits >> 16 & 0x8000;
  const uint32_t magnitude = bits & 0x7FFFFFFF;
  if (magnitude > 0x7F800000) {
    return static_cast<uint16_t>(sign | 0x7E00 | (magnitude >> 13 & 0x3FF));
  }
  // Below 2^-14 the spacing is 2^-24; adding 0.5, whose own spacing is 2^-24, rounds to that.
  if (magnitude < 0x38800000) {
    float value;
    std::memcpy(&value, &magnitude, sizeof value);
    const float shifted = value + 0.5F;
    std::memcpy(&bits, &shifted, sizeof bits);
    return static_cast<uint16_t>(sign | (bits - 0x3F000000));
  }
  const uint32_t odd = magnitude >> 13 & 1;
  return static_cast<uint16_t>(sign | ((magnitude + 0xFFF + odd - 0x38000000) >> 13));
}

float float_of(uint16_t half) {
  const float sign = half & 0x8000 ? -1.0F : 1.0F;
  const int exponent = half >> 10 & 31, mantissa = half & 0x3FF;
  if (exponent == 31) return mantissa ? std::nanf("") : sign * kInfinity;
  if (exponent == 0) return sign * static_cast<float>(mantissa) * 0x1p-24F;
  const uint32_t bits = static_cast<uint32_t>((exponent + 112) << 23 | mantissa << 13);
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return sign * value;
}

namespace {

int64_t head_bytes(int64_t head_dim) { return kv_layer_bytes(1, head_dim); }

// The K, then V of one kv head in one page.
uint16_t* head_page(const KVPages& pages, int64_t page, int64_t kv_head, int64_t head_dim) {
  return reinterpret_cast<uint16_t*>(pages.data + page * pages.page_bytes + pages.layer_offset +
                                     kv_head * head_bytes(head_dim));
}

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

struct Query {
  const AttentionArgs& args;
  int64_t sequence, row, head;

  const uint16_t* page_of(int64_t position) const {
    const int32_t page =
        args.block_table[sequence * args.table_stride + position / kPagePositions];
    return head_page(args.pages, page, head / (args.heads / args.kv_heads), args.head_dim);
  }
  float score(int64_t position) const {
    const uint16_t* k = page_of(position) + position % kPagePositions;
    const float* q = args.q + row * args.q_stride + head * args.head_dim;
    float sum = 0;
    for (int64_t d = 0; d < args.head_dim; ++d) {
      sum = std::fmaf(q[d], float_of(k[d * kPagePositions]), sum);
    }
    const float scaled = args.scale * sum;
    return args.softcap > 0 ? args.softcap * tanh_of(scaled / args.softcap) : scaled;
  }
};

float finite_or_zero(float maximum) { return maximum == -kInfinity ? 0.0F : maximum; }

// part: acc [head_dim], m, l.
void attend(const Query& query, int64_t split, float* part) {
  const int64_t head_dim = query.args.head_dim;
  const Range range = visible_in_split(query.args, query.row, split);
  float p[kSplitPositions];
  float maximum = -kInfinity;
  for (int64_t t = range.begin; t < range.end; ++t) {
    const float score = query.score(t);
    p[t % kSplitPositions] = score;
    if (score > maximum) maximum = score;
  }
  float lanes[16] = {};
  for (int64_t d = 0; d < head_dim; ++d) part[d] = 0;
  for (int64_t t = range.begin; t < range.end; ++t) {
    const float weight = exp_nonpositive(p[t % kSplitPositions] - finite_or_zero(maximum));
    lanes[t % 16] += weight;
    const uint16_t* v = query.page_of(t) + kPagePositions * head_dim +
                        t % kPagePositions * head_dim;
    for (int64_t d = 0; d < head_dim; ++d) part[d] = std::fmaf(weight, float_of(v[d]), part[d]);
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

void store_kv(const StoreKVArgs& args, int64_t first_row, int64_t last_row) {
  const int64_t d = args.head_dim;
  for (int64_t row = first_row; row < last_row; ++row) {
    const int32_t slot = args.slots[row];
    if (slot < 0) continue;
    const int64_t offset = slot % kPagePositions;
    for (int64_t head = 0; head < args.kv_heads; ++head) {
      uint16_t* k = head_page(args.pages, slot / kPagePositions, head, d);
      uint16_t* v = k + kPagePositions * d;
      for (int64_t i = 0; i < d; ++i) {
        k[i * kPagePositions + offset] = half_of(args.k[row * args.k_stride + head * d + i]);
        v[offset * d + i] = half_of(args.v[row * args.v_stride + head * d + i]);
      }
    }
  }
}

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
