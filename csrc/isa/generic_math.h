// Scalar functions that the generic units share.
#pragma once

#include <cstdint>

#include "kernels/math.h"

namespace fw {
namespace generic {

float exp_nonpositive(float z);  // z <= 0 or NaN
float tanh_of(float y);
// Sum of 16 lanes by halves; overwrites them.
float sum16(float* lanes);
// IEEE half, with the value clamped to +-65504 and rounded half to even; and back.
uint16_t half_of(float x);
float float_of(uint16_t half);

}  // namespace generic
}  // namespace fw
