#include "text/encoder.h"

#include <algorithm>

namespace fw {

namespace {

std::array<int32_t, 256> copied(const int32_t* byte_ids) {
  std::array<int32_t, 256> ids;
  std::copy_n(byte_ids, ids.size(), ids.begin());
  return ids;
}

void append(const std::vector<Symbol>& symbols, std::vector<Token>& tokens) {
  for (const Symbol& symbol : symbols) {
    if (symbol.size > 0) tokens.push_back({symbol.id, symbol.begin, symbol.begin + symbol.size});
  }
}

}  // namespace

ByteLevelEncoder::ByteLevelEncoder(Cut cut, const int32_t* byte_ids, MergeTable merges,
                                   PieceTable whole_pieces)
    : cut_(cut), byte_ids_(copied(byte_ids)), merges_(merges), whole_pieces_(whole_pieces) {}

std::vector<Token> ByteLevelEncoder::encode(std::string_view text) const {
  std::vector<Token> tokens;
  std::vector<Symbol> symbols;
  const std::vector<Char> chars = characters(text);
  uint32_t begin = 0;
  for (const size_t stop : cut(chars, cut_)) {
    const uint32_t end =
        stop < chars.size() ? chars[stop].offset : static_cast<uint32_t>(text.size());
    encode_piece(text, begin, end, symbols, tokens);
    begin = end;
  }
  return tokens;
}

void ByteLevelEncoder::encode_piece(std::string_view text, uint32_t begin, uint32_t end,
                                    std::vector<Symbol>& symbols,
                                    std::vector<Token>& tokens) const {
  const int32_t whole = whole_pieces_.find(text.substr(begin, end - begin));
  if (whole >= 0) {
    tokens.push_back({whole, begin, end});
    return;
  }
  symbols.clear();
  for (uint32_t at = begin; at < end; ++at) {
    const int32_t id = byte_ids_[static_cast<uint8_t>(text[at])];
    if (id >= 0) symbols.push_back({id, at, 1, -1, -1});  // the caller replaced the others
  }
  merge_all(symbols, [this](const Symbol& left, const Symbol& right) {
    const int32_t rank = merges_.find(left.id, right.id);
    if (rank < 0) return Joined{};
    return Joined{merges_.merges[rank].joined, static_cast<uint64_t>(rank)};
  });
  append(symbols, tokens);
}

SentencePieceEncoder::SentencePieceEncoder(const int32_t* byte_ids, PieceTable pieces,
                                           const uint32_t* ranks)
    : byte_ids_(copied(byte_ids)), pieces_(pieces), ranks_(ranks) {}

std::vector<Token> SentencePieceEncoder::encode(std::string_view text) const {
  constexpr int32_t kByte = -1;  // a character that is no token: its bytes join with nothing
  std::vector<Symbol> symbols;
  symbols.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const size_t length = character_bytes(text, at);
    const int32_t id = pieces_.find(text.substr(at, length));
    symbols.push_back(
        {id < 0 ? kByte : id, static_cast<uint32_t>(at), static_cast<uint32_t>(length), -1, -1});
    at += length;
  }
  merge_all(symbols, [this, text](const Symbol& left, const Symbol& right) {
    if (left.id == kByte || right.id == kByte) return Joined{};
    const int32_t id = pieces_.find(text.substr(left.begin, left.size + right.size));
    if (id < 0 || ranks_[id] == kNoRank) return Joined{};
    return Joined{id, static_cast<uint64_t>(ranks_[id]) << 32 | left.size};
  });
  std::vector<Token> tokens;
  for (const Symbol& symbol : symbols) {
    const uint32_t end = symbol.begin + symbol.size;
    if (symbol.id != kByte) {
      if (symbol.size > 0) tokens.push_back({symbol.id, symbol.begin, end});
      continue;
    }
    for (uint32_t at = symbol.begin; at < end; ++at) {
      tokens.push_back({byte_ids_[static_cast<uint8_t>(text[at])], at, at + 1});
    }
  }
  return tokens;
}

}  // namespace fw
