// The loop nest of linear layers, written once over the vectors of dot/<isa>.inl.h. Included inside
// an anonymous namespace. Not here: intrinsics, and the scalar oracle (isa/generic_linear.cpp).
//
// Lanes are output rows, so no sum crosses lanes and every output is one chain over k, whatever the
// tile. One token multiplies packed weights as they stream from memory. More tokens share an
// unpacked slab of 16 rows x 256 columns, which stays in the L1 cache, as do the outputs so far.

constexpr int kHalfVectors = 16 / kLanes;
constexpr int64_t kSlabColumns = 256;

struct Scratch {
  uint8_t codes[64 * 64];     // [8 runs][8 k-groups][16 rows][4]
  int32_t scale[16 * 32];     // pairs of equal int16: [groups][rows]
  int32_t correction[8 * 32]; // pairs of int16 that multiply the sums of 16 codes: [8][rows]
  float d[8 * 16], dmin[8 * 16];
  float out[kMaxItemTokens * 16];        // [tokens][16]
  float values[kSlabColumns * 16];       // float formats: [k][16]
};
static_assert(sizeof(Scratch) <= kLinearScratchBytes, "kLinearScratchBytes is too small");

// Where the parts of an integer block are; see fmt/panel.h.
struct Layout {
  int bits;
  int32_t offset;       // codes are that much above the quants
  bool mins;
  int64_t quants, high; // first byte of the quants, of the upper bits
  int64_t run_high;     // bytes of upper bits per run
  int64_t bytes;
};

constexpr Layout layout(Format format) {
  switch (format) {
    case Format::P4_0: return {4, 8, false, 64, 0, 0, 576};
    case Format::P4_1: return {4, 0, true, 128, 0, 0, 640};
    case Format::P5_0: return {5, 16, false, 64, 576, 0, 704};
    case Format::P5_1: return {5, 0, true, 128, 640, 0, 768};
    case Format::P8_0: return {8, 0, false, 64, 0, 0, 1088};
    case Format::P4_K: return {4, 0, true, 512, 0, 0, 4608};
    case Format::P5_K: return {5, 0, true, 512, 4608, 128, 5632};
    default: return {6, 32, false, 576, 4672, 256, 6720};  // P6_K
  }
}

constexpr int64_t float_bytes(Format format) { return format == Format::PF32 ? 4 : 2; }

// One call on 16 (or, for one token, 32) rows of a segment.
struct Work {
  const Activations& a;
  const Segment& segment;
  int64_t row, token, num_tokens;

  int64_t k() const { return segment.w.k; }
  int64_t panel() const { return row / kPanelRows; }
  int64_t half() const { return row % kPanelRows / 16; }
};

// Writes `rows` outputs of one token, plus bias.
inline void write_rows(const Work& work, int64_t token, const float* acc, int64_t rows) {
  const Segment& s = work.segment;
  float* out = s.out + token * s.out_stride + work.row;
  const int64_t left = s.w.n - work.row;
  const int64_t count = left < rows ? left : rows;
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    const Floats value = load(acc + i);
    store(out + i, s.bias == nullptr ? value : add(value, load(s.bias + work.row + i)));
  }
  for (; i < count; ++i) out[i] = s.bias == nullptr ? acc[i] : acc[i] + s.bias[work.row + i];
}

inline void write_item(const Work& work, const float* acc) {
  for (int64_t t = 0; t < work.num_tokens; ++t) write_rows(work, work.token + t, acc + 16 * t, 16);
}

// ---- 32 columns to a block ----

// acc += one block, for T tokens. sum: of the codes; d, m: of the rows.
template <Format F, int V, int T>
FW_INLINE void add_block(const Ints (&isum)[V][T], const float* da, const int32_t* sum,
                         int64_t stride, const Floats (&d)[V], const Floats (&m)[V],
                         Floats (&acc)[V][T]) {
  constexpr Layout kLayout = layout(F);
#pragma GCC unroll 4
  for (int t = 0; t < T; ++t) {
    const Floats scale = splat(da[t * stride]);
    const Ints total = splat(sum[t * stride]);
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) {
      Ints exact = isum[v][t];
      if constexpr (kLayout.offset != 0) exact = sub(exact, shift_left(total, kLayout.bits - 1));
      acc[v][t] = fmadd(mul(d[v], scale), to_floats(exact), acc[v][t]);
      // m is -dmin of the definition, so that its two signs cancel.
      if constexpr (kLayout.mins) acc[v][t] = fmadd(mul(m[v], scale), to_floats(total), acc[v][t]);
    }
  }
}

