// How 8-bit codes, scales and sums of a value share one buffer. Not here: how they are computed
// (kernels/quantize.h).
#pragma once

#include <cstdint>

namespace fw {

constexpr int64_t align64(int64_t bytes) { return (bytes + 63) / 64 * 64; }

// Rows of a value of width k in runs of 32 (A32) or 256 (A256): codes [rows, k], then scales
// [rows, k / run], then sums: int32 per 32 in A32, int16 per 16 in A256.
struct Quantized {
  int8_t* codes;
  float* scales;
  uint8_t* sums;
};

inline Quantized quantized_at(uint8_t* data, int64_t rows, int64_t k, int32_t run) {
  const int64_t scales = align64(rows * k);
  const int64_t sums = scales + align64(rows * (k / run) * static_cast<int64_t>(sizeof(float)));
  return {reinterpret_cast<int8_t*>(data), reinterpret_cast<float*>(data + scales), data + sums};
}

// Both kinds of sums take k / 8 bytes per row.
constexpr int64_t quantized_bytes(int64_t rows, int64_t k, int32_t run) {
  return align64(rows * k) + align64(rows * (k / run) * 4) + align64(rows * (k / 8));
}

}  // namespace fw
