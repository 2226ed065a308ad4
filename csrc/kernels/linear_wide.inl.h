// Formats with 256 columns to a block and A256 activations. Part of linear.inl.h.

// Where the parts of a block are; see fmt/panel.h.
struct WideLayout {
  int bits;
  int32_t offset;        // codes are that much above the quants: 0 or 2^(bits - 1)
  int groups;            // scales per run of 32 columns
  bool mins;
  int64_t quants, high;  // first byte of the quants, of the upper bits
  int64_t run_quants;    // bytes of quants per run
  int64_t run_high;      // bytes of upper bits per run
  int64_t bytes;
};

constexpr WideLayout wide_layout(Format format) {
  switch (format) {
    case Format::P2_K: return {2, 0, 2, true, 640, 0, 256, 0, 2688};
    case Format::P3_K: return {3, 4, 2, false, 576, 2624, 256, 128, 3648};
    case Format::P4_K: return {4, 0, 1, true, 512, 0, 512, 0, 4608};
    case Format::P5_K: return {5, 0, 1, true, 512, 4608, 512, 128, 5632};
    case Format::P6_K: return {6, 32, 2, false, 576, 4672, 512, 256, 6720};
    default: return {8, kSignedOffset, 1, false, 320, 0, 1024, 0, 8512};  // P8_K
  }
}

// One half of a packed block.
template <Format F>
struct PackedWide {
  static constexpr WideLayout kLayout = wide_layout(F);
  const uint8_t* block;
  int64_t half;

  FW_INLINE Packed<kLayout.bits> weights(int64_t run) const {
    return {block + kLayout.quants + kLayout.run_quants * run + 64 * half,
            block + kLayout.high + kLayout.run_high * run + 64 * half};
  }
  // Asks for a share of the next block; its 2 x 8 half runs have one each. The planes of a block
  // are too many streams for the hardware: this made P6_K and one token 1.6 times as fast. P8_K has
  // one stream, which it made a fifth slower.
  FW_INLINE void prefetch_next(int64_t run) const {
    if constexpr (kLayout.bits == 8) return;
    constexpr int64_t kShare = (kLayout.bytes / 16 + 63) / 64 * 64;
    prefetch(block + kLayout.bytes + (8 * half + run) * kShare, kShare);
  }
  FW_INLINE Floats d(int v) const { return load_halves(block + 32 * half + 2 * kLanes * v); }
  FW_INLINE Floats dmin(int v) const {
    return load_halves(block + 64 + 32 * half + 2 * kLanes * v);
  }
};

struct UnpackedWide {
  const Scratch* scratch;

  FW_INLINE Unpacked weights(int64_t run) const { return {scratch->codes + 512 * run}; }
  FW_INLINE void prefetch_next(int64_t) const {}
  FW_INLINE Floats d(int v) const { return load(scratch->d + kLanes * v); }
  FW_INLINE Floats dmin(int v) const { return load(scratch->dmin + kLanes * v); }
};

// Scales and mins of P4_K and P5_K rows as pairs of equal 16-bit integers.
inline void unpack_scales_45k(const uint8_t* block, int64_t half, Scratch* scratch) {
  FW_UNROLL for (int j = 0; j < 8; ++j) {
    FW_UNROLL for (int v = 0; v < kHalfVectors; ++v) {
      const int64_t row = 16 * half + kLanes * v;
      const Ints low = load_bytes(block + 128 + 32 * j + row);
      Ints top = load_bytes(block + 384 + 32 * (j % 4) + row);
      if (j >= 4) top = shift_right(top, 4);
      const Ints scale_top = shift_left(bit_and(top, splat(3)), 4);
      const Ints min_top = shift_left(bit_and(top, splat(12)), 2);
      const Ints scale = bit_or(bit_and(low, splat(15)), scale_top);
      const Ints min = bit_or(shift_right(low, 4), min_top);
      store(scratch->scale + 16 * j + kLanes * v, bit_or(scale, shift_left(scale, 16)));
      store(scratch->correction + 16 * j + kLanes * v, bit_or(min, shift_left(min, 16)));
    }
  }
}