// All blocks of V row vectors for one token.
template <Format F, int V>
inline void narrow_gemv(const Work& work) {
  constexpr Layout kLayout = layout(F);
  const int64_t blocks = work.k() / 32;
  const uint8_t* block = work.segment.w.data + work.panel() * blocks * kLayout.bytes;
  const int8_t* a = work.a.q32 + work.token * work.k();
  const float* da = work.a.d32 + work.token * blocks;
  const int32_t* sum = work.a.sum32 + work.token * blocks;
  Floats acc[V][1];
#pragma GCC unroll 4
  for (int v = 0; v < V; ++v) acc[v][0] = zero_floats();
  for (int64_t b = 0; b < blocks; ++b, block += kLayout.bytes) {
    const uint8_t* run = block + kLayout.quants + 64 * work.half();
    const Packed<kLayout.bits> packed{run, block + kLayout.high + 64 * work.half()};
    Ints isum[V][1];
    sum_run<kLayout.bits, V, 1>(packed, a + 32 * b, 0, isum);
    Floats d[V], m[V];
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) {
      const uint8_t* scale = block + 32 * work.half() + 2 * kLanes * v;
      d[v] = load_halves(scale);
      m[v] = kLayout.mins ? load_halves(scale + 64) : zero_floats();
    }
    add_block<F, V, 1>(isum, da + b, sum + b, 0, d, m, acc);
  }
  float out[V * kLanes];
#pragma GCC unroll 4
  for (int v = 0; v < V; ++v) store(out + v * kLanes, acc[v][0]);
  write_rows(work, work.token, out, V * kLanes);
}

template <Format F>
inline void unpack_narrow(const uint8_t* block, int64_t half, int64_t blocks, Scratch* scratch) {
  constexpr Layout kLayout = layout(F);
  for (int64_t b = 0; b < blocks; ++b, block += kLayout.bytes) {
    const uint8_t* run = block + kLayout.quants + 64 * half;
    const Packed<kLayout.bits> packed{run, block + kLayout.high + 64 * half};
#pragma GCC unroll 8
    for (int g = 0; g < 8; ++g) {
#pragma GCC unroll 2
      for (int v = 0; v < kHalfVectors; ++v) {
        store(scratch->codes + 512 * b + 64 * g + 4 * kLanes * v, packed.codes(v, g));
      }
    }
    for (int v = 0; v < kHalfVectors; ++v) {
      const uint8_t* scale = block + 32 * half + 2 * kLanes * v;
      store(scratch->d + 16 * b + kLanes * v, load_halves(scale));
      if (kLayout.mins) store(scratch->dmin + 16 * b + kLanes * v, load_halves(scale + 64));
    }
  }
}

// Adds a slab of up to 8 blocks to T tokens. t: the first, counted within the item.
template <Format F, int T>
inline void narrow_tile(const Work& work, int64_t first_block, int64_t blocks, int64_t t,
                        Scratch* scratch) {
  constexpr Layout kLayout = layout(F);
  constexpr int V = kHalfVectors;
  const int64_t stride = work.k() / 32;
  const int64_t at = (work.token + t) * stride + first_block;
  const int8_t* a = work.a.q32 + 32 * at;
  float* out = scratch->out + 16 * t;
  for (int64_t b = 0; b < blocks; ++b) {
    Ints isum[V][T];
    sum_run<kLayout.bits, V, T>(Unpacked{scratch->codes + 512 * b}, a + 32 * b, 32 * stride, isum);
    Floats d[V], m[V], acc[V][T];
#pragma GCC unroll 2
    for (int v = 0; v < V; ++v) {
      d[v] = load(scratch->d + 16 * b + kLanes * v);
      m[v] = load(scratch->dmin + 16 * b + kLanes * v);
#pragma GCC unroll 8
      for (int i = 0; i < T; ++i) acc[v][i] = load(out + 16 * i + kLanes * v);
    }
    add_block<F, V, T>(isum, work.a.d32 + at + b, work.a.sum32 + at + b, stride, d, m, acc);
#pragma GCC unroll 2
    for (int v = 0; v < V; ++v) {
#pragma GCC unroll 8
      for (int i = 0; i < T; ++i) store(out + 16 * i + kLanes * v, acc[v][i]);
    }
  }
}

