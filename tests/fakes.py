"""Stand-ins that make tests exact and instant: a clock, KV groups, a runner that checks, a tier.

Not here: anything that computes with arrays.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass, field
from typing import NamedTuple

from firstword.engine.request import Request, Sequence
from firstword.engine.scheduler import Scheduler
from firstword.engine.step import ScheduledSequence, SchedulerOutput, SequenceUpdate, StepTime
from firstword.kvcache.manager import KVCacheManager
from firstword.kvcache.spec import KVCacheSpec, KVGroup
from firstword.kvcache.tier import BlockName, BlockRead, Departure, FinishedLoad


class FakeClock:
    """Seconds that pass only when told to."""

    def __init__(self, now: float = 0.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += seconds


@dataclass(eq=False)
class FakeSequence:
    """As much of a sequence as the KV cache looks at."""

    token_ids: list[int]
    num_computed_tokens: int = 0
    salt: str = ""
    is_kept: bool = True
    block_keys: list[bytes] = field(default_factory=list)


def full_group(layer: int = 0) -> KVGroup:
    return KVGroup(f"full{layer}", "full", (layer,), num_kv_heads=1, head_dim=2)


def sliding_group(layer: int, window: int) -> KVGroup:
    return KVGroup(f"sliding{layer}", "sliding", (layer,), 1, 2, window=window)


def state_group(layer: int, checkpoint_interval: int) -> KVGroup:
    return KVGroup(
        f"state{layer}", "state", (layer,), state_bytes=8, checkpoint_interval=checkpoint_interval
    )


class Content(NamedTuple):
    """What a slot, or a state, stands for: a position of a sequence in a group."""

    group: int
    position: int
    history: int


class FakeRunner:
    """Runs steps on a shadow of the KV pool and checks everything that a query would read.

    A slot holds a digest of the group, the position, the salt and all tokens up to there: as much
    as real keys and values depend on. A wrong share, a lost copy, an early reuse or a wrong
    position therefore shows at the first step that reads it.
    """

    def __init__(self, spec: KVCacheSpec, vocab_size: int = 5) -> None:
        self.spec = spec
        self.vocab_size = vocab_size
        self.num_positions = 0
        self._slots: dict[tuple[int, int], Content] = {}
        self._states: dict[int, Content] = {}
        self._known_histories: dict[Sequence, list[int]] = {}

    def run(self, output: SchedulerOutput) -> dict[tuple[str, int], int]:
        """Run a step; returns the sampled tokens by (request id, sample index)."""
        copies = list(output.block_copies)
        for copy in copies if output.step % 2 else reversed(copies):  # any order must do
            if self.spec.groups[copy.group].kind == "state":
                self._states[copy.destination] = self._states[copy.source]
            for i in range(copy.count):
                if (copy.source, i) in self._slots:
                    self._slots[copy.destination, i] = self._slots[copy.source, i]
        for item in output.scheduled:
            self._write(item)
        sampled: dict[tuple[str, int], int] = {}
        for item in output.scheduled:
            self._check_reads(item)
            request = item.sequence.request
            for index in item.samples:
                token = self.sample(request, item.sequence.token_ids, index)
                sampled[request.request_id, index] = token
        self.num_positions += output.num_tokens
        return sampled

    def sample(self, request: Request, token_ids: Iterable[int], index: int) -> int:
        """The token that follows: a function of the tokens and the sample index alone."""
        return hash((tuple(token_ids), index)) % self.vocab_size

    def expected_output(self, request: Request, index: int, max_model_len: int) -> list[int]:
        """What a sequence must come to, computed without scheduler or cache."""
        tokens = list(request.prompt_token_ids)
        output: list[int] = []
        while True:
            token = self.sample(request, tokens, index)
            tokens.append(token)
            output.append(token)
            if token in request.stop_token_ids and len(output) > request.min_tokens:
                return output
            if len(output) == request.max_tokens or len(tokens) == max_model_len:
                return output

    def read_block(self, block: int) -> dict[int, Content]:
        """What a block of the pool holds, by slot."""
        return {i: c for (b, i), c in self._slots.items() if b == block}

    def write_block(self, block: int, content: dict[int, Content]) -> None:
        """Let a block of the pool hold that."""
        self._slots.update({(block, i): c for i, c in content.items()})

    def _write(self, item: ScheduledSequence) -> None:
        histories = self._histories(item.sequence)
        end = item.start + item.num_tokens
        for g, (group, table) in enumerate(zip(self.spec.groups, item.block_tables, strict=True)):
            if end > len(histories):  # a step ran ahead of a sequence that was cut short
                for p in range(item.start, end):
                    slot = table[p // self.spec.block_size], p % self.spec.block_size
                    self._slots[slot] = Content(g, p, -1)
                continue
            if group.kind == "state":
                if item.start > 0:
                    before = Content(g, item.start - 1, histories[item.start - 1])
                    assert self._states[table[0]] == before, f"wrong state for {item}"
                self._states[table[0]] = Content(g, end - 1, histories[end - 1])
                continue
            for p in range(item.start, end):
                block = table[p // self.spec.block_size]
                assert block >= 0, f"position {p} has no block in {group.name}"
                content = Content(g, p, histories[p])
                self._slots[block, p % self.spec.block_size] = content

    def _check_reads(self, item: ScheduledSequence) -> None:
        histories = self._histories(item.sequence)
        end = item.start + item.num_tokens
        if end > len(histories):
            return
        for g, (group, table) in enumerate(zip(self.spec.groups, item.block_tables, strict=True)):
            if group.kind == "state":
                assert self._states[table[0]] == Content(g, end - 1, histories[end - 1])
                continue
            for p in range(group.first_needed(item.start), end):
                block = table[p // self.spec.block_size]
                found = self._slots.get((block, p % self.spec.block_size))
                assert found == Content(g, p, histories[p]), (
                    f"{group.name}, position {p}, block {block}: found {found} for {item}"
                )

    def _histories(self, sequence: Sequence) -> list[int]:
        """For each position, a digest of the salt and of all tokens up to it."""
        digests = self._known_histories.setdefault(sequence, [])
        for token in sequence.token_ids[len(digests) :]:
            before = digests[-1] if digests else hash(tuple(sequence.salt.encode()))
            digests.append(hash((before, token)))
        return digests


class FakeTier:
    """Blocks kept in memory beside a fake runner's pool; loads end when they are told to.

    Args:
        runner: whose slots are copied.
        ms_per_page: predicted, for the decision whether a load pays.
    """

    def __init__(self, runner: FakeRunner, ms_per_page: float = 0.0) -> None:
        self.runner, self.ms_per_page = runner, ms_per_page
        self.kept: dict[bytes, tuple[BlockName, list[dict[int, Content]]]] = {}
        self.pending: list[tuple[int, tuple[BlockRead, ...]]] = []
        self.is_stuck = False
        self.num_pages_read = 0
        self.touched: list[bytes] = []
        self._finished: list[FinishedLoad] = []

    def refresh(self) -> None:
        """There is nobody else."""

    def holds(self, key: bytes, token_ids: tuple[int, ...]) -> bool:
        return key in self.kept and self.kept[key][0].token_ids == token_ids

    def children(self, parent: bytes, limit: int) -> list[tuple[int, ...]]:
        every = [name.token_ids for name, _ in self.kept.values() if name.parent == parent]
        return every[-limit:]

    def departure(self, key: bytes) -> Departure | None:
        return None

    def known_elsewhere(self, token_ids: tuple[int, ...]) -> bool:
        return False

    def save(self, name: BlockName, blocks: SequenceOf[int]) -> bool:
        if self.is_stuck:
            return False
        self.kept[name.key] = (name, [self.runner.read_block(block) for block in blocks])
        return True

    def touch(self, key: bytes) -> None:
        self.touched.append(key)

    def load(self, number: int, reads: SequenceOf[BlockRead]) -> None:
        self.pending.append((number, tuple(reads)))

    def finish(self, limit: int | None = None) -> None:
        """End the oldest load, after `limit` reads if not after all."""
        number, reads = self.pending.pop(0)
        done = 0
        for read in reads[:limit]:
            if read.name.key not in self.kept:
                break
            for group, block in read.pages:
                self.runner.write_block(block, self.kept[read.name.key][1][group])
                self.num_pages_read += 1
            done += 1
        self._finished.append(FinishedLoad(number, done))

    def finished_loads(self) -> list[FinishedLoad]:
        finished, self._finished = self._finished, []
        return finished

    def wait(self, seconds: float) -> None:
        """Nothing is under way but what the test ends."""

    def load_ms(self, num_pages: int) -> float:
        return num_pages * self.ms_per_page

    def close(self) -> None:
        """There is nothing to write."""


@dataclass(eq=False)
class Driver:
    """A scheduler with a fake runner: everything of an engine but text and numbers."""

    groups: tuple[KVGroup, ...] = (full_group(),)
    num_blocks: int = 64
    block_size: int = 4
    enable_prefix_caching: bool = True
    enable_kv_cache: bool = True
    max_model_len: int = 64
    max_num_seqs: int = 8
    max_num_batched_tokens: int = 16
    step_time_budget_ms: float | None = None
    step_time: StepTime = field(default_factory=StepTime)
    has_tier: bool = False

    def __post_init__(self) -> None:
        self.spec = KVCacheSpec(self.groups, self.block_size)
        self.clock = FakeClock()
        self.runner = FakeRunner(self.spec)
        self.tier = FakeTier(self.runner)
        self.manager = self.new_manager()
        self.scheduler = Scheduler(
            self.manager,
            max_model_len=self.max_model_len,
            max_num_seqs=self.max_num_seqs,
            max_num_batched_tokens=self.max_num_batched_tokens,
            step_time=self.step_time,
            step_time_budget_ms=self.step_time_budget_ms,
            enable_kv_cache=self.enable_kv_cache,
            clock=self.clock,
        )
        self.outputs: list[SchedulerOutput] = []

    def new_manager(self) -> KVCacheManager:
        """An empty pool; as after a restart if the first is forgotten."""
        return KVCacheManager(
            self.spec,
            self.num_blocks,
            enable_prefix_caching=self.enable_prefix_caching,
            tier=self.tier if self.has_tier else None,
        )

    def exchange(self, *, finish_loads: bool = True) -> None:
        """Move blocks between pool and tier, as an engine does before each step."""
        while finish_loads and self.tier.pending:
            self.tier.finish()
        if self.manager.exchange is not None:
            self.manager.exchange.take_in()
            self.manager.exchange.save()

    def schedule(self) -> SchedulerOutput:
        """The next step, which there must be."""
        self.exchange()
        output = self.scheduler.schedule()
        if output is None and self.tier.pending:
            self.exchange()
            output = self.scheduler.schedule()
        assert output is not None
        self.scheduler.check_invariants()
        self.outputs.append(output)
        return output

    def update(self, output: SchedulerOutput) -> tuple[SequenceUpdate, ...]:
        """Run a step and take in its tokens."""
        updates = self.scheduler.update(output, self.runner.run(output))
        self.exchange(finish_loads=False)
        self.scheduler.check_invariants()
        return updates

    def step(self) -> SchedulerOutput:
        """One step from schedule to update, all invariants checked on the way."""
        output = self.schedule()
        self.update(output)
        return output

    def run(self, *requests: Request, max_steps: int = 10_000) -> None:
        """Add requests and step until all have ended."""
        for request in requests:
            self.scheduler.add(request)
        for _ in range(max_steps):
            if not self.scheduler.has_work:
                return
            self.step()
        raise AssertionError(f"not done after {max_steps} steps")

    def check_outputs(self, *requests: Request) -> None:
        """Every sequence came to exactly what it comes to alone."""
        for request in requests:
            for s in request.sequences:
                expected = self.runner.expected_output(
                    request, s.index, self.scheduler.max_model_len
                )
                assert s.output_token_ids == expected
