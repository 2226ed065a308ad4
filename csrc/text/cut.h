// Pre-tokenization of byte-level vocabularies: the regular expressions of text/pipelines.py, by
// hand. Every character is in exactly one piece.
#pragma once

#include <cstdint>
#include <vector>

#include "text/unicode.h"

namespace fw {

enum class Cut : int32_t {
  kGpt2,
  kDigitsGpt2,  // each number character alone, GPT-2's cutting between them
  kLlama3,      // numbers in runs of up to three characters
  kQwen2,       // the same with single number characters
};

// Where pieces end, as indices into `chars`, in order; the last is their count.
std::vector<size_t> cut(const std::vector<Char>& chars, Cut kind);

}  // namespace fw
