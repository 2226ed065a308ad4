#include "kernels/linear.h"

namespace fw {
namespace {

int64_t halves(const Segment& segment) { return (segment.w.n + kItemRows - 1) / kItemRows; }

int64_t total_halves(const LinearArgs& args) {
  int64_t total = 0;
  for (int32_t s = 0; s < args.num_segments; ++s) total += halves(args.segment[s]);
  return total;
}

int64_t num_tiles(const LinearArgs& args) {
  return (args.a.t + kMaxItemTokens - 1) / kMaxItemTokens;
}

}  // namespace

int64_t linear_items(const LinearArgs& args) { return total_halves(args) * num_tiles(args); }

// Tiles outermost: the activations of a tile stay in the cache while weights stream past.
LinearItem linear_item(const LinearArgs& args, int64_t item) {
  const int64_t per_tile = total_halves(args);
  const int64_t tile = item / per_tile;
  int64_t half = item % per_tile;
  int32_t s = 0;
  while (half >= halves(args.segment[s])) half -= halves(args.segment[s++]);
  // Tiles of nearly equal size, in multiples of 8 tokens.
  const int64_t size = ((args.a.t + num_tiles(args) - 1) / num_tiles(args) + 7) / 8 * 8;
  const int64_t first = tile * size;
  const int64_t left = args.a.t - first;
  return {s, half * kItemRows, first, left < size ? left : size};
}

}  // namespace fw
