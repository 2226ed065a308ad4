"""Text to token ids and back, exactly.

Not here: half characters of a stream (detokenizer), chat messages (chat_template).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

from firstword.errors import ConfigError
from firstword.text.byte_level import spelled_bytes, unwritable_bytes
from firstword.text.compiled import Tables, compile_vocabulary
from firstword.text.pipelines import PRE_TOKENIZERS, SPACE, LibraryEncoder, pre_tokenizer
from firstword.text.special_tokens import TokenMatcher
from firstword.text.vocabulary import END_OF_TURN, TokenType, Vocabulary

_WITHOUT_TEXT = frozenset({TokenType.UNKNOWN, TokenType.CONTROL, TokenType.UNUSED})


@dataclass(frozen=True)
class Encoding:
    """Token ids and where they come from.

    Args:
        token_ids: [T].
        spans: [T] half-open character ranges in the text; tokens that share one character (its
            bytes) all have its range.
    """

    token_ids: list[int]
    spans: list[tuple[int, int]]


class Encoder(Protocol):
    """Turns plain text, without special tokens, into ids: LibraryEncoder or NativeEncoder."""

    def encode(self, text: str) -> list[int]:
        """Token ids [T]."""

    def encode_with_spans(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        """Token ids [T], and the half-open range of characters of each [T]."""


@dataclass(frozen=True)
class _Part:
    """A special token in a text, or the plain text between two.

    Args:
        start: its first character in the text.
        end: the character after its last one.
        token_id: of a special token; None for plain text.
        prefix: whether a space is written before plain text.
    """

    start: int
    end: int
    token_id: int | None = None
    prefix: bool = False


class Tokenizer:
    """Turns text into the ids a model was trained on, and ids into text.

    Nothing here changes after construction: one tokenizer serves any number of threads. Text is
    never normalised (no NFC, no case), so that decode(encode(text)) == text.

    Attributes:
        notices: what a user should know about this vocabulary, one sentence each.
        vocab_size: number of tokens; ids are 0 to vocab_size - 1.
        bos_id: id of the token that begins a text, None if there is none.
        eos_ids: ids that end an answer.
        chat_template: Jinja source, None for a model that has none.
        add_bos: whether a raw prompt begins with `bos_id`.
    """

    def __init__(self, vocab: Vocabulary, tables: Tables | None = None) -> None:
        """Use `from_gguf` or `open_tokenizer`.

        Args:
            vocab: tokens and rules.
            tables: of the compiled encoder; None encodes through the `tokenizers` library.
        """
        byte_level = vocab.model == "gpt2"
        self._tokens = vocab.tokens
        self._types = vocab.types
        self._to_bytes = _byte_level_bytes if byte_level else _sentencepiece_bytes
        self._space = " " if byte_level else SPACE
        self._add_space_prefix = not byte_level and vocab.flags.get("add_space_prefix", True)
        self._encoder = _encoder(vocab, tables)
        self._unwritable = b""
        if byte_level:
            self._unwritable = unwritable_bytes(vocab) if tables is None else tables.unwritable
        self._whole, self._control_strings = _special_strings(vocab)
        self.notices = _notices(vocab)
        self.vocab_size = len(vocab.tokens)
        self.chat_template = vocab.chat_template
        self.bos_id = _special_id(vocab, "bos", "<s>")
        self._eos_id = _special_id(vocab, "eos", "</s>")
        self.eos_ids = _eos_ids(vocab, self._eos_id, self._control_strings)
        add_bos = pre_tokenizer(vocab).add_bos if byte_level else True
        self.add_bos = vocab.flags.get("add_bos_token", add_bos) and self.bos_id is not None

    @classmethod
    def from_gguf(cls, metadata: Mapping[str, object], source: str) -> Tokenizer:
        """Build from the metadata of a GGUF file.

        Args:
            metadata: key -> Python scalar or sequence (plain, or with `to_list()`).
            source: the file, for messages.

        Raises:
            CheckpointError: the vocabulary is malformed; names file, key and problem.
            UnsupportedModelError: a kind of tokenizer that is not built.
        """
        vocab = Vocabulary.from_gguf(metadata, source)
        compiled = compile_vocabulary(vocab)
        return cls(vocab) if compiled is None else cls(compiled.vocab, compiled.tables)

    @property
    def bos_ids(self) -> list[int]:
        """What a raw prompt begins with: [bos_id], or nothing if the model wants none."""
        return [self.bos_id] if self.add_bos and self.bos_id is not None else []

    @property
    def bos_token(self) -> str:
        """String of BOS, empty if there is none."""
        return "" if self.bos_id is None else self._tokens[self.bos_id]

    @property
    def eos_token(self) -> str:
        """String of the file's EOS, empty if there is none."""
        return "" if self._eos_id is None else self._tokens[self._eos_id]

    def encode(self, text: str, *, parse_special: bool = False) -> list[int]:
        """Token ids of a text, without BOS.

        Args:
            text: any text without lone surrogates. Characters that a byte-level vocabulary cannot
                write at all are read as U+FFFD: SmolLM2's lacks U+0004 and some like it.
            parse_special: read control strings such as <|im_end|> as control tokens; otherwise
                they are text like any other.

        Raises:
            ConfigError: the text holds a lone surrogate.
        """
        text = self._replace_unwritable(text)
        ids: list[int] = []
        for part in self._parts(text, parse_special):
            if part.token_id is None:
                ids += self._encoder.encode(self._written(text, part))
            else:
                ids.append(part.token_id)
        return ids

    def encode_with_spans(self, text: str, *, parse_special: bool = False) -> Encoding:
        """As `encode`, with the characters that each token covers."""
        text = self._replace_unwritable(text)
        result = Encoding([], [])
        for part in self._parts(text, parse_special):
            if part.token_id is not None:
                result.token_ids.append(part.token_id)
                result.spans.append((part.start, part.end))
                continue
            ids, spans = self._encoder.encode_with_spans(self._written(text, part))
            shift = part.start - part.prefix
            result.token_ids.extend(ids)
            result.spans.extend(
                (max(start + shift, part.start), end + shift) for start, end in spans
            )
        return result

    def _parts(self, text: str, parse_special: bool) -> Iterator[_Part]:
        """The special tokens of a text, and what lies between them."""
        matcher = self._parsed if parse_special else self._user_defined
        done = 0
        prefix = self._add_space_prefix
        for start, end, token_id in matcher.find(text):
            if done < start:
                yield _Part(done, start, prefix=prefix)
            yield _Part(start, end, token_id)
            # As llama.cpp does: text that follows a control token starts a word of its own.
            prefix = self._add_space_prefix and self.is_control(token_id)
            done = end
        if done < len(text):
            yield _Part(done, len(text), prefix=prefix)

    def _written(self, text: str, part: _Part) -> str:
        """A plain part of a text as the vocabulary spells it."""
        plain = text[part.start : part.end]
        return (" " + plain if part.prefix else plain).replace(" ", self._space)

    @cached_property
    def _user_defined(self) -> TokenMatcher:
        return TokenMatcher(self._whole)

    @cached_property
    def _controls(self) -> TokenMatcher:
        return TokenMatcher(self._control_strings)

    @cached_property
    def _parsed(self) -> TokenMatcher:
        return TokenMatcher({**self._whole, **self._control_strings})

    def _replace_unwritable(self, text: str) -> str:
        """The text, with U+FFFD for each character whose bytes the vocabulary lacks."""
        encoded = _utf8(text)
        if not self._unwritable or len(encoded.translate(None, self._unwritable)) == len(encoded):
            return text
        unwritable = frozenset(self._unwritable)
        return "".join("\ufffd" if unwritable & {*c.encode()} else c for c in text)

    def decode(
        self,
        token_ids: Iterable[int],
        *,
        skip_special: bool = True,
        keep_leading_space: bool = False,
    ) -> str:
        """Text of token ids: their bytes joined, U+FFFD for what is not UTF-8.

        Args:
            token_ids: ids below `vocab_size`.
            skip_special: leave control tokens out instead of writing their strings.
            keep_leading_space: the ids continue a text, so a first space is text. Otherwise the
                space that a SentencePiece vocabulary writes before a text is taken off once.

        Raises:
            ConfigError: an id is out of range.
        """
        pieces: list[bytes] = []
        at_start = not keep_leading_space
        for token_id in token_ids:
            piece = self.token_bytes(token_id, skip_special=skip_special)
            if at_start and piece:
                piece = self.without_space_prefix(token_id, piece)
                at_start = False
            pieces.append(piece)
        return b"".join(pieces).decode("utf-8", errors="replace")

    def token_bytes(self, token_id: int, *, skip_special: bool = True) -> bytes:
        """Bytes that a token adds to a text; none for a control token that is skipped.

        Raises:
            ConfigError: the id is out of range.
        """
        if not 0 <= token_id < self.vocab_size:
            raise ConfigError(
                f"token id {token_id} is out of range: this vocabulary has ids 0 to "
                f"{self.vocab_size - 1}"
            )
        kind = self._types[token_id]
        if kind in _WITHOUT_TEXT:
            return b"" if skip_special else self._tokens[token_id].encode()
        if kind == TokenType.USER_DEFINED:
            return self._tokens[token_id].encode()
        return self._to_bytes(self._tokens[token_id], kind)

    def without_space_prefix(self, token_id: int, piece: bytes) -> bytes:
        """A text's first piece, without the space that encoding writes before a text."""
        added = self._add_space_prefix and self._types[token_id] == TokenType.NORMAL
        return piece.removeprefix(b" ") if added else piece

    def token_text(self, token_id: int) -> str:
        """A token for display: control tokens by name, half characters as U+FFFD."""
        return self.token_bytes(token_id, skip_special=False).decode("utf-8", errors="replace")

    def is_control(self, token_id: int) -> bool:
        """Whether a token steers the model and carries no text (control, unknown, unused)."""
        return self._types[token_id] in _WITHOUT_TEXT

    def find_controls(self, text: str) -> list[tuple[int, int]]:
        """Character ranges in which `text` spells control tokens, in order, not overlapping."""
        return [(start, end) for start, end, _ in self._controls.find(text)]

    def is_control_string(self, text: str) -> bool:
        """Whether a text spells one control token and nothing else."""
        return self.find_controls(text) == [(0, len(text))]