// P2_K: the scales as pairs of equal integers, the mins as pairs of neighbours.
inline void unpack_scales_2k(const uint8_t* block, int64_t half, Scratch* scratch) {
  FW_UNROLL for (int j = 0; j < 8; ++j) {
    FW_UNROLL for (int v = 0; v < kHalfVectors; ++v) {
      const uint8_t* p = block + 128 + 64 * j + 16 * half + kLanes * v;
      const Ints first = load_bytes(p), second = load_bytes(p + 32);
      const Ints first_scale = bit_and(first, splat(15)), second_scale = bit_and(second, splat(15));
      int32_t* scale = scratch->scale + 32 * j + kLanes * v;
      store(scale, bit_or(first_scale, shift_left(first_scale, 16)));
      store(scale + 16, bit_or(second_scale, shift_left(second_scale, 16)));
      const Ints mins = bit_or(shift_right(first, 4), shift_left(shift_right(second, 4), 16));
      store(scratch->correction + 16 * j + kLanes * v, mins);
    }
  }
}

// P3_K and P6_K: the scales as pairs of equal integers, and of neighbours to correct the offset.
inline void unpack_scales_36k(const uint8_t* block, int64_t half, Scratch* scratch) {
  const Ints low = splat(0xffff);
  FW_UNROLL for (int j = 0; j < 8; ++j) {
    FW_UNROLL for (int v = 0; v < kHalfVectors; ++v) {
      const uint8_t* p = block + 64 + 64 * j + 16 * half + kLanes * v;
      const Ints first = load_signed_bytes(p), second = load_signed_bytes(p + 32);
      const Ints first_low = bit_and(first, low), second_high = shift_left(second, 16);
      int32_t* scale = scratch->scale + 32 * j + kLanes * v;
      store(scale, bit_or(first_low, shift_left(first, 16)));
      store(scale + 16, bit_or(bit_and(second, low), second_high));
      store(scratch->correction + 16 * j + kLanes * v, bit_or(first_low, second_high));
    }
  }
}

// P8_K: the scales as pairs of equal integers, which correct the offset too.
inline void unpack_scales_8k(const uint8_t* block, int64_t half, Scratch* scratch) {
  FW_UNROLL for (int j = 0; j < 8; ++j) {
    FW_UNROLL for (int v = 0; v < kHalfVectors; ++v) {
      const Ints scale = load_signed_bytes(block + 64 + 32 * j + 16 * half + kLanes * v);
      const Ints pair = bit_or(bit_and(scale, splat(0xffff)), shift_left(scale, 16));
      store(scratch->scale + 16 * j + kLanes * v, pair);
      store(scratch->correction + 16 * j + kLanes * v, pair);
    }
  }
}

template <Format F>
FW_INLINE void unpack_scales(const uint8_t* block, int64_t half, Scratch* scratch) {
  if constexpr (F == Format::P2_K) {
    unpack_scales_2k(block, half, scratch);
  } else if constexpr (F == Format::P3_K || F == Format::P6_K) {
    unpack_scales_36k(block, half, scratch);
  } else if constexpr (F == Format::P8_K) {
    unpack_scales_8k(block, half, scratch);
  } else {
    unpack_scales_45k(block, half, scratch);
  }
}

// Sums of 16 codes of T tokens times the corrections: mins, or scales where codes have an offset.
template <int T>
FW_INLINE void correction_sums(const int16_t* sums, int64_t stride, const int32_t* correction,
                               Ints (&total)[kHalfVectors][T]) {
  FW_UNROLL for (int v = 0; v < kHalfVectors; ++v) {
    FW_UNROLL for (int t = 0; t < T; ++t) total[v][t] = zero_ints();
  }
  FW_UNROLL for (int j = 0; j < 8; ++j) {
    FW_UNROLL for (int t = 0; t < T; ++t) {
      const Ints pair = splat_pair(sums + t * stride + 2 * j);
      FW_UNROLL for (int v = 0; v < kHalfVectors; ++v) {
        const Ints factor = load(static_cast<const void*>(correction + 16 * j + kLanes * v));
        total[v][t] = add(total[v][t], pair_products(pair, factor));
        keep(total[v][t]);
      }
    }
  }
}

