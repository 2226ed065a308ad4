// The layouts of the file's blocks are those of ggml's ggml-common.h and of the dequantize_row_*
// functions in ggml-quants.c.
#include "fmt/repack.h"

#include <cstring>

namespace fw {
namespace {

// Four codes, one a byte, are handled as one 32-bit word: x86 and little-endian ARM agree on it.
uint32_t load32(const uint8_t* p) {
  uint32_t word;
  std::memcpy(&word, p, sizeof word);
  return word;
}

void store32(uint8_t* p, uint32_t word) { std::memcpy(p, &word, sizeof word); }

constexpr int64_t kGroupBytes = kPanelRows * 4;  // one k-group of all rows

// Eight k-groups of codes of one row, as the parts of a panel block. p: the first k-group's four
// bytes of this row.
void put_nibbles(const uint32_t (&codes)[8], uint8_t* p) {
#pragma GCC unroll 8
  for (int g = 0; g < 4; ++g) {
    const uint32_t low = codes[g] & 0x0f0f0f0f;
    const uint32_t high = codes[g + 4] & 0x0f0f0f0f;
    store32(p + g * kGroupBytes, low | high << 4);
  }
}

void put_fifth_bits(const uint32_t (&codes)[8], uint8_t* p) {
  uint32_t word = 0;
#pragma GCC unroll 8
  for (int g = 0; g < 8; ++g) word |= (codes[g] >> 4 & 0x01010101) << g;
  store32(p, word);
}

void put_bit_pairs(const uint32_t (&codes)[8], uint8_t* p) {
  for (int plane = 0; plane < 2; ++plane) {
    uint32_t word = 0;
#pragma GCC unroll 8
    for (int g = 0; g < 4; ++g) word |= (codes[4 * plane + g] >> 4 & 0x03030303) << 2 * g;
    store32(p + plane * kGroupBytes, word);
  }
}

// 32 fifth bits, value 0 first, as bit g of byte b is wanted for value 4 g + b.
uint32_t spread_fifth_bits(uint32_t fifth) {
  uint32_t word = 0;
#pragma GCC unroll 8
  for (int g = 0; g < 8; ++g) {
    const uint32_t bits = fifth >> 4 * g & 15;
    word |= (bits * 0x00204081 & 0x01010101) << g;  // bit b to byte b
  }
  return word;
}

// One row's block `src` to its places in the panel block `dst`, for each family of formats.

// Low nibbles are values 0 .. 15 in the file, as k-groups 0 .. 3 are in the panel: bytes just move.
template <Format F>
void put_block32(const uint8_t* src, uint8_t* dst, int64_t row) {
  constexpr bool kMins = F == Format::P4_1 || F == Format::P5_1;
  constexpr bool kFifth = F == Format::P5_0 || F == Format::P5_1;
  std::memcpy(dst + 2 * row, src, 2);
  if (kMins) std::memcpy(dst + 64 + 2 * row, src + 2, 2);
  src += kMins ? 4 : 2;
  uint8_t* quants = dst + (kMins ? 128 : 64) + 4 * row;
  if (kFifth) {
    store32(quants + 4 * kGroupBytes, spread_fifth_bits(load32(src)));
    src += 4;
  }
#pragma GCC unroll 8
  for (int g = 0; g < 4; ++g) std::memcpy(quants + g * kGroupBytes, src + 4 * g, 4);
}

void put_block8(const uint8_t* src, uint8_t* dst, int64_t row) {
  std::memcpy(dst + 2 * row, src, 2);
#pragma GCC unroll 8
  for (int g = 0; g < 8; ++g) std::memcpy(dst + 64 + g * kGroupBytes + 4 * row, src + 2 + 4 * g, 4);
}

// The scales and mins of a K block: 12 bytes of the file to the planes `low` and `top`.
void put_scales(const uint8_t* src, uint8_t* dst, int64_t row) {
  uint8_t scale[8], min[8];
  for (int j = 0; j < 4; ++j) {
    scale[j] = src[j] & 63;
    min[j] = src[j + 4] & 63;
    scale[j + 4] = static_cast<uint8_t>((src[j + 8] & 15) | (src[j] >> 6) << 4);
    min[j + 4] = static_cast<uint8_t>((src[j + 8] >> 4) | (src[j + 4] >> 6) << 4);
  }
  uint8_t* low = dst + 128 + row;
  uint8_t* top = low + 8 * kPanelRows;
  for (int j = 0; j < 8; ++j) {
    low[j * kPanelRows] = static_cast<uint8_t>((scale[j] & 15) | (min[j] & 15) << 4);
  }
  for (int j = 0; j < 4; ++j) {
    const int first = scale[j] >> 4 | min[j] >> 4 << 2;
    const int second = scale[j + 4] >> 4 | min[j + 4] >> 4 << 2;
    top[j * kPanelRows] = static_cast<uint8_t>(first | second << 4);
  }
}

template <Format F>
void put_block45k(const uint8_t* src, uint8_t* dst, int64_t row) {
  constexpr bool kFifth = F == Format::P5_K;
  std::memcpy(dst + 2 * row, src, 2);
  std::memcpy(dst + 64 + 2 * row, src + 2, 2);
  put_scales(src + 4, dst, row);
  const uint8_t* fifth = src + 16;
  const uint8_t* nibbles = src + (kFifth ? 48 : 16);
  uint8_t* quants = dst + 512 + 4 * row;
  for (int j = 0; j < 8; ++j) {
    uint32_t codes[8];
#pragma GCC unroll 8
    for (int g = 0; g < 8; ++g) {  // run j: low or high nibbles of 32 bytes, bit j of the others
      const uint32_t both = load32(nibbles + 32 * (j / 2) + 4 * g);
      codes[g] = both >> 4 * (j % 2) & 0x0f0f0f0f;
      if (kFifth) codes[g] |= (load32(fifth + 4 * g) >> j & 0x01010101) << 4;
    }
    put_nibbles(codes, quants + j * 4 * kGroupBytes);
    if (kFifth) put_fifth_bits(codes, quants + (32 + j) * kGroupBytes);
  }
}

void put_block6k(const uint8_t* src, uint8_t* dst, int64_t row) {
  std::memcpy(dst + 2 * row, src + 208, 2);
  for (int j = 0; j < 16; ++j) dst[64 + j * kPanelRows + row] = src[192 + j];
  uint8_t* quants = dst + 576 + 4 * row;
  for (int j = 0; j < 8; ++j) {
    const uint8_t* nibbles = src + 64 * (j / 4) + 32 * (j % 2);
    const uint8_t* pairs = src + 128 + 32 * (j / 4);
    uint32_t codes[8];
#pragma GCC unroll 8
    for (int g = 0; g < 8; ++g) {
      codes[g] = load32(nibbles + 4 * g) >> 4 * (j % 4 / 2) & 0x0f0f0f0f;
      codes[g] |= (load32(pairs + 4 * g) >> 2 * (j % 4) & 0x03030303) << 4;
    }
    put_nibbles(codes, quants + j * 4 * kGroupBytes);
    put_bit_pairs(codes, quants + (32 + 2 * j) * kGroupBytes);
  }
}

template <Format F>
void put_value(const uint8_t* src, uint8_t* dst, int64_t row) {
  if (F == Format::PF32) {
    std::memcpy(dst + 4 * row, src, 4);
  } else if (F == Format::PF16) {
    std::memcpy(dst + 2 * row, src, 2);
  } else {
    const int64_t half = row / 16, lane = row % 8, upper = row % 16 / 8;
    std::memcpy(dst + 32 * half + 4 * lane + 2 * upper, src, 2);
  }
}

template <Format F>
void put_block(const uint8_t* src, uint8_t* dst, int64_t row) {
  if constexpr (F == Format::P8_0) {
    put_block8(src, dst, row);
  } else if constexpr (F == Format::P4_K || F == Format::P5_K) {
    put_block45k<F>(src, dst, row);
  } else if constexpr (F == Format::P6_K) {
    put_block6k(src, dst, row);
  } else if constexpr (F == Format::PF16 || F == Format::PBF16 || F == Format::PF32) {
    put_value<F>(src, dst, row);
  } else {
    put_block32<F>(src, dst, row);
  }
}

// The first `rows` rows of a panel; src: the first of them.
using PutPanel = void(const uint8_t* src, int64_t rows, int64_t blocks, uint8_t* dst);

// Tiles of a few blocks keep what the rows write to, 4 bytes here and there, in the L1 cache.
template <Format F, int64_t kBytes, int64_t kTile>
void put_panel(const uint8_t* src, int64_t rows, int64_t blocks, uint8_t* dst) {
  const int64_t block_bytes = panel_block_bytes(F);
  for (int64_t first = 0; first < blocks; first += kTile) {
    const int64_t last = first + kTile < blocks ? first + kTile : blocks;
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t block = first; block < last; ++block) {
        put_block<F>(src + (row * blocks + block) * kBytes, dst + block * block_bytes, row);
      }
    }
  }
}