def _encoder(vocab: Vocabulary, tables: Tables | None) -> Encoder:
    if tables is None:
        return LibraryEncoder(vocab)
    from firstword.text.native import NativeEncoder

    return NativeEncoder(tables)


def _special_strings(vocab: Vocabulary) -> tuple[dict[str, int], dict[str, int]]:
    """(user-defined strings, found whole in any text; control strings, found when asked)."""
    whole = vocab.ids_of(TokenType.USER_DEFINED)
    controls = vocab.ids_of(TokenType.CONTROL, TokenType.UNKNOWN)
    # Gemma defines all of HTML; llama.cpp and the golden ids still read this one as a control.
    if "</s>" in whole:
        controls["</s>"] = whole.pop("</s>")
    if vocab.model == "llama":
        whole = {string.replace(" ", SPACE): i for string, i in whole.items()} | whole
    return whole, controls


def _notices(vocab: Vocabulary) -> list[str]:
    if vocab.model != "gpt2" or vocab.pre in PRE_TOKENIZERS:
        return []
    found = "is missing" if vocab.pre is None else f"{vocab.pre!r} is not known"
    return [
        f"{vocab.source}: tokenizer.ggml.pre {found}: text is cut the default way, which may not "
        "be how the model was trained; a newer conversion of the model names its own"
    ]


def _special_id(vocab: Vocabulary, name: str, usual: str) -> int | None:
    """The id that the file names; SentencePiece files may leave the usual strings unsaid."""
    if name in vocab.special_ids or vocab.model == "gpt2":
        return vocab.special_ids.get(name)
    return vocab.ids_of(TokenType.CONTROL).get(usual)


def _eos_ids(vocab: Vocabulary, eos_id: int | None, controls: Mapping[str, int]) -> frozenset[int]:
    named = (eos_id, vocab.special_ids.get("eot"))
    usual = (controls.get(string) for string in END_OF_TURN)
    return frozenset(i for i in (*named, *usual) if i is not None)


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise ConfigError(
            f"text holds the lone surrogate U+{ord(text[error.start]):04X} at position "
            f"{error.start}, which is no character: remove it or repair the encoding"
        ) from None


def _byte_level_bytes(token: str, kind: int) -> bytes:
    spelled = spelled_bytes(token)
    return token.encode() if spelled is None else spelled


def _sentencepiece_bytes(token: str, kind: int) -> bytes:
    if kind == TokenType.BYTE:
        return bytes([int(token[3:5], 16)])
    return token.replace(SPACE, " ").encode()
