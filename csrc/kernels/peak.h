// Loops of nothing but multiply-adds in registers: the rate that kernels of an instruction set could
// reach if loads, scales and everything else were free. A yardstick for benchmarks; no kernel.
#pragma once

#include <cstdint>

namespace fw {

// Does `rounds` rounds and returns how many multiply-adds they were.
using Peak = int64_t(int64_t rounds);

struct Peaks {
  Peak* narrow;  // unsigned codes of at most 5 bits times int8: sums of pairs fit 16 bits
  Peak* wide;    // signed codes of 8 bits times int8
};

namespace avx2 {
Peak peak_narrow, peak_wide;
}
namespace avx512 {
Peak peak_vnni;  // the same instruction for both
}

}  // namespace fw
