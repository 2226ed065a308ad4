"""Options that several commands share, and how they become parameters."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from firstword.config import KVDtype
    from firstword.engine.binding import Numerics as NumericsName
    from firstword.sampling.params import SamplingParams

MAX_TOKENS = 512
"""Tokens of an answer when the command line is not told otherwise."""

Model = Annotated[
    str | None,
    typer.Option(
        "--model", "-m", help="A name from `firstword models`, a path, or hf:ORG/REPO[:FILE]."
    ),
]
Preset = Annotated[str, typer.Option(help="Decoding strategy to start from: chat or factual.")]
Temperature = Annotated[
    float | None, typer.Option(help="0 takes the most probable token; up to 100.", metavar="0..100")
]
TopK = Annotated[int | None, typer.Option(help="Choose among the K most probable; 0: all.")]
TopP = Annotated[
    float | None, typer.Option(help="Choose among those that together have this probability.")
]
Seed = Annotated[int | None, typer.Option(help="The same seed gives the same answer.")]
MaxTokens = Annotated[int, typer.Option(help="Most tokens of an answer.")]
Stop = Annotated[
    list[str] | None, typer.Option(help="Text that ends the answer; may be given again.")
]
System = Annotated[str | None, typer.Option(help="Instruction given before the conversation.")]
Raw = Annotated[
    bool, typer.Option("--raw", help="No chat template: continue the text as it stands.")
]
Stats = Annotated[bool, typer.Option("--stats", help="Print counts and times afterwards.")]
Threads = Annotated[
    int | None, typer.Option(help="Threads to compute with; otherwise the usable cores.")
]
Numerics = Annotated[
    str | None,
    typer.Option(
        help="native: compiled kernels; blas, exact, int8: numpy. Otherwise the fastest there is.",
        metavar="KIND",
    ),
]
PanelCache = Annotated[
    bool,
    typer.Option(
        "--panel-cache/--no-panel-cache",
        help="Keep prepared weights on the disk, for a faster start next time.",
    ),
]
KVType = Annotated[
    str,
    typer.Option(
        help="Keys and values in memory: f16, or q8: half the bytes, and slightly other answers.",
        metavar="f16|q8",
    ),
]
KVDisk = Annotated[
    str | None,
    typer.Option(
        help="Most disk for prompts that were read, of all models, like 10G; 0: keep none. "
        "Otherwise FIRSTWORD_KV_DISK, or 10 GB and at most a tenth of what is free.",
        metavar="SIZE",
    ),
]
Context = Annotated[int | None, typer.Option(help="Context in tokens; otherwise the model's own.")]


@dataclass(frozen=True)
class Machine:
    """What to compute with, as the command line says it.

    Args:
        threads: how many; None for the usable cores.
        numerics: the arithmetic by name; None for the fastest there is.
        panel_cache: whether prepared weights are kept.
        kv_disk: size that KV blocks may take on the disk; None for the default.
        kv_type: how keys and values are kept: a name of KV_TYPES.
    """

    threads: int | None = None
    numerics: str | None = None
    panel_cache: bool = True
    kv_disk: str | None = None
    kv_type: str = "f16"

    @property
    def kv_dtype(self) -> KVDtype:
        """The type of keys and values as the engine calls it; errors as for `checked_kv_type`."""
        return checked_kv_type(self.kv_type)

    @property
    def kv_disk_bytes(self) -> int | None:
        """What KV blocks may take on the disk; None for the default.

        Raises:
            ConfigError: it is no size.
        """
        from firstword.config import parse_size

        return None if self.kv_disk is None else parse_size(self.kv_disk, "--kv-disk")


KV_TYPES: dict[str, KVDtype] = {
    "f16": "float16",
    "q8": "q8",
    "bf16": "bfloat16",
    "f32": "float32",
}
"""Types of keys and values by their names on the command line; the engine's names serve too."""


def checked_kv_type(name: str) -> KVDtype:
    """The type of keys and values of that name.

    Raises:
        BadParameter: there is none.
    """
    for short, dtype in KV_TYPES.items():
        if name in (short, dtype):
            return dtype
    raise typer.BadParameter(
        f"{name!r} is no type for keys and values: give one of {', '.join(KV_TYPES)}"
    )


def checked_numerics(name: str | None) -> NumericsName | None:
    """The arithmetic of that name.

    Raises:
        ConfigError: there is none.
    """
    from firstword.engine.binding import NUMERICS
    from firstword.errors import ConfigError

    for known in NUMERICS:
        if name == known:
            return known
    if name is None:
        return None
    raise ConfigError(f"numerics is {name!r}: it must be one of {', '.join(NUMERICS)}")


def sampling_params(preset: str, max_tokens: int, **given: Any) -> SamplingParams:
    """Sampling parameters: a preset, and on top of it the options that were given."""
    from firstword.sampling.params import SamplingParams

    overrides = {name: value for name, value in given.items() if value is not None}
    return SamplingParams.preset(preset, max_tokens=max_tokens, **overrides)


def read_prompt(prompt: str | None) -> str:
    """The prompt as given, or standard input when it is left out or is "-"."""
    if prompt is not None and prompt != "-":
        return prompt
    if prompt is None and sys.stdin.isatty():
        raise typer.BadParameter('give a prompt, like: firstword run "What is gravity?"')
    try:
        text = sys.stdin.buffer.read().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise typer.BadParameter(
            f"standard input is not UTF-8 (byte {error.start}): convert it first, for example "
            "with iconv"
        ) from None
    return text.replace("\r\n", "\n").removesuffix("\n")
