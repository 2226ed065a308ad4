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

// Bit `bit` of each code.
void put_bits(const uint32_t (&codes)[8], int bit, uint8_t* p) {
  uint32_t word = 0;
#pragma GCC unroll 8
  for (int g = 0; g < 8; ++g) word |= (codes[g] >> bit & 0x01010101) << g;
  store32(p, word);
}

// Bits `bit` and `bit` + 1 of each code.
void put_bit_pairs(const uint32_t (&codes)[8], int bit, uint8_t* p) {
  for (int plane = 0; plane < 2; ++plane) {
    uint32_t word = 0;
#pragma GCC unroll 8
    for (int g = 0; g < 4; ++g) word |= (codes[4 * plane + g] >> bit & 0x03030303) << 2 * g;
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

// The values of IQ4_NL and IQ4_XS, and those of MXFP4 doubled.
constexpr int8_t kNonlinear[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                   1,    13,   25,  38,  53,  69,  89,  113};
constexpr int8_t kE2M1[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

// 32 values of a table. src: 16 bytes, values 0 .. 15 in the low nibbles. dst: the row's first.
void put_table_run(const uint8_t* src, const int8_t (&table)[16], uint8_t* dst) {
  for (int k = 0; k < 32; ++k) {
    const int code = src[k % 16] >> (k < 16 ? 0 : 4) & 15;
    dst[k / 4 * kGroupBytes + k % 4] = static_cast<uint8_t>(table[code]);
  }
}

void put_block4nl(const uint8_t* src, uint8_t* dst, int64_t row) {
  std::memcpy(dst + 2 * row, src, 2);
  put_table_run(src + 2, kNonlinear, dst + 64 + 4 * row);
}

// The scale is half of 2^(e - 127), as the table is doubled; subnormal where e is 0 or 1.
void put_block_mxfp4(const uint8_t* src, uint8_t* dst, int64_t row) {
  const uint32_t e = src[0];
  store32(dst + 4 * row, e < 2 ? 0x00200000u << e : (e - 1) << 23);
  put_table_run(src + 1, kE2M1, dst + 128 + 4 * row);
}

void put_block4xs(const uint8_t* src, uint8_t* dst, int64_t row) {
  std::memcpy(dst + 2 * row, src, 2);
  for (int j = 0; j < 8; ++j) {  // upper two bits in bytes 2 and 3, low nibbles in 4 .. 7
    const int high = src[2 + j / 4] >> 2 * (j % 4) & 3;
    const int low = src[4 + j / 2] >> 4 * (j % 2) & 15;
    dst[64 + j * kPanelRows + row] = static_cast<uint8_t>((low | high << 4) - 32);
    put_table_run(src + 8 + 16 * j, kNonlinear, dst + 320 + j * 8 * kGroupBytes + 4 * row);
  }
}

void put_block2k(const uint8_t* src, uint8_t* dst, int64_t row) {
  std::memcpy(dst + 2 * row, src + 80, 2);
  std::memcpy(dst + 64 + 2 * row, src + 82, 2);
  for (int i = 0; i < 16; ++i) dst[128 + i * kPanelRows + row] = src[i];
  uint8_t* quants = dst + 640 + 4 * row;
  for (int j = 0; j < 8; ++j) {
    const uint8_t* pairs = src + 16 + 32 * (j / 4);
    uint32_t codes[8];
#pragma GCC unroll 8
    for (int g = 0; g < 8; ++g) codes[g] = load32(pairs + 4 * g) >> 2 * (j % 4);
    put_bit_pairs(codes, 0, quants + 2 * j * kGroupBytes);
  }
}

void put_block3k(const uint8_t* src, uint8_t* dst, int64_t row) {
  std::memcpy(dst + 2 * row, src + 108, 2);
  for (int i = 0; i < 16; ++i) {  // eight bytes of nibbles, then four of upper pairs of bits
    const int low = src[96 + i % 8] >> (i < 8 ? 0 : 4) & 15;
    const int high = src[104 + i % 4] >> 2 * (i / 4) & 3;
    dst[64 + i * kPanelRows + row] = static_cast<uint8_t>((low | high << 4) - 32);
  }
  uint8_t* quants = dst + 576 + 4 * row;
  for (int j = 0; j < 8; ++j) {
    const uint8_t* pairs = src + 32 + 32 * (j / 4);
    uint32_t codes[8];
#pragma GCC unroll 8
    for (int g = 0; g < 8; ++g) {
      codes[g] = load32(pairs + 4 * g) >> 2 * (j % 4) & 0x03030303;
      codes[g] |= (load32(src + 4 * g) >> j & 0x01010101) << 2;
    }
    put_bit_pairs(codes, 0, quants + 2 * j * kGroupBytes);
    put_bits(codes, 2, quants + (16 + j) * kGroupBytes);
  }
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
    if (kFifth) put_bits(codes, 4, quants + (32 + j) * kGroupBytes);
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
    put_bit_pairs(codes, 4, quants + (32 + 2 * j) * kGroupBytes);
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

// The first `rows` rows of a panel; src: the first of them.
using PutPanel = void(const uint8_t* src, int64_t rows, int64_t blocks, uint8_t* dst);

using PutBlock = void(const uint8_t* src, uint8_t* dst, int64_t row);

// Tiles of a few blocks keep what the rows write to, 4 bytes here and there, in the L1 cache.
template <Format F, PutBlock kPutBlock, int64_t kBytes, int64_t kTile>
void put_panel(const uint8_t* src, int64_t rows, int64_t blocks, uint8_t* dst) {
  const int64_t block_bytes = panel_block_bytes(F);
  for (int64_t first = 0; first < blocks; first += kTile) {
    const int64_t last = first + kTile < blocks ? first + kTile : blocks;
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t block = first; block < last; ++block) {
        kPutBlock(src + (row * blocks + block) * kBytes, dst + block * block_bytes, row);
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

template <Format F, PutBlock kPutBlock, int64_t kColumns, int64_t kBytes>
constexpr TypeInfo type_info(int32_t type) {
  constexpr int64_t kTile = kColumns == 256 ? 1 : (kColumns == 32 ? 8 : 128);
  return {type, F, kColumns, kBytes, put_panel<F, kPutBlock, kBytes, kTile>};
}

constexpr TypeInfo kTypes[] = {
    type_info<Format::PF32, put_value<Format::PF32>, 1, 4>(0),
    type_info<Format::PF16, put_value<Format::PF16>, 1, 2>(1),
    type_info<Format::P4_0, put_block32<Format::P4_0>, 32, 18>(2),
    type_info<Format::P4_1, put_block32<Format::P4_1>, 32, 20>(3),
    type_info<Format::P5_0, put_block32<Format::P5_0>, 32, 22>(6),
    type_info<Format::P5_1, put_block32<Format::P5_1>, 32, 24>(7),
    type_info<Format::P8_0, put_block8, 32, 34>(8),
    type_info<Format::P2_K, put_block2k, 256, 84>(10),
    type_info<Format::P3_K, put_block3k, 256, 110>(11),
    type_info<Format::P4_K, put_block45k<Format::P4_K>, 256, 144>(12),
    type_info<Format::P5_K, put_block45k<Format::P5_K>, 256, 176>(13),
    type_info<Format::P6_K, put_block6k, 256, 210>(14),
    type_info<Format::P8_0, put_block4nl, 32, 18>(20),
    type_info<Format::P8_K, put_block4xs, 256, 136>(23),
    type_info<Format::PBF16, put_value<Format::PBF16>, 1, 2>(30),
    type_info<Format::P8_F, put_block_mxfp4, 32, 17>(39),
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
