"""What is counted: the times and positions of each request, and what the engine did in all.

Not here: events (reporter) and the format that operators scrape (trace.metrics).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from firstword.engine.outputs import PromptProgress, RequestMetrics
from firstword.engine.request import Request
from firstword.engine.step import SchedulerOutput, SequenceUpdate
from firstword.kvcache.sources import PromptSources
from firstword.kvcache.spec import KVCacheSpec, kv_bytes


@dataclass
class RequestAccount:
    """What one request took so far; times are seconds on the engine's clock.

    Args:
        request: whose.
        started: when the first step that it took part in was made.
        first_token: when its first token came.
        last_token: when its newest token came.
        num_computed_tokens: positions computed for it.
        is_read: it was told that the whole prompt is read.
    """

    request: Request
    started: float | None = None
    first_token: float | None = None
    last_token: float | None = None
    num_computed_tokens: int = 0
    is_read: bool = False

    def progress(self, now: float) -> PromptProgress:
        """How far its prompt is read."""
        first = self.request.sequences[0]
        return PromptProgress(
            num_prompt_tokens=first.num_prompt_tokens,
            sources=first.sources,
            num_computed_tokens=min(first.num_computed_tokens, first.num_prompt_tokens),
            num_ahead=0,
            seconds=now - self.request.arrival_time,
        )

    def metrics(self, kv: KVCacheSpec, now: float) -> RequestMetrics:
        """What it took in all; one without a token took until `now`."""
        arrival, sequences = self.request.arrival_time, self.request.sequences
        end = self.last_token if self.last_token is not None else now
        return RequestMetrics(
            ttft=None if self.first_token is None else self.first_token - arrival,
            e2e=end - arrival,
            num_cached_tokens=sequences[0].num_cached_tokens,
            num_computed_tokens=self.num_computed_tokens,
            num_preemptions=sum(s.num_preemptions for s in sequences),
            kv_bytes=sum(kv_bytes(kv, s.num_positions) for s in sequences),
            queue_seconds=None if self.started is None else self.started - arrival,
            sources=sequences[0].sources,
            miss=sequences[0].miss,
        )


class Accounts:
    """The accounts of the requests that are known, and the counters of the engine.

    Attributes:
        num_prompt_tokens: prompt tokens of all requests that were started.
        sources: of these, tokens whose K/V were there already, by where they came from.
        num_computed_tokens: positions computed in forward passes.
        num_generated_tokens: tokens sampled.
        num_preemptions: sequences that lost their blocks.
    """

    def __init__(self) -> None:
        self.num_prompt_tokens = 0
        self.sources = PromptSources()
        self.num_computed_tokens = 0
        self.num_generated_tokens = 0
        self.num_preemptions = 0
        self._of: dict[str, RequestAccount] = {}  # by request id

    def open(self, request: Request) -> None:
        """Begin to count for a request."""
        self._of[request.request_id] = RequestAccount(request)

    def close(self, request_id: str) -> RequestAccount:
        """End it."""
        return self._of.pop(request_id)

    def begin(self, output: SchedulerOutput, now: float) -> None:
        """A step was made, at `now`: some requests start with it."""
        for item in output.scheduled:
            account = self._of[item.sequence.request.request_id]
            if account.started is None:
                account.started = now
        self.num_preemptions += len(output.preemptions)
        for sequence, _ in output.prefix_hits:
            if sequence.num_preemptions == 0:
                self.num_prompt_tokens += sequence.num_prompt_tokens
                self.sources = self.sources.plus(sequence.sources)

    def end(self, output: SchedulerOutput, updates: tuple[SequenceUpdate, ...], now: float) -> None:
        """A step is over, at `now`, and gave these tokens."""
        for item in output.scheduled:
            account = self._of.get(item.sequence.request.request_id)
            if account is not None:  # wanted to the end of the step
                account.num_computed_tokens += item.num_tokens
        for update in updates:
            account = self._of[update.sequence.request.request_id]
            if account.first_token is None:
                account.first_token = now
            account.last_token = now
        self.num_computed_tokens += output.num_tokens
        self.num_generated_tokens += len(updates)

    def progress(self, output: SchedulerOutput, now: float) -> Iterable[tuple[str, PromptProgress]]:
        """How far the prompts are that a step has read, by request id.

        That one is read to its end is told once, with the first token: with it is known where all
        of the prompt came from. Where that token is the last the request's metrics say it.
        """
        for item in output.scheduled:
            sequence = item.sequence
            account = self._of.get(sequence.request.request_id)
            if account is None or account.is_read or sequence.is_finished:
                continue
            account.is_read = sequence.num_output_tokens > 0
            yield sequence.request.request_id, account.progress(now)
