// Hash tables of a compiled vocabulary, as they lie in its file: open addressing, -1 for empty.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace fw {

struct Slots {
  const int32_t* data = nullptr;
  size_t size = 0;  // a power of two, or 0 for an empty table
};

// Strings by id: string i is bytes [offsets[i], offsets[i + 1]).
struct Strings {
  const uint32_t* offsets = nullptr;
  const char* bytes = nullptr;

  std::string_view operator[](int32_t id) const {
    const uint32_t begin = offsets[id];
    return {bytes + begin, offsets[id + 1] - begin};
  }
};

// Finds a token by its bytes.
struct PieceTable {
  Strings strings;
  Slots slots;

  int32_t find(std::string_view piece) const;  // its id, or -1
};

// One merge of byte-level BPE; its place in the list is its rank.
struct Merge {
  int32_t left, right, joined;
};

// Finds a merge by the tokens that it joins.
struct MergeTable {
  const Merge* merges = nullptr;
  Slots slots;

  int32_t find(int32_t left, int32_t right) const;  // its rank, or -1
};

// Slots for these ids; of equal strings the first stays.
std::vector<int32_t> piece_slots(const Strings& strings, const int32_t* ids, size_t count);

// Slots for these merges; of equal pairs the last stays.
std::vector<int32_t> merge_slots(const Merge* merges, size_t count);

}  // namespace fw
