// Vectors of 8 rows on AVX2 (+ FMA, F16C), and the exact integer products of weights and
// activations. Included inside an anonymous namespace, before linear.inl.h.

using Floats = __m256;
using Ints = __m256i;
constexpr int kLanes = 8;

// Tokens that share one load of the weights: 2 x 4 accumulators leave room for the operands in 16
// registers. The sums of 32-bit integers or floats wait in the L1 cache meanwhile.
constexpr int kTileTokens = 4;
// Up to this many tokens, unpacking again for each tile of them costs less than a slab (measured).
constexpr int64_t kStreamTokens = 16;
constexpr int64_t kStreamWideTokens = 16;
// Signed codes are multiplied as they are.
constexpr int32_t kSignedOffset = 0;

// Pins a value to a register at this point. Without it the compiler turns chains of integer
// additions into trees, which need more registers than there are.
FW_INLINE void keep(Ints& value) { asm("" : "+x"(value)); }
// Hides where outputs are, so that they stay in memory from block to block.
FW_INLINE void hide(float*& p) { asm("" : "+r"(p)); }

FW_INLINE Floats zero_floats() { return _mm256_setzero_ps(); }
FW_INLINE Ints zero_ints() { return _mm256_setzero_si256(); }
FW_INLINE Floats splat(float value) { return _mm256_set1_ps(value); }
FW_INLINE Ints splat(int32_t value) { return _mm256_set1_epi32(value); }
FW_INLINE Floats load(const float* p) { return _mm256_loadu_ps(p); }
FW_INLINE Ints load(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }
FW_INLINE void store(float* p, Floats value) { _mm256_storeu_ps(p, value); }
FW_INLINE void store(void* p, Ints value) { _mm256_storeu_si256(static_cast<__m256i*>(p), value); }
FW_INLINE Floats add(Floats a, Floats b) { return _mm256_add_ps(a, b); }
FW_INLINE Floats mul(Floats a, Floats b) { return _mm256_mul_ps(a, b); }
FW_INLINE Floats fmadd(Floats a, Floats b, Floats c) { return _mm256_fmadd_ps(a, b, c); }
FW_INLINE Floats fnmadd(Floats a, Floats b, Floats c) { return _mm256_fnmadd_ps(a, b, c); }
FW_INLINE Floats to_floats(Ints value) { return _mm256_cvtepi32_ps(value); }
FW_INLINE Ints add(Ints a, Ints b) { return _mm256_add_epi32(a, b); }
FW_INLINE Ints sub(Ints a, Ints b) { return _mm256_sub_epi32(a, b); }
FW_INLINE Ints bit_and(Ints a, Ints b) { return _mm256_and_si256(a, b); }
FW_INLINE Ints bit_or(Ints a, Ints b) { return _mm256_or_si256(a, b); }
FW_INLINE Ints shift_left(Ints a, int bits) { return _mm256_slli_epi32(a, bits); }
FW_INLINE Ints shift_right(Ints a, int bits) { return _mm256_srli_epi32(a, bits); }
// Sums of products of pairs of 16-bit integers.
FW_INLINE Ints pair_products(Ints a, Ints b) { return _mm256_madd_epi16(a, b); }

FW_INLINE Floats load_halves(const uint8_t* p) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
FW_INLINE Ints load_bytes(const uint8_t* p) {
  return _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
}
FW_INLINE Ints load_signed_bytes(const uint8_t* p) {
  return _mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
}

// Rows 8 v .. 8 v + 7 of one column in PBF16; p: the column's 16-row half.
FW_INLINE Floats load_bf16(const uint8_t* p, int v) {
  const Ints pair = load(p + 32 * (v / 2));
  const Ints bits = v % 2 == 0 ? shift_left(pair, 16) : bit_and(pair, splat(-65536));
  return _mm256_castsi256_ps(bits);
}

