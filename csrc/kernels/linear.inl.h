// The loop nest of linear layers, written once over the vectors of dot/<isa>.inl.h. Included inside
// an anonymous namespace. Not here: intrinsics, and the scalar oracle (isa/generic_linear.cpp).
//
// Lanes are output rows, so no sum crosses lanes and every output is one chain over k, whatever the
// tile. A few tokens multiply packed weights as they stream from memory. More tokens share an
// unpacked slab of 16 rows x 256 columns, which stays in the L1 cache, as do the outputs so far.

constexpr int kHalfVectors = 16 / kLanes;
constexpr int64_t kSlabColumns = 256;

struct Scratch {
  uint8_t codes[64 * 64];      // [8 runs][8 k-groups][16 rows][4]
  int32_t scale[16 * 16];      // pairs of equal int16: [groups][16 rows]
  int32_t correction[8 * 16];  // pairs of int16 that multiply the sums of 16 codes: [8][16 rows]
  float d[8 * 16], dmin[8 * 16];         // [blocks][16 rows]
  float out[2 * kMaxItemTokens * 16];    // [halves][tokens][16 rows]
  int32_t sums[kTileTokens * 16];        // what Sums keeps in memory
  float values[kSlabColumns * 16];       // float formats: [k][16 rows]
};
static_assert(sizeof(Scratch) <= kLinearScratchBytes, "kLinearScratchBytes is too small");

// One or both halves of a panel, for some tokens.
struct Work {
  const Activations& a;
  const Segment& segment;
  int64_t row, halves;
  int64_t token, num_tokens;

  FW_INLINE int64_t k() const { return segment.w.k; }
  FW_INLINE int64_t half() const { return row % kPanelRows / 16; }
  // The panel's first byte, when a block of `columns` columns has `bytes` bytes.
  FW_INLINE const uint8_t* panel(int64_t columns, int64_t bytes) const {
    return segment.w.data + row / kPanelRows * (k() / columns) * bytes;
  }
  // Outputs so far of the first or second half at hand, [tokens][16 rows].
  FW_INLINE float* out(int64_t h, Scratch* scratch) const {
    return scratch->out + 16 * num_tokens * h;
  }
};

// Outputs of V row vectors for T tokens; in memory [halves][T][16 rows].
template <int T, int V = kHalfVectors>
struct Tile {
  Floats acc[V][T];

  FW_INLINE static int offset(int v, int t) {
    return 16 * (T * (v / kHalfVectors) + t) + kLanes * (v % kHalfVectors);
  }
  FW_INLINE void clear() {
    FW_UNROLL for (int v = 0; v < V; ++v) {
      FW_UNROLL for (int t = 0; t < T; ++t) acc[v][t] = zero_floats();
    }
  }
  FW_INLINE void load_from(const float* out) {
    FW_UNROLL for (int v = 0; v < V; ++v) {
      FW_UNROLL for (int t = 0; t < T; ++t) acc[v][t] = load(out + offset(v, t));
    }
  }
  FW_INLINE void store_to(float* out) const {
    FW_UNROLL for (int v = 0; v < V; ++v) {
      FW_UNROLL for (int t = 0; t < T; ++t) store(out + offset(v, t), acc[v][t]);
    }
  }
};

// Writes the outputs of 16 rows from `row` on for all tokens, plus bias. acc: [tokens][16].
inline void write_outputs(const Work& work, int64_t row, const float* acc) {
  const Segment& s = work.segment;
  const float* bias = s.bias == nullptr ? nullptr : s.bias + row;
  const int64_t count = s.w.n - row < 16 ? s.w.n - row : 16;
  for (int64_t t = 0; t < work.num_tokens; ++t, acc += 16) {
    float* out = s.out + (work.token + t) * s.out_stride + row;
    int64_t i = 0;
    for (; i + kLanes <= count; i += kLanes) {
      const Floats value = load(acc + i);
      store(out + i, bias == nullptr ? value : add(value, load(bias + i)));
    }
    for (; i < count; ++i) out[i] = bias == nullptr ? acc[i] : acc[i] + bias[i];
  }
}

