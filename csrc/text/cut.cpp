#include "text/cut.h"

namespace fw {

namespace {

// A text that pieces are cut from. Each function returns where a piece that starts at `i` ends, or
// `i` if its alternative of the regular expression does not match there.
struct Cutter {
  const Char* chars;
  size_t end;

  uint32_t code(size_t i) const { return i < end ? chars[i].code : 0; }
  bool is(size_t i, CharClass kind) const { return i < end && chars[i].kind == kind; }
  static bool is_newline(uint32_t code) { return code == '\r' || code == '\n'; }

  size_t run(size_t i, CharClass kind) const {
    while (is(i, kind)) ++i;
    return i;
  }

  size_t newlines(size_t i) const {
    while (i < end && is_newline(chars[i].code)) ++i;
    return i;
  }

  // A letter of a contraction; U+017F is the long s, equal to s when case is ignored.
  uint32_t letter(size_t i, bool ignore_case) const {
    const uint32_t c = code(i);
    if (!ignore_case) return c;
    if (c == 0x17F) return 's';
    return c >= 'A' && c <= 'Z' ? c + ('a' - 'A') : c;
  }

  // 's|'t|'re|'ve|'m|'ll|'d
  size_t contraction(size_t i, bool ignore_case) const {
    if (code(i) != '\'') return i;
    const uint32_t first = letter(i + 1, ignore_case), second = letter(i + 2, ignore_case);
    if (first == 's' || first == 't' || first == 'm' || first == 'd') return i + 2;
    const bool is_two = (first == 'r' && second == 'e') || (first == 'v' && second == 'e') ||
                        (first == 'l' && second == 'l');
    return is_two ? i + 3 : i;
  }

  // \s+(?!\S)|\s+ : without the last space when a word follows.
  size_t spaces(size_t i) const {
    const size_t stop = run(i, kSpace);
    return stop == end || stop - i == 1 ? stop : stop - 1;
  }

  // \s*[\r\n]+
  size_t spaces_and_newlines(size_t i) const {
    for (size_t stop = run(i, kSpace); stop > i; --stop) {
      if (is_newline(chars[stop - 1].code)) return stop;
    }
    return i;
  }

  // ...| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
  size_t gpt2(size_t i) const {
    const size_t stop = contraction(i, false);
    if (stop > i) return stop;
    const size_t word = i + (code(i) == ' ');
    if (word < end && chars[word].kind != kSpace) return run(word, chars[word].kind);
    return spaces(i);
  }

  // [^\r\n\p{L}\p{N}]?\p{L}+
  size_t word(size_t i) const {
    if (is(i, kLetter)) return run(i, kLetter);
    const bool is_prefix = !is(i, kNumber) && !is_newline(code(i));
    return is_prefix && is(i + 1, kLetter) ? run(i + 1, kLetter) : i;
  }

  // Llama 3's and Qwen 2's, which differ by the most number characters of a piece.
  size_t llama3(size_t i, size_t max_numbers) const {
    size_t stop = contraction(i, true);
    if (stop > i) return stop;
    stop = word(i);
    if (stop > i) return stop;
    if (is(i, kNumber)) {
      stop = i + 1;
      while (stop - i < max_numbers && is(stop, kNumber)) ++stop;
      return stop;
    }
    const size_t symbol = i + (code(i) == ' ');
    if (is(symbol, kOther)) return newlines(run(symbol, kOther));
    stop = spaces_and_newlines(i);
    return stop > i ? stop : spaces(i);
  }
};

template <typename Next>
void cut_all(size_t begin, size_t end, std::vector<size_t>& ends, Next next) {
  while (begin < end) {
    begin = next(begin);
    ends.push_back(begin);
  }
}

}  // namespace

std::vector<size_t> cut(const std::vector<Char>& chars, Cut kind) {
  std::vector<size_t> ends;
  const size_t count = chars.size();
  const Cutter whole{chars.data(), count};
  if (kind == Cut::kGpt2) {
    cut_all(0, count, ends, [&](size_t i) { return whole.gpt2(i); });
  } else if (kind == Cut::kDigitsGpt2) {
    for (size_t begin = 0; begin < count;) {
      size_t stop = begin;
      while (stop < count && chars[stop].kind != kNumber) ++stop;
      const Cutter part{chars.data(), stop};  // lookahead ends at the number
      cut_all(begin, stop, ends, [&](size_t i) { return part.gpt2(i); });
      if (stop < count) ends.push_back(stop + 1);
      begin = stop + 1;
    }
  } else {
    const size_t max_numbers = kind == Cut::kLlama3 ? 3 : 1;
    cut_all(0, count, ends, [&](size_t i) { return whole.llama3(i, max_numbers); });
  }
  return ends;
}

}  // namespace fw
