"""Random lives of a scheduler: every rule of sharing and fairness, in any order of events.

A fake runner follows what each slot of the pool holds, so a block that is shared wrongly, handed
out too early, or copied too late shows as wrong content. FIRSTWORD_DEEP=1 runs for minutes.
"""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from firstword.engine import request as request_module
from firstword.engine.request import Request, Sequence
from firstword.engine.step import SchedulerOutput, StepTime
from firstword.errors import CapacityError
from firstword.kvcache.block_pool import NO_BLOCK, block_key
from firstword.kvcache.spec import KVCacheSpec, KVGroup
from tests.fakes import Driver, full_group, sliding_group, state_group

BLOCK_SIZE = 4
MAX_MODEL_LEN = 28
MAX_STEPS = 2_000
GROUPS: dict[str, tuple[KVGroup, ...]] = {
    "full": (full_group(0),),
    "full and sliding, split": (full_group(0), sliding_group(1, 6), sliding_group(2, 6)),
    "full and state": (full_group(0), state_group(1, 8)),
    "sliding": (sliding_group(0, 5),),
    "all kinds": (full_group(0), sliding_group(1, 9), sliding_group(2, 1), state_group(3, 4)),
}
TOKENS = st.integers(0, 1)  # few tokens: many prefixes in common
PROMPTS = st.lists(TOKENS, min_size=1, max_size=20).map(tuple)


@st.composite
def drivers(draw: st.DrawFn) -> Driver:
    groups = GROUPS[draw(st.sampled_from(sorted(GROUPS)))]
    cached = draw(st.integers(0, 7)) > 0
    num_batched = draw(st.sampled_from([1, 3, 7, 16]))
    spec = KVCacheSpec(groups, BLOCK_SIZE)
    needed = spec.blocks_per_sequence(MAX_MODEL_LEN, num_batched if cached else MAX_MODEL_LEN)
    return Driver(
        groups,
        num_blocks=needed + draw(st.integers(-3, 12)),
        block_size=BLOCK_SIZE,
        enable_prefix_caching=cached and draw(st.integers(0, 4)) > 0,
        enable_kv_cache=cached,
        max_model_len=MAX_MODEL_LEN,
        max_num_seqs=draw(st.sampled_from([1, 2, 8])),
        max_num_batched_tokens=num_batched,
        step_time_budget_ms=draw(st.sampled_from([None, 0.5, 6.0])),
        step_time=StepTime(ms_per_step=1, ms_per_token=1, ms_per_token_context=0.1),
        has_tier=draw(st.booleans()),
    )


