// Float formats, multiplied with the activations as they are. Part of linear.inl.h.

constexpr int64_t float_bytes(Format format) { return format == Format::PF32 ? 4 : 2; }

// One half of a packed panel, from some column on.
template <Format F>
struct PackedValues {
  const uint8_t* first;

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

template <Format F>
FW_INLINE PackedValues<F> packed_values(const Work& work, int64_t half, int64_t k) {
  constexpr int64_t kColumn = 32 * float_bytes(F);
  return {work.panel(1, kColumn) + k * kColumn + kColumn / 2 * half};
}

FW_INLINE int64_t chunk_columns(const Work& work, int64_t k) {
  return work.k() - k < kSlabColumns ? work.k() - k : kSlabColumns;
}

// tile += the chain over `columns` columns. x: the first token's, the next is `stride` further.
template <int T, int V, class Source>
FW_INLINE void add_chunk(const Source& source, const float* x, int64_t stride, int64_t columns,
                         Tile<T, V>* tile) {
  Tile<T, V> chunk;
  chunk.clear();
  for (int64_t k = 0; k < columns; ++k) {
    Floats weights[V];
    FW_UNROLL for (int v = 0; v < V; ++v) weights[v] = source.values(k, v);
    FW_UNROLL for (int t = 0; t < T; ++t) {
      const Floats value = splat(x[t * stride + k]);
      FW_UNROLL for (int v = 0; v < V; ++v) {
        chunk.acc[v][t] = fmadd(value, weights[v], chunk.acc[v][t]);
      }
    }
  }
  FW_UNROLL for (int v = 0; v < V; ++v) {
    FW_UNROLL for (int t = 0; t < T; ++t) tile->acc[v][t] = add(tile->acc[v][t], chunk.acc[v][t]);
  }
}

// Adds a chunk of columns, packed or unpacked, to T tokens. t: the first, counted within the item.
template <class Source>
struct FloatSweep {
  const Work& work;
  Source source;
  int64_t k;
  float* out;

  template <int T>
  FW_INLINE void run(int64_t t) const {
    const float* x = work.a.x + (work.token + t) * work.k() + k;
    Tile<T> tile;
    tile.load_from(out + 16 * t);
    add_chunk<T>(source, x, work.k(), chunk_columns(work, k), &tile);
    tile.store_to(out + 16 * t);
  }
};

// One token and a whole panel: twice the chains, which hide more of the latency of an FMA.
template <Format F>
inline void stream_float_panel(const Work& work, Scratch* scratch) {
  Tile<1, 2 * kHalfVectors> tile;
  tile.clear();
  for (int64_t k = 0; k < work.k(); k += kSlabColumns) {
    const float* x = work.a.x + work.token * work.k() + k;
    add_chunk<1>(packed_values<F>(work, 0, k), x, 0, chunk_columns(work, k), &tile);
  }
  tile.store_to(scratch->out);
}

template <Format F>
inline void stream_float(const Work& work, Scratch* scratch) {
  if (work.num_tokens == 1 && work.halves == 2) return stream_float_panel<F>(work, scratch);
  for (int64_t k = 0; k < work.k(); k += kSlabColumns) {
    for (int64_t h = 0; h < work.halves; ++h) {
      const PackedValues<F> source = packed_values<F>(work, work.half() + h, k);
      for_tiles(work.num_tokens,
                FloatSweep<PackedValues<F>>{work, source, k, work.out(h, scratch)});
    }
  }
}

template <Format F>
inline void unpack_values(const PackedValues<F>& source, int64_t columns, float* values) {
  for (int64_t k = 0; k < columns; ++k) {
    FW_UNROLL for (int v = 0; v < kHalfVectors; ++v) {
      store(values + 16 * k + kLanes * v, source.values(k, v));
    }
  }
}

template <Format F>
inline void gemm_float(const Work& work, Scratch* scratch) {
  for (int64_t k = 0; k < work.k(); k += kSlabColumns) {
    for (int64_t h = 0; h < work.halves; ++h) {
      unpack_values<F>(packed_values<F>(work, work.half() + h, k), chunk_columns(work, k),
                       scratch->values);
      const UnpackedValues source{scratch->values};
      for_tiles(work.num_tokens, FloatSweep<UnpackedValues>{work, source, k, work.out(h, scratch)});
    }
  }
}
