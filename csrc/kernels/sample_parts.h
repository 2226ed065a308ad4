// What sample.cpp is made of: memory, orders of tokens, sparse weights, a logarithm. Included there
// alone.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "kernels/sample.h"

namespace fw {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kLargest = std::numeric_limits<float>::max();
constexpr float kSmallest = std::numeric_limits<float>::min();  // no weight but 0 is below

inline int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

// A thread's memory for one row of n logits.
struct Scratch {
  float* logits;   // [n]: a copy, where something changes
  float* altered;  // [n]: another
  float* weights;  // [n]
  float* maxima;   // [ceil(n / 64)]
  float* chunk;    // [4096]
  double* sums;    // [ceil(n / 4096)]
  uint64_t* keys;  // [n]
  uint64_t* spare;  // [n]
  int32_t* ids;    // [n]

  // Lays the arrays out from `base`; returns how many bytes they take.
  int64_t lay_out(uint8_t* base, int64_t n) {
    int64_t used = 0;
    const auto take = [&](auto*& array, int64_t count) {
      using Value = std::remove_reference_t<decltype(*array)>;
      array = reinterpret_cast<Value*>(base + used);
      used += divide_up(count * static_cast<int64_t>(sizeof(Value)), 64) * 64;
    };
    take(logits, n);
    take(altered, n);
    take(weights, n);
    take(maxima, divide_up(n, kMaximaBlock));
    take(chunk, kSampleChunk);
    take(sums, divide_up(n, kSampleChunk));
    take(keys, n);
    take(spare, n);
    take(ids, n);
    return used;
  }
};

// Orders values from largest to smallest, then ids from lowest: a smaller key is better. Adding 0
// makes -0 and +0 equal.
inline uint64_t key_of(float value, int32_t id) {
  const float positive_zero = value + 0.0F;
  uint32_t bits;
  std::memcpy(&bits, &positive_zero, sizeof bits);
  const uint32_t increasing = bits & 0x80000000 ? ~bits : bits | 0x80000000;
  return static_cast<uint64_t>(~increasing) << 32 | static_cast<uint32_t>(id);
}
inline int32_t id_of(uint64_t key) { return static_cast<int32_t>(key & 0xFFFFFFFF); }

// Sorts keys. Large arrays: by 11 of the upper 32 bits at a time, which leaves the order of the
// lower halves as it is: that must be increasing where the upper halves are equal.
inline void sort_keys(uint64_t* keys, uint64_t* spare, int64_t n) {
  if (n < 4096) return std::sort(keys, keys + n);
  for (int shift = 32; shift < 64; shift += 11) {
    int64_t starts[2049] = {};
    for (int64_t i = 0; i < n; ++i) ++starts[(keys[i] >> shift & 2047) + 1];
    for (int i = 0; i < 2048; ++i) starts[i + 1] += starts[i];
    for (int64_t i = 0; i < n; ++i) spare[starts[keys[i] >> shift & 2047]++] = keys[i];
    std::swap(keys, spare);
  }
  std::copy(keys, keys + n, spare);  // three passes: the caller's array is the spare one now
}

// ln x for a positive normal x, as softmax.py's `log`.
inline double log_of(double x) {
  uint64_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  int64_t exponent = static_cast<int64_t>(bits >> 52) - 1022;
  bits = (bits & 0x000FFFFFFFFFFFFF) | 0x3FE0000000000000;
  double mantissa;
  std::memcpy(&mantissa, &bits, sizeof mantissa);
  if (mantissa < 0.7071067811865476) {
    mantissa *= 2;
    --exponent;
  }
  const double s = (mantissa - 1) / (mantissa + 1);
  const double square = s * s;
  double series = 0;
  for (int k = 23; k > 0; k -= 2) series = series * square + 1.0 / k;
  return static_cast<double>(exponent) * 0.6931471805599453 + 2 * s * series;
}

// The weights that a strategy leaves: all of them, or those of a few tokens.
struct Weights {
  const float* dense = nullptr;  // [n]; null when sparse
  int64_t n = 0;                 // V
  const int32_t* ids = nullptr;  // sparse: increasing, their weights not 0
  const float* values = nullptr;
  int64_t count = 0;  // of tokens with a weight

  float of(int32_t token) const {
    if (dense) return dense[token];
    const int32_t* found = std::lower_bound(ids, ids + count, token);
    return found < ids + count && *found == token ? values[found - ids] : 0.0F;
  }
  // The weights of chunk `index`: [length]. buffer: [4096].
  const float* chunk(int64_t index, float* buffer, int64_t& length) const {
    const int64_t start = index * kSampleChunk;
    length = std::min(kSampleChunk, n - start);
    if (dense) return dense + start;
    std::fill(buffer, buffer + length, 0.0F);
    const int32_t* id = std::lower_bound(ids, ids + count, start);
    for (; id < ids + count && *id < start + length; ++id) buffer[*id - start] = values[id - ids];
    return buffer;
  }
};

}  // namespace
}  // namespace fw
