// All kernels of one instruction set; the contract of each is in its own header.
#pragma once

#include <string>
#include <vector>

#include "kernels/activation.h"
#include "kernels/attention.h"
#include "kernels/kv_store.h"
#include "kernels/linear.h"
#include "kernels/quantize.h"
#include "kernels/rms_norm.h"
#include "kernels/rope.h"
#include "kernels/sample.h"

namespace fw {

struct KernelTable {
  const char* isa;
  QuantizeA32* quantize_a32;
  QuantizeA256* quantize_a256;
  Linear* linear;
  RmsNorm* rms_norm;
  Add* add;
  Rope* rope;
  GatedActivation* silu_mul;
  GatedActivation* gelu_mul;
  Softcap* softcap;
  StoreKV* store_kv;
  Attention* attention;
  AttentionMerge* attention_merge;
  const SampleKernels* sample;
};

// The best table that this processor runs, chosen once; the environment variable FIRSTWORD_ISA
// names another. Throws std::invalid_argument when it names none that is built and runs here.
const KernelTable& kernels();

// The table of an instruction set by name; throws as kernels() does.
const KernelTable& kernels_of(const char* isa);

// The instruction sets that this build has kernels for, best first.
std::vector<std::string> built_isas();

// Those of them that this processor runs, best first.
std::vector<std::string> usable_isas();

}  // namespace fw
