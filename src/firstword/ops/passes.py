"""From a recorded network to a plan: what is computed on which rows, in which stages, and where.

Each pass is a function from one list of operations to another that computes the same bits:

1. `narrow_rows`: what only the logits need is computed on the logits' rows alone.
2. `merge_linears`: linears of the same input become one (q, k, v; gate, up).
3. `add_quantization`: the input of a quantized linear gets an 8-bit form where it is made.
4. `group_stages`: row by row operations that follow each other need no thread to wait in between.
5. `assign_buffers`: values that do not live at the same time share memory.

Not here: recording (record) and running (native).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Generic, Literal, TypeVar

from firstword.ops.record import (
    Attention,
    Embedding,
    Linear,
    Op,
    Quantize,
    Recording,
    Rope,
    Softcap,
    StoreKV,
    Take,
    Value,
    inputs,
    outputs,
    with_inputs,
)

W = TypeVar("W")
Rows = Literal["tokens", "logits"]
BufferRows = Literal["tokens", "logits", "threads"]
StageKind = Literal["rows", "linear", "attention"]
QuantizedRun = tuple[Value, int]
"""A value and the run length of one of its quantized forms."""

MAX_SEGMENTS = 3


@dataclass(frozen=True)
class Program(Generic[W]):
    """A recording whose values have rows.

    Args:
        ops: in an order that computes inputs first.
        widths: per value, the numbers in one row.
        rows: per value, whether there is a row per position or one per logits row.
        result: the logits.
    """

    ops: tuple[Op[W], ...]
    widths: tuple[int, ...]
    rows: tuple[Rows, ...]
    result: Value

    def rows_of(self, op: Op[W]) -> Rows:
        """The rows that an operation runs over."""
        if isinstance(op, StoreKV):
            return "tokens"
        return self.rows[op.x if isinstance(op, Quantize) else outputs(op)[0]]


@dataclass(frozen=True)
class Stage(Generic[W]):
    """Operations between two points where all threads wait for each other.

    Args:
        kind: "rows" runs all of its operations on some rows of each thread; the others hold one
            operation, whose work is cut up by the kernel.
        rows: what it runs over.
        ops: in order.
    """

    kind: StageKind
    rows: Rows
    ops: tuple[Op[W], ...]


@dataclass(frozen=True)
class Buffer:
    """Scratch memory: a row of `width` values per position, logits row or thread.

    `run` is 0 for float32, else the run length of 8-bit codes and their scales.
    """

    rows: BufferRows
    width: int
    run: int = 0


@dataclass(frozen=True)
class Plan(Generic[W]):
    """A network ready to be run.

    Args:
        stages: one after the other, with a barrier after each.
        widths: per value, the numbers in one row.
        rows: per value.
        buffers: the scratch memory.
        places: per value, the index of its buffer.
        quantized: where the quantized forms of values are.
        result: the logits.
    """

    stages: tuple[Stage[W], ...]
    widths: tuple[int, ...]
    rows: tuple[Rows, ...]
    buffers: tuple[Buffer, ...]
    places: tuple[int, ...]
    quantized: dict[QuantizedRun, int]
    result: Value


def make_plan(
    recording: Recording[W], run_of: Callable[[W], int], *, fused: bool = True
) -> Plan[W]:
    """All passes.

    Args:
        recording: a network.
        run_of: the run length in which a weight wants its input quantized; 0 for not at all.
        fused: False runs the operations as recorded, each in a stage of its own: slower, and the
            same bits, which shows what the passes are worth.
    """
    if not fused:
        program = add_quantization(as_recorded(recording), run_of)
        stages = tuple(Stage(_kind(op), program.rows_of(op), (op,)) for op in program.ops)
        return assign_buffers(program, stages, run_of)
    program = merge_linears(narrow_rows(recording))
    return assign_buffers(program, group_stages(add_quantization(program, run_of)), run_of)


def as_recorded(recording: Recording[W]) -> Program[W]:
    """All positions up to the model's own `take`, the logits' rows after it."""
    rows: list[Rows] = ["tokens"] * len(recording.widths)
    for op in recording.ops:
        is_narrow = isinstance(op, Take) or any(rows[value] == "logits" for value in inputs(op))
        for value in outputs(op):
            rows[value] = "logits" if is_narrow else "tokens"
    return Program(recording.ops, recording.widths, tuple(rows), recording.result)


def narrow_rows(recording: Recording[W]) -> Program[W]:
    """Compute on the logits' rows alone whatever no stored key or value depends on.

    After the last layer's keys and values only those rows matter: in a long prompt, one of
    hundreds. The model's own `take` goes away.
    """
    whole = _needed_by_cache(recording.ops)
    widths = list(recording.widths)
    rows: list[Rows] = ["tokens" if value in whole else "logits" for value in range(len(widths))]
    ops: list[Op[W]] = []
    narrowed: dict[Value, Value] = {}

    def narrow(value: Value) -> Value:
        if value in whole and value not in narrowed:
            narrowed[value] = len(widths)
            widths.append(widths[value])
            rows.append("logits")
            ops.append(Take(value, narrowed[value]))
        return narrowed.get(value, value)

    for op in recording.ops:
        if isinstance(op, Take):
            narrowed[op.out] = narrow(op.x)
        elif isinstance(op, StoreKV) or outputs(op)[0] in whole:
            ops.append(op)
        else:
            new_inputs = [narrow(value) for value in inputs(op)]
            ops.append(with_inputs(op, new_inputs))
    result = narrow(recording.result)
    return Program(tuple(ops), tuple(widths), tuple(rows), result)


def _needed_by_cache(ops: tuple[Op[W], ...]) -> set[Value]:
    """The values from which stored keys and values are made, and the embeddings."""
    needed: set[Value] = set()
    for op in reversed(ops):
        outs = outputs(op)
        if isinstance(op, StoreKV | Embedding) or needed.intersection(outs):
            needed.update(inputs(op))
            needed.update(outs)
    return needed


def merge_linears(program: Program[W]) -> Program[W]:
    """Make one of linears that follow each other and read the same input, up to three."""
    ops: list[Op[W]] = []
    for op in program.ops:
        last = ops[-1] if ops else None
        if (
            isinstance(op, Linear)
            and isinstance(last, Linear)
            and last.x == op.x
            and len(last.outs) + len(op.outs) <= MAX_SEGMENTS
        ):
            ops[-1] = Linear(
                op.x, last.weights + op.weights, last.biases + op.biases, last.outs + op.outs
            )
        else:
            ops.append(op)
    return replace(program, ops=tuple(ops))


def quantized_runs(op: Linear[W], run_of: Callable[[W], int]) -> list[int]:
    """The run lengths in which a linear wants its input quantized; 0 for the input itself."""
    return sorted({run_of(weight) for weight in op.weights})


def add_quantization(program: Program[W], run_of: Callable[[W], int]) -> Program[W]:
    """Quantize the inputs of linears right where they are made."""
    wanted: dict[Value, set[int]] = {}
    for op in program.ops:
        if isinstance(op, Linear):
            wanted.setdefault(op.x, set()).update(quantized_runs(op, run_of))
    ops: list[Op[W]] = []
    for op in program.ops:
        ops.append(op)
        for value in outputs(op):
            ops += [Quantize(value, run) for run in sorted(wanted.get(value, ())) if run]
    return replace(program, ops=tuple(ops))


@dataclass
class _OpenStage(Generic[W]):
    kind: StageKind
    rows: Rows
    ops: list[Op[W]] = field(default_factory=list)


def group_stages(program: Program[W]) -> tuple[Stage[W], ...]:
    """Put each operation in the earliest stage that its inputs allow.

    An operation that works row by row may share a stage with those that make its inputs, if they
    run over the same rows; any other has to wait for all rows.
    """
    stages: list[_OpenStage[W]] = []
    made: dict[Value, int] = {}  # per value, the stage after which all its forms exist
    stored = -1  # the stage of the last keys and values
    for op in program.ops:
        kind, rows = _kind(op), program.rows_of(op)
        earliest = 0
        for value in inputs(op):
            alone = kind != "rows" or program.rows[value] != rows or isinstance(op, Take)
            shares = not alone and stages[made[value]].kind == "rows"
            earliest = max(earliest, made[value] if shares else made[value] + 1)
        if isinstance(op, Attention):
            earliest = max(earliest, stored + 1)
        index = _find_stage(stages, kind, rows, earliest)
        stages[index].ops.append(op)
        for value in outputs(op):
            made[value] = index
        if isinstance(op, Quantize):
            made[op.x] = max(made[op.x], index)
        if isinstance(op, StoreKV):
            stored = max(stored, index)
    return tuple(Stage(s.kind, s.rows, tuple(s.ops)) for s in stages)


def _kind(op: Op[W]) -> StageKind:
    if isinstance(op, Linear):
        return "linear"
    return "attention" if isinstance(op, Attention) else "rows"


def _find_stage(stages: list[_OpenStage[W]], kind: StageKind, rows: Rows, earliest: int) -> int:
    """The first stage from `earliest` on that takes an operation in; a new one if none does."""
    if kind == "rows":
        for index in range(earliest, len(stages)):
            if stages[index].kind == kind and stages[index].rows == rows:
                return index
    stages.append(_OpenStage(kind, rows))
    return len(stages) - 1


def assign_buffers(
    program: Program[W], stages: tuple[Stage[W], ...], run_of: Callable[[W], int]
) -> Plan[W]:
    """Give every value a place; one is free again after the stage that reads it last.

    Within a stage no place changes hands, since threads are at different operations of it. Only
    an operation that works in place gives its output the place of its input. What nobody reads
    after the stage that makes it, row by row, needs one row per thread: in a long prompt the
    normed values of a layer, needed in 8 bits alone, would be written to memory for nothing.
    """
    lives = _Lives(program, stages, run_of)
    places, quantized = [-1] * len(program.widths), {}
    memory = _Memory()
    for index, stage in enumerate(stages):
        for op in stage.ops:
            if isinstance(op, Quantize):
                buffer = Buffer(stage.rows, program.widths[op.x], op.run)
                quantized[op.x, op.run] = memory.take(buffer)
            for value in outputs(op):
                if lives.is_in_place(op):
                    places[value] = places[inputs(op)[0]]
                else:
                    is_brief = stage.kind == "rows" and lives.ends_in(value, index)
                    rows: BufferRows = "threads" if is_brief else program.rows[value]
                    places[value] = memory.take(Buffer(rows, program.widths[value]))
        memory.give([places[value] for value in lives.values_ending(index)])
        memory.give([quantized[form] for form in lives.forms_ending(index)])
    return Plan(
        stages,
        program.widths,
        program.rows,
        tuple(memory.buffers),
        tuple(places),
        quantized,
        program.result,
    )


class _Lives(Generic[W]):
    """After which stage each value, and each quantized form of one, is read no more."""

    def __init__(
        self, program: Program[W], stages: tuple[Stage[W], ...], run_of: Callable[[W], int]
    ) -> None:
        self._readers = Counter(v for stage in stages for op in stage.ops for v in inputs(op))
        self._result = program.result
        self._last: dict[Value, int] = {}
        self._last_form: dict[QuantizedRun, int] = {}
        for index, stage in enumerate(stages):
            for op in stage.ops:
                reads = inputs(op)
                if isinstance(op, Linear):
                    runs = quantized_runs(op, run_of)
                    self._last_form.update({(op.x, run): index for run in runs if run})
                    reads = (op.x,) if 0 in runs else ()
                for value in (*outputs(op), *reads):
                    self._last[value] = index
        self._pass_on(stages)
        self._last[program.result] = len(stages)

    def _pass_on(self, stages: tuple[Stage[W], ...]) -> None:
        """A place that an output takes over is not given back by its input."""
        for stage in stages:
            for op in stage.ops:
                if self.is_in_place(op):
                    self._last[inputs(op)[0]] = len(stages) + 1

    def is_in_place(self, op: Op[W]) -> bool:
        """Whether an operation overwrites its input, which nobody else reads."""
        if not isinstance(op, Rope | Softcap):
            return False
        return self._readers[op.x] == 1 and op.x != self._result

    def ends_in(self, value: Value, stage: int) -> bool:
        """Whether nobody reads a value after this stage."""
        return self._last[value] == stage

    def values_ending(self, stage: int) -> list[Value]:
        """Values that this stage reads last."""
        return [value for value, last in self._last.items() if last == stage]

    def forms_ending(self, stage: int) -> list[QuantizedRun]:
        """Quantized forms that this stage reads last."""
        return [form for form, last in self._last_form.items() if last == stage]


class _Memory:
    """Buffers in use and free ones; the one freed last is warm and goes first."""

    def __init__(self) -> None:
        self.buffers: list[Buffer] = []
        self._free: list[int] = []

    def take(self, wanted: Buffer) -> int:
        for index in reversed(self._free):
            found = self.buffers[index]
            if (found.rows, found.run) == (wanted.rows, wanted.run):
                self._free.remove(index)
                width = max(found.width, wanted.width)
                self.buffers[index] = replace(found, width=width)
                return index
        self.buffers.append(wanted)
        return len(self.buffers) - 1

    def give(self, indices: Iterable[int]) -> None:
        self._free += indices
