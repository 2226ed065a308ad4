#include "core/weights.h"

#include <algorithm>
#include <cstring>

#include "fmt/repack.h"

namespace fw {

namespace {

// Large enough that a model of many small matrices needs few; what is not used is not paid for.
constexpr int64_t kChunkBytes = 64 << 20;
constexpr int64_t kAlignment = 64;

struct RepackJob {
  int32_t ggml_type;
  const uint8_t* source;
  int64_t n, k;
  uint8_t* destination;
  int64_t panels;
  WorkQueue queue;
};

void repack_some(void* context, int) {
  auto& job = *static_cast<RepackJob*>(context);
  constexpr int64_t kPanels = 4;
  while (true) {
    const int64_t first = job.queue.take(kPanels);
    if (first >= job.panels) return;
    const int64_t last = std::min(first + kPanels, job.panels);
    repack(job.ggml_type, job.source, job.n, job.k, job.destination, first, last);
  }
}

}  // namespace

void repack_matrix(ThreadPool& pool, int32_t ggml_type, const uint8_t* source, int64_t n, int64_t k,
                   uint8_t* destination) {
  const int64_t panels = (n + kPanelRows - 1) / kPanelRows;
  RepackJob job = {ggml_type, source, n, k, destination, panels, {}};
  pool.run(repack_some, &job);
}

uint8_t* Weights::allocate(int64_t bytes) {
  const int64_t rounded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  if (rounded > left_) {
    left_ = std::max(rounded, kChunkBytes);
    chunks_.emplace_back(static_cast<size_t>(left_));
  }
  uint8_t* place = chunks_.back().data() + (static_cast<int64_t>(chunks_.back().size()) - left_);
  left_ -= rounded;
  num_bytes_ += rounded;
  return place;
}

int Weights::add_matrix(ThreadPool& pool, int32_t ggml_type, const uint8_t* source, int64_t n,
                        int64_t k) {
  Panels panels = {};
  panel_format(ggml_type, &panels.format);
  panels.n = n;
  panels.k = k;
  uint8_t* place = allocate(panel_bytes(panels.format, n, k));
  panels.data = place;
  repack_matrix(pool, ggml_type, source, n, k, place);
  matrices_.push_back(panels);
  return static_cast<int>(matrices_.size()) - 1;
}

int Weights::add_panels(const Panels& panels) {
  num_bytes_ += panel_bytes(panels.format, panels.n, panels.k);
  matrices_.push_back(panels);
  return static_cast<int>(matrices_.size()) - 1;
}

int Weights::add_vector(const float* values, int64_t n) {
  const auto bytes = n * static_cast<int64_t>(sizeof(float));
  uint8_t* place = allocate(bytes);
  std::memcpy(place, values, static_cast<size_t>(bytes));
  vectors_.push_back(reinterpret_cast<const float*>(place));
  sizes_.push_back(n);
  return static_cast<int>(vectors_.size()) - 1;
}

}  // namespace fw
