"""How text is cut into tokens: the pipelines of the `tokenizers` library for GGUF vocabularies.

They define the ids; `compiled` does the same faster for the usual vocabularies. Not here: reading
the vocabulary (vocabulary), special tokens and decoding (tokenizer).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from firstword.errors import CheckpointError
from firstword.text.vocabulary import TokenType, Vocabulary

if TYPE_CHECKING:
    import tokenizers

SPACE = "\u2581"
"""What SentencePiece vocabularies write for a space."""

_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_CONTRACTION = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_WORD = r"[^\r\n\p{L}\p{N}]?\p{L}+"
_SYMBOLS_AND_SPACE = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_LLAMA3 = rf"{_CONTRACTION}|{_WORD}|\p{{N}}{{1,3}}|{_SYMBOLS_AND_SPACE}"
_QWEN2 = rf"{_CONTRACTION}|{_WORD}|\p{{N}}|{_SYMBOLS_AND_SPACE}"
_UPPER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"
_LOWER = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_CASED_SPACE = r" ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_GPT4O = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+{_CONTRACTION}?"
    rf"|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*{_CONTRACTION}?"
    rf"|\p{{N}}{{1,3}}|{_CASED_SPACE}"
)
_TEKKEN = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+"
    rf"|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*"
    rf"|\p{{N}}|{_CASED_SPACE}"
)
_PUNCTUATION = r"[\p{P}\$\+<=>\^~\|]+"
_FALCON_PUNCTUATION = r"[\p{P}\$\+<=>\^~\|`]+"
_DEEPSEEK3 = (
    r"[!\x22#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
    r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


@dataclass(frozen=True)
class PreTokenizer:
    """How a byte-level vocabulary wants text cut before its merges apply.

    Args:
        patterns: regular expressions, applied one after the other; each match is a piece, and so
            is what lies between matches.
        ignore_merges: a piece that is a token as a whole is taken without merging.
        add_bos: whether prompts start with BOS when the file does not say.
        cut: name of the compiled code for these patterns; None where there is none.
    """

    patterns: tuple[str, ...]
    ignore_merges: bool = False
    add_bos: bool = False
    cut: str | None = None


DEFAULT_PRE = PreTokenizer((_PUNCTUATION, _GPT2, r"\p{N}+", r"[0-9][0-9][0-9]"))

_GPT2_PRE = PreTokenizer((_GPT2,), cut="GPT2")
_DIGITS_PRE = PreTokenizer((r"\p{N}", _GPT2), cut="DIGITS_GPT2")
_LLAMA3_PRE = PreTokenizer((_LLAMA3,), ignore_merges=True, add_bos=True, cut="LLAMA3")
_LLAMA3_MERGED_PRE = PreTokenizer((_LLAMA3,), cut="LLAMA3")
_QWEN2_PRE = PreTokenizer((_QWEN2,), cut="QWEN2")

PRE_TOKENIZERS: Mapping[str, PreTokenizer] = {
    "default": DEFAULT_PRE,
    "gpt-2": _GPT2_PRE,
    "gpt2": _GPT2_PRE,
    "mpt": _GPT2_PRE,
    "olmo": _GPT2_PRE,
    "phi-2": _GPT2_PRE,
    "smollm": _DIGITS_PRE,
    "starcoder": _DIGITS_PRE,
    "refact": _DIGITS_PRE,
    "command-r": _DIGITS_PRE,
    "codeshell": _DIGITS_PRE,
    "exaone": _DIGITS_PRE,
    "llama3": _LLAMA3_PRE,
    "llama-v3": _LLAMA3_PRE,
    "llama-bpe": _LLAMA3_PRE,
    "dbrx": _LLAMA3_MERGED_PRE,
    "smaug-bpe": _LLAMA3_MERGED_PRE,
    "glm4": _LLAMA3_MERGED_PRE,
    "qwen2": _QWEN2_PRE,
    "stablelm2": _QWEN2_PRE,
    "deepseek-r1-qwen": _QWEN2_PRE,
    "deepseek-v3": PreTokenizer((r"\p{N}{1,3}", r"[一-龥぀-ゟ゠-ヿ]+", _DEEPSEEK3)),
    "falcon": PreTokenizer((_FALCON_PUNCTUATION, _GPT2, r"[0-9][0-9][0-9]")),
    "gpt-4o": PreTokenizer((_GPT4O,)),
    "llama4": PreTokenizer((_GPT4O,)),
    "tekken": PreTokenizer((_TEKKEN,), ignore_merges=True, add_bos=True),
}
"""`tokenizer.ggml.pre` -> cutting. From the tokenizer.json files of the models named."""


def pre_tokenizer(vocab: Vocabulary) -> PreTokenizer:
    """The cutting that the file names; an unknown or missing name gets DEFAULT_PRE."""
    return PRE_TOKENIZERS.get(vocab.pre or "default", DEFAULT_PRE)


class LibraryEncoder:
    """Plain text to ids through the `tokenizers` library.

    Args:
        vocab: what to build the pipeline from.

    Raises:
        CheckpointError: the library refuses the vocabulary.
    """

    def __init__(self, vocab: Vocabulary) -> None:
        build = byte_level_pipeline if vocab.model == "gpt2" else sentencepiece_pipeline
        try:
            self._pipeline = build(vocab)
        except CheckpointError:
            raise
        except Exception as error:  # the library raises plain Exception
            raise CheckpointError(vocab.source, "tokenizer.ggml.tokens", str(error)) from error

    def encode(self, text: str) -> list[int]:
        """Token ids of a text without special tokens."""
        ids: list[int] = self._pipeline.encode(text, add_special_tokens=False).ids
        return ids

    def encode_with_spans(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        """Token ids [T], and the half-open range of characters of each [T]."""
        encoded = self._pipeline.encode(text, add_special_tokens=False)
        return encoded.ids, encoded.offsets


def byte_level_pipeline(vocab: Vocabulary) -> tokenizers.Tokenizer:
    """Byte-level BPE (Radford et al. 2019): regular expressions cut, merges join bytes.

    Control tokens are left out, so plain text can never become one.

    Raises:
        CheckpointError: a merge is malformed or names a token that does not exist.
    """
    from tokenizers import Regex, Tokenizer, models, pre_tokenizers

    pre = pre_tokenizer(vocab)
    plain = vocab.ids_of(TokenType.NORMAL, TokenType.USER_DEFINED)
    model = models.BPE(plain, listed_merges(vocab, plain), ignore_merges=pre.ignore_merges)
    pipeline = Tokenizer(model)
    splits = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in pre.patterns]
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    # The library types Sequence for lists of one class only.
    pipeline.pre_tokenizer = pre_tokenizers.Sequence([*splits, byte_level])
    return pipeline


def sentencepiece_pipeline(vocab: Vocabulary) -> tokenizers.Tokenizer:
    """SentencePiece BPE (Kudo and Richardson 2018): the best-scored neighbours join first.

    The text it is given has spaces written as SPACE. Characters outside the vocabulary become
    byte tokens. Control tokens are left out, so plain text can never become one.
    """
    from tokenizers import Tokenizer, models

    plain = vocab.ids_of(TokenType.NORMAL, TokenType.BYTE)
    merges = _scored_merges(vocab, plain)
    unknown = vocab.special_ids.get("unknown")
    if unknown is not None:
        plain[vocab.tokens[unknown]] = unknown
    return Tokenizer(
        models.BPE(
            plain,
            merges,
            unk_token=None if unknown is None else vocab.tokens[unknown],
            byte_fallback=True,
            fuse_unk=True,
        )
    )


def listed_merges(vocab: Vocabulary, plain: Mapping[str, int]) -> list[tuple[str, str]]:
    """The file's merges as pairs, without those that make or use control tokens."""
    known = set(vocab.tokens)
    merges = []
    for index, merge in enumerate(vocab.merges):
        cut = merge.find(" ", 1)
        left, right = merge[:cut], merge[cut + 1 :]
        if cut < 0 or not right:
            raise _merge_error(vocab, index, f"{merge!r} is not two tokens with a space between")
        if left in plain and right in plain and left + right in plain:
            merges.append((left, right))
            continue
        for part in (left, right, left + right):
            if part not in known:
                raise _merge_error(vocab, index, f"{merge!r} needs {part!r}, which is no token")
    return merges


def _merge_error(vocab: Vocabulary, index: int, problem: str) -> CheckpointError:
    return CheckpointError(vocab.source, f"tokenizer.ggml.merges[{index}]", problem)


def _scored_merges(vocab: Vocabulary, plain: Mapping[str, int]) -> list[tuple[str, str]]:
    """All pairs of tokens that join to a token, the best score of the result first."""
    types, tokens, scores = vocab.types, vocab.tokens, vocab.scores
    joined = [i for i in plain.values() if types[i] == TokenType.NORMAL and len(tokens[i]) > 1]
    joined.sort(key=lambda i: (-scores[i], i))
    merges = []
    for i in joined:
        token = tokens[i]
        for cut in range(1, len(token)):
            left = token[:cut]
            if left in plain and token[cut:] in plain:
                merges.append((left, token[cut:]))
    return merges