class SchedulerMachine(RuleBasedStateMachine):
    """Requests come, run, are cut short, and steps fail, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.requests: list[Request] = []
        self.output: SchedulerOutput | None = None
        self.ahead: SchedulerOutput | None = None
        self.lengths: dict[Sequence, int] = {}

    @initialize(driver=drivers())
    def start(self, driver: Driver) -> None:
        self.driver = driver

    @rule(
        prompt=PROMPTS,
        shared=st.tuples(st.integers(0, 50), st.integers(0, 20)),
        n=st.sampled_from([1, 1, 2, 3]),
        max_tokens=st.integers(1, 20),
        who=st.tuples(st.integers(0, 1), st.sampled_from("ab"), st.sampled_from(["", "salt"])),
    )
    def add(
        self,
        prompt: tuple[int, ...],
        shared: tuple[int, int],
        n: int,
        max_tokens: int,
        who: tuple[int, str, str],
    ) -> None:
        """Add a request, often with the first tokens of a sequence seen before."""
        which, length = shared
        if self.requests:
            earlier = self.requests[which % len(self.requests)]
            prompt = (*earlier.sequences[0].token_ids[:length], *prompt)
        priority, key, salt = who
        request = Request(
            f"r{len(self.requests)}",
            prompt[: MAX_MODEL_LEN - 1],
            max_tokens,
            n=n,
            min_tokens=max_tokens % 3,
            stop_token_ids=frozenset({4}),
            priority=priority,
            key=key,
            salt=salt,
            arrival_time=self.driver.clock(),
            store=salt != "salt",
        )
        try:
            self.driver.scheduler.add(request)
        except CapacityError:
            return
        self.requests.append(request)

    @precondition(lambda self: self.output is None)
    @rule(count=st.integers(1, 12), runs_ahead=st.booleans())
    def run_steps(self, count: int, runs_ahead: bool) -> None:
        for _ in range(count):
            if self.output is None:
                self.schedule()
            if runs_ahead and self.output is not None:
                self.schedule_ahead()
            self.update()
        self.update()

    @precondition(lambda self: self.output is None)
    @rule()
    def schedule(self) -> None:
        """Begin a step; what follows may happen while it is under way."""
        driver = self.driver
        driver.clock.advance(1)
        driver.exchange(finish_loads=False)
        self.output = driver.scheduler.schedule()
        if self.output is None:
            assert not driver.scheduler.has_work or driver.tier.pending
        if self.output is not None:
            self.check_step(self.output)

    @precondition(lambda self: self.output is not None and self.ahead is None)
    @rule()
    def schedule_ahead(self) -> None:
        """Begin one more step before the tokens of the first are known."""
        assert self.output is not None
        self.ahead = self.driver.scheduler.schedule_ahead()
        if self.ahead is not None:
            before = {item.sequence: item for item in self.output.scheduled}
            for item in self.ahead.scheduled:
                assert item.start == before[item.sequence].start + before[item.sequence].num_tokens
                assert item.num_tokens == 1

    @precondition(lambda self: self.output is not None)
    @rule()
    def update(self) -> None:
        if self.output is None:
            return
        sampled = self.driver.runner.run(self.output)
        for done in self.driver.scheduler.update(self.output, sampled):
            assert done.sequence.token_ids[-1] == done.token_id
        self.output, self.ahead = self.ahead, None
        self.check_progress()

    @precondition(lambda self: self.output is not None)
    @rule(has_written=st.booleans())
    def fail(self, has_written: bool) -> None:
        """The step is interrupted, before or after it has written something."""
        assert self.output is not None
        outputs = [self.output] if self.ahead is None else [self.output, self.ahead]
        if has_written:
            for output in outputs:
                self.driver.runner.run(output)
        output, self.output, self.ahead = self.output, None, None
        counts = {s: s.num_preemptions for r in self.requests for s in r.sequences}
        for failed in reversed(outputs):
            self.driver.scheduler.discard(failed)
        assert counts == {s: s.num_preemptions for s in counts}
        self.check_kept(output)

    def check_kept(self, output: SchedulerOutput) -> None:
        """Who ran before a step that failed has lost nothing, unless the step filled its blocks."""
        if not self.driver.enable_kv_cache:
            return
        filled = {copy.destination for copy in output.block_copies}
        began = {sequence for sequence, _ in output.prefix_hits}
        has_state = any(group.kind == "state" for group in self.driver.groups)
        for item in output.scheduled:
            blocks = {block for table in item.block_tables for block in table}
            if item.sequence.is_finished:
                assert item.sequence not in self.driver.manager.holders
            elif item.sequence in began or has_state or not filled.isdisjoint(blocks):
                assert item.sequence not in self.driver.manager.holders
                assert item.sequence.num_computed_tokens == 0
            else:
                assert item.sequence.num_computed_tokens == item.start
                tables = self.driver.manager.block_tables(item.sequence)
                for table, before in zip(tables, item.block_tables, strict=True):
                    assert table[: len(before)] == before

    @precondition(lambda self: self.driver.tier.pending)
    @rule(limit=st.sampled_from([None, None, 0, 1, 3]))
    def finish_load(self, limit: int | None) -> None:
        """A load ends, after some of its blocks if one of them is damaged."""
        self.driver.tier.finish(limit)

    @precondition(lambda self: self.driver.has_tier)
    @rule(which=st.integers(0, 50), is_stuck=st.booleans())
    def trouble_the_tier(self, which: int, is_stuck: bool) -> None:
        """A kept block goes, and the tier takes no more, or takes some again."""
        kept = self.driver.tier.kept
        if kept:
            del kept[list(kept)[which % len(kept)]]
        self.driver.tier.is_stuck = is_stuck

    @precondition(lambda self: self.requests)
    @rule(which=st.integers(0, 50))
    def abort(self, which: int) -> None:
        request = self.requests[which % len(self.requests)]
        self.driver.scheduler.abort(request.request_id)
        assert request.is_finished

    @precondition(lambda self: self.requests)
    @rule(which=st.integers(0, 50), index=st.integers(0, 2))
    def finish(self, which: int, index: int) -> None:
        """A stop string ends one sequence."""
        request = self.requests[which % len(self.requests)]
        self.driver.scheduler.finish(request.sequences[index % request.n], "stop", None)

    def check_step(self, output: SchedulerOutput) -> None:
        driver = self.driver
        scheduled = [item.sequence for item in output.scheduled]
        assert len(set(scheduled)) == len(scheduled) <= driver.max_num_seqs
        assert output.num_tokens == sum(item.num_tokens for item in output.scheduled)
        if driver.enable_kv_cache:
            assert output.num_tokens <= driver.max_num_batched_tokens
            assert len(scheduled) == driver.scheduler.num_running
        elif len(scheduled) > 1:
            assert output.num_tokens <= driver.max_num_batched_tokens
        for item in output.scheduled:
            assert item.num_tokens >= 1
            assert item.start + item.num_tokens <= item.sequence.num_tokens
        for _, hit in output.prefix_hits:
            assert 0 <= hit.num_copied_tokens <= hit.num_tokens

    def check_progress(self) -> None:
        """Outputs only grow, and windows leave nothing behind."""
        for request in self.requests:
            for sequence in request.sequences:
                assert sequence.num_output_tokens >= self.lengths.get(sequence, 0)
                self.lengths[sequence] = sequence.num_output_tokens
        manager = self.driver.manager
        for holder in manager.holders:
            for group, table in zip(self.driver.groups, manager.block_tables(holder), strict=True):
                behind = group.first_needed(holder.num_computed_tokens) // BLOCK_SIZE
                if group.kind == "sliding":
                    assert set(table[:behind]) <= {NO_BLOCK}

    @invariant()
    def nothing_is_kept_that_may_not_be(self) -> None:
        if hasattr(self, "driver"):
            root = block_key(block_key(b"", ()) + b"salt", ())
            assert not any(name.parent == root for name, _ in self.driver.tier.kept.values())

    @invariant()
    def bookkeeping_is_sound(self) -> None:
        if hasattr(self, "driver"):
            self.driver.scheduler.check_invariants()

    def teardown(self) -> None:
        """Whatever has happened: every request ends, right, and gives everything back."""
        if not hasattr(self, "driver"):
            return
        driver = self.driver
        self.update()
        self.update()
        for _ in range(MAX_STEPS):
            while driver.tier.pending:
                driver.tier.finish()
            if not driver.scheduler.has_work:
                break
            self.schedule()
            self.update()
            driver.scheduler.check_invariants()
        assert not driver.scheduler.has_work, f"not done after {MAX_STEPS} steps"
        driver.exchange()
        assert driver.manager.num_free_blocks == driver.num_blocks
        for request in self.requests:
            assert request.is_finished
            for sequence in request.sequences:
                self.check_output(sequence)

    def check_output(self, sequence: Sequence) -> None:
        expected = self.driver.runner.expected_output(
            sequence.request, sequence.index, MAX_MODEL_LEN
        )
        output = sequence.output_token_ids
        cut_short = sequence.finish_reason == "abort" or sequence.stop_reason is None
        if sequence.finish_reason == "length" or not cut_short:
            assert output == expected
        else:
            assert output == expected[: len(output)]


def profile() -> settings:
    deep = bool(os.environ.get("FIRSTWORD_DEEP"))
    return settings(
        derandomize=not deep,
        database=None,
        deadline=None,
        max_examples=3_000 if deep else 200,
        stateful_step_count=60 if deep else 40,
        suppress_health_check=list(HealthCheck),
    )


def test_random_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_module, "PROTECTED_TOKENS", 3)  # so that protection also ends
    run_state_machine_as_test(SchedulerMachine, settings=profile())
