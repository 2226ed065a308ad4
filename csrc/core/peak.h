// How many int8 multiply-adds a second all threads of a pool do at most. For benchmarks only.
#pragma once

#include "core/backend.h"

namespace fw {

// The best of a few passes of some milliseconds; 0 for an instruction set without such a loop.
double mac_rate(Backend& backend, bool wide);

}  // namespace fw
