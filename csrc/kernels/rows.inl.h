// Bodies of norm, rope and activations on vectors. An end shorter than a vector goes through the
// same vector code in a buffer of its own, so that every value meets the same operations.

struct Tail {
  alignas(64) float values[2 * kWidth] = {};
  Tail() = default;
  Tail(const float* x, int64_t n) {
    for (int64_t i = 0; i < n; ++i) values[i] = x[i];
  }
  void copy_to(float* out, int64_t n) const {
    for (int64_t i = 0; i < n; ++i) out[i] = values[i];
  }
};

// out[i] = f(a[i], b[i]) for [n].
template <typename Function>
inline void map2(const float* a, const float* b, int64_t n, float* out, Function f) {
  const int64_t whole = n / kWidth * kWidth;
  for (int64_t i = 0; i < whole; i += kWidth) store(out + i, f(load(a + i), load(b + i)));
  if (whole < n) {
    const Tail tail_a(a + whole, n - whole), tail_b(b + whole, n - whole);
    Tail result;
    store(result.values, f(load(tail_a.values), load(tail_b.values)));
    result.copy_to(out + whole, n - whole);
  }
}

constexpr int kVectors16 = static_cast<int>(16 / kWidth);  // vectors of 16 lanes

inline void add_squares(const float* x, Vec* lanes) {
#pragma GCC unroll 2
  for (int64_t j = 0; j < kVectors16; ++j) {
    const Vec value = load(x + j * kWidth);
    lanes[j] = fma(value, value, lanes[j]);
  }
}

inline void rms_norm_body(const float* x, const float* w, float eps, int64_t n, float* out) {
  Vec lanes[kVectors16];
#pragma GCC unroll 2
  for (int j = 0; j < kVectors16; ++j) lanes[j] = zero();
  const int64_t whole = n / 16 * 16;
  for (int64_t i = 0; i < whole; i += 16) add_squares(x + i, lanes);
  if (whole < n) add_squares(Tail(x + whole, n - whole).values, lanes);
  const float mean = sum16(lanes) / static_cast<float>(n);
  const Vec inv = splat(1.0F / std::sqrt(mean + eps));
  map2(x, w, n, out, [inv](Vec value, Vec weight) { return mul(mul(value, inv), weight); });
}

inline void add_body(const float* a, const float* b, int64_t n, float* out) {
  map2(a, b, n, out, [](Vec x, Vec y) { return add(x, y); });
}

inline void rotate(Vec& a, Vec& b, Vec cos, Vec sin) {
  const Vec first = sub(mul(a, cos), mul(b, sin));
  b = add(mul(b, cos), mul(a, sin));
  a = first;
}

// One head; pairs are halves.
inline void rope_halves(float* x, const float* cos, const float* sin, int64_t half) {
  int64_t i = 0;
  for (; i + kWidth <= half; i += kWidth) {
    Vec a = load(x + i), b = load(x + half + i);
    rotate(a, b, load(cos + i), load(sin + i));
    store(x + i, a);
    store(x + half + i, b);
  }
  if (i == half) return;
  const int64_t n = half - i;
  Tail first(x + i, n), second(x + half + i, n);
  Vec a = load(first.values), b = load(second.values);
  rotate(a, b, load(Tail(cos + i, n).values), load(Tail(sin + i, n).values));
  store(first.values, a);
  store(second.values, b);
  first.copy_to(x + i, n);
  second.copy_to(x + half + i, n);
}

// One head; pairs are neighbours.
inline void rope_pairs(float* x, const float* cos, const float* sin, int64_t half) {
  Vec a, b;
  int64_t i = 0;
  for (; i + kWidth <= half; i += kWidth) {
    load_pairs(x + 2 * i, a, b);
    rotate(a, b, load(cos + i), load(sin + i));
    store_pairs(x + 2 * i, a, b);
  }
  if (i == half) return;
  const int64_t n = half - i;
  Tail pairs(x + 2 * i, 2 * n);
  load_pairs(pairs.values, a, b);
  rotate(a, b, load(Tail(cos + i, n).values), load(Tail(sin + i, n).values));
  store_pairs(pairs.values, a, b);
  pairs.copy_to(x + 2 * i, 2 * n);
}

inline void rope_body(float* x, const float* cos, const float* sin, int64_t head_dim,
                      int64_t heads, bool interleaved) {
  for (int64_t h = 0; h < heads; ++h) {
    float* head = x + h * head_dim;
    if (interleaved) {
      rope_pairs(head, cos, sin, head_dim / 2);
    } else {
      rope_halves(head, cos, sin, head_dim / 2);
    }
  }
}

// output(x, y, exp(input(x))) for x of a [n] and y of b [n].
template <typename Input, typename Output>
inline __attribute__((always_inline)) void map_exp(const float* a, const float* b, int64_t n,
                                                   float* out, Input input, Output output) {
  const int64_t whole = n / kWidth;
  exp_all(
      whole, [&](int64_t i) { return input(load(a + i * kWidth)); },
      [&](int64_t i, Vec e) {
        store(out + i * kWidth, output(load(a + i * kWidth), load(b + i * kWidth), e));
      });
  const int64_t done = whole * kWidth;
  map2(a + done, b + done, n - done, out + done,
       [&](Vec x, Vec y) { return output(x, y, exp_nonpositive(input(x))); });
}

inline void silu_mul_body(const float* gate, const float* up, int64_t n, float* out) {
  map_exp(
      gate, up, n, out, [](Vec x) { return mul(splat(-1.0F), abs(x)); },
      [](Vec x, Vec y, Vec e) {
        const Vec numerator = select(at_least(x, zero()), x, mul(x, e));
        return mul(div(numerator, add(splat(1.0F), e)), y);
      });
}

// The argument of tanh in gelu.
inline Vec gelu_inner(Vec x) {
  const Vec cubic = mul(splat(kGeluCubic), mul(mul(x, x), x));
  return mul(splat(kGeluScale), add(x, cubic));
}

inline void gelu_mul_body(const float* gate, const float* up, int64_t n, float* out) {
  map_exp(
      gate, up, n, out, [](Vec x) { return mul(splat(-2.0F), abs(gelu_inner(x))); },
      [](Vec x, Vec y, Vec t) {
        const Vec bend = tanh_from(t, x);  // the sign of x is that of gelu_inner(x)
        return mul(mul(mul(splat(0.5F), x), add(splat(1.0F), bend)), y);
      });
}

inline void softcap_body(float* x, int64_t n, float cap) {
  const Vec factor = splat(cap);
  map_exp(
      x, x, n, x, [factor](Vec value) { return mul(splat(-2.0F), abs(div(value, factor))); },
      [factor](Vec value, Vec, Vec t) { return mul(factor, tanh_from(t, value)); });
}