// A ggml type: the blocks of the file, and the way into panels.
struct TypeInfo {
  int32_t type;
  Format format;
  int64_t columns, bytes;  // of a block of the file
  PutPanel* put_panel;
};

template <Format F, int64_t kColumns, int64_t kBytes, int64_t kTile>
constexpr TypeInfo type_info(int32_t type) {
  return {type, F, kColumns, kBytes, put_panel<F, kBytes, kTile>};
}

constexpr TypeInfo kTypes[] = {
    type_info<Format::PF32, 1, 4, 128>(0),    type_info<Format::PF16, 1, 2, 128>(1),
    type_info<Format::P4_0, 32, 18, 8>(2),    type_info<Format::P4_1, 32, 20, 8>(3),
    type_info<Format::P5_0, 32, 22, 8>(6),    type_info<Format::P5_1, 32, 24, 8>(7),
    type_info<Format::P8_0, 32, 34, 8>(8),    type_info<Format::P4_K, 256, 144, 1>(12),
    type_info<Format::P5_K, 256, 176, 1>(13), type_info<Format::P6_K, 256, 210, 1>(14),
    type_info<Format::PBF16, 1, 2, 128>(30),
};

const TypeInfo* find(int32_t type) {
  for (const TypeInfo& entry : kTypes) {
    if (entry.type == type) return &entry;
  }
  return nullptr;
}

}  // namespace

bool panel_format(int32_t ggml_type, Format* format) {
  const TypeInfo* entry = find(ggml_type);
  if (entry != nullptr) *format = entry->format;
  return entry != nullptr;
}

int64_t row_bytes(int32_t ggml_type, int64_t k) {
  const TypeInfo* entry = find(ggml_type);
  return k / entry->columns * entry->bytes;
}

void repack(int32_t ggml_type, const uint8_t* src, int64_t n, int64_t k, uint8_t* dst,
            int64_t first_panel, int64_t last_panel) {
  const TypeInfo& type = *find(ggml_type);
  const int64_t blocks = k / type.columns;
  const int64_t bytes = blocks * panel_block_bytes(type.format);
  for (int64_t panel = first_panel; panel < last_panel; ++panel) {
    const int64_t first_row = panel * kPanelRows;
    const int64_t rows = n - first_row < kPanelRows ? n - first_row : kPanelRows;
    if (rows < kPanelRows) std::memset(dst + panel * bytes, 0, static_cast<size_t>(bytes));
    type.put_panel(src + first_row * blocks * type.bytes, rows, blocks, dst + panel * bytes);
  }
}

}  // namespace fw
