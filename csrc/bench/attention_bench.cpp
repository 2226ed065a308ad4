// How fast attention and sampling are, on one and two threads. From csrc:
//   flags="-std=c++17 -O2 -fno-tree-ter -ffp-contract=off -fno-math-errno -I."
//   for f in kernels/attention kernels/sample bench/attention_bench; do g++ $flags -c $f.cpp; done
//   avx2="-mavx2 -mfma -mf16c" avx512="-mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx512vnni $avx2"
//   for f in rows attention sample; do
//     g++ $flags $avx2 -c isa/avx2_$f.cpp; g++ $flags $avx512 -c isa/avx512_$f.cpp
//   done
//   g++ -pthread *.o -o attention_bench; ./attention_bench avx2; ./attention_bench avx512
// Each line is the median of several runs, with the fastest in brackets, then the same per core
// that was busy: on a machine with other work that is what the kernel can do.
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <functional>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "kernels/attention.h"
#include "kernels/sample.h"

namespace {

using namespace fw;
using Floats = std::vector<float>;

struct Isa {
  StoreKV* store_kv;
  Attention* attention;
  AttentionMerge* attention_merge;
  SampleKernels sample;
};
Isa isa = {avx2::store_kv, avx2::attention, avx2::attention_merge, avx2::sample_kernels};

// Memory in huge pages, as the pool of KV pages best is: the pages of a sequence lie far apart.
struct HugeFree {
  void operator()(uint8_t* p) const { std::free(p); }
};
using Huge = std::unique_ptr<uint8_t, HugeFree>;
Huge huge(size_t bytes) {
  const size_t size = (bytes + (2 << 20) - 1) >> 21 << 21;
  void* memory = std::aligned_alloc(2 << 20, size);
  madvise(memory, size, MADV_HUGEPAGE);
  std::memset(memory, 0, size);
  return Huge(static_cast<uint8_t*>(memory));
}

Floats normal(int64_t n, float spread) {
  std::mt19937 engine(1);
  std::normal_distribution<float> draw(0.0F, spread);
  Floats values(static_cast<size_t>(n));
  for (float& value : values) value = draw(engine);
  return values;
}

struct Times {
  double median, fastest;  // seconds
  double busy;             // seconds of processor time, the least
};

double processor_seconds() {
  timespec now;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return double(now.tv_sec) + double(now.tv_nsec) * 1e-9;
}

Times measure(int runs, const std::function<void()>& body) {
  std::vector<double> times, busy;
  for (int i = 0; i < runs + 1; ++i) {
    const auto start = std::chrono::steady_clock::now();
    const double before = processor_seconds();
    body();
    busy.push_back(processor_seconds() - before);
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
    if (i > 0) times.push_back(taken.count());
  }
  std::sort(times.begin(), times.end());
  return {times[times.size() / 2], times[0], *std::min_element(busy.begin(), busy.end())};
}

struct Case {
  const char* name;
  int64_t heads, kv_heads, head_dim, context, rows;
  KVType type = KVType::kF16;
  const char* type_name() const { return type == KVType::kQ8 ? "q8" : "f16"; }
};

// One sequence of `context` positions whose last `rows` are queries; `layers` copies of its K/V, so
// that decode reads from memory.
struct Layers {
  Case c;
  int64_t layers, pages, layer_bytes;
  Floats q, out, partials, keys;
  Huge data;
  std::vector<int32_t> positions, table, start, lengths, slots;

