// Bodies of the sampler's passes on vectors.

constexpr float kNoLimit = std::numeric_limits<float>::infinity();

// NaN and +inf as -inf; `sound` loses the lanes that had any.
inline Vec sound_or_lowest(Vec x, Mask& sound) {
  const Mask below = less(x, splat(kNoLimit));
  sound = both(sound, below);
  return select(below, x, splat(-kNoLimit));
}

inline bool row_maxima_body(const float* x, int64_t n, float* maxima) {
  Mask sound = less(zero(), splat(1.0F));
  alignas(64) float end[kMaximaBlock];
  for (int64_t start = 0; start < n; start += kMaximaBlock) {
    const float* block = x + start;
    if (n - start < kMaximaBlock) {
      for (int64_t i = 0; i < kMaximaBlock; ++i) end[i] = start + i < n ? block[i] : -kNoLimit;
      block = end;
    }
    Vec top = splat(-kNoLimit);
    for (int64_t i = 0; i < kMaximaBlock; i += kWidth) {
      top = max(sound_or_lowest(load(block + i), sound), top);
    }
    *maxima++ = largest(top);
  }
  return bits_of(sound) != (1 << kWidth) - 1;
}

inline int64_t gather_at_least_body(const float* x, int64_t n, float bound, int32_t* ids) {
  int64_t count = 0, i = 0;
  for (; i + kWidth <= n; i += kWidth) {
    for (int bits = bits_of(at_least(load(x + i), splat(bound))); bits; bits &= bits - 1) {
      ids[count++] = static_cast<int32_t>(i) + __builtin_ctz(static_cast<unsigned>(bits));
    }
  }
  for (; i < n; ++i) {
    if (x[i] >= bound) ids[count++] = static_cast<int32_t>(i);
  }
  return count;
}

inline void softmax_weights_body(const float* x, int64_t n, float largest_logit, float divisor,
                                 float* weights) {
  const Vec base = splat(largest_logit), scale = splat(divisor);
  const auto weight = [](Vec, Vec, Vec e) { return e; };
  if (divisor == 1.0F) {
    map_exp(x, x, n, weights, [=](Vec z) { return sub(z, base); }, weight);
  } else {
    map_exp(x, x, n, weights, [=](Vec z) { return div(sub(z, base), scale); }, weight);
  }
}

// The 16 entries 256 apart from w on, folded four times.
inline DoubleVec fold16(const float* w) {
  DoubleVec sums[8];
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) {
    sums[i] = add(load_doubles(w + 256 * i), load_doubles(w + 256 * (i + 8)));
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) sums[i] = add(sums[i], sums[i + 4]);
  return add(add(sums[0], sums[2]), add(sums[1], sums[3]));
}

inline double fold_chunk(const float* w) {
  alignas(64) double sums[256];
  for (int64_t i = 0; i < 256; i += kDoubleWidth) store(sums + i, fold16(w + i));
  int64_t half = 128;
  for (; half >= kDoubleWidth; half /= 2) {
    for (int64_t i = 0; i < half; i += kDoubleWidth) {
      store(sums + i, add(load(sums + i), load(sums + i + half)));
    }
  }
  for (; half > 0; half /= 2) {
    for (int64_t i = 0; i < half; ++i) sums[i] += sums[i + half];
  }
  return sums[0];
}

inline void chunk_sums_body(const float* weights, int64_t n, double* sums) {
  const int64_t whole = n / kSampleChunk * kSampleChunk;
  for (int64_t i = 0; i < whole; i += kSampleChunk) *sums++ = fold_chunk(weights + i);
  if (whole == n) return;
  alignas(64) float end[kSampleChunk];
  for (int64_t i = 0; i < kSampleChunk; ++i) end[i] = whole + i < n ? weights[whole + i] : 0.0F;
  *sums = fold_chunk(end);
}
