// exp and tanh of math.h on vectors.

inline Vec exp_nonpositive(Vec z) {
  const Vec lowest = splat(kExpLowest);
  Vec r = max(lowest, z);  // NaN stays
  const Vec n = round_to_even(mul(r, splat(kLog2E)));
  r = sub(r, mul(n, splat(kLn2High)));
  r = sub(r, mul(n, splat(kLn2Low)));
  Vec p = mul(r, splat(kExpCoefficients[0]));
#pragma GCC unroll 6
  for (int i = 1; i < 7; ++i) p = mul(add(p, splat(kExpCoefficients[i])), r);
  p = mul(add(p, splat(kExpCoefficients[7])), power_of_two(n));
  return clear_where(less(z, lowest), p);
}

inline Vec tanh_of(Vec y) {
  const Vec one = splat(1.0F);
  const Vec t = exp_nonpositive(mul(splat(-2.0F), abs(y)));
  return copy_sign(div(sub(one, t), add(one, t)), y);
}
