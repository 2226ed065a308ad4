// Plain functions over the attention, row and sampling kernels of one instruction set, for tests
// that load them through ctypes. Not part of the package.
#include "kernels/activation.h"
#include "kernels/attention.h"
#include "kernels/kv_store.h"
#include "kernels/rms_norm.h"
#include "kernels/rope.h"
#include "kernels/sample.h"

using namespace fw;

namespace {
enum Isa : int32_t { kGeneric, kAvx2, kAvx512 } isa = kGeneric;  // under test
}

#define PICK(name) \
  (isa == kAvx512 ? avx512::name : isa == kAvx2 ? avx2::name : generic::name)

extern "C" {

// Whether this processor can run it; then it is what the other functions use.
bool use(int32_t which) {
  isa = static_cast<Isa>(which);
  if (isa == kAvx512) {
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512vnni");
  }
  return isa == kGeneric || (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"));
}

int64_t struct_bytes(int32_t index) {
  const int64_t sizes[] = {sizeof(KVPages),   sizeof(StoreKVArgs),  sizeof(AttentionArgs),
                          sizeof(SampleRow), sizeof(SampleResult), sizeof(SampleCandidates)};
  return sizes[index];
}

void rms_norm(const float* x, const float* w, float eps, int64_t n, float* out) {
  PICK(rms_norm)(x, w, eps, n, out);
}
void add(const float* a, const float* b, int64_t n, float* out) { PICK(add)(a, b, n, out); }
void rope(float* x, const float* cos, const float* sin, int64_t head_dim, int64_t heads,
          bool interleaved) {
  PICK(rope)(x, cos, sin, head_dim, heads, interleaved);
}
void silu_mul(const float* gate, const float* up, int64_t n, float* out) {
  PICK(silu_mul)(gate, up, n, out);
}
void gelu_mul(const float* gate, const float* up, int64_t n, float* out) {
  PICK(gelu_mul)(gate, up, n, out);
}
void softcap(float* x, int64_t n, float cap) { PICK(softcap)(x, n, cap); }

void store_kv(const StoreKVArgs* args, int64_t first, int64_t last) {
  PICK(store_kv)(*args, first, last);
}
int64_t items(const AttentionArgs* args) { return attention_items(*args); }
int64_t partial_floats(const AttentionArgs* args) { return attention_partial_floats(*args); }
int64_t scratch_bytes(int64_t heads, int64_t kv_heads, int64_t head_dim, int64_t positions) {
  return attention_scratch_bytes(heads, kv_heads, head_dim, positions);
}
void attention(const AttentionArgs* args, int64_t first, int64_t last, uint8_t* scratch) {
  PICK(attention)(*args, first, last, scratch);
}
void attention_merge(const AttentionArgs* args, int64_t first, int64_t last) {
  PICK(attention_merge)(*args, first, last);
}

int64_t sample_bytes(int64_t vocab_size) { return sample_scratch_bytes(vocab_size); }
void sample(const float* logits, int64_t vocab_size, const SampleRow* row, uint8_t* scratch,
            SampleResult* result, const SampleCandidates* candidates) {
  sample_row(PICK(sample_kernels), logits, vocab_size, *row, scratch, *result, *candidates);
}
void softmax_weights(const float* x, int64_t n, float largest, float divisor, float* weights) {
  PICK(sample_kernels).softmax_weights(x, n, largest, divisor, weights);
}
void chunk_sums(const float* weights, int64_t n, double* sums) {
  PICK(sample_kernels).chunk_sums(weights, n, sums);
}
double philox_uniform(uint64_t seed, uint32_t position, uint32_t sample_index, uint32_t draw) {
  return uniform(seed, position, sample_index, draw);
}

}  // extern "C"
