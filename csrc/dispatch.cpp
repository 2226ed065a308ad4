#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>

#include "core/cpu_features.h"
#include "kernels/table.h"

namespace fw {

namespace {

#define FIRSTWORD_TABLE(isa)                                                                \
  {                                                                                         \
    #isa, isa::quantize_a32, isa::quantize_a256, isa::linear, isa::rms_norm, isa::add,      \
        isa::rope, isa::silu_mul, isa::gelu_mul, isa::softcap, isa::store_kv, isa::attention, \
        isa::attention_merge, &isa::sample_kernels                                          \
  }

struct Choice {
  KernelTable table;
  bool (*runs)(const CpuFeatures& features);
};

// Best first.
const Choice kChoices[] = {
#if defined(FIRSTWORD_HAS_AVX2)
    {FIRSTWORD_TABLE(avx2), [](const CpuFeatures& features) { return features.avx2; }},
#endif
    {FIRSTWORD_TABLE(generic), [](const CpuFeatures&) { return true; }},
};

#undef FIRSTWORD_TABLE

const KernelTable& best() {
  const CpuFeatures features = detect_cpu_features();
  for (const Choice& choice : kChoices) {
    if (choice.runs(features)) return choice.table;
  }
  throw std::logic_error("no instruction set");  // generic runs everywhere
}

const KernelTable& choose() {
  const char* name = std::getenv("FIRSTWORD_ISA");
  return name == nullptr || *name == '\0' ? best() : kernels_of(name);
}

}  // namespace

const KernelTable& kernels_of(const char* isa) {
  const CpuFeatures features = detect_cpu_features();
  std::string usable;
  for (const Choice& choice : kChoices) {
    if (!choice.runs(features)) continue;
    if (std::strcmp(choice.table.isa, isa) == 0) return choice.table;
    usable += (usable.empty() ? "" : ", ") + std::string(choice.table.isa);
  }
  throw std::invalid_argument("FIRSTWORD_ISA is '" + std::string(isa) +
                              "': this build has on this processor: " + usable);
}

const KernelTable& kernels() {
  static const KernelTable& chosen = choose();
  return chosen;
}

}  // namespace fw
