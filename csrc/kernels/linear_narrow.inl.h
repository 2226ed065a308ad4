// Formats with 32 columns to a block and A32 activations. Part of linear.inl.h.

// Where the parts of a block are; see fmt/panel.h.
struct NarrowLayout {
  int bits;
  int32_t offset;        // codes are that much above the quants
  bool mins;
  int64_t quants, high;  // first byte of the quants, of the upper bits
  int64_t bytes;
};

constexpr NarrowLayout narrow_layout(Format format) {
  switch (format) {
    case Format::P4_0: return {4, 8, false, 64, 0, 576};
    case Format::P4_1: return {4, 0, true, 128, 0, 640};
    case Format::P5_0: return {5, 16, false, 64, 576, 704};
    case Format::P5_1: return {5, 0, true, 128, 640, 768};
    case Format::P8_F: return {8, kSignedOffset, false, 128, 0, 1152};
    default: return {8, kSignedOffset, false, 64, 0, 1088};  // P8_0
  }
}

// One half of a packed block. m is -dmin of the definition, so that its two signs cancel.
template <Format F>
struct PackedNarrow {
  static constexpr NarrowLayout kLayout = narrow_layout(F);
  const uint8_t* block;
  int64_t half;

  FW_INLINE Packed<kLayout.bits> weights() const {
    return {block + kLayout.quants + 64 * half, block + kLayout.high + 64 * half};
  }
  FW_INLINE Floats d(int v) const {
    const int64_t row = 16 * half + kLanes * v;
    if constexpr (F == Format::P8_F) return load(reinterpret_cast<const float*>(block) + row);
    return load_halves(block + 2 * row);
  }
  FW_INLINE Floats m(int v) const { return load_halves(block + 64 + 32 * half + 2 * kLanes * v); }
};

// Block b of the slab.
struct UnpackedNarrow {
  const Scratch* scratch;
  int64_t b;

  FW_INLINE Unpacked weights() const { return {scratch->codes + 512 * b}; }
  FW_INLINE Floats d(int v) const { return load(scratch->d + 16 * b + kLanes * v); }
  FW_INLINE Floats m(int v) const { return load(scratch->dmin + 16 * b + kLanes * v); }
};

// What follows the sums of a block: adds them, scaled, to the outputs [T][16 rows] in memory.
template <Format F, class Source>
struct NarrowOutputs {
  static constexpr NarrowLayout kLayout = narrow_layout(F);
  const Activations& a;
  const Source& source;
  int64_t at, stride;
  float* out;

  template <int V>
  FW_INLINE void add(int t, const Ints (&sums)[V]) const {
    const Floats scale = splat(a.d32[at + t * stride]);
    const Ints total = splat(a.sum32[at + t * stride]);
    FW_UNROLL for (int v = 0; v < V; ++v) {
      float* p = out + 16 * t + kLanes * v;
      Ints exact = sums[v];
      if constexpr (kLayout.offset != 0) exact = sub(exact, shift_left(total, kLayout.bits - 1));
      Floats acc = fmadd(mul(source.d(v), scale), to_floats(exact), load(p));
      if constexpr (kLayout.mins) acc = fmadd(mul(source.m(v), scale), to_floats(total), acc);
      store(p, acc);
    }
  }
};

// Adds one block to T tokens. at: index of the block's run of activations for the first of them;
// the next token's is `stride` further.
template <Format F, int T, class Source>
FW_INLINE void add_narrow_block(const Activations& a, const Source& source, int64_t at,
                                int64_t stride, Scratch* scratch, float* out) {
  constexpr int V = kHalfVectors;
  hide(out);
  Sums<V, T> sums(scratch->sums);
  sum_run<narrow_layout(F).bits, V, T>(source.weights(), a.q32 + 32 * at, 32 * stride, &sums,
                                       NarrowOutputs<F, Source>{a, source, at, stride, out});
}

// Adds packed block b to T tokens. t: the first, counted within the item.
template <Format F>
struct NarrowStream {
  const Work& work;
  PackedNarrow<F> source;
  int64_t b;
  Scratch* scratch;
  float* out;

  template <int T>
  FW_INLINE void run(int64_t t) const {
    const int64_t stride = work.k() / 32;
    const int64_t at = (work.token + t) * stride + b;
    add_narrow_block<F, T>(work.a, source, at, stride, scratch, out + 16 * t);
  }
};

template <Format F>
inline void stream_narrow(const Work& work, Scratch* scratch) {
  constexpr NarrowLayout kLayout = narrow_layout(F);
  const int64_t blocks = work.k() / 32;
  const uint8_t* block = work.panel(32, kLayout.bytes);
  for (int64_t b = 0; b < blocks; ++b, block += kLayout.bytes) {
    for (int64_t h = 0; h < work.halves; ++h) {
      const PackedNarrow<F> source{block, work.half() + h};
      for_tiles(work.num_tokens, NarrowStream<F>{work, source, b, scratch, work.out(h, scratch)});
    }
  }
}

template <Format F>
inline void unpack_narrow(const uint8_t* block, int64_t half, int64_t blocks, Scratch* scratch) {
  constexpr NarrowLayout kLayout = narrow_layout(F);
  for (int64_t b = 0; b < blocks; ++b, block += kLayout.bytes) {
    const PackedNarrow<F> source{block, half};
    prefetch(block + 8 * kLayout.bytes, kLayout.bytes);
    unpack_run(source.weights(), scratch->codes + 512 * b);
    FW_UNROLL for (int v = 0; v < kHalfVectors; ++v) {
      store(scratch->d + 16 * b + kLanes * v, source.d(v));
      if constexpr (kLayout.mins) store(scratch->dmin + 16 * b + kLanes * v, source.m(v));
    }
  }
}

// Adds a slab of up to 8 blocks to T tokens. t: the first, counted within the item.
template <Format F>
struct NarrowSweep {
  const Work& work;
  Scratch* scratch;
  int64_t first_block, blocks;
  float* out;

  template <int T>
  FW_INLINE void run(int64_t t) const {
    const int64_t stride = work.k() / 32;
    const int64_t at = (work.token + t) * stride + first_block;
    for (int64_t b = 0; b < blocks; ++b) {
      add_narrow_block<F, T>(work.a, UnpackedNarrow{scratch, b}, at + b, stride, scratch,
                             out + 16 * t);
    }
  }
};

template <Format F>
inline void gemm_narrow(const Work& work, Scratch* scratch) {
  constexpr NarrowLayout kLayout = narrow_layout(F);
  const int64_t blocks = work.k() / 32;
  const uint8_t* panel = work.panel(32, kLayout.bytes);
  for (int64_t b = 0; b < blocks; b += 8) {
    const int64_t count = blocks - b < 8 ? blocks - b : 8;
    for (int64_t h = 0; h < work.halves; ++h) {
      unpack_narrow<F>(panel + b * kLayout.bytes, work.half() + h, count, scratch);
      for_tiles(work.num_tokens, NarrowSweep<F>{work, scratch, b, count, work.out(h, scratch)});
    }
  }
}
