// Vectors of 16 rows on AVX-512 with VNNI, and the exact integer products of weights and
// activations. Included inside an anonymous namespace, before linear.inl.h.

using Floats = __m512;
using Ints = __m512i;
constexpr int kLanes = 16;

// Tokens that share one load of the weights: 8 sums and 8 outputs in 32 registers.
constexpr int kTileTokens = 8;
// Up to this many tokens, unpacking again for each tile of them costs less than a slab (measured).
constexpr int64_t kStreamTokens = 32;
constexpr int64_t kStreamWideTokens = 64;
// Signed codes are stored here as unsigned ones, this much larger.
constexpr int32_t kSignedOffset = 128;

// Pins a value to a register at this point.
FW_INLINE void keep(Ints& value) { asm("" : "+v"(value)); }
// Outputs may stay in registers from block to block: there are enough.
FW_INLINE void hide(float*&) {}

FW_INLINE Floats zero_floats() { return _mm512_setzero_ps(); }
FW_INLINE Ints zero_ints() { return _mm512_setzero_si512(); }
FW_INLINE Floats splat(float value) { return _mm512_set1_ps(value); }
FW_INLINE Ints splat(int32_t value) { return _mm512_set1_epi32(value); }
FW_INLINE Floats load(const float* p) { return _mm512_loadu_ps(p); }
FW_INLINE Ints load(const void* p) { return _mm512_loadu_si512(p); }
FW_INLINE void store(float* p, Floats value) { _mm512_storeu_ps(p, value); }
FW_INLINE void store(void* p, Ints value) { _mm512_storeu_si512(p, value); }
FW_INLINE Floats add(Floats a, Floats b) { return _mm512_add_ps(a, b); }
FW_INLINE Floats mul(Floats a, Floats b) { return _mm512_mul_ps(a, b); }
FW_INLINE Floats fmadd(Floats a, Floats b, Floats c) { return _mm512_fmadd_ps(a, b, c); }
FW_INLINE Floats fnmadd(Floats a, Floats b, Floats c) { return _mm512_fnmadd_ps(a, b, c); }
FW_INLINE Floats to_floats(Ints value) { return _mm512_cvtepi32_ps(value); }
FW_INLINE Ints add(Ints a, Ints b) { return _mm512_add_epi32(a, b); }
FW_INLINE Ints sub(Ints a, Ints b) { return _mm512_sub_epi32(a, b); }
FW_INLINE Ints bit_and(Ints a, Ints b) { return _mm512_and_si512(a, b); }
FW_INLINE Ints bit_or(Ints a, Ints b) { return _mm512_or_si512(a, b); }
FW_INLINE Ints shift_left(Ints a, unsigned bits) { return _mm512_slli_epi32(a, bits); }
FW_INLINE Ints shift_right(Ints a, unsigned bits) { return _mm512_srli_epi32(a, bits); }
// Sums of products of pairs of 16-bit integers.
FW_INLINE Ints pair_products(Ints a, Ints b) { return _mm512_madd_epi16(a, b); }

FW_INLINE Floats load_halves(const uint8_t* p) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
FW_INLINE Ints load_bytes(const uint8_t* p) {
  return _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
FW_INLINE Ints load_signed_bytes(const uint8_t* p) {
  return _mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}

// Rows 16 v .. 16 v + 15 of one column in PBF16; p: the column's first row.
FW_INLINE Floats load_bf16(const uint8_t* p, int v) {
  const __m256i pair = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + 32 * v));
  const __m256i low = _mm256_slli_epi32(pair, 16);
  const __m256i high = _mm256_and_si256(pair, _mm256_set1_epi32(-65536));
  return _mm512_castsi512_ps(_mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1));
}

// Two neighbouring 16-bit integers, for every row.
FW_INLINE Ints splat_pair(const int16_t* p) {
  int32_t word;
  __builtin_memcpy(&word, p, sizeof word);
  return _mm512_set1_epi32(word);
}

// The four activations of a k-group, for every row.
FW_INLINE Ints splat_group(const int8_t* a) {
  int32_t word;
  __builtin_memcpy(&word, a, sizeof word);
  return _mm512_set1_epi32(word);
}

// Sums of 32-bit integers of V row vectors for T tokens, in registers.
template <int V, int T>
struct Sums {
  Ints value[V][T];

  FW_INLINE explicit Sums(int32_t*) {}
  FW_INLINE Ints get(int v, int t) const { return value[v][t]; }
  FW_INLINE void clear() {
    FW_UNROLL for (int t = 0; t < T; ++t) {
      FW_UNROLL for (int v = 0; v < V; ++v) value[v][t] = zero_ints();
    }
  }
};

