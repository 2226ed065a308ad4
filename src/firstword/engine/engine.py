"""The step loop: schedule, build the batch, run it, update, report.

Sees token ids only. Text, files and processes are for the layers above.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from collections.abc import Sequence as SequenceOf
from dataclasses import replace

from firstword.batch import SampledToken, StepResult
from firstword.config import EngineConfig
from firstword.engine.accounting import Accounts
from firstword.engine.admission import queue_limits
from firstword.engine.calibration import Calibration
from firstword.engine.gaps import Gaps
from firstword.engine.model import EngineModel
from firstword.engine.outputs import PromptProgress, RequestMetrics, SequenceOutput
from firstword.engine.pipeline import Launched, Pipeline
from firstword.engine.preparation import Preparation, Prepared
from firstword.engine.reporter import Reporter
from firstword.engine.request import RequestOptions
from firstword.engine.runner import Runner
from firstword.engine.sampled import SampleKey, key_of, output_of, sampled_keys
from firstword.engine.scheduler import Scheduler
from firstword.engine.sequence_sampling import SequenceSampling
from firstword.engine.stats import EngineStats
from firstword.engine.step import SchedulerOutput, SequenceUpdate
from firstword.errors import ConfigError, SamplingError
from firstword.kvcache.manager import KVCacheManager
from firstword.kvcache.tier import BlockTier
from firstword.sampling.params import SamplingParams
from firstword.trace.recorder import NullRecorder, Recorder

_LONG_MS = 50.0
"""A step that would still take longer is ended for an abort, its neighbours notwithstanding."""

_LOADING_SECONDS = 0.01
"""For so long a step that only waits for blocks to be loaded lets commands wait."""


class Engine:
    """Runs requests on one model, all of them together.

    Args:
        runner: a backend bound to the model's weights and KV pool.
        model: what to know of the model.
        config: limits and switches.
        recorder: receives the events; None keeps none.
        clock: seconds, monotonic.
        tier: keeps KV blocks below the pool; None: nothing does.
    """

    def __init__(
        self,
        runner: Runner,
        model: EngineModel,
        config: EngineConfig,
        *,
        recorder: Recorder | None = None,
        clock: Callable[[], float] = time.monotonic,
        tier: BlockTier | None = None,
    ) -> None:
        self.model, self.config, self.clock = model, config, clock
        self.recorder = recorder or NullRecorder()
        self._reporter = Reporter(self.recorder, model.kv, model.cost_of, clock)
        self.kv = KVCacheManager(
            model.kv,
            model.num_blocks,
            enable_prefix_caching=config.enable_prefix_caching and config.enable_kv_cache,
            extra_key=model.fingerprint.encode(),
            tier=tier,
        )
        self.scheduler = Scheduler(
            self.kv,
            max_model_len=model.max_model_len,
            max_num_seqs=config.max_num_seqs,
            max_num_batched_tokens=config.max_num_batched_tokens,
            step_time_budget_ms=config.step_time_budget_ms,
            step_time=model.step_time,
            limits=queue_limits(config, model.num_blocks * model.kv.block_size),
            enable_kv_cache=config.enable_kv_cache,
            clock=clock,
        )
        self._preparation = Preparation(model, self.kv, config.seed, clock)
        self._requests: dict[str, Prepared] = {}  # those that were added and not released
        self._accounts = Accounts()
        self._undelivered: list[SequenceOutput] = []
        self._unwanted: set[str] = set()  # requests that are about to be ended
        self._calibration = Calibration(model.step_time)
        self._pipeline = Pipeline(self.scheduler, runner, model.kv, config.num_top_logprobs, clock)
        self._last_step: SchedulerOutput | None = None
        self._gaps = Gaps()

    @property
    def runner(self) -> Runner:
        """What runs the steps; another may take its place while none is under way."""
        return self._pipeline.runner

    @runner.setter
    def runner(self, runner: Runner) -> None:
        self._pipeline.runner = runner

    @property
    def gap_ms(self) -> float | None:
        """Milliseconds from the compiled code of the step before to that of the last one.

        None where the engine had nothing to do between them, or computes in Python.
        """
        return self._gaps.last_ms

    # --- requests ---

    def add_request(
        self,
        request_id: str,
        prompt_token_ids: SequenceOf[int],
        params: SamplingParams,
        options: RequestOptions | None = None,
    ) -> SamplingParams:
        """Queue a request.

        Args:
            request_id: unique among the requests in flight.
            prompt_token_ids: the prompt, at least one token.
            params: how to choose tokens and when to stop.
            options: its place among the others; None for the usual one.

        Returns:
            The parameters in force: the seed and the limits are filled in.

        Raises:
            PromptTooLongError: the prompt leaves no room in the context.
            CapacityError: it could not run even alone in the KV pool.
            QueueFullError: too much waits already.
            ConfigError: an empty prompt, a token id that the model does not have (in the prompt
                or the parameters), or an id in use.
            GrammarError: the answer cannot be held to the grammar.
        """
        return self.enqueue(self.prepare(request_id, prompt_token_ids, params, options))

    def prepare(
        self,
        request_id: str,
        prompt_token_ids: SequenceOf[int],
        params: SamplingParams,
        options: RequestOptions | None = None,
    ) -> Prepared:
        """Check a request and do all that can be done before its turn; nothing is queued yet.

        Any thread may call this while another steps the engine: a long prompt is checked and its
        blocks are named without holding up a step. Arguments and errors as for `add_request`.
        """
        return self._preparation.prepare(
            request_id, prompt_token_ids, params, options or RequestOptions()
        )

    def enqueue(self, prepared: Prepared) -> SamplingParams:
        """Queue a prepared request; returns the parameters in force.

        Raises:
            CapacityError: it could not run even alone in the KV pool.
            ConfigError: its id is in use.
        """
        request, params = prepared.request, prepared.params
        if request.request_id in self._requests:
            raise ConfigError(
                f"request id {request.request_id!r} is already in use: choose another"
            )
        num_waiting = self.scheduler.num_waiting
        if self.kv.exchange is not None:
            self.kv.exchange.tier.refresh()
        self.scheduler.add(request)
        self._requests[request.request_id] = prepared
        self._accounts.open(request)
        self._reporter.queued(request, params, num_waiting)
        return params

    def abort(self, request_id: str) -> None:
        """End a request now and give its blocks back; unknown ids are ignored."""
        if request_id in self._requests:
            self._abort(request_id)
            self._pipeline.drop_if_useless()

    def _abort(self, request_id: str) -> None:
        for sequence in self.scheduler.abort(request_id):
            self._reporter.finished(sequence)

    def stop(self, request_id: str, sample_index: int, stop_string: str) -> None:
        """End one sequence because its text reached a stop string, unless it has ended already."""
        sequence = self._requests[request_id].request.sequences[sample_index]
        if not sequence.is_finished:
            self.scheduler.finish(sequence, "stop", None)
            self._reporter.finished(sequence, stop_string)
            self._pipeline.drop_if_useless()

    def interrupt(self, request_id: str) -> None:
        """End the step under way if it would go on for long with a request that is unwanted.

        The neighbours lose what this step computed for them, so a short one runs to its end. Any
        thread may call this; the request itself is ended by `forget`, which must follow.
        """
        # Noted before the step is looked at: a step that begins meanwhile looks at the notes.
        self._unwanted.add(request_id)
        step = self._pipeline.under_way
        if step is not None and request_id in step.request_ids:
            self._stop_if_long(step)

    def _stop_if_long(self, step: Launched) -> None:
        left_ms = step.output.predicted_ms - (self.clock() - step.time) * 1e3
        if len(step.request_ids) == 1 or left_ms > _LONG_MS:
            self.runner.stop()

    def knows(self, request_id: str) -> bool:
        """Whether a request was added and neither released nor forgotten."""
        return request_id in self._requests

    def is_finished(self, request_id: str) -> bool:
        """Whether all samples of a known request have ended."""
        return self._requests[request_id].request.is_finished

    def forget(self, request_id: str) -> None:
        """End a request and drop all that it gave; unknown ids are ignored."""
        self._unwanted.discard(request_id)
        if request_id in self._requests:
            self.abort(request_id)
            self.release(request_id)

    def release(self, request_id: str) -> RequestMetrics:
        """What a finished request took; the engine then forgets it."""
        del self._requests[request_id]
        self._undelivered = [o for o in self._undelivered if o.request_id != request_id]
        return self._accounts.close(request_id).metrics(self.model.kv, self.clock())

    @property
    def has_work(self) -> bool:
        """Whether a step would do anything."""
        return bool(self._undelivered) or self.scheduler.has_work

    @property
    def stats(self) -> EngineStats:
        """How the engine stands."""
        scheduler, accounts = self.scheduler, self._accounts
        return EngineStats(
            num_running=scheduler.num_running,
            num_waiting=scheduler.num_waiting,
            num_waiting_tokens=scheduler.num_waiting_tokens,
            num_used_blocks=self.model.num_blocks - self.kv.num_free_blocks,
            num_blocks=self.model.num_blocks,
            num_steps=scheduler.num_steps,
            num_prompt_tokens=accounts.num_prompt_tokens,
            sources=accounts.sources,
            num_computed_tokens=accounts.num_computed_tokens,
            num_generated_tokens=accounts.num_generated_tokens,
            num_preemptions=accounts.num_preemptions,
        )

    # --- steps ---

    @property
    def in_step(self) -> frozenset[str]:
        """Ids of the requests in the step that ran last, or failed."""
        return frozenset() if self._last_step is None else self._last_step.request_ids

    def progress(self) -> list[tuple[str, PromptProgress]]:
        """How far the prompts are that the last step has read; see `Accounts.progress`."""
        if self._last_step is None:
            return []
        return list(self._accounts.progress(self._last_step, self.clock()))

    def step(self) -> list[SequenceOutput]:
        """Run one step; returns the new tokens.

        When the step is interrupted or fails, its sequences are as before it, all others stay as
        they are, and the exception goes on. Tokens that were there by then come out of the next
        step.
        """
        exchange = self.kv.exchange
        if exchange is not None:
            exchange.take_in()
        if self._pipeline.under_way is None:
            self._last_step = self.scheduler.schedule()
            if self._last_step is not None:
                self._launch(self._last_step)
            elif exchange is not None and exchange.is_loading:
                exchange.tier.wait(_LOADING_SECONDS)
        self.save_blocks()  # while the step runs
        launched = self._pipeline.under_way
        if launched is not None:
            self._last_step = launched.output
            self._run(launched)
            if not self.scheduler.has_work:
                self.save_blocks()
        outputs, self._undelivered = self._undelivered, []
        return outputs

    def save_blocks(self) -> bool:
        """Hand KV blocks over to the tier below the pool, as each step does.

        Returns:
            Whether some wait, because the tier takes no more now.
        """
        exchange = self.kv.exchange
        if exchange is None:
            return False
        exchange.save()
        return exchange.has_unsaved_blocks

    def _launch(self, output: SchedulerOutput) -> None:
        try:
            now = self.clock()
            self._reporter.scheduled(output, now)
            self._accounts.begin(output, now)
            launched = self._pipeline.launch(output, self._sampling_of(output.request_ids))
            if not self._unwanted.isdisjoint(launched.request_ids):
                self._stop_if_long(launched)
        except BaseException:
            self.scheduler.discard(output)
            raise

    def _run(self, launched: Launched) -> None:
        output = launched.output
        sampling = self._sampling_of(launched.request_ids)
        try:
            self._pipeline.launch_ahead(sampling)
            result = self._pipeline.collect()
            outcomes = dict(zip(sampled_keys(output), result.sampled, strict=True))
            self._end_failed(outcomes)
        except BaseException:
            self._pipeline.drop()
            raise
        self._pipeline.retire()
        sampled = {k: t for k, t in outcomes.items() if isinstance(t, SampledToken)}
        updates = self.scheduler.update(output, {k: t.token_id for k, t in sampled.items()})
        updates = tuple(map(self._end_at_grammar, updates))
        # Before anybody is told of the step: a listener may raise, or take its time.
        self._undelivered += [
            output_of(update, sampled[key_of(update.sequence)], self.model.eos_token_ids)
            for update in updates
        ]
        self._pipeline.drop_if_useless()
        now = self.clock()
        self._accounts.end(output, updates, now)
        self._calibrate(output, result)
        self._gaps.measure(result, now, has_more=self.scheduler.has_work)
        self._report(launched, result, now)
        for update in updates:
            sequence = update.sequence
            self._reporter.sampled(sequence, sampled[key_of(sequence)], output.step, now)
            if update.finished:
                self._reporter.finished(sequence, sequence.stop_reason)
        if self.config.debug:
            self.scheduler.check_invariants()

    def _report(self, launched: Launched, result: StepResult, now: float) -> None:
        num_used = self.model.num_blocks - self.kv.num_free_blocks
        self._reporter.executed(
            launched.output,
            launched.step.batch,
            result,
            span=self._gaps.span(launched.time, now),
            num_blocks_used=num_used,
        )

    def _sampling_of(self, request_ids: Iterable[str]) -> dict[str, tuple[SequenceSampling, ...]]:
        """How tokens are chosen, by id, for those of the requests that are still known."""
        requests = self._requests
        return {i: requests[i].sampling for i in request_ids if i in requests}

    def _end_failed(self, outcomes: dict[SampleKey, SampledToken | SamplingError]) -> None:
        """End the requests of rows that gave no token; the others in the step go on."""
        for (request_id, index), outcome in outcomes.items():
            if isinstance(outcome, SamplingError) and request_id in self._requests:
                error = self._requests[request_id].sampling[index].error or outcome
                self._undelivered.append(
                    SequenceOutput(request_id, index, -1, 0.0, (), "abort", None, error=error)
                )
                self._abort(request_id)

    def _end_at_grammar(self, update: SequenceUpdate) -> SequenceUpdate:
        """End a sequence whose grammar leaves nothing to add; its last token counts."""
        sequence = update.sequence
        sampling = self._requests[sequence.request.request_id].sampling[sequence.index]
        if update.finished or not sampling.advance():
            return update
        self.scheduler.finish(sequence, "stop")
        return replace(update, finished=True)

    def _calibrate(self, output: SchedulerOutput, result: StepResult) -> None:
        """Let predictions follow what steps take."""
        self._calibration.observe(output.load, result.forward_ms + result.sampling_ms)
        self.scheduler.step_time = self._calibration.step_time
