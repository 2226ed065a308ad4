// The layouts of the file's blocks are those of ggml's ggml-common.h and of the dequantize_row_*
// functions in ggml-quants.c.
#include "fmt/repack.h"

#include <cstring>

namespace fw {
namespace {

// How a ggml type is stored, and where its parts begin in a block of the file.
struct TypeInfo {
  int32_t type;
  Format format;
  int64_t columns, bytes;  // of a block of the file
};

constexpr TypeInfo kTypes[] = {
    {0, Format::PF32, 1, 4},       {1, Format::PF16, 1, 2},      {2, Format::P4_0, 32, 18},
    {3, Format::P4_1, 32, 20},     {6, Format::P5_0, 32, 22},    {7, Format::P5_1, 32, 24},
    {8, Format::P8_0, 32, 34},     {12, Format::P4_K, 256, 144}, {13, Format::P5_K, 256, 176},
    {14, Format::P6_K, 256, 210},  {30, Format::PBF16, 1, 2},
};

const TypeInfo* find(int32_t type) {
  for (const TypeInfo& entry : kTypes) {
    if (entry.type == type) return &entry;
  }
  return nullptr;
}

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
  for (int g = 0; g < 4; ++g) {
    const uint32_t low = codes[g] & 0x0f0f0f0f;
    const uint32_t high = codes[g + 4] & 0x0f0f0f0f;
    store32(p + g * kGroupBytes, low | high << 4);
  }
}

void put_fifth_bits(const uint32_t (&codes)[8], uint8_t* p) {
  uint32_t word = 0;
  for (int g = 0; g < 8; ++g) word |= (codes[g] >> 4 & 0x01010101) << g;
  store32(p, word);
}

void put_bit_pairs(const uint32_t (&codes)[8], uint8_t* p) {
  for (int plane = 0; plane < 2; ++plane) {
    uint32_t word = 0;
    for (int g = 0; g < 4; ++g) word |= (codes[4 * plane + g] >> 4 & 0x03030303) << 2 * g;
    store32(p + plane * kGroupBytes, word);
  }
}

// 32 values whose nibbles are 16 bytes (low: values 0 .. 15) and whose fifth bits, if any, are a
// word.
void take_codes32(const uint8_t* nibbles, uint32_t fifth, uint32_t (&codes)[8]) {
  for (int g = 0; g < 8; ++g) {
    const uint32_t both = load32(nibbles + 4 * (g % 4));
    codes[g] = (g < 4 ? both : both >> 4) & 0x0f0f0f0f;
    const uint32_t bits = fifth >> 4 * g & 15;  // spread one bit to each byte
    codes[g] |= (bits * 0x00204081 & 0x01010101) << 4;
  }
}

// One row's block `src` to its places in the panel block `dst`, for each family of formats.

void put_block32(Format format, const uint8_t* src, uint8_t* dst, int64_t row) {
  const bool has_min = format == Format::P4_1 || format == Format::P5_1;
  const bool has_fifth = format == Format::P5_0 || format == Format::P5_1;
  std::memcpy(dst + 2 * row, src, 2);
  if (has_min) std::memcpy(dst + 64 + 2 * row, src + 2, 2);
  src += has_min ? 4 : 2;
  uint8_t* quants = dst + (has_min ? 128 : 64) + 4 * row;
  uint32_t codes[8];
  take_codes32(src + (has_fifth ? 4 : 0), has_fifth ? load32(src) : 0, codes);
  put_nibbles(codes, quants);
  if (has_fifth) put_fifth_bits(codes, quants + 4 * kGroupBytes);
}

void put_block8(const uint8_t* src, uint8_t* dst, int64_t row) {
  std::memcpy(dst + 2 * row, src, 2);
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

void put_block45k(bool has_fifth, const uint8_t* src, uint8_t* dst, int64_t row) {
  std::memcpy(dst + 2 * row, src, 2);
  std::memcpy(dst + 64 + 2 * row, src + 2, 2);
  put_scales(src + 4, dst, row);
  const uint8_t* fifth = src + 16;
  const uint8_t* nibbles = src + (has_fifth ? 48 : 16);
  uint8_t* quants = dst + 512 + 4 * row;
  for (int j = 0; j < 8; ++j) {
    uint32_t codes[8];
    for (int g = 0; g < 8; ++g) {  // run j: low or high nibbles of 32 bytes, bit j of the others
      const uint32_t both = load32(nibbles + 32 * (j / 2) + 4 * g);
      codes[g] = both >> 4 * (j % 2) & 0x0f0f0f0f;
      if (has_fifth) codes[g] |= (load32(fifth + 4 * g) >> j & 0x01010101) << 4;
    }
    put_nibbles(codes, quants + j * 4 * kGroupBytes);
    if (has_fifth) put_fifth_bits(codes, quants + (32 + j) * kGroupBytes);
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
    for (int g = 0; g < 8; ++g) {
      codes[g] = load32(nibbles + 4 * g) >> 4 * (j % 4 / 2) & 0x0f0f0f0f;
      codes[g] |= (load32(pairs + 4 * g) >> 2 * (j % 4) & 0x03030303) << 4;
    }
    put_nibbles(codes, quants + j * 4 * kGroupBytes);
    put_bit_pairs(codes, quants + (32 + 2 * j) * kGroupBytes);
  }
}

void put_float(Format format, const uint8_t* src, uint8_t* dst, int64_t row) {
  if (format == Format::PF32) {
    std::memcpy(dst + 4 * row, src, 4);
  } else if (format == Format::PF16) {
    std::memcpy(dst + 2 * row, src, 2);
  } else {
    const int64_t half = row / 16, lane = row % 8, upper = row % 16 / 8;
    std::memcpy(dst + 32 * half + 4 * lane + 2 * upper, src, 2);
  }
}

void put_block(Format format, const uint8_t* src, uint8_t* dst, int64_t row) {
  switch (format) {
    case Format::P4_0:
    case Format::P4_1:
    case Format::P5_0:
    case Format::P5_1:
      return put_block32(format, src, dst, row);
    case Format::P8_0:
      return put_block8(src, dst, row);
    case Format::P4_K:
    case Format::P5_K:
      return put_block45k(format == Format::P5_K, src, dst, row);
    case Format::P6_K:
      return put_block6k(src, dst, row);
    case Format::PF16:
    case Format::PBF16:
    case Format::PF32:
      return put_float(format, src, dst, row);
  }
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
  const int64_t block_bytes = panel_block_bytes(type.format);
  for (int64_t panel = first_panel; panel < last_panel; ++panel) {
    uint8_t* out = dst + panel * blocks * block_bytes;
    const int64_t first_row = panel * kPanelRows;
    const int64_t rows = n - first_row < kPanelRows ? n - first_row : kPanelRows;
    if (rows < kPanelRows) std::memset(out, 0, static_cast<size_t>(blocks * block_bytes));
    for (int64_t block = 0; block < blocks; ++block) {
      for (int64_t row = 0; row < rows; ++row) {
        const uint8_t* in = src + ((first_row + row) * blocks + block) * type.bytes;
        put_block(type.format, in, out + block * block_bytes, row);
      }
    }
  }
}

}  // namespace fw
