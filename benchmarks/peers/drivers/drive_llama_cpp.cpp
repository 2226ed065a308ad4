// Runs beside llama.cpp's libraries: one case a line in, the seconds it took as JSON out.
//
// What llama-bench and llama-batched-bench time: random tokens, logits of the last position (of
// each sequence), no sampling. Prompts that lie before what is timed are kept from one case to
// the next, and cut back to their length.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iostream>
#include <string>
#include <vector>

#include "llama.h"

namespace {

constexpr int kBatch = 2048;
constexpr int kMicroBatch = 512;  // both as llama-bench chooses
constexpr int kTextStep = 97;     // by so many tokens each text begins later than the last

[[noreturn]] void fail(const char* reason) {
  std::printf("FAILED %s\n", reason);
  std::fflush(stdout);
  std::exit(1);
}

double now() {
  using namespace std::chrono;
  return duration<double>(steady_clock::now().time_since_epoch()).count();
}

class Engine {
 public:
  Engine(const char* path, int threads, int context, int sequences, const char* text,
         const std::vector<std::string>& settings) {
    llama_backend_init();
    llama_model_params model_params = llama_model_default_params();
    llama_context_params params = llama_context_default_params();
    for (const std::string& setting : settings) {
      if (setting == "no-repack") model_params.use_extra_bufts = false;
      if (setting == "fa-on") params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_ENABLED;
      if (setting == "fa-off") params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;
    }
    model_ = llama_model_load_from_file(path, model_params);
    if (model_ == nullptr) fail("llama.cpp does not load this file");
    params.n_ctx = static_cast<uint32_t>(sequences * (context + 32));
    params.n_batch = kBatch;
    params.n_ubatch = kMicroBatch;
    params.n_seq_max = static_cast<uint32_t>(sequences);
    params.n_threads = params.n_threads_batch = threads;
    params.swa_full = sequences > 1;
    context_ = llama_init_from_model(model_, params);
    if (context_ == nullptr) fail("llama.cpp makes no context of this size");
    vocab_size_ = llama_vocab_n_tokens(llama_model_get_vocab(model_));
    batch_ = llama_batch_init(kBatch, 0, 1);
    if (std::strcmp(text, "-") != 0) read_text(text);
  }

  // Seconds that reading `tokens` fresh ones behind `depth` others takes.
  double prefill(int tokens, int depth) {
    keep(1, depth);
    const double start = now();
    read(0, tokens, depth);
    const double seconds = now() - start;
    cut(1, depth);
    return seconds;
  }

  // Seconds that `steps` tokens for each of the sequences take.
  double decode(int steps, int depth, int sequences) {
    keep(sequences, depth);
    const double start = now();
    for (int step = 0; step < steps; ++step) {
      batch_.n_tokens = 0;
      for (int sequence = 0; sequence < sequences; ++sequence) {
        add(random_token(), depth + step, sequence, true);
      }
      compute();
    }
    const double seconds = now() - start;
    cut(sequences, depth);
    return seconds;
  }

 private:
  void read_text(const char* path) {
    std::ifstream file(path, std::ios::binary);
    int32_t token;
    while (file.read(reinterpret_cast<char*>(&token), 4)) text_.push_back(token);
    if (text_.empty()) fail("the file of the text is empty");
  }

  // Every sequence has its first `depth` tokens and no others.
  void keep(int sequences, int depth) {
    if (sequences != kept_sequences_ || depth != kept_depth_) {
      llama_memory_clear(llama_get_memory(context_), false);
      for (int sequence = 0; sequence < sequences; ++sequence) read(sequence, depth, 0);
      kept_sequences_ = sequences, kept_depth_ = depth;
    }
  }

  void cut(int sequences, int depth) {
    for (int sequence = 0; sequence < sequences; ++sequence) {
      if (!llama_memory_seq_rm(llama_get_memory(context_), sequence, depth, -1)) kept_depth_ = -1;
    }
  }

  void read(int sequence, int tokens, int position) {
    const size_t begin = text_.empty() ? 0 : kTextStep * reads_++;
    for (int done = 0; done < tokens; done += kBatch) {
      const int size = std::min(kBatch, tokens - done);
      batch_.n_tokens = 0;
      for (int i = 0; i < size; ++i) {
        const size_t index = begin + static_cast<size_t>(done + i);
        const llama_token token = text_.empty() ? random_token() : text_[index % text_.size()];
        add(token, position + done + i, sequence, done + i == tokens - 1);
      }
      compute();
    }
  }

  void add(llama_token token, int position, int sequence, bool wants_logits) {
    const int i = batch_.n_tokens++;
    batch_.token[i] = token;
    batch_.pos[i] = position;
    batch_.n_seq_id[i] = 1;
    batch_.seq_id[i][0] = sequence;
    batch_.logits[i] = wants_logits;
  }

  void compute() {
    if (llama_decode(context_, batch_) != 0) fail("llama_decode failed");
    llama_synchronize(context_);
  }

  llama_token random_token() const { return std::rand() % vocab_size_; }

  llama_model* model_;
  llama_context* context_;
  llama_batch batch_;
  int vocab_size_;
  int kept_sequences_ = 0, kept_depth_ = 0;
  std::vector<llama_token> text_;
  size_t reads_ = 0;
};

}  // namespace

// Arguments: model, threads, tokens of a sequence, sequences, file of token ids or "-", settings.
int main(int argc, char** argv) {
  if (argc < 6) fail("too few arguments");
  llama_log_set([](ggml_log_level level, const char* text, void*) {
    if (level == GGML_LOG_LEVEL_ERROR) std::fputs(text, stderr);
  }, nullptr);
  Engine engine(argv[1], std::atoi(argv[2]), std::atoi(argv[3]), std::atoi(argv[4]), argv[5],
                std::vector<std::string>(argv + 6, argv + argc));
  std::puts("READY");
  std::fflush(stdout);
  std::string kind;
  int tokens, depth, sequences;
  while (std::cin >> kind >> tokens >> depth >> sequences) {
    if (kind == "prefill" && sequences > 1) fail("prompts are read one at a time");
    const double seconds =
        kind == "prefill" ? engine.prefill(tokens, depth) : engine.decode(tokens, depth, sequences);
    std::printf("RESULT {\"tokens\": %d, \"seconds\": %.9g}\n", tokens * sequences, seconds);
    std::fflush(stdout);
  }
  return 0;
}
