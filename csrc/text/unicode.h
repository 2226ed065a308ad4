// Characters of UTF-8 texts, and what pre-tokenization takes each for.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace fw {

enum CharClass : uint8_t { kOther, kLetter, kNumber, kSpace };

struct Char {
  uint32_t code;
  uint32_t offset;  // of its first byte
  CharClass kind;
};

CharClass class_of(uint32_t code);

// The characters of a text. Bytes that are not UTF-8 count as characters of their own.
std::vector<Char> characters(std::string_view text);

// Whether a byte continues a character.
inline bool continues(char byte) { return (static_cast<uint8_t>(byte) & 0xC0) == 0x80; }

// Bytes of the character that starts at `at`, at least one and never beyond the end.
size_t character_bytes(std::string_view text, size_t at);

}  // namespace fw