// Two neighbouring 16-bit integers, for every row.
FW_INLINE Ints splat_pair(const int16_t* p) {
  int32_t word;
  __builtin_memcpy(&word, p, sizeof word);
  return _mm256_set1_epi32(word);
}

// The four activations of a k-group, for every row.
FW_INLINE Ints splat_group(const int8_t* a) {
  int32_t word;
  __builtin_memcpy(&word, a, sizeof word);
  return _mm256_set1_epi32(word);
}

// Sums of 32-bit integers of V row vectors for T tokens. From 3 tokens on they wait in memory,
// [T][16 rows]: the registers are for the sums of 16 bits.
template <int V, int T>
struct Sums {
  static constexpr bool kInMemory = T > 2;
  int32_t* memory;
  Ints value[kInMemory ? 1 : V][kInMemory ? 1 : T];

  FW_INLINE explicit Sums(int32_t* place) : memory(place) {}
  FW_INLINE Ints get(int v, int t) const {
    if constexpr (!kInMemory) return value[v][t];
    return load(static_cast<const void*>(memory + 16 * t + kLanes * v));
  }
  FW_INLINE void set(int v, int t, Ints sum) {
    if constexpr (kInMemory) {
      store(memory + 16 * t + kLanes * v, sum);
    } else {
      value[v][t] = sum;
    }
  }
  FW_INLINE void add_to(int v, int t, Ints value) { set(v, t, add(get(v, t), value)); }
  FW_INLINE void clear() {
    FW_UNROLL for (int t = 0; t < T; ++t) {
      FW_UNROLL for (int v = 0; v < V; ++v) set(v, t, zero_ints());
    }
  }
  // The compiler would have them in registers, and then spill them, as far as it can follow.
  FW_INLINE void stay_in_memory() {
    if constexpr (kInMemory) asm("" : "+r"(memory));
  }
};

// Products of pairs that are summed in 16 bits: one is at most 2 x 127 x the largest code, so 8,
// 4 and 2 of them fit for up to 4, 5 and 6 bits.
constexpr int sum_depth(int bits) { return bits == 6 ? 2 : (bits == 5 ? 4 : 8); }

// Sums in 16 bits of k-groups 0 .. 7 (4 bits) or first .. first + 3, for all tokens.
template <int kGroups, int V, int T, class Weights>
FW_INLINE void sum_pairs(const Weights& w, int first, const int8_t* a, int64_t stride,
                         Ints (&pairs)[V][T]) {
  FW_UNROLL for (int g = first; g < first + kGroups; ++g) {
    Ints weights[V];
    FW_UNROLL for (int v = 0; v < V; ++v) weights[v] = w.codes(v, g);
    FW_UNROLL for (int t = 0; t < T; ++t) {
      const Ints group = splat_group(a + t * stride + 4 * g);
      FW_UNROLL for (int v = 0; v < V; ++v) {
        const Ints product = _mm256_maddubs_epi16(weights[v], group);
        pairs[v][t] = g == first ? product : _mm256_add_epi16(pairs[v][t], product);
        keep(pairs[v][t]);
      }
    }
  }
}

// 4 k-groups of one or two row vectors, which stay in registers while tokens pass.
template <int kBits, int V>
struct FourGroups {
  Ints weights[4][V];

  template <class Weights>
  FW_INLINE FourGroups(const Weights& w, int first) {
    FW_UNROLL for (int g = 0; g < 4; ++g) {
      FW_UNROLL for (int v = 0; v < V; ++v) weights[g][v] = w.codes(v, first + g);
    }
  }
  // sums[v] = scale[v] times the products with one token's activations.
  FW_INLINE void multiply(const int8_t* a, const Ints (&scale)[V], Ints (&sums)[V]) const {
    constexpr int kDepth = sum_depth(kBits) < 4 ? sum_depth(kBits) : 4;
    FW_UNROLL for (int start = 0; start < 4; start += kDepth) {
      Ints pairs[V];
      FW_UNROLL for (int g = start; g < start + kDepth; ++g) {
        const Ints group = splat_group(a + 4 * g);
        FW_UNROLL for (int v = 0; v < V; ++v) {
          const Ints product = _mm256_maddubs_epi16(weights[g][v], group);
          pairs[v] = g == start ? product : _mm256_add_epi16(pairs[v], product);
        }
      }
      FW_UNROLL for (int v = 0; v < V; ++v) {
        const Ints scaled = _mm256_madd_epi16(pairs[v], scale[v]);
        sums[v] = start == 0 ? scaled : add(sums[v], scaled);
        keep(sums[v]);
      }
    }
  }
};

