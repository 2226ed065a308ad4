// All logits of token windows by llama.cpp: reads windows of token ids, writes rows of floats.
//
//   llama_logits MODEL THREADS CHUNK < ids > logits
//
// Input, in the machine's byte order: for each window an int32 count and as many int32 ids. Output:
// for each id, the vocabulary's logits as float32. Each window begins with an empty context, and is
// computed in chunks of CHUNK tokens. Everything else is llama.cpp's default.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "llama.h"

namespace {

constexpr uint32_t kContext = 4096;

void fail(const char* what) {
  std::fprintf(stderr, "llama_logits: %s\n", what);
  std::exit(1);
}

bool read_window(std::vector<int32_t>* ids) {
  int32_t count = 0;
  if (std::fread(&count, sizeof(count), 1, stdin) != 1) return false;
  if (count < 1 || count > static_cast<int32_t>(kContext)) fail("a window is too long");
  ids->resize(static_cast<size_t>(count));
  return std::fread(ids->data(), sizeof(int32_t), ids->size(), stdin) == ids->size();
}

void write_logits(llama_context* context, const std::vector<int32_t>& ids, int chunk,
                  size_t vocab_size) {
  llama_memory_clear(llama_get_memory(context), true);
  llama_batch batch = llama_batch_init(chunk, 0, 1);
  const int count = static_cast<int>(ids.size());
  for (int start = 0; start < count; start += chunk) {
    batch.n_tokens = start + chunk < count ? chunk : count - start;
    for (int i = 0; i < batch.n_tokens; ++i) {
      batch.token[i] = ids[static_cast<size_t>(start + i)];
      batch.pos[i] = start + i;
      batch.n_seq_id[i] = 1;
      batch.seq_id[i][0] = 0;
      batch.logits[i] = 1;
    }
    if (llama_decode(context, batch) != 0) fail("a chunk could not be computed");
    const size_t size = static_cast<size_t>(batch.n_tokens) * vocab_size;
    if (std::fwrite(llama_get_logits(context), sizeof(float), size, stdout) != size) {
      fail("the logits could not be written");
    }
    std::fflush(stdout);
  }
  llama_batch_free(batch);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) fail("arguments: MODEL THREADS CHUNK");
  const int threads = std::atoi(argv[2]), chunk = std::atoi(argv[3]);
  if (threads < 1 || chunk < 1) fail("THREADS and CHUNK must be at least 1");
  llama_backend_init();
  llama_model* model = llama_model_load_from_file(argv[1], llama_model_default_params());
  if (model == nullptr) fail("the model could not be loaded");
  llama_context_params params = llama_context_default_params();
  params.n_ctx = kContext;
  params.n_batch = static_cast<uint32_t>(chunk);
  params.n_ubatch = static_cast<uint32_t>(chunk);
  params.n_threads = threads;
  params.n_threads_batch = threads;
  llama_context* context = llama_init_from_model(model, params);
  if (context == nullptr) fail("no context could be made");
  const auto vocab_size = static_cast<size_t>(llama_vocab_n_tokens(llama_model_get_vocab(model)));
  std::vector<int32_t> ids;
  while (read_window(&ids)) write_logits(context, ids, chunk, vocab_size);
  llama_free(context);
  llama_model_free(model);
  return 0;
}
