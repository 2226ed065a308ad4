// exp and tanh of math.h on vectors.

// z to r and, for the end, 2^n, or 0 where z < -87: the polynomial is positive, so their product is
// the +0 that is wanted.
inline Vec reduce_exp(Vec z, Vec& power) {
  const Vec lowest = splat(kExpLowest);
  const Vec r = max(lowest, z);  // NaN stays
  const Vec n = round_to_even(mul(r, splat(kLog2E)));
  power = clear_where(less(z, lowest), power_of_two(n));
  return sub(sub(r, mul(n, splat(kLn2High))), mul(n, splat(kLn2Low)));
}

inline Vec exp_nonpositive(Vec z) {
  Vec power;
  const Vec r = reduce_exp(z, power);
  Vec p = mul(r, splat(kExpCoefficients[0]));
#pragma GCC unroll 6
  for (int i = 1; i < 7; ++i) p = mul(add(p, splat(kExpCoefficients[i])), r);
  return mul(add(p, splat(kExpCoefficients[7])), power);
}

constexpr int kExpVectors = 8;

// output(k, exp(input(k))) for k in [0, K). One exp is a chain of some 25 operations that wait for
// each other, and a processor looks ahead over about five of them: side by side eight take half the
// time.
template <int K, typename Input, typename Output>
inline __attribute__((always_inline)) void exp_block(Input input, Output output) {
  alignas(64) float r[K * kWidth], powers[K * kWidth];
#pragma GCC unroll 8
  for (int k = 0; k < K; ++k) {
    Vec power;
    store(r + k * kWidth, reduce_exp(input(k), power));
    store(powers + k * kWidth, power);
  }
  Vec p[K];
#pragma GCC unroll 8
  for (int k = 0; k < K; ++k) {
    p[k] = mul(load(r + k * kWidth), splat(kExpCoefficients[0]));
  }
#pragma GCC unroll 6
  for (int i = 1; i < 7; ++i) {
#pragma GCC unroll 8
    for (int k = 0; k < K; ++k) {
      p[k] = mul(add(p[k], splat(kExpCoefficients[i])), load(r + k * kWidth));
    }
  }
#pragma GCC unroll 8
  for (int k = 0; k < K; ++k) {
    output(k, mul(add(p[k], splat(kExpCoefficients[7])), load(powers + k * kWidth)));
  }
}

// output(i, exp(input(i))) for i in [0, vectors).
template <typename Input, typename Output>
inline __attribute__((always_inline)) void exp_all(int64_t vectors, Input input, Output output) {
  int64_t i = 0;
  for (; i + kExpVectors <= vectors; i += kExpVectors) {
    exp_block<kExpVectors>([&](int k) { return input(i + k); },
                           [&](int k, Vec e) { output(i + k, e); });
  }
  for (; i < vectors; ++i) output(i, exp_nonpositive(input(i)));
}

// tanh(y) out of exp(-2 |y|).
inline Vec tanh_from(Vec t, Vec y) {
  const Vec one = splat(1.0F);
  return copy_sign(div(sub(one, t), add(one, t)), y);
}

inline Vec tanh_of(Vec y) {
  return tanh_from(exp_nonpositive(mul(splat(-2.0F), abs(y))), y);
}