template <Format F>
inline void narrow_gemm(const Work& work, Scratch* scratch) {
  constexpr Layout kLayout = layout(F);
  constexpr int T = tile_tokens(kLayout.bits, false);
  const int64_t blocks = work.k() / 32;
  const uint8_t* panel = work.segment.w.data + work.panel() * blocks * kLayout.bytes;
  __builtin_memset(scratch->out, 0, static_cast<size_t>(work.num_tokens) * 64);
  for (int64_t b = 0; b < blocks; b += 8) {
    const int64_t count = blocks - b < 8 ? blocks - b : 8;
    unpack_narrow<F>(panel + b * kLayout.bytes, work.half(), count, scratch);
    int64_t t = 0;
    for (; t + T <= work.num_tokens; t += T) narrow_tile<F, T>(work, b, count, t, scratch);
    for (; t < work.num_tokens; ++t) narrow_tile<F, 1>(work, b, count, t, scratch);
  }
  write_item(work, scratch->out);
}

// ---- 256 columns to a block ----

// Scales and mins of P4_K and P5_K rows as pairs of equal 16-bit integers, [8][V x lanes].
template <int V>
inline void unpack_scales_45k(const uint8_t* block, int64_t half, Scratch* scratch) {
  for (int64_t j = 0; j < 8; ++j) {
    for (int v = 0; v < V; ++v) {
      const int64_t row = 16 * half + kLanes * v;
      const Ints low = load_bytes(block + 128 + 32 * j + row);
      Ints top = load_bytes(block + 384 + 32 * (j % 4) + row);
      if (j >= 4) top = shift_right(top, 4);
      const Ints scale_top = shift_left(bit_and(top, splat(3)), 4);
      const Ints min_top = shift_left(bit_and(top, splat(12)), 2);
      const Ints scale = bit_or(bit_and(low, splat(15)), scale_top);
      const Ints min = bit_or(shift_right(low, 4), min_top);
      const int64_t at = (V * j + v) * kLanes;
      store(scratch->scale + at, bit_or(scale, shift_left(scale, 16)));
      store(scratch->correction + at, bit_or(min, shift_left(min, 16)));
    }
  }
}

// P6_K: the scales as pairs of equal integers, [16][rows], and as pairs of neighbours, [8][rows].
template <int V>
inline void unpack_scales_6k(const uint8_t* block, int64_t half, Scratch* scratch) {
  const Ints low = splat(0xffff);
  for (int64_t j = 0; j < 8; ++j) {
    for (int v = 0; v < V; ++v) {
      const uint8_t* p = block + 64 + 64 * j + 16 * half + kLanes * v;
      const Ints first = load_signed_bytes(p), second = load_signed_bytes(p + 32);
      const Ints first_low = bit_and(first, low), second_high = shift_left(second, 16);
      int32_t* scale = scratch->scale + (2 * V * j + v) * kLanes;
      store(scale, bit_or(first_low, shift_left(first, 16)));
      store(scale + V * kLanes, bit_or(bit_and(second, low), second_high));
      store(scratch->correction + (V * j + v) * kLanes, bit_or(first_low, second_high));
    }
  }
}

template <Format F, int V>
FW_INLINE void unpack_scales(const uint8_t* block, int64_t half, Scratch* scratch) {
  if constexpr (F == Format::P6_K) {
    unpack_scales_6k<V>(block, half, scratch);
  } else {
    unpack_scales_45k<V>(block, half, scratch);
  }
}

// acc += one block whose codes gave isum. sum: of 16 codes each, stride apart per token.
template <Format F, int V, int T>
FW_INLINE void add_wide_block(const Ints (&isum)[V][T], const float* da, int64_t da_stride,
                              const int16_t* sum, const int32_t* correction,
                              const Floats (&d)[V], const Floats (&dmin)[V],
                              Floats (&acc)[V][T]) {
#pragma GCC unroll 8
  for (int t = 0; t < T; ++t) {
    const Floats scale = splat(da[t * da_stride]);
    const int16_t* pairs = sum + t * 16 * da_stride;
    Ints fix[V];
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) fix[v] = zero_ints();
#pragma GCC unroll 8
    for (int j = 0; j < 8; ++j) {
      const Ints pair = splat_group(reinterpret_cast<const int8_t*>(pairs + 2 * j));
#pragma GCC unroll 4
      for (int v = 0; v < V; ++v) {
        const Ints factor = load(static_cast<const void*>(correction + (V * j + v) * kLanes));
        fix[v] = add(fix[v], pair_products(pair, factor));
      }
    }
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) {
      Ints exact = isum[v][t];
      if constexpr (F == Format::P6_K) exact = sub(exact, shift_left(fix[v], 5));
      acc[v][t] = fmadd(mul(d[v], scale), to_floats(exact), acc[v][t]);
      if constexpr (F != Format::P6_K) {
        acc[v][t] = fnmadd(mul(dmin[v], scale), to_floats(fix[v]), acc[v][t]);
      }
    }
  }
}

