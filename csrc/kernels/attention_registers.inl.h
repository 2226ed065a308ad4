// Register tiles of attention: up to 6 queries by a page's positions, or by a token's values.
//
// A page is widened anew for each group of queries: a copy of it in float32 is no faster at 64 values
// per head, and slower from 128 on, where it leaves the cache.

// Columns of a register tile of M rows: some 12 chains keep the processor busy.
constexpr int64_t tile_columns(int m) { return m <= 3 || kWidth == 16 ? 32 : 16; }

template <int M>
struct Size {
  static constexpr int value = M;
};

// call(Size<size>()).
template <typename Function>
inline void for_size(int size, Function call) {
  switch (size) {
    case 1: return call(Size<1>());
    case 2: return call(Size<2>());
    case 3: return call(Size<3>());
    case 4: return call(Size<4>());
    case 5: return call(Size<5>());
    default: return call(Size<6>());
  }
}

// A register tile of M chains by N vectors: sum[m][n] += x[m] * y[n], y from N vectors at `y`. The
// shorter side is kept in registers, the longer one streamed: 16 are enough for 12 chains.
template <int M, int N, typename Value>
inline void multiply_add(const float* x, int64_t x_stride, const Value* y, Vec (&sum)[M][N]) {
  if constexpr (M < N) {
    Vec held[M];
#pragma GCC unroll 6
    for (int m = 0; m < M; ++m) held[m] = splat(x[m * x_stride]);
#pragma GCC unroll 8
    for (int n = 0; n < N; ++n) {
      const Vec streamed = load(y + n * kWidth);
#pragma GCC unroll 6
      for (int m = 0; m < M; ++m) sum[m][n] = fma(held[m], streamed, sum[m][n]);
    }
  } else {
    Vec held[N];
#pragma GCC unroll 8
    for (int n = 0; n < N; ++n) held[n] = load(y + n * kWidth);
#pragma GCC unroll 6
    for (int m = 0; m < M; ++m) {
      const Vec streamed = splat(x[m * x_stride]);
#pragma GCC unroll 8
      for (int n = 0; n < N; ++n) sum[m][n] = fma(streamed, held[n], sum[m][n]);
    }
  }
}

// The keys, or the values, of one kv head in one page.
template <typename Value>
struct Page {
  const Value* data;
  const Value* next;  // what is read after it, to be fetched while this is at work
  Range range;        // its positions
};

// Fetches what lies in the next page where `at` lies in this one.
template <typename Value>
inline void fetch_ahead(const Page<Value>& page, const Value* at) {
  prefetch(page.next + (at - page.data));
}

// Dot products of M queries and 32 positions, times `scale`. q: [head_dim][M]. page: [head_dim][32].
// scores: [M] rows of 32.
template <int M>
inline void score_floats(const float* q, const Page<uint16_t>& page, int64_t head_dim, Vec scale,
                         float* scores) {
  constexpr int N = static_cast<int>(tile_columns(M) / kWidth);
  for (int64_t column = 0; column < kPagePositions; column += N * kWidth) {
    Vec sum[M][N];
#pragma GCC unroll 6
    for (int m = 0; m < M; ++m) {
#pragma GCC unroll 4
      for (int n = 0; n < N; ++n) sum[m][n] = zero();
    }
    for (int64_t i = 0; i < head_dim; ++i) {
      const uint16_t* k = page.data + i * kPagePositions + column;
      fetch_ahead(page, k);
      multiply_add<M, N>(q + i * M, 1, k, sum);
    }
#pragma GCC unroll 6
    for (int m = 0; m < M; ++m) {
#pragma GCC unroll 4
      for (int n = 0; n < N; ++n) {
        store(scores + m * kScoreStride + column + n * kWidth, mul(scale, sum[m][n]));
      }
    }
  }
}

// The scales after a block of codes; without a fetch of the next ones, a third of the time of decode
// would be spent in wait for them.
inline const uint16_t* scales_of(const Page<int8_t>& page, int64_t head_dim) {
  const int8_t* scales = page.data + kPagePositions * head_dim;
  fetch_ahead(page, scales);
  return reinterpret_cast<const uint16_t*>(scales);
}

// The same of codes. q: [head_dim / 4][M][4]. page: [head_dim / 4][32][4], then f16 scales [32].
template <int M>
inline void score_codes(const int8_t* q, const CodedQuery* queries, const Page<int8_t>& page,
                        int64_t head_dim, float* scores) {
  constexpr int N = static_cast<int>(tile_columns(M) / kWidth);
  const auto* scales = scales_of(page, head_dim);
  for (int64_t column = 0; column < kPagePositions; column += N * kWidth) {
    IntVec sum[M][N];
#pragma GCC unroll 6
    for (int m = 0; m < M; ++m) {
#pragma GCC unroll 4
      for (int n = 0; n < N; ++n) sum[m][n] = splat(queries[m].start);
    }
    for (int64_t i = 0; i < head_dim / 4; ++i) {
      const int8_t* k = page.data + (i * kPagePositions + column) * 4;
      for (int64_t line = 0; line < 4 * N * kWidth; line += 64) fetch_ahead(page, k + line);
#pragma GCC unroll 4
      for (int n = 0; n < N; ++n) {
        const Codes codes = load_codes(k + 4 * n * kWidth);
#pragma GCC unroll 6
        for (int m = 0; m < M; ++m) sum[m][n] = add_dots(codes, q + (i * M + m) * 4, sum[m][n]);
      }
    }
#pragma GCC unroll 4
    for (int n = 0; n < N; ++n) {
      const Vec scale = load(scales + column + n * kWidth);
#pragma GCC unroll 6
      for (int m = 0; m < M; ++m) {
        const Vec factor = mul(splat(queries[m].weight), scale);
        store(scores + m * kScoreStride + column + n * kWidth, mul(factor, to_floats(sum[m][n])));
      }
    }
  }
}

// acc[m] += p[m][t] * v[t] for t in `range`, in N vectors from `column` on. p: [M] rows of scores.
template <int M, int N, typename Value>
inline void attend_columns(const float* p, const Page<Value>& page, Range range, int64_t head_dim,
                           int64_t column, float* const* acc) {
  Vec sum[M][N];
#pragma GCC unroll 6
  for (int m = 0; m < M; ++m) {
#pragma GCC unroll 8
    for (int n = 0; n < N; ++n) sum[m][n] = load(acc[m] + column + n * kWidth);
  }
  for (int64_t t = range.begin; t < range.end; ++t) {
    const Value* v = page.data + t % kPagePositions * head_dim + column;
    fetch_ahead(page, v);
    multiply_add<M, N>(p + t % kSplitPositions, kScoreStride, v, sum);
  }
#pragma GCC unroll 6
  for (int m = 0; m < M; ++m) {
#pragma GCC unroll 8
    for (int n = 0; n < N; ++n) store(acc[m] + column + n * kWidth, sum[m][n]);
  }
}

template <int M, typename Value>
inline void attend_page(const float* p, const Page<Value>& page, Range range, int64_t head_dim,
                        float* const* acc) {
  constexpr int kNarrow = static_cast<int>(16 / kWidth);
  constexpr int kWide = static_cast<int>((M == 1 ? 64 : tile_columns(M)) / kWidth);
  int64_t column = 0;
  for (; column + kWide * kWidth <= head_dim; column += kWide * kWidth) {
    attend_columns<M, kWide>(p, page, range, head_dim, column, acc);
  }
  for (; column < head_dim; column += 16) {
    attend_columns<M, kNarrow>(p, page, range, head_dim, column, acc);
  }
}
