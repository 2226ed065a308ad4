// Linear layers and quantization of activations in scalar code and canonical order: the fallback of
// every machine, and what the vector units must equal bit for bit.
#include <cmath>

#include "isa/generic_block.h"
#include "kernels/embedding.h"
#include "kernels/linear.h"
#include "kernels/quantize.h"

namespace fw {
namespace generic {
namespace {

// One run of activations: the codes, and the scale returned.
float quantize_run(const float* x, int64_t run, int8_t* q) {
  float largest = 0.0f;
  bool finite = true;
  for (int64_t i = 0; i < run; ++i) {
    const float magnitude = std::fabs(x[i]);
    finite = finite && std::isfinite(magnitude);
    if (magnitude > largest) largest = magnitude;
  }
  const float d = finite ? largest / 127.0f : NAN;
  for (int64_t i = 0; i < run; ++i) {
    float code = 0.0f;
    if (d > 0.0f) code = std::fmin(std::fmax(std::nearbyint(x[i] / d), -127.0f), 127.0f);
    q[i] = static_cast<int8_t>(code);
  }
  return d;
}

int32_t sum_codes(const int8_t* q, int64_t count) {
  int32_t sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += q[i];
  return sum;
}

// Adds one block to the output of each token. a: codes of the item's first token at this block, da:
// its scale; the next token's are k and blocks further.
void add_block(const Block& block, const LinearItem& item, const int8_t* a, const float* da,
               int64_t k, float* acc) {
  for (int64_t t = 0; t < item.num_tokens; ++t) {
    const int8_t* codes = a + t * k;
    const float scale = da[t * (k / block.columns)];
    int64_t isum = 0, msum = 0;
    for (int64_t g = 0; g < block.columns / block.group; ++g) {
      int64_t products = 0;
      for (int64_t i = g * block.group; i < (g + 1) * block.group; ++i) {
        products += block.q[i] * codes[i];
      }
      isum += block.scale[g] * products;
      msum += block.min[g] * sum_codes(codes + g * block.group, block.group);
    }
    const float products_scale = block.d * scale;
    acc[t] = std::fmaf(products_scale, static_cast<float>(isum), acc[t]);
    if (!block.has_mins) continue;
    const float mins_scale = block.dmin * scale;
    acc[t] = std::fmaf(-mins_scale, static_cast<float>(msum), acc[t]);
  }
}

void integer_row(const Activations& a, const Panels& w, int64_t row, const LinearItem& item,
                 float* acc) {
  const int64_t columns = panel_block_columns(w.format);
  const int64_t blocks = w.k / columns;
  const bool narrow = activation_kind(w.format) == ActivationKind::A32;
  const int8_t* q = (narrow ? a.q32 : a.q256) + item.first_token * w.k;
  const float* d = (narrow ? a.d32 : a.d256) + item.first_token * blocks;
  Block block;
  for (int64_t b = 0; b < blocks; ++b) {
    read_block(w, row, b, &block);
    add_block(block, item, q + b * columns, d + b, w.k, acc);
  }
}

void float_row(const Activations& a, const Panels& w, int64_t row, const LinearItem& item,
               float* total) {
  constexpr int64_t kChunk = 256;
  for (int64_t start = 0; start < w.k; start += kChunk) {
    const int64_t stop = start + kChunk < w.k ? start + kChunk : w.k;
    for (int64_t t = 0; t < item.num_tokens; ++t) {
      const float* x = a.x + (item.first_token + t) * w.k;
      float acc = 0.0f;
      for (int64_t k = start; k < stop; ++k) acc = std::fmaf(x[k], read_float(w, row, k), acc);
      total[t] = total[t] + acc;
    }
  }
}

void run_item(const LinearArgs& args, const LinearItem& item) {
  const Segment& segment = args.segment[item.segment];
  const bool floats = activation_kind(segment.w.format) == ActivationKind::F32;
  for (int64_t i = 0; i < kItemRows; ++i) {
    const int64_t row = item.first_row + i;
    if (row >= segment.w.n) return;
    float acc[kMaxItemTokens] = {};
    (floats ? float_row : integer_row)(args.a, segment.w, row, item, acc);
    for (int64_t t = 0; t < item.num_tokens; ++t) {
      float* out = segment.out + (item.first_token + t) * segment.out_stride + row;
      *out = segment.bias == nullptr ? acc[t] : acc[t] + segment.bias[row];
    }
  }
}

}  // namespace

void quantize_a32(const float* x, int64_t k, int8_t* q, float* d, int32_t* sum) {
  for (int64_t run = 0; run < k / 32; ++run) {
    d[run] = quantize_run(x + 32 * run, 32, q + 32 * run);
    sum[run] = sum_codes(q + 32 * run, 32);
  }
}

void quantize_a256(const float* x, int64_t k, int8_t* q, float* d, int16_t* sum16) {
  for (int64_t run = 0; run < k / 256; ++run) {
    d[run] = quantize_run(x + 256 * run, 256, q + 256 * run);
  }
  for (int64_t i = 0; i < k / 16; ++i) sum16[i] = static_cast<int16_t>(sum_codes(q + 16 * i, 16));
}

void linear(const LinearArgs& args, int64_t first_item, int64_t last_item, uint8_t*) {
  for (int64_t item = first_item; item < last_item; ++item) {
    run_item(args, linear_item(args, item));
  }
}

}  // namespace generic

void embed_row(const Panels& w, int64_t row, float scale, float* out) {
  if (activation_kind(w.format) == ActivationKind::F32) {
    for (int64_t k = 0; k < w.k; ++k) out[k] = generic::read_float(w, row, k) * scale;
    return;
  }
  generic::Block block;
  for (int64_t start = 0; start < w.k; start += block.columns) {
    generic::read_block(w, row, start / panel_block_columns(w.format), &block);
    for (int64_t k = 0; k < block.columns; ++k) {
      const int64_t g = k / block.group;
      const float d = block.has_scales ? block.d * static_cast<float>(block.scale[g]) : block.d;
      float value = d * static_cast<float>(block.q[k]);
      if (block.has_mins) value -= block.dmin * static_cast<float>(block.min[g]);
      out[start + k] = value * scale;
    }
  }
}

}  // namespace fw
