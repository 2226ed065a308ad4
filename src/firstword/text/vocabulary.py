"""The vocabulary that a GGUF file carries, checked field by field.

Not here: how text is cut with it (pipelines) and what callers use (tokenizer).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TypeVar

import numpy as np

from firstword.errors import CheckpointError, UnsupportedModelError

_PREFIX = "tokenizer.ggml."
_BYTE_TOKEN = re.compile("<0x[0-9A-Fa-f]{2}>")
_T = TypeVar("_T")

END_OF_TURN = (
    "<|im_end|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<|end|>",
    "<|return|>",
    "<EOT>",
)
"""Tokens that end an answer in some family, whatever the file calls EOS."""


class TokenType(IntEnum):
    """What a token is, as GGUF's `tokenizer.ggml.token_type` counts."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


@dataclass(frozen=True)
class Vocabulary:
    """Tokens and rules as the file states them; ids are indices into `tokens`.

    Args:
        source: the file, for messages.
        model: "gpt2" (byte-level BPE) or "llama" (SentencePiece BPE over scores).
        pre: name of the pre-tokenization, None when the file has none.
        tokens: [V] strings.
        types: [V] values of TokenType, one byte each.
        scores: [V]; empty for gpt2.
        merges: "left right", best first; empty for llama.
        special_ids: "bos", "eos", ... -> id, only those that the file names.
        flags: "add_bos_token", ... -> bool, only those that the file names.
        chat_template: Jinja source, None when the file has none.
    """

    source: str
    model: str
    pre: str | None
    tokens: Sequence[str]
    types: bytes
    scores: list[float] = field(repr=False)
    merges: list[str] = field(repr=False)
    special_ids: Mapping[str, int]
    flags: Mapping[str, bool]
    chat_template: str | None

    @classmethod
    def from_gguf(cls, metadata: Mapping[str, object], source: str) -> Vocabulary:
        """Read and check the `tokenizer.` keys of a GGUF file.

        Args:
            metadata: key -> Python scalar or sequence (with `to_list()` or `tolist()`, or plain).
            source: the file, for messages.

        Raises:
            CheckpointError: a key is missing, of a wrong type or length, or out of range.
            UnsupportedModelError: a kind of tokenizer that is not built.
        """
        fields = _Fields(metadata, source)
        model = fields.scalar(_PREFIX + "model", str)
        if model is None:
            raise fields.error(_PREFIX + "model", "missing: the file holds no tokenizer")
        if model not in ("gpt2", "llama"):
            raise UnsupportedModelError(
                source, _PREFIX + "model", f"{model!r} is not built: only gpt2 and llama"
            )
        tokens = fields.array(_PREFIX + "tokens", str)
        if not tokens:
            raise fields.error(_PREFIX + "tokens", "missing or empty")
        return cls(
            source=source,
            model=model,
            pre=fields.scalar(_PREFIX + "pre", str),
            tokens=tokens,
            types=_types(fields, tokens),
            scores=_scores(fields, tokens) if model == "llama" else [],
            merges=fields.array(_PREFIX + "merges", str) if model == "gpt2" else [],
            special_ids=_special_ids(fields, len(tokens)),
            flags=_flags(fields),
            chat_template=fields.scalar("tokenizer.chat_template", str),
        )

    def ids_of(self, *types: TokenType) -> dict[str, int]:
        """String -> id of all tokens of these types; of equal strings the lowest id counts."""
        kinds = np.frombuffer(self.types, np.uint8)
        ids = np.flatnonzero(np.isin(kinds, [int(kind) for kind in types])).tolist()
        return {self.tokens[i]: i for i in reversed(ids)}


class _Fields:
    """Typed access to metadata; every complaint names the file and the key."""

    def __init__(self, metadata: Mapping[str, object], source: str) -> None:
        self._metadata = metadata
        self._source = source

    def error(self, key: str, problem: str) -> CheckpointError:
        return CheckpointError(self._source, key, problem)

    def scalar(self, key: str, kind: type[_T]) -> _T | None:
        value = self._metadata.get(key)
        if value is None:
            return None
        if type(value) is not kind:
            raise self.error(key, f"expected {kind.__name__}, found {type(value).__name__}")
        return value

    def array(self, key: str, kind: type[_T]) -> list[_T]:
        value = self._metadata.get(key)
        if value is None:
            return []
        items: list[_T] | None = _to_list(value)
        if items is None:
            raise self.error(key, f"expected an array, found {type(value).__name__}")
        found = set(map(type, items)) - {kind}
        if found:
            names = ", ".join(sorted(other.__name__ for other in found))
            raise self.error(key, f"expected an array of {kind.__name__}, found {names}")
        return items


def _to_list(value: object) -> list[_T] | None:
    for name in ("to_list", "tolist"):
        method = getattr(value, name, None)
        if method is not None:
            return list(method())
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return list(value)
    return None


def _types(fields: _Fields, tokens: Sequence[str]) -> bytes:
    key = _PREFIX + "token_type"
    types = fields.array(key, int)
    if not types:
        return bytes([TokenType.NORMAL]) * len(tokens)
    _check_length(fields, key, types, tokens)
    unknown = set(types) - set(map(int, TokenType))
    if unknown:
        raise fields.error(key, f"expected values 1 to 6, found {min(unknown)}")
    user_defined = int(TokenType.USER_DEFINED)
    # Some conversions call the end of a turn user-defined; then answers would never end.
    for index in [i for i, kind in enumerate(types) if kind == user_defined]:
        if tokens[index] in END_OF_TURN:
            types[index] = int(TokenType.CONTROL)
    byte = int(TokenType.BYTE)
    for index in [i for i, kind in enumerate(types) if kind == byte]:
        if not _BYTE_TOKEN.fullmatch(tokens[index]):
            problem = f"expected the byte token {index} to be like <0x0A>, found {tokens[index]!r}"
            raise fields.error(_PREFIX + "tokens", problem)
    return bytes(types)


def _scores(fields: _Fields, tokens: Sequence[str]) -> list[float]:
    key = _PREFIX + "scores"
    scores = fields.array(key, float)
    _check_length(fields, key, scores, tokens)
    if any(score != score for score in scores):
        raise fields.error(key, "expected numbers, found NaN")
    return scores


def _check_length(
    fields: _Fields, key: str, values: Sequence[object], tokens: Sequence[str]
) -> None:
    if len(values) != len(tokens):
        raise fields.error(key, f"expected {len(tokens)} entries, found {len(values)}")


def _special_ids(fields: _Fields, num_tokens: int) -> dict[str, int]:
    ids = {}
    for name in ("bos", "eos", "eot", "unknown", "padding"):
        key = f"{_PREFIX}{name}_token_id"
        value = fields.scalar(key, int)
        if value is not None and not 0 <= value < num_tokens:
            raise fields.error(key, f"expected an id below {num_tokens}, found {value}")
        if value is not None:
            ids[name] = value
    return ids


def _flags(fields: _Fields) -> dict[str, bool]:
    names: Iterable[str] = ("add_bos_token", "add_eos_token", "add_space_prefix")
    values = {name: fields.scalar(_PREFIX + name, bool) for name in names}
    return {name: value for name, value in values.items() if value is not None}
