// Text to token ids: the two kinds of vocabularies of text/pipelines.py, over compiled tables. Text
// is UTF-8 without special tokens; nothing here changes, so threads may share an encoder.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "text/cut.h"
#include "text/merge.h"
#include "text/tables.h"

namespace fw {

struct Token {
  int32_t id;
  uint32_t begin, end;  // its bytes in the text
};

class Encoder {
 public:
  virtual ~Encoder() = default;
  virtual std::vector<Token> encode(std::string_view text) const = 0;
};

// Byte-level BPE: the text is cut, and the bytes of each piece are merged.
class ByteLevelEncoder final : public Encoder {
 public:
  // whole_pieces: tokens that a piece may be as a whole, without merging; may be empty.
  ByteLevelEncoder(Cut cut, const int32_t* byte_ids, MergeTable merges, PieceTable whole_pieces);

  std::vector<Token> encode(std::string_view text) const override;

 private:
  void encode_piece(std::string_view text, uint32_t begin, uint32_t end,
                    std::vector<Symbol>& symbols, std::vector<Token>& tokens) const;

  Cut cut_;
  std::array<int32_t, 256> byte_ids_;
  MergeTable merges_;
  PieceTable whole_pieces_;
};

// SentencePiece BPE: two neighbours join where their text is a token, the best token first, and of
// its halves those with the shorter left one. Characters that are no token become byte tokens.
class SentencePieceEncoder final : public Encoder {
 public:
  // ranks: by id; kNoRank for tokens that are not joined from others.
  SentencePieceEncoder(const int32_t* byte_ids, PieceTable pieces, const uint32_t* ranks);

  std::vector<Token> encode(std::string_view text) const override;

  static constexpr uint32_t kNoRank = 0xFFFFFFFFu;

 private:
  std::array<int32_t, 256> byte_ids_;
  PieceTable pieces_;
  const uint32_t* ranks_;
};

}  // namespace fw
