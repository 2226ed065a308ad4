"""`firstword inspect --plan`: the compiled plan of a model, printed.

Not here: the plan and its numbers (plan.listing).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from firstword.config import KVDtype
    from firstword.ops.cost import Cost
    from firstword.plan.listing import Block, Listing, OpLine
    from firstword.weights.checkpoint import Checkpoint

_LEGEND = (
    "- begins a stage, at whose end all threads wait; * one on rows of logits alone.",
    "Bytes are weights, keys and values; activations mostly stay in the caches.",
)
_KERNEL_WIDTH, _SHAPE_WIDTH, _NUMBER_WIDTH = 13, 28, 9


def print_plan(
    checkpoint: Checkpoint, name: str, num_tokens: int | None, kv_dtype: KVDtype, as_json: bool
) -> None:
    """Print the plan of an open model file.

    Args:
        checkpoint: the file; only its headers are read.
        name: what the user called it.
        num_tokens: length of a prompt to count as well, or None.
        kv_dtype: type of keys and values.
        as_json: as JSON instead of text.

    Raises:
        ConfigError: this installation has no compiled kernels, or num_tokens is out of range.
        UnsupportedModelError: there is no kernel for something in the model.
    """
    from importlib.util import find_spec

    from firstword.errors import ConfigError

    if find_spec("firstword._native") is None:
        raise ConfigError(
            "this installation has no compiled kernels, and so no plans: install firstword where "
            "there is a C++ compiler"
        )
    from firstword.ops.native import NativeOps
    from firstword.plan.listing import list_plan

    listing = list_plan(checkpoint, num_tokens, kv_dtype)
    isa = NativeOps().isa
    if as_json:
        print(json.dumps({"model": name, "isa": isa, **listing.to_dict()}, indent=2))
    else:
        print("\n".join(render(listing, name, isa)))


def render(listing: Listing, name: str, isa: str) -> Iterator[str]:
    """The listing as lines of at most 80 columns (a name may be longer).

    Args:
        listing: the plan.
        name: what the user called the model.
        isa: the instruction set of the kernels.
    """
    yield f"{name}: {listing.num_stages} stages in one native call, {isa} kernels"
    yield from ("", *_LEGEND, "")
    left = " " * (3 + _KERNEL_WIDTH + _SHAPE_WIDTH)
    yield left + "".join(f"{step:>{2 * _NUMBER_WIDTH}}" for step in listing.steps)
    numbers = f"{'FLOPs':>{_NUMBER_WIDTH}}{'bytes':>{_NUMBER_WIDTH}}" * len(listing.steps)
    yield _line("  ", "kernel", "shape, weight type") + numbers
    for block in listing.blocks:
        yield _title(block)
        for stage in block.stages:
            first = "- " if stage.rows == "tokens" else "* "
            for index, op in enumerate(stage.ops):
                yield _op_line(op, "  " if index else first)
    yield _line("  ", "in all", "") + "".join(_numbers(total) for total in listing.totals)


def _title(block: Block) -> str:
    times = "once" if block.times == 1 else f"{block.times} times"
    if not block.layers:
        return times
    first, last = block.layers[0], block.layers[-1]
    which = f"layer {first}" if first == last else f"layers {first} to {last}"
    return f"{times}, attention of {which}"


def _op_line(op: OpLine, mark: str) -> str:
    shape = f"{op.shape} {op.weight_type}" if op.weight_type else op.shape
    return (_line(mark, op.kernel, shape) + "".join(map(_numbers, op.costs))).rstrip()


def _line(mark: str, kernel: str, what: str) -> str:
    return f"{mark}{kernel:<{_KERNEL_WIDTH}} {what:<{_SHAPE_WIDTH}}"


def _numbers(cost: Cost) -> str:
    num_bytes = cost.weight_bytes + cost.kv_bytes_read + cost.kv_bytes_written
    return f"{_short(cost.flops):>{_NUMBER_WIDTH}}{_short(num_bytes):>{_NUMBER_WIDTH}}"


def _short(number: int) -> str:
    """Three digits and a power of a thousand; nothing for zero."""
    if number == 0:
        return ""
    if number < 1000:
        return f"{number}"
    value, power = float(number), -1
    while value >= 999.5:
        value, power = value / 1000, power + 1
    digits = 2 if value < 9.995 else 1 if value < 99.95 else 0
    return f"{value:.{digits}f} {'kMGTPE'[power]}"
