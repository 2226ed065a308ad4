// Encoders over the tables of a compiled vocabulary, and the making of these tables.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/vector.h>

#include <limits>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string_view>
#include <utility>
#include <vector>

#include "bindings/bindings.h"
#include "text/encoder.h"

using namespace nb::literals;

namespace fw {

namespace {

using Ids = Array<int32_t, 1>;
using Span = std::pair<uint32_t, uint32_t>;

// The encoder and what it reads from.
struct TextEncoder {
  std::vector<nb::object> kept;
  std::unique_ptr<Encoder> encoder;
};

std::string_view view(const nb::bytes& text) {
  if (text.size() >= static_cast<size_t>(std::numeric_limits<int32_t>::max())) {
    throw std::invalid_argument("a text of 2 GiB or more cannot be encoded at once");
  }
  return {text.c_str(), text.size()};
}

std::vector<Token> tokens_of(const TextEncoder& self, const nb::bytes& text) {
  const std::string_view bytes = view(text);
  const nb::gil_scoped_release release;
  return self.encoder->encode(bytes);
}

std::vector<int32_t> encode(const TextEncoder& self, const nb::bytes& text) {
  std::vector<int32_t> ids;
  for (const Token& token : tokens_of(self, text)) ids.push_back(token.id);
  return ids;
}

// Ids, and the half-open range of characters that each token has bytes of.
std::pair<std::vector<int32_t>, std::vector<Span>> encode_with_spans(const TextEncoder& self,
                                                                     const nb::bytes& text) {
  const std::string_view bytes = view(text);
  std::pair<std::vector<int32_t>, std::vector<Span>> result;
  uint32_t at = 0, num_chars = 0;  // characters that begin before `at`
  const auto chars_before = [&](uint32_t end) {
    for (; at < end; ++at) num_chars += !continues(bytes[at]);
    return num_chars;
  };
  for (const Token& token : tokens_of(self, text)) {
    const uint32_t first = chars_before(token.begin + 1) - 1;
    result.first.push_back(token.id);
    result.second.emplace_back(first, chars_before(token.end));
  }
  return result;
}

Strings strings_of(const Array<uint32_t, 1>& offsets, const Array<uint8_t, 1>& bytes) {
  if (offsets.size() == 0 || offsets.data()[offsets.size() - 1] != bytes.size()) {
    throw std::invalid_argument("the last offset is not the end of the strings");
  }
  return {offsets.data(), reinterpret_cast<const char*>(bytes.data())};
}

Slots slots_of(const Ids& slots) {
  if (slots.size() & (slots.size() - 1)) throw std::invalid_argument("slots: no power of two");
  return {slots.data(), slots.size()};
}

const int32_t* bytes_of(const Ids& byte_ids) {
  if (byte_ids.size() != 256) throw std::invalid_argument("there are 256 bytes");
  return byte_ids.data();
}

const Merge* merges_of(const Array<int32_t, 2>& merges) {
  static_assert(sizeof(Merge) == 3 * sizeof(int32_t));
  if (merges.shape(1) != 3) throw std::invalid_argument("a merge has three ids");
  return reinterpret_cast<const Merge*>(merges.data());
}

TextEncoder byte_level(Cut cut, const Ids& byte_ids, const Array<int32_t, 2>& merges,
                       const Ids& merge_slots, const Array<uint32_t, 1>& offsets,
                       const Array<uint8_t, 1>& bytes, const Ids& piece_slots) {
  const MergeTable table{merges_of(merges), slots_of(merge_slots)};
  const PieceTable whole{strings_of(offsets, bytes), slots_of(piece_slots)};
  auto encoder = std::make_unique<ByteLevelEncoder>(cut, bytes_of(byte_ids), table, whole);
  return {{nb::cast(merges), nb::cast(merge_slots), nb::cast(offsets), nb::cast(bytes),
           nb::cast(piece_slots)},
          std::move(encoder)};
}

TextEncoder sentencepiece(const Ids& byte_ids, const Array<uint32_t, 1>& offsets,
                          const Array<uint8_t, 1>& bytes, const Ids& piece_slots,
                          const Array<uint32_t, 1>& ranks) {
  if (ranks.size() + 1 != offsets.size()) throw std::invalid_argument("one rank for each token");
  const PieceTable pieces{strings_of(offsets, bytes), slots_of(piece_slots)};
  auto encoder = std::make_unique<SentencePieceEncoder>(bytes_of(byte_ids), pieces, ranks.data());
  return {{nb::cast(offsets), nb::cast(bytes), nb::cast(piece_slots), nb::cast(ranks)},
          std::move(encoder)};
}

nb::object as_array(std::vector<int32_t> values) {
  auto* kept = new std::vector<int32_t>(std::move(values));
  const nb::capsule owner(kept, [](void* p) noexcept {
    delete static_cast<std::vector<int32_t>*>(p);
  });
  return nb::cast(nb::ndarray<nb::numpy, int32_t, nb::ndim<1>>(kept->data(), {kept->size()}, owner));
}

nb::object make_piece_slots(const Array<uint32_t, 1>& offsets, const Array<uint8_t, 1>& bytes,
                            const Ids& ids) {
  const Strings strings = strings_of(offsets, bytes);
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids.data()[i] < 0 || static_cast<size_t>(ids.data()[i]) + 1 >= offsets.size()) {
      throw std::invalid_argument("an id without a string");
    }
  }
  return as_array(piece_slots(strings, ids.data(), ids.size()));
}

nb::object make_merge_slots(const Array<int32_t, 2>& merges) {
  return as_array(merge_slots(merges_of(merges), merges.shape(0)));
}

// Where `count` strings end that begin at `start`, each after its length in 8 bytes.
std::optional<uint64_t> end_of_strings(const Array<uint8_t, 1>& data, uint64_t start,
                                       uint64_t count) {
  const uint64_t size = data.size();
  uint64_t at = start;
  for (uint64_t i = 0; i < count; ++i) {
    if (at > size || size - at < 8) return {};
    uint64_t length = 0;
    for (uint64_t byte = 8; byte-- > 0;) length = length << 8 | data.data()[at + byte];
    at += 8;
    if (length > size - at) return {};
    at += length;
  }
  return at;
}

}  // namespace

void bind_text(nb::module_& m) {
  nb::enum_<Cut>(m, "Cut")
      .value("GPT2", Cut::kGpt2)
      .value("DIGITS_GPT2", Cut::kDigitsGpt2)
      .value("LLAMA3", Cut::kLlama3)
      .value("QWEN2", Cut::kQwen2);
  nb::class_<TextEncoder>(m, "TextEncoder")
      .def_static("byte_level", &byte_level, "cut"_a, "byte_ids"_a, "merges"_a, "merge_slots"_a,
                  "offsets"_a, "strings"_a, "piece_slots"_a)
      .def_static("sentencepiece", &sentencepiece, "byte_ids"_a, "offsets"_a, "strings"_a,
                  "piece_slots"_a, "ranks"_a)
      .def("encode", &encode, "text"_a)
      .def("encode_with_spans", &encode_with_spans, "text"_a);
  m.def("piece_slots", &make_piece_slots, "offsets"_a, "strings"_a, "ids"_a);
  m.def("merge_slots", &make_merge_slots, "merges"_a);
  m.def("end_of_strings", &end_of_strings, "data"_a, "start"_a, "count"_a);
}

}  // namespace fw