// sums += products of k-groups first .. first + groups - 1, in 32 bits from the start.
template <int V, int T, class Weights>
FW_INLINE void add_groups(const Weights& w, int first, int groups, const int8_t* a, int64_t stride,
                          Sums<V, T>* sums) {
  FW_UNROLL for (int g = first; g < first + groups; ++g) {
    Ints weights[V];
    FW_UNROLL for (int v = 0; v < V; ++v) weights[v] = w.codes(v, g);
    FW_UNROLL for (int t = 0; t < T; ++t) {
      const Ints group = splat_group(a + t * stride + 4 * g);
      FW_UNROLL for (int v = 0; v < V; ++v) {
        sums->value[v][t] = _mm512_dpbusd_epi32(sums->value[v][t], weights[v], group);
      }
    }
  }
}

// Calls outputs.add(t, sums) with each token's plain sums over a run of 32 columns.
template <int kBits, int V, int T, class Weights, class Outputs>
FW_INLINE void sum_run(const Weights& w, const int8_t* a, int64_t stride, Sums<V, T>* sums,
                       const Outputs& outputs) {
  sums->clear();
  add_groups<V, T>(w, 0, 8, a, stride, sums);
  FW_UNROLL for (int t = 0; t < T; ++t) {
    Ints of_token[V];
    FW_UNROLL for (int v = 0; v < V; ++v) of_token[v] = sums->value[v][t];
    outputs.add(t, of_token);
  }
}

// total += sums over a run of 32 columns, times the scales of its one (4, 5 and 8 bits) or two (2,
// 3 and 6 bits) groups. scale: pairs of equal 16-bit integers, [groups][16 rows].
template <int kBits, int V, int T, class Weights>
FW_INLINE void add_scaled_run(const Weights& w, const int8_t* a, int64_t stride,
                              const int32_t* scale, Sums<V, T>* total) {
  constexpr bool kTwo = kBits == 2 || kBits == 3 || kBits == 6;
  constexpr int kSpan = kTwo ? 4 : 8;  // k-groups that share a scale
  FW_UNROLL for (int first = 0; first < 8; first += kSpan) {
    Sums<V, T> sums(nullptr);
    sums.clear();
    add_groups<V, T>(w, first, kSpan, a, stride, &sums);
    FW_UNROLL for (int v = 0; v < V; ++v) {
      const Ints pair = load(static_cast<const void*>(scale + 16 * (first / kSpan) + kLanes * v));
      const Ints factor = _mm512_srai_epi32(pair, 16);
      FW_UNROLL for (int t = 0; t < T; ++t) {
        Ints& value = total->value[v][t];
        value = add(value, _mm512_mullo_epi32(sums.value[v][t], factor));
      }
    }
  }
}

// Codes of k-group g and row vector v of a packed run of 32 columns. run, high: the run's nibbles
// (or bytes, or pairs of bits) and upper bits, at the first row wanted.
template <int kBits>
struct Packed {
  const uint8_t* run;
  const uint8_t* high;

  FW_INLINE Ints codes(int v, int g) const {
    if constexpr (kBits == 8) {
      return _mm512_xor_si512(load(run + 128 * g + 64 * v), _mm512_set1_epi8(-128));
    }
    if constexpr (kBits <= 3) {
      const Ints four = load(run + 128 * (g / 4) + 64 * v);
      const Ints moved = _mm512_srli_epi16(four, static_cast<unsigned>(2 * (g % 4)));
      const Ints pairs = bit_and(moved, _mm512_set1_epi8(3));
      return kBits == 2 ? pairs : bit_or(pairs, bit_at(2, v, g));
    }
    const Ints both = load(run + 128 * (g % 4) + 64 * v);
    const Ints nibbles = bit_and(g < 4 ? both : _mm512_srli_epi16(both, 4), _mm512_set1_epi8(15));
    if constexpr (kBits == 5) return bit_or(nibbles, bit_at(4, v, g));
    if constexpr (kBits == 6) {
      const Ints bits = load(high + 128 * (g / 4) + 64 * v);
      const int up = 4 - 2 * (g % 4);
      const Ints moved = up >= 0 ? _mm512_slli_epi16(bits, static_cast<unsigned>(up))
                                 : _mm512_srli_epi16(bits, static_cast<unsigned>(-up));
      return bit_or(nibbles, bit_and(moved, _mm512_set1_epi8(48)));
    }
    return nibbles;
  }

 private:
  // The upper bit, moved to bit `place` of the codes.
  FW_INLINE Ints bit_at(int place, int v, int g) const {
    const Ints bits = load(high + 64 * v);
    const Ints moved = g < place ? _mm512_slli_epi16(bits, static_cast<unsigned>(place - g))
                                 : _mm512_srli_epi16(bits, static_cast<unsigned>(g - place));
    return bit_and(moved, _mm512_set1_epi8(static_cast<char>(1 << place)));
  }
};

// The same after unpacking one half of a panel: [8 k-groups][16 rows][4].
struct Unpacked {
  const uint8_t* run;

  FW_INLINE Ints codes(int v, int g) const { return load(run + 64 * g + 64 * v); }
};

// One half of a run as Unpacked reads it.
template <int kBits>
FW_INLINE void unpack_run(const Packed<kBits>& packed, uint8_t* out) {
  FW_UNROLL for (int g = 0; g < 8; ++g) store(out + 64 * g, packed.codes(0, g));
}
