"""Tells the recorder what happens to requests, as the typed events of `trace.events`.

Not here: when something happens (engine) and what is made of it (trace).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from firstword.batch import ForwardBatch, SampledToken, StepResult
from firstword.engine.request import Request, Sequence
from firstword.engine.step import SchedulerOutput
from firstword.kvcache.sources import PromptSources
from firstword.kvcache.spec import KVCacheSpec, kv_bytes
from firstword.ops.cost import Cost
from firstword.sampling.params import SamplingParams
from firstword.trace import events
from firstword.trace.recorder import Recorder


@dataclass(frozen=True)
class Reporter:
    """Makes events and emits them.

    Args:
        recorder: receives them.
        kv: the KV groups.
        cost_of: FLOPs and bytes of a batch; None leaves them 0.
        clock: seconds, monotonic.
    """

    recorder: Recorder
    kv: KVCacheSpec
    cost_of: Callable[[ForwardBatch], Cost] | None
    clock: Callable[[], float]

    def queued(self, request: Request, params: SamplingParams, num_waiting: int) -> None:
        """A request entered the queue, behind `num_waiting` others; its seed is resolved."""
        assert params.seed is not None
        self.recorder.emit(
            events.RequestQueued(
                time=self.clock(),
                request_id=request.request_id,
                num_prompt_tokens=len(request.prompt_token_ids),
                max_tokens=request.max_tokens,
                n=request.n,
                strategy=params.strategy,
                seed=params.seed,
                num_waiting=num_waiting,
            )
        )

    def scheduled(self, output: SchedulerOutput, now: float) -> None:
        """What the scheduler did on the way to a step: preemptions, and prefixes found."""
        for preemption in output.preemptions:
            self.recorder.emit(
                events.SequencePreempted(
                    time=now,
                    request_id=preemption.sequence.request.request_id,
                    sample_index=preemption.sequence.index,
                    num_lost_tokens=preemption.num_lost_tokens,
                    reason=preemption.reason,
                )
            )
        for sequence, hit in output.prefix_hits:
            is_first = sequence.num_preemptions == 0
            sources = sequence.sources if is_first else PromptSources(memory=hit.num_tokens)
            self.recorder.emit(
                events.PrefixMatched(
                    time=now,
                    request_id=sequence.request.request_id,
                    sample_index=sequence.index,
                    num_cached_tokens=hit.num_tokens,
                    num_copied_tokens=hit.num_copied_tokens,
                    num_disk_tokens=sources.disk,
                    num_neighbour_tokens=sources.neighbour,
                    miss=sequence.miss if is_first else None,
                )
            )

    def executed(
        self,
        output: SchedulerOutput,
        batch: ForwardBatch,
        result: StepResult,
        *,
        span: tuple[float, float],
        num_blocks_used: int,
    ) -> None:
        """A step ran from `span[0]` to `span[1]`, after which so many blocks are in use."""
        if not self.recorder.enabled:
            return
        cost = self.cost_of(batch) if self.cost_of else Cost()
        self.recorder.emit(
            events.StepExecuted(
                time=span[1],
                step=output.step,
                start=span[0],
                chunks=tuple(
                    events.ScheduledChunk(
                        item.sequence.request.request_id,
                        item.sequence.index,
                        item.start,
                        item.num_tokens,
                    )
                    for item in output.scheduled
                ),
                forward_ms=result.forward_ms,
                sampling_ms=result.sampling_ms,
                flops=cost.flops,
                bytes_moved=cost.weight_bytes + cost.kv_bytes_read + cost.kv_bytes_written,
                num_attended=cost.attended,
                kv_bytes_in_use=num_blocks_used * self.kv.page_bytes,
                predicted_ms=output.predicted_ms,
            )
        )

    def sampled(self, sequence: Sequence, token: SampledToken, step: int, now: float) -> None:
        """A sequence got a token, which is its last one by now."""
        if not self.recorder.enabled:
            return
        self.recorder.emit(
            events.TokenSampled(
                time=now,
                request_id=sequence.request.request_id,
                sample_index=sequence.index,
                step=step,
                position=sequence.num_tokens - 1,
                token_id=token.token_id,
                logprob=token.logprob,
                probability=token.probability,
                num_survivors=token.num_survivors,
                uniform=token.uniform,
                candidates=tuple(
                    events.TokenCandidate(c.token_id, c.logprob, c.probability)
                    for c in token.candidates
                ),
            )
        )

    def finished(self, sequence: Sequence, stop_reason: str | int | None = None) -> None:
        """A sequence ended, for the reason it holds.

        Args:
            sequence: which.
            stop_reason: the stop string or token id that ended it, if one did.
        """
        self.recorder.emit(
            events.SequenceFinished(
                time=self.clock(),
                request_id=sequence.request.request_id,
                sample_index=sequence.index,
                reason=str(sequence.finish_reason),
                stop_reason=stop_reason,
                num_output_tokens=sequence.num_output_tokens,
                kv_bytes=kv_bytes(self.kv, sequence.num_positions),
            )
        )
