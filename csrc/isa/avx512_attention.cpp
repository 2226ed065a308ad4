// Attention and its KV pages for AVX-512.
// GCC 12 takes the undefined operands in its own header for mistakes.
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <immintrin.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/activation.h"
#include "kernels/attention.h"
#include "kernels/math.h"

namespace fw {
namespace {
#include "kernels/simd/avx512.inl.h"
#include "kernels/math.inl.h"
#include "kernels/rows.inl.h"
#include "kernels/quantize.inl.h"
#include "kernels/kv_codes.inl.h"
#include "kernels/kv_store.inl.h"
#include "kernels/attention_tile.inl.h"
#include "kernels/attention_registers.inl.h"
#include "kernels/attention_pages.inl.h"
#include "kernels/attention.inl.h"
}  // namespace

namespace avx512 {

void store_kv(const StoreKVArgs& args, int64_t first_row, int64_t last_row) {
  store_kv_body(args, first_row, last_row);
}
void attention(const AttentionArgs& args, int64_t first_item, int64_t last_item,
               uint8_t* scratch) {
  attention_body(args, first_item, last_item, scratch);
}
void attention_merge(const AttentionArgs& args, int64_t first_row, int64_t last_row) {
  attention_merge_body(args, first_row, last_row);
}

}  // namespace avx512
}  // namespace fw
