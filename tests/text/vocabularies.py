"""Small vocabularies as GGUF metadata, so that most tests of text need no model file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)

_PRINTABLE = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
_OTHERS = [byte for byte in range(256) if byte not in _PRINTABLE]
BYTE_LETTERS = {byte: chr(byte) for byte in _PRINTABLE} | {
    byte: chr(0x100 + index) for index, byte in enumerate(_OTHERS)
}


def spell(text: str) -> str:
    """The spelling of a text in a byte-level vocabulary."""
    return "".join(BYTE_LETTERS[byte] for byte in text.encode())


def byte_level(
    merges: Sequence[str] = (),
    controls: Sequence[str] = ("<|bos|>", "<|im_start|>", "<|im_end|>"),
    user_defined: Sequence[str] = (),
    **extra: object,
) -> dict[str, object]:
    """256 byte tokens, then the results of `merges`, control and user-defined tokens."""
    merged = [merge.replace(" ", "", 1) for merge in merges]
    tokens = [*BYTE_LETTERS.values(), *merged, *controls, *user_defined]
    types = [NORMAL] * (256 + len(merged))
    types += [CONTROL] * len(controls) + [USER_DEFINED] * len(user_defined)
    first_control = 256 + len(merged)
    metadata: dict[str, object] = {
        "model": "gpt2",
        "pre": "gpt-2",
        "tokens": tokens,
        "token_type": types,
        "merges": list(merges),
        "bos_token_id": first_control,
        "eos_token_id": first_control + len(controls) - 1,
        "add_bos_token": False,
    }
    return _prefixed(metadata | extra)


def sentencepiece(
    pieces: Mapping[str, float] | None = None,
    user_defined: Sequence[str] = (),
    **extra: object,
) -> dict[str, object]:
    """<unk> <s> </s>, 256 byte tokens, then `pieces` (string -> score)."""
    pieces = pieces if pieces is not None else _PIECES
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    types = [UNKNOWN, CONTROL, CONTROL] + [BYTE] * 256
    tokens += [*pieces, *user_defined]
    types += [NORMAL] * len(pieces) + [USER_DEFINED] * len(user_defined)
    scores = [0.0] * 259 + list(pieces.values()) + [0.0] * len(user_defined)
    metadata: dict[str, object] = {
        "model": "llama",
        "tokens": tokens,
        "token_type": types,
        "scores": scores,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "unknown_token_id": 0,
    }
    return _prefixed(metadata | extra)


_PIECES = {"▁": -1.0, "a": -2.0, "b": -3.0, "▁a": -4.0, "ab": -5.0, "▁ab": -6.0, "é": -7.0}


def _prefixed(metadata: Mapping[str, object]) -> dict[str, object]:
    special = {"chat_template": "tokenizer.chat_template"}
    return {
        special.get(key, f"tokenizer.ggml.{key}"): value
        for key, value in metadata.items()
        if value is not None
    }
