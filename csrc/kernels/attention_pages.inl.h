// What attention does differently for each type of page. Not here: the order of its passes.

struct F16Pages {
  using Value = uint16_t;
  static constexpr int64_t kAhead = 1;  // blocks from the one at work to the one being fetched

  static void pack(const Tile& tile, Group group) {
    const int64_t d = tile.args.head_dim;
    for (int m = 0; m < group.size; ++m) {
      const float* q = tile.queries[group.first + m].q;
      float* packed = tile.q + group.first * d + m;
      for (int64_t i = 0; i < d; ++i, packed += group.size) *packed = q[i];
    }
  }
  static void score(const Tile& tile, Group group, const Page<Value>& page, float* scores) {
    const int64_t d = tile.args.head_dim;
    for_size(group.size, [&](auto size) {
      score_floats<decltype(size)::value>(tile.q + group.first * d, page, d,
                                          splat(tile.args.scale), scores);
    });
  }
  static void weigh(const Tile&, Group, const Page<Value>&) {}
};

struct Q8Pages {
  using Value = int8_t;
  static constexpr int64_t kAhead = 4;

  static int8_t* packed(const Tile& tile, Group group) {
    return reinterpret_cast<int8_t*>(tile.q + group.first * tile.args.head_dim);
  }
  static void pack(const Tile& tile, Group group) {
    const int64_t d = tile.args.head_dim;
    alignas(64) float rotated[kMaxQ8HeadDim];
    alignas(64) int8_t codes[kMaxQ8HeadDim];
    for (int m = 0; m < group.size; ++m) {
      rotate(tile.queries[group.first + m].q, d, rotated);
      const float scale = run_scale(rotated, d);
      encode(rotated, d, scale, codes);
      int8_t* to = packed(tile, group) + 4 * m;
      for (int64_t i = 0; i < d; i += 4, to += 4 * group.size) std::memcpy(to, codes + i, 4);
      const float factor = tile.args.scale / static_cast<float>(rotation_size(d));
      tile.coded[group.first + m] = {factor * scale, start_of_dots(codes, d)};
    }
  }
  static void score(const Tile& tile, Group group, const Page<Value>& page, float* scores) {
    for_size(group.size, [&](auto size) {
      score_codes<decltype(size)::value>(packed(tile, group), tile.coded + group.first, page,
                                         tile.args.head_dim, scores);
    });
  }
  // p[t] *= scale of v[t], for what was softmax's and is the values' weight from now on.
  static void weigh(const Tile& tile, Group group, const Page<Value>& page) {
    const uint16_t* scales = scales_of(page, tile.args.head_dim);
    for (int m = 0; m < group.size; ++m) {
      float* p = tile.scores + (group.first + m) * kScoreStride +
                 page.range.begin % kSplitPositions;
      for (int64_t t = 0; t < kPagePositions; t += kWidth) {
        store(p + t, mul(load(p + t), load(scales + t)));
      }
    }
  }
};
