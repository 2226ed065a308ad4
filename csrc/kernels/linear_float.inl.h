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

// One pass over V row vectors: a whole panel has twice the chains to hide the latency of an FMA.
template <Format F, int T, int V>
FW_INLINE void stream_vectors(const Work& work, int64_t half, float* out) {
  Tile<T, V> tile;
  tile.clear();
  for (int64_t k = 0; k < work.k(); k += kSlabColumns) {
    const float* x = work.a.x + work.token * work.k() + k;
    add_chunk<T, V>(packed_values<F>(work, half, k), x, work.k(), chunk_columns(work, k), &tile);
  }
  tile.store_to(out);
}

template <Format F, int T>
inline void stream_float(const Work& work, int64_t halves, Scratch* scratch) {
  if (T <= 2 && halves == 2) {
    stream_vectors<F, T, T <= 2 ? 2 * kHalfVectors : kHalfVectors>(work, 0, scratch->out);
    return;
  }
  for (int64_t h = 0; h < halves; ++h) {
    stream_vectors<F, T, kHalfVectors>(work, work.half() + h, scratch->out + 16 * T * h);
  }
}

struct FloatSweep {
  const Work& work;
  int64_t k, columns;
  Scratch* scratch;

  template <int T>
  FW_INLINE void run(int64_t t) const {
    const float* x = work.a.x + (work.token + t) * work.k() + k;
    Tile<T> tile;
    tile.load_from(scratch->out + 16 * t);
    add_chunk<T>(UnpackedValues{scratch->values}, x, work.k(), columns, &tile);
    tile.store_to(scratch->out + 16 * t);
  }
};

template <Format F>
inline void gemm_float(const Work& work, Scratch* scratch) {
  for (int64_t k = 0; k < work.k(); k += kSlabColumns) {
    const int64_t columns = chunk_columns(work, k);
    const PackedValues<F> source = packed_values<F>(work, work.half(), k);
    for (int64_t i = 0; i < columns; ++i) {
      FW_UNROLL for (int v = 0; v < kHalfVectors; ++v) {
        store(scratch->values + 16 * i + kLanes * v, source.values(i, v));
      }
    }
    for_tiles(work.num_tokens, FloatSweep{work, k, columns, scratch});
  }
}
