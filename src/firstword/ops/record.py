"""A network as a list of typed operations, recorded by running its model once.

The recorder implements the operations of `Ops` on symbols: a symbol has a width and no values, and
refuses whatever would make the recording depend on numbers or on the batch. Not here: how the list
is improved (passes) and run (native).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Generic, Literal, NoReturn, TypeVar

from firstword.batch import ForwardBatch
from firstword.ops.protocol import AttentionSpec, RopeSpec

Value = int
"""Index of what one operation makes: an array of one row per position."""

W = TypeVar("W")
ActivationName = Literal["silu", "gelu"]


@dataclass(frozen=True)
class Embedding(Generic[W]):
    """out = rows of `weight` for the batch's token ids, times `scale`."""

    weight: W
    scale: float
    out: Value


@dataclass(frozen=True)
class Linear(Generic[W]):
    """Each of `outs` = x times the transpose of its weight, plus its bias."""

    x: Value
    weights: tuple[W, ...]
    biases: tuple[W | None, ...]
    outs: tuple[Value, ...]


@dataclass(frozen=True)
class Add:
    """out = a + b."""

    a: Value
    b: Value
    out: Value


@dataclass(frozen=True)
class Norm(Generic[W]):
    """out = root-mean-square norm of each run of len(weight) values of x."""

    x: Value
    weight: W
    eps: float
    out: Value


@dataclass(frozen=True)
class Rope:
    """out = x with every head rotated by its row's position."""

    x: Value
    spec: RopeSpec
    out: Value


@dataclass(frozen=True)
class StoreKV:
    """Store k and v at the batch's slots."""

    k: Value
    v: Value
    spec: AttentionSpec


@dataclass(frozen=True)
class Attention:
    """out = attention of q over the stored positions of its sequence."""

    q: Value
    spec: AttentionSpec
    out: Value


@dataclass(frozen=True)
class Activate:
    """out = activation(gate) x up."""

    kind: ActivationName
    gate: Value
    up: Value
    out: Value


@dataclass(frozen=True)
class Softcap:
    """out = cap x tanh(x / cap)."""

    x: Value
    cap: float
    out: Value


@dataclass(frozen=True)
class Take:
    """out = the logits rows of x."""

    x: Value
    out: Value


@dataclass(frozen=True)
class Quantize:
    """8-bit codes and scales of x in runs of `run` values: a second form of x, for linears."""

    x: Value
    run: int


Op = (
    Embedding[W]
    | Linear[W]
    | Add
    | Norm[W]
    | Rope
    | StoreKV
    | Attention
    | Activate
    | Softcap
    | Take
    | Quantize
)


def inputs(op: Op[W]) -> tuple[Value, ...]:
    """The values that an operation reads."""
    match op:
        case Embedding():
            return ()
        case Add(a, b):
            return (a, b)
        case StoreKV(k, v):
            return (k, v)
        case Attention(q):
            return (q,)
        case Activate(_, gate, up):
            return (gate, up)
        case _:
            return (op.x,)


def outputs(op: Op[W]) -> tuple[Value, ...]:
    """The values that an operation makes."""
    if isinstance(op, Linear):
        return op.outs
    if isinstance(op, StoreKV | Quantize):
        return ()
    return (op.out,)


def with_inputs(op: Op[W], values: Sequence[Value]) -> Op[W]:
    """The same operation on other inputs."""
    match op:
        case Embedding():
            return op
        case Add():
            return replace(op, a=values[0], b=values[1])
        case StoreKV():
            return replace(op, k=values[0], v=values[1])
        case Attention():
            return replace(op, q=values[0])
        case Activate():
            return replace(op, gate=values[0], up=values[1])
        case _:
            return replace(op, x=values[0])


@dataclass(frozen=True)
class Recording(Generic[W]):
    """What a model computes.

    Args:
        ops: in the order of the model.
        widths: per value, the numbers in one row.
        result: the logits.
    """

    ops: tuple[Op[W], ...]
    widths: tuple[int, ...]
    result: Value


class Symbol:
    """Stands for an array while a model is recorded: [rows, width], without values.

    Args:
        value: which one it is.
        width: numbers in one row.
    """

    __slots__ = ("value", "width")

    def __init__(self, value: Value, width: int) -> None:
        self.value, self.width = value, width

    def _refuse(self, *_: object) -> NoReturn:
        raise TypeError(
            "a recorded tensor has neither values nor a number of rows: a model may only pass it "
            "to the operations of its backend"
        )

    __bool__ = __len__ = __iter__ = __getitem__ = __float__ = __int__ = __index__ = _refuse
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __matmul__ = _refuse
    __truediv__ = __rtruediv__ = __neg__ = __pow__ = __lt__ = __le__ = __gt__ = __ge__ = _refuse
    __eq__ = __ne__ = __array__ = _refuse
    __hash__ = None  # type: ignore[assignment]


@dataclass
class Recorder(Generic[W]):
    """Collects the operations of one forward pass."""

    ops: list[Op[W]] = field(default_factory=list)
    widths: list[int] = field(default_factory=list)

    def new(self, width: int) -> Symbol:
        """A symbol for a value that an operation is about to make."""
        self.widths.append(width)
        return Symbol(len(self.widths) - 1, width)

    def finish(self, result: Symbol) -> Recording[W]:
        """The recording whose logits are `result`."""
        return Recording(tuple(self.ops), tuple(self.widths), result.value)

    def embedding(self, weight: W, width: int, scale: float) -> Symbol:
        """[V, width] rows of the batch's token ids."""
        out = self.new(width)
        self.ops.append(Embedding(weight, scale, out.value))
        return out

    def linear(self, x: Symbol, weight: W, bias: W | None, width: int) -> Symbol:
        """x times the transpose of weight [width, x.width], plus bias."""
        out = self.new(width)
        self.ops.append(Linear(x.value, (weight,), (bias,), (out.value,)))
        return out

    def add(self, a: Symbol, b: Symbol) -> Symbol:
        """a + b."""
        out = self.new(a.width)
        self.ops.append(Add(a.value, b.value, out.value))
        return out

    def norm(self, x: Symbol, weight: W, eps: float) -> Symbol:
        """Norm of each run of len(weight) values."""
        out = self.new(x.width)
        self.ops.append(Norm(x.value, weight, eps, out.value))
        return out

    def rope(self, x: Symbol, spec: RopeSpec) -> Symbol:
        """x rotated."""
        out = self.new(x.width)
        self.ops.append(Rope(x.value, spec, out.value))
        return out

    def store_kv(self, k: Symbol, v: Symbol, spec: AttentionSpec) -> None:
        """k and v stored."""
        self.ops.append(StoreKV(k.value, v.value, spec))

    def attention(self, q: Symbol, spec: AttentionSpec) -> Symbol:
        """Attention of q."""
        out = self.new(q.width)
        self.ops.append(Attention(q.value, spec, out.value))
        return out

    def activate(self, kind: ActivationName, gate: Symbol, up: Symbol) -> Symbol:
        """activation(gate) x up."""
        out = self.new(gate.width)
        self.ops.append(Activate(kind, gate.value, up.value, out.value))
        return out

    def softcap(self, x: Symbol, cap: float) -> Symbol:
        """cap x tanh(x / cap)."""
        out = self.new(x.width)
        self.ops.append(Softcap(x.value, cap, out.value))
        return out

    def take(self, x: Symbol, batch: ForwardBatch) -> Symbol:
        """The logits rows of x; which ones is known at the step only."""
        out = self.new(x.width)
        self.ops.append(Take(x.value, out.value))
        return out