  Layers(const Case& which, int64_t num_layers)
      : c(which), layers(num_layers), pages((c.context + 31) / 32),
        layer_bytes(kv_layer_bytes(c.type, c.kv_heads, c.head_dim)),
        q(normal(c.rows * c.heads * c.head_dim, 1)), out(q.size()),
        data(huge(static_cast<size_t>(pages * layers * layer_bytes))), start{0, int32_t(c.rows)},
        lengths{int32_t(c.context)} {
    for (int64_t i = 0; i < c.rows; ++i) positions.push_back(int32_t(c.context - c.rows + i));
    for (int64_t i = 0; i < pages; ++i) table.push_back(int32_t((i * 7 + 3) % pages));
    if (pages % 7 == 0) {
      for (int64_t i = 0; i < pages; ++i) table[size_t(i)] = int32_t(pages - 1 - i);
    }
    keys = normal(c.context * c.kv_heads * c.head_dim, 1);
    for (int64_t i = 0; i < c.context; ++i) slots.push_back(table[size_t(i / 32)] * 32 + i % 32);
    for (int64_t layer = 0; layer < layers; ++layer) {
      const int64_t stride = c.kv_heads * c.head_dim;
      isa.store_kv({keys.data(), keys.data(), stride, stride, slots.data(), kv(layer), c.kv_heads,
                      c.head_dim}, 0, c.context);
    }
    partials.resize(size_t(attention_partial_floats(args(0))));
  }
  KVPages kv(int64_t layer) {
    return {data.get(), layers * layer_bytes, layer * layer_bytes, c.type};
  }
  AttentionArgs args(int64_t layer) {
    const int64_t stride = c.heads * c.head_dim;
    return {q.data(), stride, out.data(), stride, positions.data(), start.data(), lengths.data(),
            table.data(), 1, pages, kv(layer), c.heads, c.kv_heads, c.head_dim, 0.125F, 0, 0,
            partials.data()};
  }
  void run(int threads) {
    std::atomic<int64_t> next{0};
    const int64_t items = attention_items(args(0));
    const auto work = [&] {
      std::vector<uint8_t> memory(size_t(
          attention_scratch_bytes(c.heads, c.kv_heads, c.head_dim, c.context) + 64));
      uint8_t* scratch = memory.data() + (64 - reinterpret_cast<uintptr_t>(memory.data()) % 64);
      for (int64_t i = next++; i < items * layers; i = next++) {
        isa.attention(args(i / items), i % items, i % items + 1, scratch);
      }
    };
    std::vector<std::thread> others;
    for (int i = 1; i < threads; ++i) others.emplace_back(work);
    work();
    for (std::thread& other : others) other.join();
    for (int64_t layer = 0; layer < layers; ++layer) isa.attention_merge(args(layer), 0, c.rows);
  }
};

void bench_prefill(const Case& c) {
  Layers attention(c, 1);
  double macs = 0;
  for (const int32_t position : attention.positions) {
    macs += 2.0 * (position + 1) * double(c.heads * c.head_dim);
  }
  for (int threads = 1; threads <= 2; ++threads) {
    const Times t = measure(c.context > 1000 ? 5 : 15, [&] { attention.run(threads); });
    std::printf("prefill %-16s %-3s %5ld tokens %d thread(s): %6.1f GMAC/s [%.1f] %.1f\n", c.name,
                c.type_name(), c.context, threads, macs / t.median / 1e9, macs / t.fastest / 1e9,
                macs / t.busy / 1e9);
  }
}

void bench_decode(const Case& c) {
  const int64_t f16_bytes = c.context * c.kv_heads * c.head_dim * 4;
  const int64_t layers = std::max<int64_t>(1, (256 << 20) / f16_bytes);  // as many in q8
  Layers attention(c, layers);
  const double bytes = double(attention.pages * layers * attention.layer_bytes);
  for (int threads = 1; threads <= 2; ++threads) {
    const Times t = measure(9, [&] { attention.run(threads); });
    std::printf("decode  %-16s %-3s %5ld context %d thread(s): %6.1f GB/s [%.1f] %.1f, %.3f ms\n",
                c.name, c.type_name(), c.context, threads, bytes / t.median / 1e9,
                bytes / t.fastest / 1e9, bytes / t.busy / 1e9, t.median * 1e3 / double(layers));
  }
}

void bench_sample(int64_t vocab_size) {
  const Floats logits = normal(vocab_size, 3);
  std::vector<uint8_t> memory(size_t(sample_scratch_bytes(vocab_size) + 64));
  uint8_t* scratch = memory.data() + (64 - reinterpret_cast<uintptr_t>(memory.data()) % 64);
  const auto run = [&](const char* name, double temperature, int64_t top_k, double top_p) {
    SampleRow row{};
    row.temperature = temperature;
    row.top_k = top_k;
    row.top_p = top_p;
    const Times t = measure(50, [&] {
      SampleResult result;
      row.position++;
      sample_row(isa.sample, logits.data(), vocab_size, row, scratch, result, {});
    });
    std::printf("sample  V = %6ld, %-26s: %.3f ms [%.3f]\n", vocab_size, name, t.median * 1e3,
                t.fastest * 1e3);
  };
  run("greedy", 0, 0, 1);
  run("top-k 40, top-p 0.95", 0.7, 40, 0.95);
  run("top-p 0.95", 0.7, 0, 0.95);
  run("temperature 1", 1, 0, 1);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1 && !std::strcmp(argv[1], "avx512")) {
    isa = {avx512::store_kv, avx512::attention, avx512::attention_merge, avx512::sample_kernels};
  }
  for (const KVType type : {KVType::kF16, KVType::kQ8}) {
    for (const int64_t tokens : {512, 4096}) {
      bench_prefill({"9/3 heads x 64", 9, 3, 64, tokens, tokens, type});
      bench_prefill({"32/8 heads x 64", 32, 8, 64, tokens, tokens, type});
    }
    bench_prefill({"4/1 heads x 256", 4, 1, 256, 512, 512, type});
    bench_decode({"9/3 heads x 64", 9, 3, 64, 4096, 1, type});
    bench_decode({"32/8 heads x 64", 32, 8, 64, 4096, 1, type});
    bench_decode({"4/1 heads x 256", 4, 1, 256, 4096, 1, type});
  }
  for (const int64_t vocab_size : {49152, 262144}) bench_sample(vocab_size);
}