template <Format F, int V>
inline void wide_gemv(const Work& work, Scratch* scratch) {
  constexpr Layout kLayout = layout(F);
  constexpr int kGroups = F == Format::P6_K ? 2 : 1;  // scales per run
  const int64_t blocks = work.k() / 256;
  const uint8_t* block = work.segment.w.data + work.panel() * blocks * kLayout.bytes;
  const int64_t at = work.token * blocks;
  Floats acc[V][1];
#pragma GCC unroll 4
  for (int v = 0; v < V; ++v) acc[v][0] = zero_floats();
  for (int64_t b = 0; b < blocks; ++b, block += kLayout.bytes) {
    unpack_scales<F, V>(block, work.half(), scratch);
    const int8_t* a = work.a.q256 + 256 * (at + b);
    Ints isum[V][1];
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) isum[v][0] = zero_ints();
    for (int64_t j = 0; j < 8; ++j) {
      const uint8_t* run = block + kLayout.quants + 512 * j + 64 * work.half();
      const uint8_t* high = block + kLayout.high + kLayout.run_high * j + 64 * work.half();
      const int32_t* scale = scratch->scale + j * kGroups * V * kLanes;
      add_scaled_run<kLayout.bits, V, 1>(Packed<kLayout.bits>{run, high}, a + 32 * j, 0, scale,
                                         isum);
    }
    Floats d[V], dmin[V];
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) {
      const uint8_t* scale = block + 32 * work.half() + 2 * kLanes * v;
      d[v] = load_halves(scale);
      dmin[v] = kLayout.mins ? load_halves(scale + 64) : zero_floats();
    }
    add_wide_block<F, V, 1>(isum, work.a.d256 + at + b, 0, work.a.sum256 + 16 * (at + b),
                            scratch->correction, d, dmin, acc);
  }
  float out[V * kLanes];
#pragma GCC unroll 4
  for (int v = 0; v < V; ++v) store(out + v * kLanes, acc[v][0]);
  write_rows(work, work.token, out, V * kLanes);
}

template <Format F>
inline void unpack_wide(const uint8_t* block, int64_t half, Scratch* scratch) {
  constexpr Layout kLayout = layout(F);
  for (int64_t j = 0; j < 8; ++j) {
    const uint8_t* run = block + kLayout.quants + 512 * j + 64 * half;
    const uint8_t* high = block + kLayout.high + kLayout.run_high * j + 64 * half;
    const Packed<kLayout.bits> packed{run, high};
#pragma GCC unroll 8
    for (int g = 0; g < 8; ++g) {
#pragma GCC unroll 2
      for (int v = 0; v < kHalfVectors; ++v) {
        store(scratch->codes + 512 * j + 64 * g + 4 * kLanes * v, packed.codes(v, g));
      }
    }
  }
  unpack_scales<F, kHalfVectors>(block, half, scratch);
  for (int v = 0; v < kHalfVectors; ++v) {
    const uint8_t* scale = block + 32 * half + 2 * kLanes * v;
    store(scratch->d + kLanes * v, load_halves(scale));
    if (kLayout.mins) store(scratch->dmin + kLanes * v, load_halves(scale + 64));
  }
}

template <Format F, int T>
inline void wide_tile(const Work& work, int64_t block, int64_t t, Scratch* scratch) {
  constexpr Layout kLayout = layout(F);
  constexpr int V = kHalfVectors;
  constexpr int kGroups = F == Format::P6_K ? 2 : 1;
  const int64_t stride = work.k() / 256;
  const int64_t at = (work.token + t) * stride + block;
  const int8_t* a = work.a.q256 + 256 * at;
  float* out = scratch->out + 16 * t;
  Ints isum[V][T];
  Floats d[V], dmin[V], acc[V][T];
#pragma GCC unroll 2
  for (int v = 0; v < V; ++v) {
#pragma GCC unroll 8
    for (int i = 0; i < T; ++i) isum[v][i] = zero_ints();
  }
  for (int64_t j = 0; j < 8; ++j) {
    const int32_t* scale = scratch->scale + j * kGroups * V * kLanes;
    add_scaled_run<kLayout.bits, V, T>(Unpacked{scratch->codes + 512 * j}, a + 32 * j,
                                       256 * stride, scale, isum);
  }
#pragma GCC unroll 2
  for (int v = 0; v < V; ++v) {
    d[v] = load(scratch->d + kLanes * v);
    dmin[v] = load(scratch->dmin + kLanes * v);
#pragma GCC unroll 8
    for (int i = 0; i < T; ++i) acc[v][i] = load(out + 16 * i + kLanes * v);
  }
  add_wide_block<F, V, T>(isum, work.a.d256 + at, stride, work.a.sum256 + 16 * at,
                          scratch->correction, d, dmin, acc);
#pragma GCC unroll 2
  for (int v = 0; v < V; ++v) {
#pragma GCC unroll 8
    for (int i = 0; i < T; ++i) store(out + 16 * i + kLanes * v, acc[v][i]);
  }
}

