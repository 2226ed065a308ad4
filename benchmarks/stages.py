"""Where the milliseconds of a step go, stage by stage of the compiled plan.

    .venv/bin/python -m benchmarks.stages smollm2:135m
    .venv/bin/python -m benchmarks.stages gemma3:270m --prompt 512

Each stage is timed from one barrier to the next, and set against what bounds it: a token's weights,
keys and values against the read bandwidth, a prompt's multiply-adds against a core's highest rate.
Stages alike are added up. Not here: whole steps, Python included (firstword bench).
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from firstword import LLM, SamplingParams
from firstword.bench.machine import read_bandwidth
from firstword.engine.runner import NativeRunner
from firstword.models.registry import build_model
from firstword.ops import record
from firstword.ops.cost import Cost
from firstword.ops.native import NativeWeight
from firstword.ops.native_cost import HeaderOps, StepRows, plan_costs
from firstword.ops.native_peak import mac_rates
from firstword.ops.passes import Plan, Stage
from firstword.plan.hardware import usable_cores

_STEPS = 48
_ROUNDS = 4


@dataclass
class Kind:
    """Stages of one shape.

    Args:
        count: how many a step has.
        ns: nanoseconds of all of them, in the fastest round.
        cost: what all of them take.
    """

    count: int = 0
    ns: float = 0.0
    cost: Cost = field(default_factory=Cost)


def stage_name(plan: Plan[NativeWeight], stage: Stage[NativeWeight]) -> str:
    """What tells a stage from those of other shapes."""
    op, marks = stage.ops[0], "" if stage.rows == "tokens" else " *"
    if isinstance(op, record.Linear):
        outs = "+".join(str(plan.widths[out]) for out in op.outs)
        types = "+".join(dict.fromkeys(weight.type.name for weight in op.weights))
        return f"linear {outs} x {plan.widths[op.x]} {types}{marks}"
    return ", ".join(type(op).__name__.lower() for op in stage.ops) + marks


def add_up(plan: Plan[NativeWeight], stage_ns: list[float], costs: list[Cost]) -> dict[str, Kind]:
    """Stages by name, the slowest first."""
    kinds: dict[str, Kind] = {}
    for stage, ns, cost in zip(plan.stages, stage_ns, costs, strict=True):
        kind = kinds.setdefault(stage_name(plan, stage), Kind())
        kind.count += 1
        kind.ns += ns
        kind.cost += cost
    return dict(sorted(kinds.items(), key=lambda item: -item[1].ns))


def table(kinds: dict[str, Kind], *, decode: bool, peak: float) -> Iterator[str]:
    """One line per kind. peak: GB/s of reading for decode, else billions of multiply-adds."""
    total = sum(kind.ns for kind in kinds.values())
    unit = "GB/s" if decode else "GMAC/s"
    yield f"{'us':>9} {'share':>6} {'stages':>6} {unit:>7} {'of peak':>8}  stage (* logits rows)"
    for name, kind in kinds.items():
        cost = kind.cost
        work = cost.weight_bytes + cost.kv_bytes_read if decode else cost.flops / 2
        rate = work / kind.ns if kind.ns else 0.0
        yield (
            f"{kind.ns / 1e3:9.1f} {kind.ns / total:6.1%} {kind.count:6} {rate:7.1f} "
            f"{rate / peak:8.0%}  {name}"
        )
    yield f"{total / 1e3:9.1f} us in all; peak {peak:.1f} {unit}"


def measure(llm: LLM, prompt_tokens: int, decode: bool) -> list[float]:
    """Nanoseconds of each stage of a step, in the fastest of some rounds."""
    runner = llm.engine.runner
    assert isinstance(runner, NativeRunner)
    model, draw = runner.model, np.random.default_rng(0)
    best: list[float] = []
    for _ in range(_ROUNDS):
        prompt = [int(i) for i in draw.integers(0, llm.model_config.vocab_size, prompt_tokens)]
        steps = _STEPS if decode else 1
        if decode:  # the prompt is read before, and found in the cache
            _run(llm, prompt, 1)
        model.measure(True)
        _run(llm, prompt, steps)
        found = [ns / steps for ns in model.stage_ns]
        model.measure(False)
        best = found if not best or sum(found) < sum(best) else best
    return best


def _run(llm: LLM, prompt: list[int], num_tokens: int) -> None:
    params = SamplingParams(temperature=0, max_tokens=num_tokens, ignore_eos=True)
    llm.generate([prompt], params)


def step_costs(llm: LLM, start: int, num_tokens: int) -> list[Cost]:
    """What each stage of a step takes."""
    ops, spec = HeaderOps(), llm.kv_spec
    plan = ops.plan(build_model(llm.checkpoint, ops, spec), len(spec.groups))
    rows = StepRows.of_sequence(start, num_tokens, len(spec.groups))
    stages = plan_costs(plan, ops, spec, rows)
    return [sum((part for op in stage for part in op), Cost()) for stage in stages]


def main() -> None:
    """Time the stages of a model and print them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("model", nargs="?", default="smollm2:135m")
    parser.add_argument("--prompt", type=int, help="tokens of a prompt, instead of decode steps")
    parser.add_argument("--depth", type=int, default=128, help="tokens before decode steps")
    parser.add_argument("--threads", type=int, default=usable_cores().count)
    arguments = parser.parse_args()
    decode = arguments.prompt is None
    llm = LLM(arguments.model, threads=arguments.threads, numerics="native")
    runner = llm.engine.runner
    assert isinstance(runner, NativeRunner)
    stage_ns = measure(llm, arguments.depth if decode else arguments.prompt, decode)
    start, count = (arguments.depth, 1) if decode else (0, arguments.prompt)
    rates = mac_rates(arguments.threads)
    macs = rates.narrow / 1e9 if rates else float("nan")
    peak = read_bandwidth(arguments.threads) / 1e9 if decode else macs
    kinds = add_up(runner.model.plan, stage_ns, step_costs(llm, start, count))
    print("\n".join(table(kinds, decode=decode, peak=peak)))


if __name__ == "__main__":
    main()
