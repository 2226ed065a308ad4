// The floating-point environment that all results are defined in: round to nearest, no trap,
// denormal numbers kept. Another library in the process may have set it otherwise.
#pragma once

#include <cfenv>

#if defined(__SSE__)
#include <xmmintrin.h>
#endif

namespace fw {

// Sets the environment while it lives and puts back what it found.
class FloatEnv {
 public:
#if defined(__SSE__)
  FloatEnv() : saved_(_mm_getcsr()) { _mm_setcsr(kDefault); }
  ~FloatEnv() { _mm_setcsr(saved_); }
#else
  FloatEnv() { std::feholdexcept(&saved_); }
  ~FloatEnv() { std::fesetenv(&saved_); }
#endif
  FloatEnv(const FloatEnv&) = delete;
  FloatEnv& operator=(const FloatEnv&) = delete;

 private:
#if defined(__SSE__)
  static constexpr unsigned kDefault = 0x1F80;  // MXCSR: all exceptions masked, nothing else
  unsigned saved_;
#else
  std::fenv_t saved_;
#endif
};

}  // namespace fw