// Adds one block, whose scales are in the scratch, to T tokens. at: index of the block's run of
// activations for the first of them; the next token's is `stride` further.
template <Format F, int T, class Source>
FW_INLINE void add_wide_block(const Activations& a, const Source& source, int64_t at,
                              int64_t stride, Scratch* scratch, float* out) {
  constexpr WideLayout kLayout = wide_layout(F);
  constexpr int V = kHalfVectors;
  Sums<V, T> sums(scratch->sums);
  sums.clear();
  for (int64_t j = 0; j < 8; ++j) {
    source.prefetch_next(j);
    const int32_t* scale = scratch->scale + 16 * kLayout.groups * j;
    add_scaled_run<kLayout.bits, V, T>(source.weights(j), a.q256 + 256 * at + 32 * j, 256 * stride,
                                       scale, &sums);
  }
  Ints total[V][T];
  if constexpr (kLayout.mins || kLayout.offset != 0) {
    correction_sums<T>(a.sum256 + 16 * at, 16 * stride, scratch->correction, total);
  }
  FW_UNROLL for (int t = 0; t < T; ++t) {
    const Floats scale = splat(a.d256[at + t * stride]);
    FW_UNROLL for (int v = 0; v < V; ++v) {
      float* p = out + 16 * t + kLanes * v;
      Ints exact = sums.get(v, t);
      if constexpr (kLayout.offset != 0) {
        exact = sub(exact, shift_left(total[v][t], kLayout.bits - 1));
      }
      Floats acc = fmadd(mul(source.d(v), scale), to_floats(exact), load(p));
      if constexpr (kLayout.mins) {
        acc = fnmadd(mul(source.dmin(v), scale), to_floats(total[v][t]), acc);
      }
      store(p, acc);
    }
  }
}

// Adds a block, packed or unpacked, to T tokens. t: the first, counted within the item.
template <Format F, class Source>
struct WideSweep {
  const Work& work;
  Source source;
  Scratch* scratch;
  int64_t b;
  float* out;

  template <int T>
  FW_INLINE void run(int64_t t) const {
    const int64_t stride = work.k() / 256;
    const int64_t at = (work.token + t) * stride + b;
    add_wide_block<F, T>(work.a, source, at, stride, scratch, out + 16 * t);
  }
};

template <Format F>
inline void stream_wide(const Work& work, Scratch* scratch) {
  constexpr WideLayout kLayout = wide_layout(F);
  const int64_t blocks = work.k() / 256;
  const uint8_t* block = work.panel(256, kLayout.bytes);
  for (int64_t b = 0; b < blocks; ++b, block += kLayout.bytes) {
    for (int64_t h = 0; h < work.halves; ++h) {
      unpack_scales<F>(block, work.half() + h, scratch);
      const PackedWide<F> source{block, work.half() + h};
      for_tiles(work.num_tokens, WideSweep<F, PackedWide<F>>{work, source, scratch, b,
                                                             work.out(h, scratch)});
    }
  }
}

template <Format F>
inline void unpack_wide(const uint8_t* block, int64_t half, Scratch* scratch) {
  constexpr WideLayout kLayout = wide_layout(F);
  const PackedWide<F> source{block, half};
  prefetch(block + kLayout.bytes, kLayout.bytes);
  for (int64_t j = 0; j < 8; ++j) unpack_run(source.weights(j), scratch->codes + 512 * j);
  unpack_scales<F>(block, half, scratch);
  FW_UNROLL for (int v = 0; v < kHalfVectors; ++v) {
    store(scratch->d + kLanes * v, source.d(v));
    if constexpr (kLayout.mins) store(scratch->dmin + kLanes * v, source.dmin(v));
  }
}

template <Format F>
inline void gemm_wide(const Work& work, Scratch* scratch) {
  constexpr WideLayout kLayout = wide_layout(F);
  const int64_t blocks = work.k() / 256;
  const uint8_t* panel = work.panel(256, kLayout.bytes);
  for (int64_t b = 0; b < blocks; ++b) {
    for (int64_t h = 0; h < work.halves; ++h) {
      unpack_wide<F>(panel + b * kLayout.bytes, work.half() + h, scratch);
      for_tiles(work.num_tokens, WideSweep<F, UnpackedWide>{work, UnpackedWide{scratch}, scratch, b,
                                                            work.out(h, scratch)});
    }
  }
}
