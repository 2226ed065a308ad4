// exp and tanh in float32: the same bits on every instruction set. Not here: other functions.
//
// exp(z), z <= 0, as firstword/sampling/softmax.py has it. Single operations, none fused:
//   r = max(z, -87); n = rint(r * log2 e), half to even; r = (r - n * high) - n * low;
//   p = r * c7; for c of c6 .. c1: p = (p + c) * r; p = p + c0; exp = p * 2^n, or 0 where z < -87.
// NaN gives NaN (of any payload). The relative error is below 2e-7.
//
// tanh(y): t = exp(-2 |y|); (1 - t) / (1 + t) with the sign of y. The absolute error is below 2e-7.
#pragma once

namespace fw {

constexpr float kExpLowest = -87.0F;
constexpr float kLog2E = 1.4426950408889634F;
constexpr float kLn2High = 0.693359375F;  // few bits: n * kLn2High is exact
constexpr float kLn2Low = static_cast<float>(0.6931471805599453 - 0.693359375);
constexpr float kExpCoefficients[8] = {  // 1 / 7! .. 1 / 0!
    static_cast<float>(1.0 / 5040), static_cast<float>(1.0 / 720), static_cast<float>(1.0 / 120),
    static_cast<float>(1.0 / 24),   static_cast<float>(1.0 / 6),   0.5F,
    1.0F,                           1.0F};

}  // namespace fw
