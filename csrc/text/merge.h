// Joining neighbours of a piece, the best-ranked pair first, of equal ones the leftmost: byte-pair
// encoding (Sennrich et al. 2016) with a heap, O(n log n) in the length of the piece.
#pragma once

#include <cstdint>
#include <queue>
#include <vector>

namespace fw {

struct Symbol {
  int32_t id;
  uint32_t begin, size;  // its bytes; 0 bytes once it is part of another
  int32_t previous, next;  // -1 at the ends
};

// What two neighbours join to; an id of -1: nothing.
struct Joined {
  int32_t id = -1;
  uint64_t rank = 0;
};

struct Candidate {
  uint64_t rank;
  int32_t left;   // the place of the left symbol
  int32_t id;
  uint32_t size;  // of both together: neighbours only grow, so another size means another pair

  bool operator<(const Candidate& other) const {  // the top of a heap is its greatest
    return rank != other.rank ? rank > other.rank : left > other.left;
  }
};

// Args: symbols of one piece, in order; `join` says what two of them join to.
template <typename Join>
void merge_all(std::vector<Symbol>& symbols, Join join) {
  std::vector<Candidate> room;
  room.reserve(symbols.size());
  std::priority_queue<Candidate> queue(std::less<Candidate>(), std::move(room));
  const auto consider = [&](int32_t left, int32_t right) {
    if (left < 0 || right < 0) return;
    const Symbol& a = symbols[static_cast<size_t>(left)];
    const Symbol& b = symbols[static_cast<size_t>(right)];
    const Joined joined = join(a, b);
    if (joined.id >= 0) queue.push({joined.rank, left, joined.id, a.size + b.size});
  };
  const auto count = static_cast<int32_t>(symbols.size());
  for (int32_t i = 0; i < count; ++i) {
    symbols[static_cast<size_t>(i)].previous = i - 1;
    symbols[static_cast<size_t>(i)].next = i + 1 < count ? i + 1 : -1;
  }
  for (int32_t i = 0; i + 1 < count; ++i) consider(i, i + 1);
  while (!queue.empty()) {
    const Candidate best = queue.top();
    queue.pop();
    Symbol& left = symbols[static_cast<size_t>(best.left)];
    if (left.size == 0 || left.next < 0) continue;
    Symbol& right = symbols[static_cast<size_t>(left.next)];
    if (left.size + right.size != best.size) continue;
    left.id = best.id;
    left.size = best.size;
    right.size = 0;
    left.next = right.next;
    if (left.next >= 0) symbols[static_cast<size_t>(left.next)].previous = best.left;
    consider(left.previous, best.left);
    consider(best.left, left.next);
  }
}

}  // namespace fw