template <Format F>
inline void wide_gemm(const Work& work, Scratch* scratch) {
  constexpr Layout kLayout = layout(F);
  constexpr int T = tile_tokens(kLayout.bits, true);
  const int64_t blocks = work.k() / 256;
  const uint8_t* panel = work.segment.w.data + work.panel() * blocks * kLayout.bytes;
  __builtin_memset(scratch->out, 0, static_cast<size_t>(work.num_tokens) * 64);
  for (int64_t b = 0; b < blocks; ++b) {
    unpack_wide<F>(panel + b * kLayout.bytes, work.half(), scratch);
    int64_t t = 0;
    for (; t + T <= work.num_tokens; t += T) wide_tile<F, T>(work, b, t, scratch);
    for (; t < work.num_tokens; ++t) wide_tile<F, 1>(work, b, t, scratch);
  }
  write_item(work, scratch->out);
}

// ---- float formats ----

template <Format F>
struct Values {
  const uint8_t* first;  // the first column's rows

  FW_INLINE Floats values(int64_t k, int v) const {
    const uint8_t* column = first + 32 * float_bytes(F) * k;
    if constexpr (F == Format::PF16) return load_halves(column + 2 * kLanes * v);
    if constexpr (F == Format::PBF16) return load_bf16(column, v);
    return load(reinterpret_cast<const float*>(column) + kLanes * v);
  }
};

struct UnpackedValues {
  const float* first;  // [k][16]

  FW_INLINE Floats values(int64_t k, int v) const { return load(first + 16 * k + kLanes * v); }
};

// acc[v][t] = the chain over `columns` columns; x: [T] rows `stride` apart.
template <int V, int T, class Weights>
FW_INLINE void float_chunk(const Weights& w, const float* x, int64_t stride, int64_t columns,
                           Floats (&acc)[V][T]) {
#pragma GCC unroll 8
  for (int t = 0; t < T; ++t) {
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) acc[v][t] = zero_floats();
  }
  for (int64_t k = 0; k < columns; ++k) {
    Floats weights[V];
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) weights[v] = w.values(k, v);
#pragma GCC unroll 8
    for (int t = 0; t < T; ++t) {
      const Floats value = splat(x[t * stride + k]);
#pragma GCC unroll 4
      for (int v = 0; v < V; ++v) acc[v][t] = fmadd(value, weights[v], acc[v][t]);
    }
  }
}

template <Format F>
FW_INLINE Values<F> values_at(const Work& work, int64_t k) {
  const int64_t column = 32 * float_bytes(F);
  const uint8_t* panel = work.segment.w.data + work.panel() * work.k() * column;
  return {panel + k * column + column / 2 * work.half()};
}

template <Format F, int V>
inline void float_gemv(const Work& work) {
  Floats total[V];
#pragma GCC unroll 4
  for (int v = 0; v < V; ++v) total[v] = zero_floats();
  for (int64_t k = 0; k < work.k(); k += kSlabColumns) {
    const int64_t columns = work.k() - k < kSlabColumns ? work.k() - k : kSlabColumns;
    Floats acc[V][1];
    float_chunk<V, 1>(values_at<F>(work, k), work.a.x + work.token * work.k() + k, 0, columns,
                      acc);
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) total[v] = add(total[v], acc[v][0]);
  }
  float out[V * kLanes];
#pragma GCC unroll 4
  for (int v = 0; v < V; ++v) store(out + v * kLanes, total[v]);
  write_rows(work, work.token, out, V * kLanes);
}

