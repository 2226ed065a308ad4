// Rotary position embedding of one row: pair (a, b) of every head becomes
// (a * cos - b * sin, b * cos + a * sin), each operation rounded on its own. Not here: the angles.
#pragma once

#include <cstdint>

namespace fw {

// x: [heads, head_dim], in place. cos, sin: [head_dim / 2] of the row's position. Pair i is
// (i, i + head_dim / 2), or (2 i, 2 i + 1) when interleaved.
using Rope = void(float* x, const float* cos, const float* sin, int64_t head_dim, int64_t heads,
                  bool interleaved);

namespace generic {
Rope rope;
}
namespace avx2 {
Rope rope;
}
namespace avx512 {
Rope rope;
}

}  // namespace fw
