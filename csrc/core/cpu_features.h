// What this processor and its operating system let a program use.
#pragma once

namespace fw {

struct CpuFeatures {
  bool avx2 = false;    // AVX2, FMA and F16C, and the system saves ymm registers
  bool avx512 = false;  // AVX-512 F, BW, DQ, VL and VNNI, and the system saves zmm registers
};

// Asks CPUID and, because an old or confined system may not save wide registers, XCR0 too.
CpuFeatures detect_cpu_features();

}  // namespace fw