// isum[v][t] += scale[v] times the products of a run. Signed 8-bit codes: |w| times a with the sign
// of w. One product of pairs fills 16 bits.
template <int V, int T, class Weights>
FW_INLINE void add_signed_groups(const Weights& w, const int8_t* a, int64_t stride,
                                 const Ints (&scale)[V], Ints (&isum)[V][T]) {
  FW_UNROLL for (int g = 0; g < 8; ++g) {
    Ints weights[V], magnitudes[V];
    FW_UNROLL for (int v = 0; v < V; ++v) {
      weights[v] = w.codes(v, g);
      magnitudes[v] = _mm256_abs_epi8(weights[v]);
    }
    FW_UNROLL for (int t = 0; t < T; ++t) {
      const Ints group = splat_group(a + t * stride + 4 * g);
      FW_UNROLL for (int v = 0; v < V; ++v) {
        const Ints pairs = _mm256_maddubs_epi16(magnitudes[v], _mm256_sign_epi8(group, weights[v]));
        const Ints scaled = _mm256_madd_epi16(pairs, scale[v]);
        isum[v][t] = g == 0 ? scaled : add(isum[v][t], scaled);
        keep(isum[v][t]);
      }
    }
  }
}

// Calls outputs.add(t, sums) with the plain sums over a run of 32 columns of each token's rows.
template <int kBits, int V, int T, class Weights, class Outputs>
FW_INLINE void sum_run(const Weights& w, const int8_t* a, int64_t stride, Sums<V, T>* parts,
                       const Outputs& outputs) {
  Ints ones[V];
  FW_UNROLL for (int v = 0; v < V; ++v) ones[v] = _mm256_set1_epi16(1);
  if constexpr (sum_depth(kBits) < 8) {
    const FourGroups<kBits, V> first(w, 0);
    FW_UNROLL for (int t = 0; t < T; ++t) {
      Ints sums[V];
      first.multiply(a + t * stride, ones, sums);
      FW_UNROLL for (int v = 0; v < V; ++v) parts->set(v, t, sums[v]);
    }
    parts->stay_in_memory();
    const FourGroups<kBits, V> second(w, 4);
    FW_UNROLL for (int t = 0; t < T; ++t) {
      Ints sums[V];
      second.multiply(a + t * stride + 16, ones, sums);
      FW_UNROLL for (int v = 0; v < V; ++v) sums[v] = add(sums[v], parts->get(v, t));
      outputs.add(t, sums);
    }
    return;
  }
  Ints all[V][T];
  if constexpr (kBits == 8) {
    add_signed_groups<V, T>(w, a, stride, ones, all);
  } else {
    sum_pairs<8, V, T>(w, 0, a, stride, all);
  }
  FW_UNROLL for (int t = 0; t < T; ++t) {
    Ints sums[V];
    FW_UNROLL for (int v = 0; v < V; ++v) {
      sums[v] = kBits == 8 ? all[v][t] : _mm256_madd_epi16(all[v][t], ones[v]);
    }
    outputs.add(t, sums);
  }
}

