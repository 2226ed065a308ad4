// All weights of a model, repacked into panels. Not here: what panels look like (fmt/panel.h).
#pragma once

#include <cstdint>
#include <vector>

#include "core/memory.h"
#include "core/thread_pool.h"
#include "fmt/panel.h"

namespace fw {

// The panels of a matrix of n outputs by k inputs, from its bytes in the file, by all threads.
//   ggml_type: one that panel_format takes.
//   destination: panel_bytes(format, n, k) bytes.
void repack_matrix(ThreadPool& pool, int32_t ggml_type, const uint8_t* source, int64_t n, int64_t k,
                   uint8_t* destination);

class Weights {
 public:
  Weights() = default;
  Weights(const Weights&) = delete;
  Weights& operator=(const Weights&) = delete;

  // A matrix of n outputs by k inputs, from its bytes in the file, repacked by all threads.
  // Returns its index. `ggml_type` is one that panel_format takes.
  int add_matrix(ThreadPool& pool, int32_t ggml_type, const uint8_t* source, int64_t n, int64_t k);
  // A matrix whose panels exist already; they must outlive this. Returns its index.
  int add_panels(const Panels& panels);
  // A vector of n numbers. Returns its index among the vectors.
  int add_vector(const float* values, int64_t n);

  const Panels& matrix(int index) const { return matrices_.at(static_cast<size_t>(index)); }
  const float* vector(int index) const { return vectors_.at(static_cast<size_t>(index)); }
  int64_t vector_size(int index) const { return sizes_.at(static_cast<size_t>(index)); }
  // Bytes in use, those of add_panels included.
  int64_t num_bytes() const { return num_bytes_; }

 private:
  uint8_t* allocate(int64_t bytes);

  std::vector<Memory> chunks_;
  int64_t left_ = 0;  // bytes at the end of the last chunk
  int64_t num_bytes_ = 0;
  std::vector<Panels> matrices_;
  std::vector<const float*> vectors_;
  std::vector<int64_t> sizes_;
};

}  // namespace fw
