"""Text to token ids and back, exactly.

Not here: half characters of a stream (detokenizer), chat messages (chat_template).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from firstword.errors import CheckpointError, ConfigError
from firstword.text.pipelines import (
    PRE_TOKENIZERS,
    SPACE,
    byte_level_pipeline,
    pre_tokenizer,
    sentencepiece_pipeline,
)
from firstword.text.special_tokens import TokenMatcher
from firstword.text.vocabulary import END_OF_TURN, TokenType, Vocabulary

if TYPE_CHECKING:
    import tokenizers

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

    def __init__(self, vocab: Vocabulary) -> None:
        """Use `from_gguf`; `vocab` is only read here and not kept."""
        byte_level = vocab.model == "gpt2"
        self._tokens = vocab.tokens
        self._types = vocab.types
        self._to_bytes = _byte_level_bytes if byte_level else _sentencepiece_bytes
        self._space = " " if byte_level else SPACE
        self._add_space_prefix = not byte_level and vocab.flags.get("add_space_prefix", True)
        self._pipeline = _build(vocab)
        self._unwritable = _unwritable_bytes(vocab) if byte_level else b""
        whole, controls = _special_strings(vocab)
        self._user_defined = TokenMatcher(whole)
        self._controls = TokenMatcher(controls)
        self._parsed = TokenMatcher({**whole, **controls})
        self.notices = _notices(vocab)
        self.vocab_size = len(vocab.tokens)
        self.chat_template = vocab.chat_template
        self.bos_id = _special_id(vocab, "bos", "<s>")
        self._eos_id = _special_id(vocab, "eos", "</s>")
        self.eos_ids = _eos_ids(vocab, self._eos_id, controls)
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
        return cls(Vocabulary.from_gguf(metadata, source))

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
        return self.encode_with_spans(text, parse_special=parse_special).token_ids

    def encode_with_spans(self, text: str, *, parse_special: bool = False) -> Encoding:
        """As `encode`, with the characters that each token covers."""
        text = self._replace_unwritable(text)
        matcher = self._parsed if parse_special else self._user_defined
        result = Encoding([], [])
        done = 0
        prefix = self._add_space_prefix
        for start, end, token_id in matcher.find(text):
            self._encode_plain(text[done:start], done, prefix, result)
            result.token_ids.append(token_id)
            result.spans.append((start, end))
            # As llama.cpp does: text that follows a control token starts a word of its own.
            prefix = self._add_space_prefix and self.is_control(token_id)
            done = end
        self._encode_plain(text[done:], done, prefix, result)
        return result

    def _replace_unwritable(self, text: str) -> str:
        """The text, with U+FFFD for each character whose bytes the vocabulary lacks."""
        encoded = _utf8(text)
        if not self._unwritable or len(encoded.translate(None, self._unwritable)) == len(encoded):
            return text
        unwritable = frozenset(self._unwritable)
        return "".join("\ufffd" if unwritable & {*c.encode()} else c for c in text)

    def _encode_plain(self, text: str, offset: int, prefix: bool, result: Encoding) -> None:
        """Append the tokens of a text without special tokens, which starts at `offset`."""
        if not text:
            return
        shift = offset - prefix
        written = " " + text if prefix else text
        encoded = self._pipeline.encode(written.replace(" ", self._space), add_special_tokens=False)
        result.token_ids.extend(encoded.ids)
        result.spans.extend(
            (max(start + shift, offset), end + shift) for start, end in encoded.offsets
        )

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


def _build(vocab: Vocabulary) -> tokenizers.Tokenizer:
    build = byte_level_pipeline if vocab.model == "gpt2" else sentencepiece_pipeline
    try:
        return build(vocab)
    except CheckpointError:
        raise
    except Exception as error:  # the library raises plain Exception
        raise CheckpointError(vocab.source, "tokenizer.ggml.tokens", str(error)) from error


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


def _byte_level_alphabet() -> dict[str, int]:
    """Character -> byte in the spelling of byte-level BPE (GPT-2): printable bytes stand for
    themselves, the others are written with the characters from U+0100 on, in order.
    """
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    rest = [byte for byte in range(256) if byte not in printable]
    alphabet = {chr(byte): byte for byte in printable}
    return alphabet | {chr(0x100 + index): byte for index, byte in enumerate(rest)}


_ALPHABET = _byte_level_alphabet()


def _unwritable_bytes(vocab: Vocabulary) -> bytes:
    """Bytes that no token writes; text that needs them cannot be encoded."""
    single = {token for token in vocab.ids_of(TokenType.NORMAL) if len(token) == 1}
    return bytes(sorted(byte for character, byte in _ALPHABET.items() if character not in single))


def _byte_level_bytes(token: str, kind: int) -> bytes:
    if all(character in _ALPHABET for character in token):
        return bytes(_ALPHABET[character] for character in token)
    return token.encode()


def _sentencepiece_bytes(token: str, kind: int) -> bytes:
    if kind == TokenType.BYTE:
        return bytes([int(token[3:5], 16)])
    return token.replace(SPACE, " ").encode()
