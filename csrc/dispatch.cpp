#include <cstdlib>
#include <stdexcept>
#include <string>

#include "core/cpu_features.h"
#include "kernels/table.h"

namespace fw {

namespace {

// `quantizer` has the quantizers: rows are too short for wider vectors than AVX2's to pay.
#define FIRSTWORD_TABLE(isa, quantizer)                                                         \
  {                                                                                             \
    #isa, quantizer::quantize_a32, quantizer::quantize_a256, isa::linear, isa::rms_norm,        \
        isa::add, isa::rope, isa::silu_mul, isa::gelu_mul, isa::softcap, isa::store_kv,         \
        isa::attention, isa::attention_merge, &isa::sample_kernels                              \
  }

struct Choice {
  KernelTable table;
  bool (*runs)(const CpuFeatures& features);
};

// Best first.
const Choice kChoices[] = {
#if defined(FIRSTWORD_HAS_AVX512)
    {FIRSTWORD_TABLE(avx512, avx2), [](const CpuFeatures& features) { return features.avx512; }},
#endif
#if defined(FIRSTWORD_HAS_AVX2)
    {FIRSTWORD_TABLE(avx2, avx2), [](const CpuFeatures& features) { return features.avx2; }},
#endif
    {FIRSTWORD_TABLE(generic, generic), [](const CpuFeatures&) { return true; }},
};

#undef FIRSTWORD_TABLE

const KernelTable& choose() {
  const char* name = std::getenv("FIRSTWORD_ISA");
  return kernels_of(name == nullptr || *name == '\0' ? usable_isas().front().c_str() : name);
}

}  // namespace

std::vector<std::string> usable_isas() {
  const CpuFeatures features = detect_cpu_features();
  std::vector<std::string> names;
  for (const Choice& choice : kChoices) {
    if (choice.runs(features)) names.emplace_back(choice.table.isa);
  }
  return names;
}

std::vector<std::string> built_isas() {
  std::vector<std::string> names;
  for (const Choice& choice : kChoices) names.emplace_back(choice.table.isa);
  return names;
}

const KernelTable& kernels_of(const char* isa) {
  std::string usable;
  for (const std::string& name : usable_isas()) {
    usable += (usable.empty() ? "" : ", ") + name;
    if (name != isa) continue;
    for (const Choice& choice : kChoices) {
      if (name == choice.table.isa) return choice.table;
    }
  }
  throw std::invalid_argument("FIRSTWORD_ISA is '" + std::string(isa) +
                              "': this build has on this processor: " + usable);
}

const KernelTable& kernels() {
  static const KernelTable& chosen = choose();
  return chosen;
}

}  // namespace fw
