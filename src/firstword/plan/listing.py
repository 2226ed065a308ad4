"""The compiled plan of a model as lines: what runs in which stage, and what it takes.

Made from a file's headers. Not here: the passes that make the plan (ops.passes), what an operation
takes (ops.cost) and how the lines are printed (cli).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from firstword.config import KVDtype
from firstword.errors import ConfigError
from firstword.models.registry import build_model, model_kv_spec
from firstword.ops import record
from firstword.ops.cost import Cost
from firstword.ops.native import NativeWeight
from firstword.ops.native_cost import HeaderOps, StepRows, plan_costs
from firstword.ops.passes import Plan, Rows, Stage, StageKind
from firstword.ops.protocol import AttentionSpec
from firstword.weights.checkpoint import Checkpoint, ShapeCheckpoint


@dataclass(frozen=True)
class OpLine:
    """One operation, or one weight of a linear with several.

    Args:
        kernel: its name in csrc/kernels/table.h; "embedding" and "take" copy rows.
        shape: the sizes it works on.
        weight_type: of the weight that it reads, if it reads one.
        costs: what it takes in each step of the listing.
    """

    kernel: str
    shape: str
    weight_type: str | None
    costs: tuple[Cost, ...]


@dataclass(frozen=True)
class StageLines:
    """What runs between two points where all threads wait for each other.

    Args:
        kind: how its work is cut up.
        rows: "tokens" for every position, "logits" for those that need logits.
        ops: in order.
    """

    kind: StageKind
    rows: Rows
    ops: tuple[OpLine, ...]


@dataclass(frozen=True)
class Block:
    """Stages that are run several times one after the other, with other weights.

    Args:
        times: how often.
        layers: indices of the layers whose attention it holds, over all repetitions.
        stages: one repetition.
    """

    times: int
    layers: tuple[int, ...]
    stages: tuple[StageLines, ...]


@dataclass(frozen=True)
class Listing:
    """A whole plan.

    Args:
        steps: a name for each step that was counted.
        blocks: in order.
        totals: per step, what all of it takes.
    """

    steps: tuple[str, ...]
    blocks: tuple[Block, ...]
    totals: tuple[Cost, ...]

    @property
    def num_stages(self) -> int:
        """Stages in a step, every repetition counted."""
        return sum(block.times * len(block.stages) for block in self.blocks)

    def to_dict(self) -> dict[str, Any]:
        """The listing as plain values, for JSON."""
        return {**asdict(self), "num_stages": self.num_stages}


def list_plan(
    checkpoint: Checkpoint | ShapeCheckpoint,
    num_tokens: int | None = None,
    kv_dtype: KVDtype = "float16",
) -> Listing:
    """The plan of a model, with the cost of its first decode step and of a prompt.

    Args:
        checkpoint: headers, or a config's shapes.
        num_tokens: length of the prompt, 1 to the model's context; None to leave it out.
        kv_dtype: type of keys and values.

    Raises:
        ConfigError: num_tokens is out of range.
        UnsupportedModelError: the compiled backend has no kernel for something in the model.
    """
    longest = checkpoint.config.max_position_embeddings
    if num_tokens is not None and not 1 <= num_tokens <= longest:
        raise ConfigError(f"tokens is {num_tokens}: the model takes 1 to {longest}")
    spec, ops = model_kv_spec(checkpoint.config, kv_dtype), HeaderOps()
    num_groups = len(spec.groups)
    plan = ops.plan(build_model(checkpoint, ops, spec), num_groups)
    steps = {"1 token after 0": StepRows.of_sequence(0, 1, num_groups)}
    if num_tokens is not None:
        steps[f"prompt of {num_tokens:,}"] = StepRows.of_sequence(0, num_tokens, num_groups)
    costs = [plan_costs(plan, ops, spec, rows) for rows in steps.values()]
    stages = [
        _stage_lines(plan, stage, list(zip(*stage_costs, strict=True)))
        for stage, stage_costs in zip(plan.stages, zip(*costs, strict=True), strict=True)
    ]
    totals = [sum((c for stage in step for op in stage for c in op), Cost()) for step in costs]
    return Listing(tuple(steps), tuple(_blocks(plan, stages)), tuple(totals))


def find_repeats(items: Sequence[object]) -> list[tuple[int, int]]:
    """Cut a sequence into runs (length of one repetition, times), first to last.

    Of all ways to cut, the one whose repetitions are shortest in sum; what repeats not at all is
    a run of one time.
    """
    # Per start, back to front: what the rest takes (items shown, runs, -items covered first),
    # and its first run.
    best = [((0, 0, 0), (0, 0))] * (len(items) + 1)
    for start in reversed(range(len(items))):
        best[start] = min(
            ((length + best[stop][0][0], 1 + best[stop][0][1], start - stop), (length, times))
            for length, times in _runs_from(items, start)
            for stop in [start + length * times]
        )
    runs: list[tuple[int, int]] = []
    start = 0
    while start < len(items):
        length, times = best[start][1]
        start += length * times
        if times == 1 and runs and runs[-1][1] == 1:
            runs[-1] = (runs[-1][0] + 1, 1)
        else:
            runs.append((length, times))
    return runs


def _runs_from(items: Sequence[object], start: int) -> Iterator[tuple[int, int]]:
    """One item, and all repetitions that begin at `start`."""
    yield 1, 1
    for length in range(1, (len(items) - start) // 2 + 1):
        stop = start + length
        while stop < len(items) and items[stop] == items[stop - length]:
            stop += 1
        yield from ((length, times) for times in range(2, (stop - start) // length + 1))


def _blocks(plan: Plan[NativeWeight], stages: list[StageLines]) -> list[Block]:
    numbers: dict[str, int] = {}  # comparing numbers is quick
    ids = [numbers.setdefault(repr(stage), len(numbers)) for stage in stages]
    blocks, start = [], 0
    for length, times in find_repeats(ids):
        stop = start + length * times
        ops = (op for stage in plan.stages[start:stop] for op in stage.ops)
        layers = tuple(op.spec.layer for op in ops if isinstance(op, record.Attention))
        blocks.append(Block(times, layers, tuple(stages[start : start + length])))
        start = stop
    return blocks


def _stage_lines(
    plan: Plan[NativeWeight], stage: Stage[NativeWeight], costs: list[tuple[list[Cost], ...]]
) -> StageLines:
    """Args: costs: per operation, per step, per weight."""
    lines: list[OpLine] = []
    for op, op_costs in zip(stage.ops, costs, strict=True):
        parts = zip(_describe(plan, op), zip(*op_costs, strict=True), strict=True)
        lines += [OpLine(*words, cost) for words, cost in parts]
    return StageLines(stage.kind, stage.rows, tuple(lines))


def _describe(
    plan: Plan[NativeWeight], op: record.Op[NativeWeight]
) -> list[tuple[str, str, str | None]]:
    """Kernel, shape and weight type, once for every weight of a linear."""
    widths = plan.widths
    match op:
        case record.Linear(x, weights):
            return [("linear", f"{widths[x]} -> {w.shape[0]}", w.type.name) for w in weights]
        case record.Embedding(weight):
            rows, width = weight.shape
            return [("embedding", f"{rows} x {width}", weight.type.name)]
        case record.Norm(x, weight):
            return [("rms_norm", _runs(widths[x], weight.shape[0]), weight.type.name)]
        case record.Rope(x, rope):
            return [("rope", _heads(widths[x] // rope.head_dim, rope.head_dim), None)]
        case record.StoreKV(_, _, spec):
            return [("store_kv", f"2 x {_heads(spec.num_kv_heads, spec.head_dim)}", None)]
        case record.Attention(_, spec):
            return [("attention", _attention_shape(spec), None)]
        case record.Activate(kind, gate):
            return [(f"{kind}_mul", f"{widths[gate]}", None)]
        case record.Quantize(x, run):
            return [(f"quantize_a{run}", f"{widths[x]}", None)]
    kernel = type(op).__name__.lower()  # Add, Softcap, Take
    return [(kernel, f"{widths[record.outputs(op)[0]]}", None)]


def _runs(width: int, run: int) -> str:
    return f"{width}" if width == run else _heads(width // run, run)


def _heads(count: int, size: int) -> str:
    return f"{count} {'head' if count == 1 else 'heads'} x {size}"


def _attention_shape(spec: AttentionSpec) -> str:
    shape = f"{spec.num_heads}/{spec.num_kv_heads} heads x {spec.head_dim}"
    return shape if spec.window is None else f"{shape}, last {spec.window}"
