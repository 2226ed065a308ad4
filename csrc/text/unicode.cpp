#include "text/unicode.h"

#include <algorithm>
#include <array>
#include <iterator>

namespace fw {

namespace {

struct Range {
  uint32_t first, last;
  CharClass kind;
};

constexpr Range kRanges[] = {
#include "text/unicode_classes.inl.h"
};

CharClass search(uint32_t code) {
  const Range* end = std::end(kRanges);
  const Range* found = std::lower_bound(
      kRanges, end, code, [](const Range& range, uint32_t wanted) { return range.last < wanted; });
  return found != end && found->first <= code ? found->kind : kOther;
}

// Most text is below U+0400: Latin letters, digits, spaces.
constexpr uint32_t kNumKnown = 0x400;

std::array<CharClass, kNumKnown> first_classes() {
  std::array<CharClass, kNumKnown> classes = {};
  for (uint32_t code = 0; code < kNumKnown; ++code) classes[code] = search(code);
  return classes;
}

}  // namespace

CharClass class_of(uint32_t code) {
  static const std::array<CharClass, kNumKnown> known = first_classes();
  return code < kNumKnown ? known[code] : search(code);
}

size_t character_bytes(std::string_view text, size_t at) {
  const auto lead = static_cast<uint8_t>(text[at]);
  const size_t wanted = lead < 0xC0 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  size_t length = 1;
  while (length < wanted && at + length < text.size() && continues(text[at + length])) ++length;
  return length;
}

std::vector<Char> characters(std::string_view text) {
  std::vector<Char> chars;
  chars.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const size_t length = character_bytes(text, at);
    const auto lead = static_cast<uint8_t>(text[at]);
    uint32_t code = length == 1 ? lead : lead & (0x7Fu >> length);
    for (size_t i = 1; i < length; ++i) {
      code = code << 6 | (static_cast<uint8_t>(text[at + i]) & 0x3Fu);
    }
    chars.push_back({code, static_cast<uint32_t>(at), class_of(code)});
    at += length;
  }
  return chars;
}

}  // namespace fw
