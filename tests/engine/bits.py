"""One request in an engine whose other work, threads, plan and environment are set as a row says.

What is kept of it is the hash of all its logits and its tokens: promise 3 is that no row changes
them. Not here: which rows are run (tests.covering) and the comparison (test_native_bits).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import Literal

from firstword.batch import SampledToken, StepInput, StepResult
from firstword.config import EngineConfig
from firstword.engine.request import RequestOptions
from firstword.engine.runner import Runner
from firstword.sampling.params import SamplingParams
from firstword.trace.events import Event, SequencePreempted, StepExecuted
from firstword.trace.recorder import Recorder
from tests.float_env import flush_to_zero
from tests.harness import Model, answer

NUM_OUTPUT = 8
BLOCK = 32
NUM_PROMPT = 17 * BLOCK + BLOCK - 4
"""Its sixth token needs a new block: if there is none, it is preempted at the latest then."""

WHOLE_BLOCKS = 16 * BLOCK
INSIDE = WHOLE_BLOCKS + 13
OBSERVED = "observed"
_ROOM = 512  # positions of steps that prepare a row, whatever its chunks
_OBSERVED_SEED = 2**40 + 1
_PARAMS = SamplingParams(
    temperature=1.0, top_p=0.95, seed=_OBSERVED_SEED, max_tokens=NUM_OUTPUT, ignore_eos=True
)

Prefix = Literal["miss", "hit", "inside"]


@dataclass(frozen=True)
class Row:
    """What is true while the request runs.

    Args:
        batch: sequences in its steps, itself included.
        threads: that compute.
        chunk: most positions of it in one step.
        prefix: how much of it an earlier request left behind: nothing, whole blocks, or also a
            part of a block.
        preempted: it loses its blocks after some tokens.
        fused: the usual plan; False: every recorded operation in a stage of its own.
        flush: the caller's thread flushes subnormal numbers to zero.
    """

    batch: int = 1
    threads: int = 1
    chunk: int = 512
    prefix: Prefix = "miss"
    preempted: bool = False
    fused: bool = True
    flush: bool = False

    @property
    def work(self) -> int:
        """Roughly how much there is to compute, to tell short rows from long ones."""
        num_read = 600 if self.prefix == "miss" else 90
        num_steps = -(-num_read // self.chunk) + NUM_OUTPUT
        once = num_read + num_steps * (self.batch + 8)
        return 600 * (self.prefix != "miss") + once * (1 + self.preempted)


@dataclass
class Observation:
    """What came of a row: `bits` must not depend on it, the rest shows that it was as it says."""

    logits: dict[int, bytes] = field(default_factory=dict)  # hash, by position of the token
    tokens: list[int] = field(default_factory=list)
    largest_chunk: int = 0
    largest_batch: int = 0
    num_cached_tokens: int = 0
    num_preemptions: int = 0

    @property
    def bits(self) -> tuple[str, tuple[int, ...]]:
        """Hash of all logits in their order, and the tokens."""
        whole = blake2b(digest_size=32)
        for position in sorted(self.logits):
            whole.update(self.logits[position])
        return whole.hexdigest(), tuple(self.tokens)

    def take_event(self, event: Event) -> None:
        """Keep the sizes of a step that the request took part in, and count its preemptions."""
        if isinstance(event, SequencePreempted):
            self.num_preemptions += event.request_id == OBSERVED
        if isinstance(event, StepExecuted):
            mine = [chunk for chunk in event.chunks if chunk.request_id == OBSERVED]
            if mine:
                self.largest_chunk = max(self.largest_chunk, mine[0].num_tokens)
                self.largest_batch = max(self.largest_batch, len(event.chunks))


@dataclass
class WatchingRunner:
    """Hashes the logits of the observed request on their way through."""

    inner: Runner
    seen: Observation
    runs_ahead: bool = False  # it remembers one step's positions
    _positions: list[int | None] = field(default_factory=list)

    def submit(self, step: StepInput) -> int:
        """Ask for the logits of the observed rows besides their tokens."""
        mine = [row.seed == _OBSERVED_SEED for row in step.sampling]
        self._positions = [
            row.position if wanted else None
            for row, wanted in zip(step.sampling, mine, strict=True)
        ]
        sampling = tuple(
            replace(r, want_logits=w) for r, w in zip(step.sampling, mine, strict=True)
        )
        return self.inner.submit(replace(step, sampling=sampling))

    def stop(self) -> None:
        """Pass it on."""
        self.inner.stop()

    def drop(self) -> None:
        """Pass it on."""
        self.inner.drop()

    def collect(self, handle: int) -> StepResult:
        """Keep the hashes."""
        result = self.inner.collect(handle)
        for position, outcome in zip(self._positions, result.sampled, strict=True):
            if position is not None:
                assert isinstance(outcome, SampledToken) and outcome.logits is not None
                found = blake2b(outcome.logits.tobytes()).digest()
                assert self.seen.logits.setdefault(position, found) == found, "computed twice"
        return result


def observe(model: Model, prompt: Sequence[int], row: Row) -> Observation:
    """Run the request under the conditions of a row.

    Args:
        model: compiled, with the threads and the plan of the row.
        prompt: NUM_PROMPT tokens.
        row: the conditions.
    """
    assert (model.threads, model.fused) == (row.threads, row.fused)
    assert len(prompt) == NUM_PROMPT
    with flush_to_zero() if row.flush else nullcontext():
        return _Scene(model, prompt, row).play()


class _Scene:
    """The engine of a row, and what happens in it in turn."""

    def __init__(self, model: Model, prompt: Sequence[int], row: Row) -> None:
        self.prompt, self.row, self.seen = list(prompt), row, Observation()
        num_steps = (1 + row.preempted) * (len(prompt) // row.chunk + 2 * NUM_OUTPUT)
        self.num_neighbour_tokens = num_steps + 300  # others read their prompts first
        max_len = len(prompt) + self.num_neighbour_tokens
        recorder = Recorder()
        recorder.listen(self.seen.take_event)
        config = EngineConfig(
            max_num_seqs=row.batch,
            max_num_batched_tokens=_ROOM + row.batch,
            max_model_len=max_len,
            enable_prefix_caching=row.prefix != "miss",
        )
        # Enough for all: only `_take_the_blocks` leads to a preemption.
        num_blocks = (row.batch + 1) * len(model.spec.groups) * (max_len // BLOCK + 3)
        self.engine = model.engine(config, num_blocks=num_blocks, recorder=recorder)
        self.engine.runner = WatchingRunner(self.engine.runner, self.seen)

    def play(self) -> Observation:
        """All of it, to the end of the observed request."""
        self._leave_a_prefix()
        neighbours = range(self.row.batch - 1)
        for i in neighbours[: len(neighbours) // 2]:
            self._add_neighbour(i, 3 + 5 * i % 29)
        for _ in range(3 if len(neighbours) > 1 else 0):
            self.engine.step()
        self._limit(self.row.chunk + self.row.batch - 1)
        options = RequestOptions(priority=-1)  # the first to lose its blocks
        self.engine.add_request(OBSERVED, self.prompt, _PARAMS, options)
        for i in neighbours[len(neighbours) // 2 :]:
            self._add_neighbour(i, 41 + 7 * i % 37)
        if self.row.preempted:
            self._step_until(3)
            self._take_the_blocks()
        self._step_until(NUM_OUTPUT)
        metrics = self.engine.release(OBSERVED)
        self.seen.num_cached_tokens = metrics.num_cached_tokens
        self.seen.num_preemptions = metrics.num_preemptions
        return self.seen

    def _leave_a_prefix(self) -> None:
        shared = {"miss": 0, "hit": WHOLE_BLOCKS, "inside": INSIDE}[self.row.prefix]
        if shared:
            other = [*self.prompt[:shared], *self.prompt[:20]]
            answer(self.engine, other, SamplingParams(seed=3, max_tokens=2), "earlier")

    def _add_neighbour(self, index: int, num_tokens: int) -> None:
        start = 11 * index % (len(self.prompt) - num_tokens)
        params = SamplingParams(
            temperature=0.8, seed=index, ignore_eos=True, max_tokens=self.num_neighbour_tokens
        )
        self.engine.add_request(f"n{index}", self.prompt[start:][:num_tokens], params)

    def _limit(self, num_tokens: int) -> None:
        scheduler = self.engine.scheduler
        scheduler.max_num_batched_tokens = num_tokens
        scheduler._turns = replace(scheduler._turns, max_num_tokens=num_tokens)

    def _step_until(self, num_tokens: int) -> None:
        while len(self.seen.tokens) < num_tokens:
            self._step()

    def _step(self) -> None:
        for output in self.engine.step():
            assert output.error is None
            if output.request_id == OBSERVED:
                self.seen.tokens.append(output.token_id)

    def _take_the_blocks(self) -> None:
        """Leave no block free, until a sequence needs one and the observed one has to yield."""
        pool, taken = self.engine.kv.pool, list[int]()
        while self.engine.scheduler.num_waiting == 0 and self.seen.num_preemptions == 0:
            taken += [pool.allocate() for _ in range(pool.num_free)]
            assert len(self.seen.tokens) < NUM_OUTPUT, "it was not preempted"
            self._step()
        for block in taken:
            pool.release(block)
