#include "text/tables.h"

namespace fw {

namespace {

constexpr uint64_t kMultiplier = 0x9E3779B97F4A7C15u;  // 2^64 over the golden ratio

// Part of the file format: a change needs a new format version.
size_t hash(std::string_view piece) {  // FNV-1a, its upper bits folded in
  uint64_t h = 0xCBF29CE484222325u;
  for (const char c : piece) h = (h ^ static_cast<uint8_t>(c)) * 0x100000001B3u;
  return static_cast<size_t>((h * kMultiplier) >> 32);
}

size_t hash(int32_t left, int32_t right) {
  const uint64_t pair = static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 |
                        static_cast<uint32_t>(right);
  return static_cast<size_t>((pair * kMultiplier) >> 32 ^ pair);
}

// At most half full.
size_t num_slots(size_t count) {
  size_t size = 2;
  while (size < 2 * count) size *= 2;
  return size;
}

}  // namespace

int32_t PieceTable::find(std::string_view piece) const {
  const size_t mask = slots.size - 1;
  if (slots.size == 0) return -1;
  for (size_t at = hash(piece) & mask;; at = (at + 1) & mask) {
    const int32_t id = slots.data[at];
    if (id < 0 || strings[id] == piece) return id;
  }
}

int32_t MergeTable::find(int32_t left, int32_t right) const {
  const size_t mask = slots.size - 1;
  if (slots.size == 0) return -1;
  for (size_t at = hash(left, right) & mask;; at = (at + 1) & mask) {
    const int32_t rank = slots.data[at];
    if (rank < 0 || (merges[rank].left == left && merges[rank].right == right)) return rank;
  }
}

std::vector<int32_t> piece_slots(const Strings& strings, const int32_t* ids, size_t count) {
  std::vector<int32_t> slots(num_slots(count), -1);
  const size_t mask = slots.size() - 1;
  for (size_t i = 0; i < count; ++i) {
    const std::string_view piece = strings[ids[i]];
    size_t at = hash(piece) & mask;
    while (slots[at] >= 0 && strings[slots[at]] != piece) at = (at + 1) & mask;
    if (slots[at] < 0) slots[at] = ids[i];
  }
  return slots;
}

std::vector<int32_t> merge_slots(const Merge* merges, size_t count) {
  std::vector<int32_t> slots(num_slots(count), -1);
  const size_t mask = slots.size() - 1;
  for (size_t i = 0; i < count; ++i) {
    size_t at = hash(merges[i].left, merges[i].right) & mask;
    while (slots[at] >= 0 && (merges[slots[at]].left != merges[i].left ||
                              merges[slots[at]].right != merges[i].right)) {
      at = (at + 1) & mask;
    }
    slots[at] = static_cast<int32_t>(i);
  }
  return slots;
}

}  // namespace fw
