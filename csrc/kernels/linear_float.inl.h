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
template <int T, class Source>
FW_INLINE void add_chunk(const Source& source, const float* x, int64_t stride, int64_t columns,
                         Tile<T>* tile) {
  Tile<T> chunk;
  chunk.clear();
  for (int64_t k = 0; k < columns; ++k) {
    Floats weights[kHalfVectors];
    FW_UNROLL for (int v = 0; v < kHalfVectors; ++v) weights[v] = source.values(k, v);
    FW_UNROLL for (int t = 0; t < T; ++t) {
      const Floats value = splat(x[t * stride + k]);
      FW_UNROLL for (int v = 0; v < kHalfVectors; ++v) {
        chunk.acc[v][t] = fmadd(value, weights[v], chunk.acc[v][t]);
      }
    }
  }
  FW_UNROLL for (int v = 0; v < kHalfVectors; ++v) {
    FW_UNROLL for (int t = 0; t < T; ++t) tile->acc[v][t] = add(tile->acc[v][t], chunk.acc[v][t]);
  }
}

template <Format F, int H, int T>
FW_INLINE void stream_float(const Work& work, Tile<T> (&tiles)[H]) {
  for (int h = 0; h < H; ++h) tiles[h].clear();
  for (int64_t k = 0; k < work.k(); k += kSlabColumns) {
    const float* x = work.a.x + work.token * work.k() + k;
    for (int h = 0; h < H; ++h) {
      const PackedValues<F> source = packed_values<F>(work, work.half() + h, k);
      add_chunk<T>(source, x, work.k(), chunk_columns(work, k), &tiles[h]);
    }
  }
}

template <int T>
inline void add_float_slab(const Work& work, int64_t k, int64_t columns, int64_t t,
                           Scratch* scratch) {
  const float* x = work.a.x + (work.token + t) * work.k() + k;
  Tile<T> tile;
  tile.load_from(scratch->out + 16 * t);
  add_chunk<T>(UnpackedValues{scratch->values}, x, work.k(), columns, &tile);
  tile.store_to(scratch->out + 16 * t);
}

template <Format F>
inline void gemm_float(const Work& work, Scratch* scratch) {
  constexpr int T = kFloatTile;
  for (int64_t k = 0; k < work.k(); k += kSlabColumns) {
    const int64_t columns = chunk_columns(work, k);
    const PackedValues<F> source = packed_values<F>(work, work.half(), k);
    for (int64_t i = 0; i < columns; ++i) {
      FW_UNROLL for (int v = 0; v < kHalfVectors; ++v) {
        store(scratch->values + 16 * i + kLanes * v, source.values(i, v));
      }
    }
    int64_t t = 0;
    for (; t + T <= work.num_tokens; t += T) add_float_slab<T>(work, k, columns, t, scratch);
    for (; t < work.num_tokens; ++t) add_float_slab<1>(work, k, columns, t, scratch);
  }
}