// sums += those over a run of 32 columns, times the scales of its one (4, 5 and 8 bits) or two (2,
// 3 and 6 bits) groups. scale: pairs of equal 16-bit integers, [groups][16 rows].
template <int kBits, int V, int T, class Weights>
FW_INLINE void add_scaled_run(const Weights& w, const int8_t* a, int64_t stride,
                              const int32_t* scale, Sums<V, T>* sums) {
  constexpr bool kTwo = kBits == 2 || kBits == 3 || kBits == 6;
  sums->stay_in_memory();
  Ints scales[V];
  FW_UNROLL for (int v = 0; v < V; ++v) {
    scales[v] = load(static_cast<const void*>(scale + kLanes * v));
  }
  if constexpr (kBits == 8 || kBits == 4) {
    Ints all[V][T];
    if constexpr (kBits == 8) {
      add_signed_groups<V, T>(w, a, stride, scales, all);
    } else {
      sum_pairs<8, V, T>(w, 0, a, stride, all);
    }
    FW_UNROLL for (int t = 0; t < T; ++t) {
      FW_UNROLL for (int v = 0; v < V; ++v) {
        sums->add_to(v, t, kBits == 8 ? all[v][t] : _mm256_madd_epi16(all[v][t], scales[v]));
      }
    }
    return;
  }
  FW_UNROLL for (int first = 0; first < 8; first += 4) {
    if (kTwo && first == 4) {
      FW_UNROLL for (int v = 0; v < V; ++v) {
        scales[v] = load(static_cast<const void*>(scale + 16 + kLanes * v));
      }
    }
    sums->stay_in_memory();
    const FourGroups<kBits, V> four(w, first);
    FW_UNROLL for (int t = 0; t < T; ++t) {
      Ints part[V];
      four.multiply(a + t * stride + 4 * first, scales, part);
      FW_UNROLL for (int v = 0; v < V; ++v) sums->add_to(v, t, part[v]);
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
    if constexpr (kBits == 8) return load(run + 128 * g + 32 * v);
    if constexpr (kBits <= 3) {
      const Ints four = load(run + 128 * (g / 4) + 32 * v);
      const Ints pairs = bit_and(_mm256_srli_epi16(four, 2 * (g % 4)), _mm256_set1_epi8(3));
      return kBits == 2 ? pairs : bit_or(pairs, bit_at(2, v, g));
    }
    const Ints both = load(run + 128 * (g % 4) + 32 * v);
    const Ints nibbles =
        bit_and(g < 4 ? both : _mm256_srli_epi16(both, 4), _mm256_set1_epi8(15));
    if constexpr (kBits == 5) return bit_or(nibbles, bit_at(4, v, g));
    if constexpr (kBits == 6) {
      const Ints bits = load(high + 128 * (g / 4) + 32 * v);
      const int up = 4 - 2 * (g % 4);
      const Ints moved = up >= 0 ? _mm256_slli_epi16(bits, up) : _mm256_srli_epi16(bits, -up);
      return bit_or(nibbles, bit_and(moved, _mm256_set1_epi8(48)));
    }
    return nibbles;
  }

 private:
  // The upper bit, moved to bit `place` of the codes.
  FW_INLINE Ints bit_at(int place, int v, int g) const {
    const Ints bits = load(high + 32 * v);
    const Ints moved =
        g < place ? _mm256_slli_epi16(bits, place - g) : _mm256_srli_epi16(bits, g - place);
    return bit_and(moved, _mm256_set1_epi8(static_cast<char>(1 << place)));
  }
};

// The same after unpacking one half of a panel: [8 k-groups][16 rows][4].
struct Unpacked {
  const uint8_t* run;

  FW_INLINE Ints codes(int v, int g) const { return load(run + 64 * g + 32 * v); }
};

// One half of a run as Unpacked reads it.
template <int kBits>
FW_INLINE void unpack_run(const Packed<kBits>& packed, uint8_t* out) {
  FW_UNROLL for (int g = 0; g < 8; ++g) {
    store(out + 64 * g, packed.codes(0, g));
    store(out + 64 * g + 32, packed.codes(1, g));
  }
}
