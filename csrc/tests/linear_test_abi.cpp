// Plain C functions over the linear kernels, so that a test can drive every instruction set through
// ctypes. Not part of the extension module.
#include <cstdint>
#include <cstdlib>

#include "fmt/panel.h"
#include "fmt/repack.h"
#include "kernels/embedding.h"
#include "kernels/linear.h"
#include "kernels/quantize.h"

namespace {

struct Unit {
  fw::QuantizeA32* quantize_a32;
  fw::QuantizeA256* quantize_a256;
  fw::Linear* linear;
};

// 0 generic, 1 avx2, 2 avx512 (which quantizes as avx2 does).
Unit unit(int32_t isa) {
  if (isa == 1) return {fw::avx2::quantize_a32, fw::avx2::quantize_a256, fw::avx2::linear};
  if (isa == 2) return {fw::avx2::quantize_a32, fw::avx2::quantize_a256, fw::avx512::linear};
  return {fw::generic::quantize_a32, fw::generic::quantize_a256, fw::generic::linear};
}

fw::Panels panels(int32_t type, const uint8_t* data, int64_t n, int64_t k) {
  fw::Format format{};
  fw::panel_format(type, &format);
  return {data, format, n, k};
}

}  // namespace

extern "C" {

int32_t fwt_supported(int32_t isa) {
  if (isa == 1) return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  if (isa == 2) return __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512bw");
  return isa == 0;
}

int32_t fwt_panel_format(int32_t type) {
  return static_cast<int32_t>(panels(type, nullptr, 0, 0).format);
}

int64_t fwt_panel_bytes(int32_t type, int64_t n, int64_t k) {
  const fw::Panels w = panels(type, nullptr, n, k);
  return fw::panel_bytes(w.format, n, k);
}

void fwt_repack(int32_t type, const uint8_t* src, int64_t n, int64_t k, uint8_t* dst,
                const int64_t* range) {
  fw::repack(type, src, n, k, dst, range[0], range[1]);
}

void fwt_embed_row(int32_t type, const uint8_t* data, const int64_t* shape, int64_t row,
                   float scale, float* out) {
  fw::embed_row(panels(type, data, shape[0], shape[1]), row, scale, out);
}

void fwt_quantize_a32(int32_t isa, const float* x, int64_t k, int8_t* q, float* d, int32_t* sum) {
  unit(isa).quantize_a32(x, k, q, d, sum);
}

void fwt_quantize_a256(int32_t isa, const float* x, int64_t k, int8_t* q, float* d, int16_t* sum) {
  unit(isa).quantize_a256(x, k, q, d, sum);
}

int64_t fwt_linear_items(const fw::LinearArgs* args) { return fw::linear_items(*args); }

void fwt_linear(int32_t isa, const fw::LinearArgs* args, int64_t first_item, int64_t last_item) {
  auto* scratch = static_cast<uint8_t*>(std::aligned_alloc(64, fw::kLinearScratchBytes));
  unit(isa).linear(*args, first_item, last_item, scratch);
  std::free(scratch);
}

}  // extern "C"