template <int T>
inline void float_tile(const Work& work, int64_t k, int64_t columns, int64_t t, Scratch* scratch) {
  constexpr int V = kHalfVectors;
  const float* x = work.a.x + (work.token + t) * work.k() + k;
  Floats acc[V][T];
  float_chunk<V, T>(UnpackedValues{scratch->values}, x, work.k(), columns, acc);
#pragma GCC unroll 2
  for (int v = 0; v < V; ++v) {
#pragma GCC unroll 8
    for (int i = 0; i < T; ++i) {
      float* out = scratch->out + 16 * (t + i) + kLanes * v;
      store(out, add(load(out), acc[v][i]));
    }
  }
}

template <Format F>
inline void float_gemm(const Work& work, Scratch* scratch) {
  __builtin_memset(scratch->out, 0, static_cast<size_t>(work.num_tokens) * 64);
  for (int64_t k = 0; k < work.k(); k += kSlabColumns) {
    const int64_t columns = work.k() - k < kSlabColumns ? work.k() - k : kSlabColumns;
    const Values<F> packed = values_at<F>(work, k);
    for (int64_t i = 0; i < columns; ++i) {
      for (int v = 0; v < kHalfVectors; ++v) {
        store(scratch->values + 16 * i + kLanes * v, packed.values(i, v));
      }
    }
    int64_t t = 0;
    for (; t + kFloatTile <= work.num_tokens; t += kFloatTile) {
      float_tile<kFloatTile>(work, k, columns, t, scratch);
    }
    for (; t < work.num_tokens; ++t) float_tile<1>(work, k, columns, t, scratch);
  }
  write_item(work, scratch->out);
}

// ---- items ----

template <Format F, int V>
inline void gemv(const Work& work, Scratch* scratch) {
  if constexpr (F == Format::PF16 || F == Format::PBF16 || F == Format::PF32) {
    float_gemv<F, V>(work);
  } else if constexpr (F == Format::P4_K || F == Format::P5_K || F == Format::P6_K) {
    wide_gemv<F, V>(work, scratch);
  } else {
    narrow_gemv<F, V>(work);
  }
}

template <Format F>
inline void run(const Work& work, bool whole_panel, Scratch* scratch) {
  if (whole_panel) {
    gemv<F, 2 * kHalfVectors>(work, scratch);
  } else if (work.num_tokens == 1) {
    gemv<F, kHalfVectors>(work, scratch);
  } else if constexpr (F == Format::PF16 || F == Format::PBF16 || F == Format::PF32) {
    float_gemm<F>(work, scratch);
  } else if constexpr (F == Format::P4_K || F == Format::P5_K || F == Format::P6_K) {
    wide_gemm<F>(work, scratch);
  } else {
    narrow_gemm<F>(work, scratch);
  }
}

inline void run_work(const Work& work, bool whole_panel, Scratch* scratch) {
  switch (work.segment.w.format) {
    case Format::P4_0: return run<Format::P4_0>(work, whole_panel, scratch);
    case Format::P4_1: return run<Format::P4_1>(work, whole_panel, scratch);
    case Format::P5_0: return run<Format::P5_0>(work, whole_panel, scratch);
    case Format::P5_1: return run<Format::P5_1>(work, whole_panel, scratch);
    case Format::P8_0: return run<Format::P8_0>(work, whole_panel, scratch);
    case Format::P4_K: return run<Format::P4_K>(work, whole_panel, scratch);
    case Format::P5_K: return run<Format::P5_K>(work, whole_panel, scratch);
    case Format::P6_K: return run<Format::P6_K>(work, whole_panel, scratch);
    case Format::PF16: return run<Format::PF16>(work, whole_panel, scratch);
    case Format::PBF16: return run<Format::PBF16>(work, whole_panel, scratch);
    case Format::PF32: return run<Format::PF32>(work, whole_panel, scratch);
  }
}

// For one token, two halves of a panel run as one: their cache lines are neighbours.
inline void run_items(const LinearArgs& args, int64_t first_item, int64_t last_item,
                      uint8_t* scratch_bytes) {
  auto* scratch = reinterpret_cast<Scratch*>(scratch_bytes);
  for (int64_t i = first_item; i < last_item; ++i) {
    const LinearItem item = linear_item(args, i);
    const Segment& segment = args.segment[item.segment];
    const bool has_next = i + 1 < last_item && item.first_row + kItemRows < segment.w.n;
    const bool whole = item.num_tokens == 1 && args.a.t == 1 && item.first_row % kPanelRows == 0 && has_next;
    const Work work{args.a, segment, item.first_row, item.first_token, item.num_tokens};
    run_work(work, whole, scratch);
    if (whole) ++i;
  }
}
