"""Who computes which positions in the next step, and what the sampled tokens lead to.

Not here: block tables (kvcache.manager), arrays (batch_builder), and what a token says (text).

There are no phases. A sequence has `num_tokens` and `num_computed_tokens`, and each step lets the
second catch up with the first:

    sequences one token behind    get that token; nobody's decode waits for another's prefill
    other running sequences       by priority, then arrival, share what is left of the budget
    waiting sequences             likewise, while there is budget, a seat and room in the pool

Sharing: while others stand behind it, a chunk takes at most half of what is left (but a block's
worth of tokens), so a long prompt does not hold up the short ones behind it.

When the pool is full a running sequence is preempted: it loses its blocks, waits in front of its
class, and is recomputed. One without protection goes before a protected one; then the lowest
priority, the key that holds most, the youngest. One preempted twice is protected until it has
produced 32 tokens more.

Every admitted request ends. Every running sequence computes at least one position in a step, for
there are never more of them than the budget has tokens; so it ends unless it is preempted. Suppose
some sequences were preempted for ever. Outputs are bounded and survive preemption, so from some
step on these are all protected whenever they run. Among protected ones the order is fixed
(priority, arrival), so the first of them comes before the others for blocks, and alone it fits
(`add` and `_try_admit` see to that): it is preempted no more, a contradiction. And a waiting
sequence gets its turn at the latest when nothing runs.
"""

from __future__ import annotations

import time
from bisect import insort
from collections.abc import Callable, Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from math import inf

from firstword.engine.policy import Budget, by_standing, place_in_line, preemption_reason
from firstword.engine.request import FinishReason, Request, Sequence, SequenceStatus
from firstword.engine.step import (
    Preemption,
    ScheduledSequence,
    SchedulerOutput,
    SequenceUpdate,
    StepTime,
)
from firstword.errors import ConfigError, PromptTooLongError
from firstword.kvcache.manager import KVCacheManager
from firstword.kvcache.prefix_cache import PrefixHit


@dataclass
class _Step:
    """A step in the making."""

    budget: Budget
    scheduled: list[tuple[Sequence, int]] = field(default_factory=list)
    preemptions: list[Preemption] = field(default_factory=list)
    prefix_hits: list[tuple[Sequence, PrefixHit]] = field(default_factory=list)