FW_INLINE void prefetch(const uint8_t* p, int64_t bytes) {
  for (int64_t i = 0; i < bytes; i += 64) __builtin_prefetch(p + i);
}

// Calls sweep.run<T>(t) for tiles of tokens that cover [0, num_tokens).
template <class Sweep>
FW_INLINE void for_tiles(int64_t num_tokens, const Sweep& sweep) {
  int64_t t = 0;
  for (; t + kTileTokens <= num_tokens; t += kTileTokens) sweep.template run<kTileTokens>(t);
  if constexpr (kTileTokens > 4) {
    if (t + 4 <= num_tokens) {
      sweep.template run<4>(t);
      t += 4;
    }
  }
  for (; t + 2 <= num_tokens; t += 2) sweep.template run<2>(t);
  if (t < num_tokens) sweep.template run<1>(t);
}

#include "linear_narrow.inl.h"
#include "linear_wide.inl.h"
#include "linear_float.inl.h"

constexpr bool is_float(Format f) {
  return f == Format::PF16 || f == Format::PBF16 || f == Format::PF32;
}
constexpr bool is_wide(Format f) {
  return f == Format::P2_K || f == Format::P3_K || f == Format::P4_K || f == Format::P5_K ||
         f == Format::P6_K || f == Format::P8_K;
}

template <Format F>
inline void run(const Work& work, Scratch* scratch) {
  const bool streams = work.num_tokens <= (is_wide(F) ? kStreamWideTokens : kStreamTokens);
  if constexpr (is_float(F)) {
    (streams ? stream_float<F> : gemm_float<F>)(work, scratch);
  } else if constexpr (is_wide(F)) {
    (streams ? stream_wide<F> : gemm_wide<F>)(work, scratch);
  } else {
    (streams ? stream_narrow<F> : gemm_narrow<F>)(work, scratch);
  }
}

inline void run_work(const Work& work, Scratch* scratch) {
  switch (work.segment.w.format) {
    case Format::P4_0: return run<Format::P4_0>(work, scratch);
    case Format::P4_1: return run<Format::P4_1>(work, scratch);
    case Format::P5_0: return run<Format::P5_0>(work, scratch);
    case Format::P5_1: return run<Format::P5_1>(work, scratch);
    case Format::P8_0: return run<Format::P8_0>(work, scratch);
    case Format::P8_F: return run<Format::P8_F>(work, scratch);
    case Format::P2_K: return run<Format::P2_K>(work, scratch);
    case Format::P3_K: return run<Format::P3_K>(work, scratch);
    case Format::P4_K: return run<Format::P4_K>(work, scratch);
    case Format::P5_K: return run<Format::P5_K>(work, scratch);
    case Format::P6_K: return run<Format::P6_K>(work, scratch);
    case Format::P8_K: return run<Format::P8_K>(work, scratch);
    case Format::PF16: return run<Format::PF16>(work, scratch);
    case Format::PBF16: return run<Format::PBF16>(work, scratch);
    case Format::PF32: return run<Format::PF32>(work, scratch);
  }
}

// Two halves of a panel run as one where the range has both: their cache lines are neighbours.
inline void run_items(const LinearArgs& args, int64_t first_item, int64_t last_item,
                      uint8_t* scratch_bytes) {
  auto* scratch = reinterpret_cast<Scratch*>(scratch_bytes);
  for (int64_t i = first_item; i < last_item;) {
    const LinearItem item = linear_item(args, i);
    const Segment& segment = args.segment[item.segment];
    const bool has_next = i + 1 < last_item && item.first_row + kItemRows < segment.w.n;
    const int64_t halves = item.first_row % kPanelRows == 0 && has_next ? 2 : 1;
    const Work work{args.a, segment, item.first_row, halves, item.first_token, item.num_tokens};
    const int64_t outputs = halves * item.num_tokens * kItemRows;
    __builtin_memset(scratch->out, 0, static_cast<size_t>(outputs) * sizeof(float));
    run_work(work, scratch);
    for (int64_t h = 0; h < halves; ++h) {
      write_outputs(work, item.first_row + kItemRows * h, work.out(h, scratch));
    }
    i += halves;
  }
}
