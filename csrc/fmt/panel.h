// Panels: how weight matrices lie in memory for the kernels. Not here: how they get there
// (repack) and any arithmetic.
//
// A matrix of n outputs by k inputs is cut into panels of 32 rows (n is padded with zero rows). A
// panel is a run of blocks in increasing k, and a block holds the same 32 or 256 columns of all 32
// rows, or one column in the float formats. Four neighbouring columns form a k-group, whose bytes
// stand together: [k-group][32 rows][4]. A block is, in order (r: row, g: k-group of a run of 32
// columns, b: byte of a k-group, j: run of 32 columns, h: half of the panel; f16 is IEEE half):
//
//   P4_0  d[r] f16, q[4][r][b]: low nibble k-group g, high nibble k-group g + 4
//   P4_1  d[r], m[r] f16, q as P4_0
//   P5_0  d[r] f16, q as P4_0, high[r][b]: bit g is the fifth bit of k-group g
//   P5_1  d[r], m[r] f16, q as P4_0, high as P5_0
//   P8_0  d[r] f16, q[8][r][b] s8
//   P8_F  d[r] f32, q as P8_0
//   P2_K  d[r], dmin[r] f16, low nibble of scale[16][r] | of min << 4 of each 16 columns,
//         q[j][2][r][b]: bits 2 (g % 4) of plane g / 4 are k-group g
//   P3_K  d[r] f16, scale[16][r] s8 of each 16 columns, q as P2_K, then high[j][r][b] as P5_0: bit
//         g is the third bit
//   P4_K  d[r], dmin[r] f16, low[j][r]: low nibble of scale | of min << 4,
//         top[4][r]: upper two bits of scale | of min << 2, of run j | of run j + 4 << 4,
//         q[j][4][r][b] as P4_0
//   P5_K  as P4_K, then high[j][r][b] as P5_0
//   P6_K  d[r] f16, scale[16][r] s8 of each 16 columns, q[j][4][r][b] as P4_0,
//         high[j][2][r][b]: bits 2 (g % 4) of plane g / 4 are the upper two bits of k-group g
//   P8_K  d[r] f16, scale[j][r] s8, q[j][8][r][b] s8
//   PF16  [r] f16      PF32  [r] f32
//   PBF16 [h][8] u32: bf16 of row 16 h + i | of row 16 h + i + 8 << 16
//
// Quants are stored as their unsigned codes (Q4_0: 0 .. 15), in the P8 formats as they are. Every
// block is a multiple of 64 bytes. Those that bear a file type's name are as large as 32 rows of
// the file's blocks; P3_K has 128 bytes more, for scales of 8 bits. Types whose values are looked
// up in a table have the values themselves in a P8 format: IQ4_NL in P8_0, MXFP4 in P8_F, IQ4_XS in
// P8_K.
#pragma once

#include <cstdint>

namespace fw {

enum class Format : int32_t {
  P4_0, P4_1, P5_0, P5_1, P8_0, P8_F,    // 32 columns to a block
  P2_K, P3_K, P4_K, P5_K, P6_K, P8_K,    // 256
  PF16, PBF16, PF32                      // 1
};

// Which form of the activations a format is multiplied with: see kernels/quantize.h.
enum class ActivationKind : int32_t { F32, A32, A256 };

constexpr int64_t kPanelRows = 32;

// Panels are kept in files too: counts every change of what is described above.
constexpr int32_t kPanelLayoutVersion = 1;

// A repacked matrix. `data`: panel_bytes(format, n, k) bytes, best aligned to 64.
struct Panels {
  const uint8_t* data;
  Format format;
  int64_t n, k;  // outputs (without padding), inputs
};

int64_t panel_block_columns(Format format);  // 32, 256 or 1
int64_t panel_block_bytes(Format format);
ActivationKind activation_kind(Format format);

// Bytes of ceil(n / 32) panels; k is a multiple of panel_block_columns(format).
int64_t panel_bytes(Format format, int64_t n, int64_t k);

}  // namespace fw
