"""Who computes which positions in the next step, and what the sampled tokens lead to.

Not here: block tables (kvcache.manager), arrays (batch_builder), and what a token says (text).

There are no phases. A sequence has `num_tokens` and `num_computed_tokens`, and each step lets the
second catch up with the first:

    sequences one token behind    get that token; nobody's decode waits for another's prefill
    other running sequences       in the order of the line (line), share what is left
    waiting sequences             likewise, while there is budget, a seat and room in the pool

The budget is time: with decodes in a step, prompts take as much as those bear (policy.stretch).
Where one much shorter stands behind it, a chunk takes at most half of what is left.

Nothing is computed twice at a time: one whose next block another is computing waits, without a
seat, and holds back nobody; when that block is done, or its author is gone, it starts.

When the pool is full a running sequence is preempted: it loses its blocks, waits in front of its
class, and is recomputed. Which one, policy says.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import KW_ONLY, dataclass
from itertools import count

from firstword.engine.admission import QueueLimits, check_size
from firstword.engine.ahead import next_decodes, plain_step
from firstword.engine.draft import StepDraft
from firstword.engine.line import WaitingLine
from firstword.engine.policy import by_standing, preemption_reason
from firstword.engine.prefetch import Prefetch
from firstword.engine.request import FinishReason, Request, Sequence, SequenceStatus
from firstword.engine.shares import KeyShares
from firstword.engine.step import (
    Preemption,
    ScheduledSequence,
    SchedulerOutput,
    SequenceUpdate,
    StepTime,
)
from firstword.engine.turns import Turns
from firstword.errors import ConfigError
from firstword.kvcache.manager import KVCacheManager
from firstword.kvcache.prefix_cache import PrefixHit, TokenSequence

Sampled = Mapping[tuple[str, int], int]
"""(request id, sample index) -> token."""


@dataclass(eq=False)
class Scheduler:
    """Queues of sequences, and the rules above.

    Args:
        manager: gives out the blocks.
        max_model_len: tokens that the context holds, prompt and output together.
        max_num_seqs: sequences running at once, >= 1; never more than `max_num_batched_tokens`.
        max_num_batched_tokens: positions in one step, >= 1.
        step_time: predicts milliseconds.
        step_time_budget_ms: predicted milliseconds of a step beyond which no chunk is extended;
            each running sequence still gets one position. None: as policy.stretch says.
        limits: how much may wait; None: no limit.
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
    limits: QueueLimits | None = None
    enable_kv_cache: bool = True
    clock: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        self._max_running = min(self.max_num_seqs, self.max_num_batched_tokens)
        self._requests: dict[str, Request] = {}
        self._shares = KeyShares()
        self._line = WaitingLine(self.manager, self._shares, self.step_time)
        limits = (self._max_running, self.max_num_batched_tokens, self.step_time_budget_ms)
        self._turns = Turns(self.manager, self._line, self._shares, *limits)
        self._prefetch = Prefetch(self.manager, self._line, self.max_num_batched_tokens)
        self._running: list[Sequence] = []
        self._in_flight: list[SchedulerOutput] = []  # the oldest first; two when one runs ahead
        self._unreported: list[Preemption] = []  # of a call that came to no step
        self._arrivals = count(1)
        self.num_steps = 0  # scheduled so far

    @property
    def has_work(self) -> bool:
        """Whether any sequence waits or runs."""
        return bool(self._running) or len(self._line) > 0

    @property
    def num_waiting(self) -> int:
        """Sequences that hold no blocks; those that await a fork are not counted."""
        return len(self._line)

    @property
    def num_waiting_tokens(self) -> int:
        """Tokens that the waiting sequences have to compute."""
        return self._line.num_tokens

    @property
    def num_running(self) -> int:
        """Sequences that take part in steps."""
        return len(self._running)

    def predicted_wait_ms(self) -> float:
        """Predicted milliseconds of all the work that is there, running and in line."""
        running = (self._line.cost_ms(s, s.num_pending_tokens) for s in self._running)
        return self._line.cost_of_all_ms() + sum(running)

    # -- Requests come and go -------------------------------------------------------------------

    def add(self, request: Request) -> None:
        """Queue a request.

        Raises:
            ConfigError: a request of the same id has not ended yet.
            PromptTooLongError, CapacityError: it could not run even alone.
            QueueFullError: too much waits already.
        """
        if request.request_id in self._requests:
            raise ConfigError(f"request id {request.request_id!r} is in use: choose another")
        chunk = self.max_num_batched_tokens if self.enable_kv_cache else None
        check_size(request, self.manager, self.max_model_len, chunk)
        if self.limits is not None:
            self.limits.check(request, self._line, self.predicted_wait_ms())
        request.arrival_number = next(self._arrivals)
        self._requests[request.request_id] = request
        self._shares.join(request.key)
        self._line.add(request.sequences[0])

    def abort(self, request_id: str) -> tuple[Sequence, ...]:
        """End all sequences of a request.

        Returns:
            Those that had not ended yet; none where the request is unknown or over.
        """
        request = self._requests.get(request_id)
        sequences = () if request is None else request.sequences
        ended = tuple(sequence for sequence in sequences if not sequence.is_finished)
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
            self._line.remove(sequence)
        sequence.finish(reason, stop_reason)
        request = sequence.request
        if request.is_finished:
            del self._requests[request.request_id]
            self._shares.leave(request.key)
        elif request.unforked and all(s.awaits_fork or s.is_finished for s in request.sequences):
            heir = request.unforked[0]  # somebody has to compute the prompt
            heir.awaits_fork = False
            self._line.add(heir)

    def _is_in_flight(self, sequence: Sequence) -> bool:
        return any(s.sequence is sequence for output in self._in_flight for s in output.scheduled)

    # -- One step -------------------------------------------------------------------------------

    def schedule(self) -> SchedulerOutput | None:
        """Choose the next step; `update` or `discard` must follow before the next call.

        Between them, `schedule_ahead` may choose one more.

        Returns:
            None where there is nothing to do.
        """
        assert not self._in_flight, "the last step has not been updated or discarded"
        self._line.step_time = self.step_time
        step = StepDraft(self._turns.new_budget(self.step_time), self._shares)
        if not self.enable_kv_cache:
            self._recompute_in_turn(step)
        else:
            self._continue_running(step)
            if not step.preemptions or not step.scheduled:
                self._admit_waiting(step)
        self._unreported += step.preemptions
        if not step.scheduled:
            return None
        self.num_steps += 1
        output = step.output(self.num_steps, self.clock(), self._unreported)
        self._unreported = []
        self._in_flight.append(output)
        return output

    def schedule_ahead(self) -> SchedulerOutput | None:
        """Choose the step after the one in flight, while its tokens are not known yet (ahead).

        `update` ignores what was computed for a sequence that turned out to have ended.

        Returns:
            None where the tokens have to be known first, or nothing would be left to do.
        """
        assert len(self._in_flight) == 1, "one step must be in flight"
        if len(self._line) or not self.enable_kv_cache or self.manager.has_states:
            return None
        going_on = next_decodes(self._in_flight[0], self.manager, self.max_model_len)
        if not going_on:
            return None
        self.num_steps += 1
        for item in going_on:
            self._shares.charge(item.sequence.request.key, 1)
        output = plain_step(self.num_steps, self.clock(), going_on, self.step_time)
        self._in_flight.append(output)
        return output

    def _continue_running(self, step: StepDraft) -> None:
        """Give every running sequence its chunk and blocks, or take its blocks away."""
        sizes = self._turns.share_out(step.budget, self._running, self.clock())
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
                step.include(sequence, sizes[sequence])

    def _admit_waiting(self, step: StepDraft) -> None:
        """Let waiting sequences start, in the order of the line, as far as seats and blocks go."""
        if not len(self._line) or len(self._running) >= self._max_running:
            return
        for sequence in self._turns.admissible(self._running, self.clock()):
            if len(self._running) >= self._max_running:
                return
            hit = self.manager.match_prefix(sequence)
            if self._prefetch.begin(sequence, hit, self.step_time, len(self._running)):
                continue
            # The source of a copy takes a block more, which a tight pool may not have: alone, a
            # sequence starts from nothing rather than wait for ever.
            alone = not self._running
            if not (step.admit(sequence, hit) or (alone and step.admit(sequence, PrefixHit()))):
                return
            self._line.remove(sequence)
            self._start(sequence)

    def _recompute_in_turn(self, step: StepDraft) -> None:
        """Without a KV cache: whole sequences, as many as fit, each when its turn comes."""
        for sequence in list(self._line.in_order(self.clock(), self._running)):
            if len(self._running) < self._max_running:
                self._line.remove(sequence)
                self._start(sequence)
        for sequence in list(self._running):
            size, budget = sequence.num_tokens, step.budget
            over = size > budget.num_tokens or self.step_time.predict(size, 0) > budget.ms
            if step.scheduled and over:
                break
            if not self.manager.admit(sequence, size, PrefixHit()):
                break
            budget.spend(size, 0)
            step.include(sequence, size)
            self._running.remove(sequence)
            self._running.append(sequence)

    def _start(self, sequence: Sequence) -> None:
        sequence.status = SequenceStatus.RUNNING
        self._running.append(sequence)

    # -- Preemption -----------------------------------------------------------------------------

    def _preempt(self, victim: Sequence, queue: list[Sequence], step: StepDraft) -> None:
        """Take all blocks of `victim`, which stands behind the queue and those scheduled."""
        spared = [*(sequence for sequence, _ in step.scheduled), *queue]
        reason = preemption_reason(self._running, victim, spared)
        step.preemptions.append(Preemption(victim, victim.num_computed_tokens, reason))
        self.manager.free(victim)
        self._running.remove(victim)
        victim.preempt()
        self._line.add(victim)

    # -- After the step -------------------------------------------------------------------------

    def update(self, output: SchedulerOutput, sampled: Sampled) -> tuple[SequenceUpdate, ...]:
        """Take in the result of a step.

        Args:
            output: what `schedule` returned last.
            sampled: the tokens of all the samples of `output`; those of sequences that have ended
                since may be missing and are ignored.

        Returns:
            One entry per sequence that got a token.
        """
        assert output in self._in_flight[:1], "not the oldest step under way"
        self._in_flight.pop(0)
        self.manager.end_step()
        return tuple(u for item in output.scheduled for u in self._advance(item, sampled))

    def discard(self, output: SchedulerOutput) -> None:
        """Take back a step that failed or was interrupted, at whatever point.

        A sequence that was running before it keeps its blocks and goes on from where it was: the
        step wrote only behind its computed positions. One that began in this step, or whose
        blocks the step was to fill by a copy or has changed in place (a state), returns to its
        place in line. That is no preemption: nobody took its blocks. What one that has ended had
        computed before stays cached to the token.
        """
        assert output in self._in_flight[-1:], "the newest step is taken back first"
        runs_ahead = len(self._in_flight) > 1  # then it has no copies, and nobody began in it
        touched = set[TokenSequence]() if runs_ahead else self.manager.changed_in_step
        began = {sequence for sequence, _ in output.prefix_hits}
        self._in_flight.pop()
        if not runs_ahead:
            self.manager.end_step()
        for item in output.scheduled:
            sequence = item.sequence
            if not sequence.request.is_finished:
                self._shares.charge(sequence.request.key, -item.num_tokens)
            is_lost = sequence in began or sequence in touched
            if sequence.is_finished or not self.enable_kv_cache:
                if not self._is_in_flight(sequence):
                    self.manager.free(sequence, keep_tail=not is_lost)
            elif is_lost:
                self.manager.free(sequence, keep_tail=False)
                self._running.remove(sequence)
                sequence.return_to_line()
                self._line.add(sequence)

    def _advance(self, item: ScheduledSequence, sampled: Sampled) -> Iterable[SequenceUpdate]:
        sequence, request = item.sequence, item.sequence.request
        # A step that ran ahead of a sequence's end may have computed more than its tokens.
        end = min(item.start + item.num_tokens, sequence.num_tokens)
        sequence.num_computed_tokens = end
        sequence.has_run = True
        self.manager.commit(sequence)
        if sequence.is_finished:  # while the step ran; what it computed is kept
            if not self._is_in_flight(sequence):
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
            self._line.add(child)
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
        queued = [*self._running, *self._line]
        assert len(queued) == len(set(queued)), "a sequence is queued twice"
        alive = {s for r in self._requests.values() for s in r.sequences if not s.is_finished}
        assert {s for s in alive if not s.awaits_fork} == set(queued), "a sequence is lost"
        assert all(s.status is SequenceStatus.RUNNING for s in self._running)
        assert all(s.num_computed_tokens == 0 for s in self._line)
        assert all(s.num_pending_tokens > 0 for s in queued)
        holders = set(self._running) if self.enable_kv_cache else set()
        holders |= {item.sequence for output in self._in_flight for item in output.scheduled}
        assert self.manager.holders == holders, "blocks are held by the wrong sequences"
        self.manager.check_invariants()
