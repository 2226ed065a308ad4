// How fast linear layers are, per weight type, shape, number of tokens and threads. From csrc:
//   flags="-std=c++17 -O2 -fno-tree-ter -ffp-contract=off -fno-math-errno -I."
//   avx2="-mavx2 -mfma -mf16c"
//   avx512="$avx2 -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx512vnni"
//   for f in fmt/panel fmt/repack kernels/linear bench/linear_bench; do g++ $flags -c $f.cpp; done
//   g++ $flags $avx2 -c isa/avx2_linear.cpp; g++ $flags $avx512 -c isa/avx512_linear.cpp
//   g++ -pthread *.o -o linear_bench; ./linear_bench avx2 Q4_1; ./linear_bench avx512 Q4_1
// Times are those that the slowest thread spent on a core, so that other work on the machine takes
// caches and bandwidth from them but no time. Weights are 96 MB of copies, read in turn: they come
// from memory, as in a model. Each line is the median of five runs, with the fastest in brackets.
#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "fmt/repack.h"
#include "kernels/linear.h"
#include "kernels/quantize.h"

namespace {

using namespace fw;

struct Type {
  const char* name;
  int32_t id;
};
constexpr Type kTypes[] = {{"Q4_0", 2},  {"Q4_1", 3},  {"Q5_0", 6},  {"Q5_1", 7},
                           {"Q8_0", 8},  {"Q4_K", 12}, {"Q5_K", 13}, {"Q6_K", 14},
                           {"Q2_K", 10}, {"Q3_K", 11}, {"IQ4_NL", 20}, {"IQ4_XS", 23},
                           {"MXFP4", 39}, {"F16", 1},  {"BF16", 30}, {"F32", 0}};
constexpr int64_t kWeightBytes = 96 << 20;
constexpr double kMacsPerRun = 3e9;

double core_seconds() {
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

// Activations of t rows in every form; values and codes of no special size.
struct Inputs {
  std::vector<float> x, d32, d256;
  std::vector<int8_t> q32, q256;
  std::vector<int32_t> sum32;
  std::vector<int16_t> sum256;
  int64_t t, k;

  Inputs(int64_t tokens, int64_t columns) : t(tokens), k(columns) {
    const auto size = static_cast<size_t>(t * k);
    std::mt19937 engine(1);
    std::normal_distribution<float> draw;
    x.resize(size);
    for (float& value : x) value = draw(engine);
    q32.resize(size), d32.resize(size / 32), sum32.resize(size / 32);
    q256.resize(size), d256.resize(size / 256 + 1), sum256.resize(size / 16);
    for (int64_t i = 0; i < t; ++i) {
      avx2::quantize_a32(&x[i * k], k, &q32[i * k], &d32[i * k / 32], &sum32[i * k / 32]);
      if (k % 256 != 0) continue;
      avx2::quantize_a256(&x[i * k], k, &q256[i * k], &d256[i * k / 256], &sum256[i * k / 16]);
    }
  }

  Activations view() const {
    return {t,           k,           x.data(),    q32.data(),   d32.data(),
            sum32.data(), q256.data(), d256.data(), sum256.data()};
  }
};

// Panels with small scales and random codes.
struct Weights {
  uint8_t* data;
  int64_t bytes, copies;
  Format format;

  Weights(int32_t type, int64_t n, int64_t k) {
    panel_format(type, &format);
    bytes = panel_bytes(format, n, k);
    copies = std::max<int64_t>(1, kWeightBytes / bytes);
    const size_t size = static_cast<size_t>(bytes * copies + (2 << 20) - 1) >> 21 << 21;
    data = static_cast<uint8_t*>(std::aligned_alloc(2 << 20, size));
    madvise(data, size, MADV_HUGEPAGE);
    std::mt19937 engine(1);
    for (size_t i = 0; i < size; i += 4) {
      const uint32_t word = engine() & 0x2fff2fff;
      std::memcpy(data + i, &word, 4);
    }
  }
  ~Weights() { std::free(data); }
  Weights(const Weights&) = delete;
  Weights& operator=(const Weights&) = delete;
};

// Seconds of one call on `threads` threads, each with its share of the items.
double run(Linear* linear, const Weights& w, const Inputs& inputs, int64_t n, int threads) {
  std::vector<float> out(static_cast<size_t>(inputs.t * n));
  const double macs = static_cast<double>(n * inputs.k * inputs.t);
  const auto repeats = std::max<int64_t>(1, static_cast<int64_t>(kMacsPerRun / macs));
  const int64_t calls = inputs.t == 1 ? 2 * w.copies : repeats;
  std::vector<double> seconds(static_cast<size_t>(threads));
  auto work = [&](int thread) {
    void* scratch = std::aligned_alloc(64, kLinearScratchBytes);
    const double start = core_seconds();
    for (int64_t call = 0; call < calls; ++call) {
      LinearArgs args{};
      args.a = inputs.view();
      args.num_segments = 1;
      const uint8_t* data = w.data + call % w.copies * w.bytes;
      args.segment[0] = {{data, w.format, n, inputs.k}, nullptr, out.data(), n};
      const int64_t share = linear_items(args) / 2 / threads * 2;
      const int64_t last = thread == threads - 1 ? linear_items(args) : share * (thread + 1);
      linear(args, share * thread, last, static_cast<uint8_t*>(scratch));
    }
    seconds[static_cast<size_t>(thread)] = core_seconds() - start;
    std::free(scratch);
  };
  std::vector<std::thread> others;
  for (int i = 1; i < threads; ++i) others.emplace_back(work, i);
  work(0);
  for (std::thread& other : others) other.join();
  return *std::max_element(seconds.begin(), seconds.end()) / static_cast<double>(calls);
}

void measure(Linear* linear, const Type& type, int64_t n, int64_t k) {
  const Weights weights(type.id, n, k);
  for (const int64_t t : {1, 4, 16, 512}) {
    const Inputs inputs(t, k);
    for (const int threads : {1, 2}) {
      double seconds[5];
      for (double& value : seconds) value = run(linear, weights, inputs, n, threads);
      std::sort(seconds, seconds + 5);
      const double bytes = static_cast<double>(weights.bytes);
      const double macs = static_cast<double>(n * k * t);
      std::printf("%-6s %5d x %-5d %3d tokens %d threads %9.1f us %6.1f GB/s %6.1f (%.1f) GMAC/s\n",
                  type.name, static_cast<int>(n), static_cast<int>(k), static_cast<int>(t), threads,
                  1e6 * seconds[2], 1e-9 * bytes / seconds[2], 1e-9 * macs / seconds[2],
                  1e-9 * macs / seconds[0]);
      std::fflush(stdout);
    }
  }
}

}  // namespace

// Arguments: avx2 or avx512; a weight type, or none for all.
int main(int argc, char** argv) {
  const std::string isa = argc > 1 ? argv[1] : "avx2";
  Linear* linear = isa == "avx512" ? avx512::linear : avx2::linear;
  constexpr int64_t kShapes[][2] = {{576, 576}, {1536, 576}, {2048, 2048}, {8192, 2048}};
  for (const Type& type : kTypes) {
    if (argc > 2 && std::string(argv[2]) != type.name) continue;
    for (const auto& shape : kShapes) {
      Format format{};
      panel_format(type.id, &format);
      const int64_t columns = panel_block_columns(format);
      measure(linear, type, shape[0], (shape[1] + columns - 1) / columns * columns);
    }
  }
}