@dataclass(eq=False)
class Scheduler:
    """Queues of sequences, and the rules of the module's docstring.

    Args:
        manager: gives out the blocks.
        max_model_len: tokens that the context holds, prompt and output together.
        max_num_seqs: sequences running at once, >= 1; never more than `max_num_batched_tokens`.
        max_num_batched_tokens: positions in one step, >= 1.
        step_time: predicts milliseconds.
        step_time_budget_ms: predicted milliseconds of a step beyond which no chunk is extended;
            each running sequence still gets one position. None: no limit.
        enable_kv_cache: False computes all positions of a sequence in each of its steps, even
            above the token cap if it is the only one in the step.
        clock: seconds, for the time in outputs.
    """

    manager: KVCacheManager
    _: KW_ONLY
    max_model_len: int
    max_num_seqs: int
    max_num_batched_tokens: int
    step_time: StepTime
    step_time_budget_ms: float | None = None
    enable_kv_cache: bool = True
    clock: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        self._max_running = min(self.max_num_seqs, self.max_num_batched_tokens)
        self._requests: dict[str, Request] = {}
        self._waiting: list[Sequence] = []  # sorted by place_in_line
        self._running: list[Sequence] = []
        self._in_flight: SchedulerOutput | None = None
        self._num_added = 0
        self._num_steps = 0

    @property
    def has_work(self) -> bool:
        """Whether any sequence waits or runs."""
        return bool(self._waiting or self._running)

    @property
    def num_waiting(self) -> int:
        """Sequences that hold no blocks; those that await a fork are not counted."""
        return len(self._waiting)

    @property
    def num_running(self) -> int:
        """Sequences that take part in steps."""
        return len(self._running)

    @property
    def num_waiting_tokens(self) -> int:
        """Prompt tokens of the sequences that hold no blocks."""
        return sum(sequence.num_tokens for sequence in self._waiting)

    @property
    def num_steps(self) -> int:
        """Steps scheduled so far."""
        return self._num_steps

    # -- Requests come and go -------------------------------------------------------------------

    def add(self, request: Request) -> None:
        """Queue a request.

        Raises:
            ConfigError: a request of the same id has not ended yet.
            PromptTooLongError: the prompt leaves no room for one token.
            CapacityError: the pool could not hold one of its sequences, even alone.
        """
        if request.request_id in self._requests:
            raise ConfigError(f"request id {request.request_id!r} is in use: choose another")
        num_prompt_tokens = len(request.prompt_token_ids)
        if num_prompt_tokens >= self.max_model_len:
            raise PromptTooLongError(num_prompt_tokens, self.max_model_len)
        num_tokens = min(num_prompt_tokens + request.max_tokens, self.max_model_len)
        chunk = self.max_num_batched_tokens if self.enable_kv_cache else num_tokens
        self.manager.check_capacity(num_tokens, chunk)
        self._num_added += 1
        request.arrival_number = self._num_added
        self._requests[request.request_id] = request
        self._enqueue(request.sequences[0])

    def abort(self, request_id: str) -> tuple[Sequence, ...]:
        """End all sequences of a request.

        Returns:
            Those that had not ended yet; none where the request is unknown or over.
        """
        request = self._requests.get(request_id)
        if request is None:
            return ()
        ended = tuple(sequence for sequence in request.sequences if not sequence.is_finished)
        for sequence in reversed(ended):  # the first last: no other takes over the prompt
            self.finish(sequence, "abort")
        return ended

    def finish(
        self, sequence: Sequence, reason: FinishReason, stop_reason: int | None = None
    ) -> None:
        """End one sequence, for instance at a stop string; nothing happens if it has ended.

        It may be part of a step under way. Its blocks then stay its own until `update`.
        """
        if sequence.is_finished:
            return
        if sequence.status is SequenceStatus.RUNNING:
            self._running.remove(sequence)
            if not self._is_in_flight(sequence):
                self.manager.free(sequence)
        elif not sequence.awaits_fork:
            self._waiting.remove(sequence)
        sequence.finish(reason, stop_reason)
        request = sequence.request
        if request.is_finished:
            del self._requests[request.request_id]
        elif request.unforked and all(s.awaits_fork or s.is_finished for s in request.sequences):
            heir = request.unforked[0]  # somebody has to compute the prompt
            heir.awaits_fork = False
            self._enqueue(heir)

    def _is_in_flight(self, sequence: Sequence) -> bool:
        output = self._in_flight
        return output is not None and any(s.sequence is sequence for s in output.scheduled)

    def _enqueue(self, sequence: Sequence) -> None:
        insort(self._waiting, sequence, key=place_in_line)

    # -- One step -------------------------------------------------------------------------------

    def schedule(self) -> SchedulerOutput | None:
        """Choose the next step; `update` or `discard` must follow before the next call.

        Returns:
            None where there is nothing to do.
        """
        assert self._in_flight is None, "the last step has not been updated or discarded"
        ms = inf if self.step_time_budget_ms is None else self.step_time_budget_ms
        ms -= self.step_time.ms_per_step
        step = _Step(Budget(self.step_time, self.max_num_batched_tokens, ms, self.manager))
        if not self.enable_kv_cache:
            self._recompute_in_turn(step)
        else:
            self._continue_running(step)
            if not step.preemptions or not step.scheduled:
                self._admit_waiting(step)
        if step.scheduled:
            self._in_flight = self._output(step)
        return self._in_flight

    def _continue_running(self, step: _Step) -> None:
        """Give every running sequence its chunk and blocks, or take its blocks away."""
        sizes = step.budget.share_out(self._running, self._others_wait())
        queue = by_standing(self._running, self._running)
        while queue:
            sequence = queue.pop(0)
            while not self.manager.allocate(sequence, sizes[sequence]):
                queue = by_standing(self._running, [*queue, sequence])
                victim = queue.pop()
                self._preempt(victim, queue, step)
                if victim is sequence:
                    break
                queue.remove(sequence)
            else:
                step.scheduled.append((sequence, sizes[sequence]))

    def _others_wait(self, sequence: Sequence | None = None) -> bool:
        """Whether any other could be admitted, blocks permitting."""
        has_seat = len(self._running) < self._max_running
        return has_seat and any(waiting is not sequence for waiting in self._waiting[:2])

    def _admit_waiting(self, step: _Step) -> None:
        """Let waiting sequences start, strictly in line, as far as seats and blocks go."""
        while self._waiting and len(self._running) < self._max_running:
            if not self._try_admit(self._waiting[0], step):
                return
            self._start(self._waiting.pop(0))

    def _try_admit(self, sequence: Sequence, step: _Step) -> bool:
        hits = [self.manager.match_prefix(sequence)]
        if not self._running:
            # The source of a copy takes a block more, which a tight pool may not have: alone, a
            # sequence starts from nothing rather than wait for ever.
            hits.append(PrefixHit())
        for hit in hits:
            start = hit.num_tokens
            contended = self._others_wait(sequence)
            size = step.budget.chunk(sequence, start, num_behind=0, contended=contended)
            if not step.scheduled:
                size = max(size, 1)
            if size > 0 and self.manager.admit(sequence, size, hit):
                step.budget.spend(size, start)
                step.scheduled.append((sequence, size))
                step.prefix_hits.append((sequence, hit))
                sequence.num_computed_tokens = start
                if sequence.status is SequenceStatus.WAITING and sequence.num_output_tokens == 0:
                    sequence.num_cached_tokens = start
                return True
        return False

    def _recompute_in_turn(self, step: _Step) -> None:
        """Without a KV cache: whole sequences, as many as fit, each when its turn comes."""
        while self._waiting and len(self._running) < self._max_running:
            self._start(self._waiting.pop(0))
        for sequence in list(self._running):
            size, budget = sequence.num_tokens, step.budget
            over = size > budget.num_tokens or self.step_time.predict(size, 0) > budget.ms
            if step.scheduled and over:
                break
            if not self.manager.admit(sequence, size, PrefixHit()):
                break
            budget.spend(size, 0)
            step.scheduled.append((sequence, size))
            self._running.remove(sequence)
            self._running.append(sequence)

    def _start(self, sequence: Sequence) -> None:
        sequence.status = SequenceStatus.RUNNING
        self._running.append(sequence)

    def _output(self, step: _Step) -> SchedulerOutput:
        self._num_steps += 1
        costs = [self.step_time.predict(size, s.num_computed_tokens) for s, size in step.scheduled]
        return SchedulerOutput(
            step=self._num_steps,
            time=self.clock(),
            scheduled=tuple(self._scheduled(s, size) for s, size in step.scheduled),
            block_copies=self.manager.step_copies,
            preemptions=tuple(step.preemptions),
            prefix_hits=tuple(step.prefix_hits),
            num_tokens=sum(size for _, size in step.scheduled),
            predicted_ms=self.step_time.ms_per_step + sum(costs),
        )

    def _scheduled(self, sequence: Sequence, size: int) -> ScheduledSequence:
        start = sequence.num_computed_tokens
        samples: tuple[int, ...] = ()
        if start + size == sequence.num_tokens:
            samples = (sequence.index, *(s.index for s in sequence.request.unforked))
        tables = self.manager.block_tables(sequence)
        return ScheduledSequence(sequence, start, size, samples, tables)

    # -- Preemption -----------------------------------------------------------------------------

    def _preempt(self, victim: Sequence, queue: list[Sequence], step: _Step) -> None:
        """Take all blocks of `victim`, which stands behind the queue and those scheduled."""
        spared = [*(sequence for sequence, _ in step.scheduled), *queue]
        reason = preemption_reason(self._running, victim, spared)
        step.preemptions.append(Preemption(victim, victim.num_computed_tokens, reason))
        self.manager.free(victim)
        self._put_back(victim)

    def _put_back(self, sequence: Sequence) -> None:
        self._running.remove(sequence)
        sequence.preempt()
        self._enqueue(sequence)

    # -- After the step -------------------------------------------------------------------------

    def update(
        self, output: SchedulerOutput, sampled: Mapping[tuple[str, int], int]
    ) -> tuple[SequenceUpdate, ...]:
        """Take in the result of a step.

        Args:
            output: what `schedule` returned last.
            sampled: (request id, sample index) -> token, for all the samples of `output`; those
                of sequences that have ended since may be missing and are ignored.

        Returns:
            One entry per sequence that got a token.
        """
        self._close(output)
        updates: list[SequenceUpdate] = []
        for item in output.scheduled:
            updates += self._advance(item, sampled)
        return tuple(updates)

    def discard(self, output: SchedulerOutput) -> None:
        """Take back a step that failed or was interrupted, at whatever point.

        A sequence that was running before it keeps its blocks and goes on from where it was: the
        step wrote only behind its computed positions. One that began in this step, or whose
        blocks the step was to fill by a copy or has changed in place (a state), returns to its
        place in line. That is no preemption: nobody took its blocks.
        """
        touched = self.manager.changed_in_step
        began = {sequence for sequence, _ in output.prefix_hits}
        self._close(output)
        for sequence in (item.sequence for item in output.scheduled):
            if sequence.is_finished or not self.enable_kv_cache:
                self.manager.free(sequence, keep_tail=False)
            elif sequence in began or sequence in touched:
                self.manager.free(sequence, keep_tail=False)
                self._running.remove(sequence)
                sequence.return_to_line()
                self._enqueue(sequence)

    def _close(self, output: SchedulerOutput) -> None:
        assert output is self._in_flight, "not the step under way"
        self._in_flight = None
        self.manager.end_step()

    def _advance(
        self, item: ScheduledSequence, sampled: Mapping[tuple[str, int], int]
    ) -> Iterable[SequenceUpdate]:
        sequence, request = item.sequence, item.sequence.request
        sequence.num_computed_tokens = item.start + item.num_tokens
        sequence.has_run = True
        self.manager.commit(sequence)
        if sequence.is_finished:  # while the step ran; what it computed is kept
            self.manager.free(sequence)
            return []
        samples = [s for s in request.sequences if s.index in item.samples and not s.is_finished]
        for sample in samples:
            if sample is not sequence:
                self._fork(sequence, sample)
        if not self.enable_kv_cache:
            self.manager.free(sequence)
            sequence.num_computed_tokens = 0
        return [self._append(s, sampled[request.request_id, s.index]) for s in samples]

    def _fork(self, parent: Sequence, child: Sequence) -> None:
        """Let a sample start from the prompt that another has computed."""
        child.awaits_fork = False
        if len(self._running) >= self._max_running:  # no seat: it finds the blocks in the cache
            self._enqueue(child)
            return
        self._start(child)
        if self.enable_kv_cache:
            child.num_computed_tokens = parent.num_computed_tokens
            self.manager.fork(parent, child)

    def _append(self, sequence: Sequence, token_id: int) -> SequenceUpdate:
        sequence.token_ids.append(token_id)
        reason = sequence.reason_to_stop(self.max_model_len)
        if reason is not None:
            self.finish(sequence, reason, token_id if reason == "stop" else None)
        return SequenceUpdate(sequence, token_id, sequence.is_finished)

    # -- Checks ---------------------------------------------------------------------------------

    def check_invariants(self) -> None:
        """Check the queues and the blocks of all sequences.

        Raises:
            AssertionError: with what is wrong.
        """
        assert len(self._running) <= self._max_running
        assert self._waiting == sorted(self._waiting, key=place_in_line), "the line is not sorted"
        queued = [*self._running, *self._waiting]
        assert len(queued) == len(set(queued)), "a sequence is queued twice"
        alive = {s for r in self._requests.values() for s in r.sequences if not s.is_finished}
        assert {s for s in alive if not s.awaits_fork} == set(queued), "a sequence is lost"
        assert all(s.status is SequenceStatus.RUNNING for s in self._running)
        assert all(s.num_computed_tokens == 0 for s in self._waiting)
        assert all(s.num_pending_tokens > 0 for s in queued)
        in_flight = self._in_flight.scheduled if self._in_flight else ()
        holders = set(self._running) if self.enable_kv_cache else set()
        holders |= {item.sequence for item in in_flight}
        assert self.manager.holders == holders, "blocks are held by the wrong sequences"
        self.manager.check_invariants()
