#include "isa/generic_block.h"

#include <cmath>
#include <cstring>

namespace fw {
namespace generic {
namespace {

uint16_t load16(const uint8_t* p) {
  uint16_t value;
  std::memcpy(&value, p, sizeof value);
  return value;
}

float bits_to_float(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

const uint8_t* block_at(const Panels& w, int64_t row, int64_t index) {
  const int64_t blocks = w.k / panel_block_columns(w.format);
  return w.data + (row / kPanelRows * blocks + index) * panel_block_bytes(w.format);
}

float load_float(const uint8_t* p) {
  float value;
  std::memcpy(&value, p, sizeof value);
  return value;
}

// Code of column k (0 .. 31) in a run of four k-groups of nibbles; r: row in the panel.
int32_t nibble(const uint8_t* run, int64_t r, int64_t k) {
  const int64_t g = k / 4;
  return run[(g % 4) * 128 + r * 4 + k % 4] >> (g < 4 ? 0 : 4) & 15;
}

int32_t upper_bit(const uint8_t* high, int64_t r, int64_t k) {
  return high[r * 4 + k % 4] >> k / 4 & 1;
}

int32_t bit_pair(const uint8_t* pairs, int64_t r, int64_t k) {
  const int64_t g = k / 4;
  return pairs[g / 4 * 128 + r * 4 + k % 4] >> 2 * (g % 4) & 3;
}

int32_t whole_byte(const uint8_t* run, int64_t r, int64_t k) {
  return static_cast<int8_t>(run[k / 4 * 128 + r * 4 + k % 4]);
}

void read_block32(Format format, const uint8_t* p, int64_t r, Block* block) {
  const bool mins = format == Format::P4_1 || format == Format::P5_1;
  const bool fifth = format == Format::P5_0 || format == Format::P5_1;
  const int32_t offset = mins ? 0 : (fifth ? 16 : 8);
  const uint8_t* quants = p + (mins ? 128 : 64);
  block->has_mins = mins;
  block->dmin = mins ? -half_to_float(load16(p + 64 + 2 * r)) : 0.0f;
  for (int64_t k = 0; k < 32; ++k) {
    block->q[k] = nibble(quants, r, k) + (fifth ? upper_bit(quants + 512, r, k) << 4 : 0) - offset;
  }
}

void read_block8(Format format, const uint8_t* p, int64_t r, Block* block) {
  if (format == Format::P8_F) block->d = load_float(p + 4 * r);
  const uint8_t* quants = p + (format == Format::P8_F ? 128 : 64);
  for (int64_t k = 0; k < 32; ++k) block->q[k] = whole_byte(quants, r, k);
}

void read_block8k(const uint8_t* p, int64_t r, Block* block) {
  block->has_scales = true;
  for (int64_t j = 0; j < 8; ++j) {
    block->scale[j] = static_cast<int8_t>(p[64 + 32 * j + r]);
    for (int64_t k = 0; k < 32; ++k) block->q[32 * j + k] = whole_byte(p + 320 + 1024 * j, r, k);
  }
}

void read_block2k(const uint8_t* p, int64_t r, Block* block) {
  block->has_scales = block->has_mins = true;
  block->group = 16;
  block->dmin = half_to_float(load16(p + 64 + 2 * r));
  for (int64_t i = 0; i < 16; ++i) {
    block->scale[i] = p[128 + 32 * i + r] & 15;
    block->min[i] = p[128 + 32 * i + r] >> 4;
  }
  for (int64_t j = 0; j < 8; ++j) {
    for (int64_t k = 0; k < 32; ++k) block->q[32 * j + k] = bit_pair(p + 640 + 256 * j, r, k);
  }
}

void read_block3k(const uint8_t* p, int64_t r, Block* block) {
  block->has_scales = true;
  block->group = 16;
  for (int64_t i = 0; i < 16; ++i) block->scale[i] = static_cast<int8_t>(p[64 + 32 * i + r]);
  for (int64_t j = 0; j < 8; ++j) {
    for (int64_t k = 0; k < 32; ++k) {
      block->q[32 * j + k] = (bit_pair(p + 576 + 256 * j, r, k) |
                              upper_bit(p + 2624 + 128 * j, r, k) << 2) - 4;
    }
  }
}

void read_block45k(Format format, const uint8_t* p, int64_t r, Block* block) {
  block->has_scales = block->has_mins = true;
  block->dmin = half_to_float(load16(p + 64 + 2 * r));
  for (int64_t j = 0; j < 8; ++j) {
    const int32_t low = p[128 + 32 * j + r];
    const int32_t top = p[384 + 32 * (j % 4) + r] >> (j < 4 ? 0 : 4) & 15;
    block->scale[j] = (low & 15) | (top & 3) << 4;
    block->min[j] = low >> 4 | top >> 2 << 4;
    for (int64_t k = 0; k < 32; ++k) {
      int32_t code = nibble(p + 512 * (j + 1), r, k);
      if (format == Format::P5_K) code += upper_bit(p + 4608 + 128 * j, r, k) << 4;
      block->q[32 * j + k] = code;
    }
  }
}

void read_block6k(const uint8_t* p, int64_t r, Block* block) {
  block->has_scales = true;
  block->group = 16;
  for (int64_t j = 0; j < 16; ++j) block->scale[j] = static_cast<int8_t>(p[64 + 32 * j + r]);
  for (int64_t j = 0; j < 8; ++j) {
    for (int64_t k = 0; k < 32; ++k) {
      block->q[32 * j + k] =
          (nibble(p + 576 + 512 * j, r, k) | bit_pair(p + 4672 + 256 * j, r, k) << 4) - 32;
    }
  }
}

}  // namespace

float half_to_float(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half >> 15) << 31;
  const uint32_t exponent = half >> 10 & 31;
  const uint32_t mantissa = half & 1023;
  if (exponent == 31) return bits_to_float(sign | 0x7f800000 | mantissa << 13);
  if (exponent != 0) return bits_to_float(sign | (exponent + 112) << 23 | mantissa << 13);
  const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;  // exact
  return sign != 0 ? -magnitude : magnitude;
}

void read_block(const Panels& w, int64_t row, int64_t index, Block* block) {
  const uint8_t* p = block_at(w, row, index);
  const int64_t r = row % kPanelRows;
  block->columns = panel_block_columns(w.format);
  block->group = 32;
  block->has_scales = block->has_mins = false;
  block->d = half_to_float(load16(p + 2 * r));  // so begin all integer formats but P8_F
  block->dmin = 0.0f;
  for (int64_t j = 0; j < 16; ++j) block->scale[j] = block->min[j] = 1;
  if (w.format == Format::P8_0 || w.format == Format::P8_F) {
    read_block8(w.format, p, r, block);
  } else if (w.format == Format::P8_K) {
    read_block8k(p, r, block);
  } else if (w.format == Format::P2_K) {
    read_block2k(p, r, block);
  } else if (w.format == Format::P3_K) {
    read_block3k(p, r, block);
  } else if (w.format == Format::P6_K) {
    read_block6k(p, r, block);
  } else if (w.format == Format::P4_K || w.format == Format::P5_K) {
    read_block45k(w.format, p, r, block);
  } else {
    read_block32(w.format, p, r, block);
  }
}

float read_float(const Panels& w, int64_t row, int64_t column) {
  const uint8_t* p = block_at(w, row, column);
  const int64_t r = row % kPanelRows;
  if (w.format == Format::PF16) return half_to_float(load16(p + 2 * r));
  if (w.format == Format::PF32) return load_float(p + 4 * r);
  const uint16_t top = load16(p + 32 * (r / 16) + 4 * (r % 8) + 2 * (r % 16 / 8));
  return bits_to_float(static_cast<uint32_t>(top) << 16);
}

}  // namespace generic
}  // namespace fw
