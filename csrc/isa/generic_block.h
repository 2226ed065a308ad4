// One row of one panel block as plain numbers, for the scalar bodies. Not here: speed, and any
// vector code: these are the oracle of the vector units and share nothing with them.
#pragma once

#include <cstdint>

#include "fmt/panel.h"

namespace fw {
namespace generic {

// A weight of column k is d * scale[k / group] * q[k] - dmin * min[k / group].
struct Block {
  int64_t columns, group;  // 32 or 256; columns that share a scale: 16 or 32
  int32_t q[256];
  int32_t scale[16];
  int32_t min[16];
  float d, dmin;
  bool has_scales, has_mins;  // scales other than 1; mins at all
};

float half_to_float(uint16_t half);

// Integer formats: block `index` of the panel row that holds matrix row `row`.
void read_block(const Panels& w, int64_t row, int64_t index, Block* block);

// Float formats: the value at a row and column.
float read_float(const Panels& w, int64_t row, int64_t column);

}  // namespace generic
}  // namespace fw
