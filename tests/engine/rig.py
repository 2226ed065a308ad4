"""An engine on a fake model that is exact and instant, and all that it reports.

Not here: any network; the tests of whole requests use tiny real ones (tests.harness).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from firstword.batch import Float32Array, StepInput, StepResult
from firstword.config import EngineConfig
from firstword.engine.engine import Engine
from firstword.engine.model import EngineModel
from firstword.engine.outputs import SequenceOutput
from firstword.kvcache.spec import KVCacheSpec
from firstword.kvcache.tier import BlockTier
from firstword.sampling.constraint import TokenConstraint
from firstword.sampling.params import Grammar, SamplingParams
from firstword.sampling.sampler import sample_each
from firstword.trace.events import Event
from firstword.trace.recorder import Recorder
from tests.fakes import FakeClock, full_group

VOCAB, CONTEXT, BLOCKS, EOS = 16, 40, 30, 15
SPEC = KVCacheSpec((full_group(),), block_size=4)
GREEDY = SamplingParams(temperature=0, max_tokens=4)


@dataclass
class SuccessorRunner:
    """The likeliest next token is the last one + 1, modulo the vocabulary; a step takes 1 s.

    Args:
        clock: moved on by every step.
        before: called with every step before it is run; may raise.
        broken: tokens after which the model has no finite logit.
        stop: called to end a step under way.
    """

    clock: FakeClock
    before: Callable[[StepInput], None] = lambda step: None
    broken: frozenset[int] = frozenset()
    stop: Callable[[], None] = lambda: None
    steps: list[StepInput] = field(default_factory=list)
    runs_ahead: bool = False

    def drop(self) -> None: ...

    def submit(self, step: StepInput) -> int:
        self.before(step)
        self.steps.append(step)
        self.clock.advance(1.0)
        return len(self.steps) - 1

    def collect(self, handle: int) -> StepResult:
        step = self.steps[handle]
        last = step.batch.token_ids[step.batch.logits_indices]
        logits = [self._logits(int(token)) for token in last]
        rows = np.array(logits, np.float32).reshape(-1, VOCAB)
        return StepResult(sample_each(rows, step.sampling), forward_ms=900, sampling_ms=100)

    def _logits(self, token: int) -> Float32Array:
        if token in self.broken:
            return np.full(VOCAB, np.nan, np.float32)
        return -((np.arange(VOCAB) - token - 1) % VOCAB).astype(np.float32)


@dataclass
class Rig:
    """An engine on a fake model, with everything it reports."""

    engine: Engine
    runner: SuccessorRunner
    clock: FakeClock
    events: list[Event]

    def run(self) -> dict[str, list[int]]:
        """Run to the end; tokens by request id, samples as "id.index" beyond the first."""
        return by_name(self.outputs())

    def outputs(self) -> Iterator[SequenceOutput]:
        while self.engine.has_work:
            yield from self.engine.step()

    @property
    def num_free(self) -> int:
        return self.engine.kv.num_free_blocks


def by_name(outputs: Iterable[SequenceOutput]) -> dict[str, list[int]]:
    tokens: dict[str, list[int]] = {}
    for output in outputs:
        name = output.request_id + (f".{output.sample_index}" if output.sample_index else "")
        tokens.setdefault(name, []).append(output.token_id)
    return tokens


def rig(
    eos: frozenset[int] = frozenset(),
    compile_grammar: Callable[[Grammar], TokenConstraint] | None = None,
    **config: object,
) -> Rig:
    clock, recorder, seen = FakeClock(100.0), Recorder(), list[Event]()
    recorder.listen(seen.append)
    runner = SuccessorRunner(clock)
    model = EngineModel(VOCAB, CONTEXT, eos, "fingerprint", SPEC, BLOCKS)
    model = replace(model, compile_grammar=compile_grammar)
    settings = replace(EngineConfig(debug=True), **config)  # type: ignore[arg-type]
    return Rig(Engine(runner, model, settings, recorder=recorder, clock=clock), runner, clock, seen)


def rig_above(tier: BlockTier) -> Rig:
    """One whose engine keeps its blocks in a tier."""
    it = rig()
    about, recorder = it.engine.model, it.engine.recorder
    engine = Engine(
        it.runner, about, it.engine.config, recorder=recorder, clock=it.clock, tier=tier
    )
    return replace(it, engine=engine)
