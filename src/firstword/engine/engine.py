"""The step loop: schedule, build the batch, run it, update, report.

Sees token ids only. Text, files and processes are for the layers above.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass, field, replace

from firstword.batch import ForwardBatch, SampledToken, StepResult
from firstword.config import EngineConfig
from firstword.engine.admission import QUEUED_TOKENS_PER_POOL_TOKEN, QueueLimits
from firstword.engine.calibration import Calibration
from firstword.engine.outputs import PromptProgress, RequestMetrics, SequenceOutput
from firstword.engine.pipeline import Launched, Pipeline
from firstword.engine.reporter import Reporter
from firstword.engine.request import Request, Sequence
from firstword.engine.runner import Runner
from firstword.engine.scheduler import Scheduler
from firstword.engine.sequence_sampling import SequenceSampling
from firstword.engine.stats import EngineStats
from firstword.engine.step import SchedulerOutput, SequenceUpdate, StepTime
from firstword.errors import ConfigError, GrammarError, PromptTooLongError, SamplingError
from firstword.kvcache.manager import KVCacheManager
from firstword.kvcache.spec import KVCacheSpec, kv_bytes
from firstword.ops.cost import Cost
from firstword.sampling.constraint import TokenConstraint
from firstword.sampling.params import Grammar, SamplingParams
from firstword.trace.recorder import NullRecorder, Recorder

_LONG_MS = 50.0
"""A step that would still take longer is ended for an abort, its neighbours notwithstanding."""

SampleKey = tuple[str, int]  # request id and sample index


@dataclass(frozen=True)
class EngineModel:
    """What the engine knows of the model it runs.

    Args:
        vocab_size: V; token ids lie in [0, V).
        max_model_len: context in tokens, prompt and output together.
        eos_token_ids: tokens that end a sequence unless ignored.
        fingerprint: tells one model's K/V from another's.
        kv: the KV groups.
        num_blocks: blocks of the KV pool.
        cost_of: FLOPs and bytes of a batch, for the events; None leaves them 0.
        step_time: predicts the time of a step, for the scheduler's budget.
        compile_grammar: makes the state at the beginning of a grammar; any thread may call it.
            None where answers cannot be held to one.
    """

    vocab_size: int
    max_model_len: int
    eos_token_ids: frozenset[int]
    fingerprint: str
    kv: KVCacheSpec
    num_blocks: int
    cost_of: Callable[[ForwardBatch], Cost] | None = None
    step_time: StepTime = field(default_factory=StepTime)
    compile_grammar: Callable[[Grammar], TokenConstraint] | None = None


@dataclass(frozen=True)
class RequestOptions:
    """A request's place among the others.

    Args:
        priority: higher goes first.
        key: whose request it is, for fair preemption.
        salt: requests of different salts share no cached blocks.
        arrival: when it came, on the engine's clock; None for now.
    """

    priority: int = 0
    key: str = ""
    salt: str = ""
    arrival: float | None = None


@dataclass(frozen=True)
class Prepared:
    """A request that was checked: `Engine.enqueue` takes it.

    Args:
        request: its sequences.
        params: its parameters in force.
        sampling: how tokens are chosen, one for each sequence.
    """

    request: Request
    params: SamplingParams
    sampling: tuple[SequenceSampling, ...]


@dataclass
class _Live:
    """What is kept of a request while it runs."""

    request: Request
    params: SamplingParams
    sampling: tuple[SequenceSampling, ...]  # one for each sample
    arrival: float
    started: float | None = None
    first_token: float | None = None
    last_token: float | None = None
    num_computed: int = 0


@dataclass
class _Counters:
    """What the engine has done so far."""

    num_prompt_tokens: int = 0
    num_cached_tokens: int = 0
    num_computed_tokens: int = 0
    num_generated_tokens: int = 0
    num_preemptions: int = 0


class Engine:
    """Runs requests on one model, all of them together.

    Args:
        runner: a backend bound to the model's weights and KV pool.
        model: what to know of the model.
        config: limits and switches.
        recorder: receives the events; None keeps none.
        clock: seconds, monotonic.

    Attributes:
        gap_ms: milliseconds from the compiled code of the step before to that of the last one;
            None where the engine had nothing to do between them, or computes in Python.
    """

    def __init__(
        self,
        runner: Runner,
        model: EngineModel,
        config: EngineConfig,
        *,
        recorder: Recorder | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.model, self.config, self.clock = model, config, clock
        self.recorder = recorder or NullRecorder()
        self._reporter = Reporter(self.recorder, model.kv, model.cost_of, clock)
        self.kv = KVCacheManager(
            model.kv,
            model.num_blocks,
            enable_prefix_caching=config.enable_prefix_caching and config.enable_kv_cache,
            extra_key=model.fingerprint.encode(),
        )
        self.scheduler = Scheduler(
            self.kv,
            max_model_len=model.max_model_len,
            max_num_seqs=config.max_num_seqs,
            max_num_batched_tokens=config.max_num_batched_tokens,
            step_time_budget_ms=config.step_time_budget_ms,
            step_time=model.step_time,
            limits=QueueLimits(
                config.max_queued_requests,
                config.max_queued_tokens
                or QUEUED_TOKENS_PER_POOL_TOKEN * model.num_blocks * model.kv.block_size,
            ),
            enable_kv_cache=config.enable_kv_cache,
            clock=clock,
        )
        self._live: dict[str, _Live] = {}
        self._undelivered: list[SequenceOutput] = []
        self._calibration = Calibration(model.step_time)
        self._counters = _Counters()
        self._pipeline = Pipeline(self.scheduler, runner, model.kv, config.num_top_logprobs, clock)
        self._last_step: SchedulerOutput | None = None
        self._last_end = 0.0
        self._last_result_at: float | None = None  # None while nothing follows on it
        self.gap_ms: float | None = None

    @property
    def runner(self) -> Runner:
        """What runs the steps; another may take its place while none is under way."""
        return self._pipeline.runner

    @runner.setter
    def runner(self, runner: Runner) -> None:
        self._pipeline.runner = runner

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
        self._check_prompt(prompt_token_ids)
        params.check_vocabulary(self.model.vocab_size)
        params = self._resolve(params, len(prompt_token_ids))
        options = options or RequestOptions()
        assert params.max_tokens is not None
        request = Request(
            request_id=request_id,
            prompt_token_ids=tuple(prompt_token_ids),
            n=params.n,
            max_tokens=params.max_tokens,
            min_tokens=params.min_tokens,
            stop_token_ids=self._stop_ids(params),
            priority=options.priority,
            key=options.key,
            salt=options.salt,
            arrival_time=self.clock() if options.arrival is None else options.arrival,
        )
        self.kv.name_blocks(request.sequences[0])
        return Prepared(request, params, self._sampling(request, params))

    def enqueue(self, prepared: Prepared) -> SamplingParams:
        """Queue a prepared request; returns the parameters in force.

        Raises:
            CapacityError: it could not run even alone in the KV pool.
            ConfigError: its id is in use.
        """
        request, params = prepared.request, prepared.params
        if request.request_id in self._live:
            raise ConfigError(
                f"request id {request.request_id!r} is already in use: choose another"
            )
        num_waiting = self.scheduler.num_waiting
        self.scheduler.add(request)
        self._live[request.request_id] = _Live(
            request, params, prepared.sampling, request.arrival_time
        )
        self._reporter.queued(request, params, num_waiting)
        return params

    def _check_prompt(self, prompt_token_ids: SequenceOf[int]) -> None:
        if not prompt_token_ids:
            raise ConfigError("the prompt has no tokens: give at least one character")
        if len(prompt_token_ids) >= self.model.max_model_len:
            raise PromptTooLongError(len(prompt_token_ids), self.model.max_model_len)
        for token in prompt_token_ids:
            if not isinstance(token, int) or not 0 <= token < self.model.vocab_size:
                raise ConfigError(
                    f"prompt token id {token!r} is not in the vocabulary: give whole numbers "
                    f"from 0 to {self.model.vocab_size - 1}"
                )

    def _resolve(self, params: SamplingParams, num_prompt_tokens: int) -> SamplingParams:
        """Fill in what was left open: a seed, and the rest of the context as max_tokens."""
        seed = params.seed if params.seed is not None else self.config.seed
        room = self.model.max_model_len - num_prompt_tokens
        # A fresh seed has 32 bits: enough to differ, short enough to type again.
        return replace(
            params,
            seed=secrets.randbits(32) if seed is None else seed,
            max_tokens=min(params.max_tokens or room, room),
            min_tokens=min(params.min_tokens, params.max_tokens or room, room),
        )

    def _stop_ids(self, params: SamplingParams) -> frozenset[int]:
        own = frozenset(params.stop_token_ids)
        # A grammar says itself where the answer may end.
        ignores_eos = params.ignore_eos and params.grammar is None
        return own if ignores_eos else own | self.model.eos_token_ids

    def _sampling(self, request: Request, params: SamplingParams) -> tuple[SequenceSampling, ...]:
        if params.grammar is None:
            return tuple(SequenceSampling(sequence, params) for sequence in request.sequences)
        if self.model.compile_grammar is None:
            raise GrammarError(
                "this engine has nothing to hold answers to a grammar with: leave the grammar out"
            )
        start = self.model.compile_grammar(params.grammar)
        return tuple(
            SequenceSampling(sequence, params, start.fork()) for sequence in request.sequences
        )

    def abort(self, request_id: str) -> None:
        """End a request now and give its blocks back; unknown ids are ignored."""
        live = self._live.get(request_id)
        if live is None:
            return
        self._abort(request_id)
        self._pipeline.drop_if_useless()

    def _abort(self, request_id: str) -> None:
        for sequence in self.scheduler.abort(request_id):
            self._reporter.finished(sequence)

    def stop(self, request_id: str, sample_index: int, stop_string: str) -> None:
        """End one sequence because its text reached a stop string, unless it has ended already."""
        sequence = self._live[request_id].request.sequences[sample_index]
        if not sequence.is_finished:
            self.scheduler.finish(sequence, "stop", None)
            self._reporter.finished(sequence, stop_string)
            self._pipeline.drop_if_useless()

    def interrupt(self, request_id: str) -> None:
        """End the step under way if it would go on for long with a request that is unwanted.

        The neighbours lose what this step computed for them, so a short one runs to its end. Any
        thread may call this; the request itself is ended by `abort`.
        """
        step = self._pipeline.under_way
        if step is None or request_id not in step.request_ids:
            return
        left_ms = step.output.predicted_ms - (self.clock() - step.time) * 1e3
        if len(step.request_ids) == 1 or left_ms > _LONG_MS:
            self.runner.stop()

    def knows(self, request_id: str) -> bool:
        """Whether a request was added and neither released nor forgotten."""
        return request_id in self._live

    def is_finished(self, request_id: str) -> bool:
        """Whether all samples of a known request have ended."""
        return self._live[request_id].request.is_finished

    def forget(self, request_id: str) -> None:
        """End a request and drop all that it gave; unknown ids are ignored."""
        if request_id in self._live:
            self.abort(request_id)
            self.release(request_id)

    def release(self, request_id: str) -> RequestMetrics:
        """What a finished request took; the engine then forgets it."""
        live = self._live.pop(request_id)
        self._undelivered = [o for o in self._undelivered if o.request_id != request_id]
        sequences = live.request.sequences
        end = live.last_token if live.last_token is not None else self.clock()
        return RequestMetrics(
            ttft=None if live.first_token is None else live.first_token - live.arrival,
            e2e=end - live.arrival,
            num_cached_tokens=sequences[0].num_cached_tokens,
            num_computed_tokens=live.num_computed,
            num_preemptions=sum(s.num_preemptions for s in sequences),
            kv_bytes=sum(kv_bytes(self.model.kv, s.num_positions) for s in sequences),
            queue_seconds=None if live.started is None else live.started - live.arrival,
        )

    @property
    def has_work(self) -> bool:
        """Whether a step would do anything."""
        return bool(self._undelivered) or self.scheduler.has_work

    @property
    def stats(self) -> EngineStats:
        """How the engine stands."""
        scheduler, counters = self.scheduler, self._counters
        return EngineStats(
            num_running=scheduler.num_running,
            num_waiting=scheduler.num_waiting,
            num_waiting_tokens=scheduler.num_waiting_tokens,
            num_used_blocks=self.model.num_blocks - self.kv.num_free_blocks,
            num_blocks=self.model.num_blocks,
            num_steps=scheduler.num_steps,
            num_prompt_tokens=counters.num_prompt_tokens,
            num_cached_tokens=counters.num_cached_tokens,
            num_computed_tokens=counters.num_computed_tokens,
            num_generated_tokens=counters.num_generated_tokens,
            num_preemptions=counters.num_preemptions,
        )

    # --- steps ---

    @property
    def in_step(self) -> frozenset[str]:
        """Ids of the requests in the step that ran last, or failed."""
        scheduled = () if self._last_step is None else self._last_step.scheduled
        return frozenset(item.sequence.request.request_id for item in scheduled)

    def progress(self) -> list[tuple[str, PromptProgress]]:
        """How far the prompts are that the last step read without coming to their end."""
        step = self._last_step
        found = []
        for item in step.scheduled if step is not None else ():
            sequence = item.sequence
            if not item.samples and not sequence.num_output_tokens and not sequence.is_finished:
                live = self._live[sequence.request.request_id]
                found.append((sequence.request.request_id, self._progress_of(live)))
        return found

    def _progress_of(self, live: _Live) -> PromptProgress:
        first = live.request.sequences[0]
        return PromptProgress(
            num_prompt_tokens=first.num_prompt_tokens,
            num_cached_tokens=first.num_cached_tokens,
            num_computed_tokens=first.num_computed_tokens,
            num_ahead=0,
            seconds=self.clock() - live.arrival,
        )

    def step(self) -> list[SequenceOutput]:
        """Run one step; returns the new tokens.

        When the step is interrupted or fails, its sequences are as before it, all others stay as
        they are, and the exception goes on. Tokens that were there by then come out of the next
        step.
        """
        if self._pipeline.under_way is None:
            self._last_step = self.scheduler.schedule()
            if self._last_step is not None:
                self._launch(self._last_step)
        launched = self._pipeline.under_way
        if launched is not None:
            self._last_step = launched.output
            self._run(launched)
        outputs, self._undelivered = self._undelivered, []
        return outputs

    def _launch(self, output: SchedulerOutput) -> None:
        try:
            now = self.clock()
            self._reporter.scheduled(output, now)
            self._pipeline.launch(output, self._begin(output, now))
        except BaseException:
            self.scheduler.discard(output)
            raise

    def _run(self, launched: Launched) -> None:
        output = launched.output
        sampling = {i: self._live[i].sampling for i in launched.request_ids if i in self._live}
        try:
            self._pipeline.launch_ahead(sampling)
            result = self._pipeline.collect()
            outcomes = dict(zip(_sampled_keys(output), result.sampled, strict=True))
            self._end_failed(outcomes)
        except BaseException:
            self._pipeline.drop()
            raise
        self._pipeline.retire()
        sampled = {k: t for k, t in outcomes.items() if isinstance(t, SampledToken)}
        updates = self.scheduler.update(output, {k: t.token_id for k, t in sampled.items()})
        updates = tuple(map(self._end_at_grammar, updates))
        # Before anybody is told of the step: a listener may raise, or take its time.
        self._undelivered += [self._output_of(update, sampled) for update in updates]
        self._pipeline.drop_if_useless()
        now = self.clock()
        self._account(output, updates, now)
        self._calibrate(output, result)
        self._measure_gap(result, now)
        self._report(launched, result, now)
        for update in updates:
            sequence = update.sequence
            self._reporter.sampled(sequence, sampled[_key(sequence)], output.step, now)
            if update.finished:
                self._reporter.finished(sequence, sequence.stop_reason)
        if self.config.debug:
            self.scheduler.check_invariants()

    def _report(self, launched: Launched, result: StepResult, now: float) -> None:
        # A step that ran ahead was given to the runner before its turn came.
        start = max(launched.time, self._last_end)
        self._last_end = now
        num_used = self.model.num_blocks - self.kv.num_free_blocks
        self._reporter.executed(
            launched.output,
            launched.step.batch,
            result,
            span=(start, now),
            num_blocks_used=num_used,
        )

    def _measure_gap(self, result: StepResult, now: float) -> None:
        before, self.gap_ms = self._last_result_at, result.gap_ms
        self._last_result_at = now if self.scheduler.has_work else None
        if self.gap_ms is None and before is not None and result.native_ms is not None:
            self.gap_ms = (now - before) * 1e3 - result.native_ms

    def _begin(
        self, output: SchedulerOutput, now: float
    ) -> dict[str, tuple[SequenceSampling, ...]]:
        """Note what starts; returns how the requests in the step choose their tokens."""
        sampling: dict[str, tuple[SequenceSampling, ...]] = {}
        for item in output.scheduled:
            request_id = item.sequence.request.request_id
            live = self._live[request_id]
            live.started = now if live.started is None else live.started
            sampling[request_id] = live.sampling
        counters = self._counters
        counters.num_preemptions += len(output.preemptions)
        for sequence, hit in output.prefix_hits:
            if sequence.num_preemptions == 0:
                counters.num_prompt_tokens += sequence.num_prompt_tokens
                counters.num_cached_tokens += hit.num_tokens
        return sampling

    def _output_of(
        self, update: SequenceUpdate, sampled: dict[SampleKey, SampledToken]
    ) -> SequenceOutput:
        sequence = update.sequence
        token, stop = sampled[_key(sequence)], sequence.stop_reason
        return SequenceOutput(
            request_id=sequence.request.request_id,
            sample_index=sequence.index,
            token_id=token.token_id,
            logprob=token.logprob,
            candidates=token.candidates,
            finish_reason=sequence.finish_reason if update.finished else None,
            stop_reason=None if stop in self.model.eos_token_ids else stop,
            probability=token.probability,
            ended_by_token=update.finished and stop is not None,
        )

    def _end_failed(self, outcomes: dict[SampleKey, SampledToken | SamplingError]) -> None:
        """End the requests of rows that gave no token; the others in the step go on."""
        for (request_id, index), outcome in outcomes.items():
            if isinstance(outcome, SamplingError) and request_id in self._live:
                error = self._live[request_id].sampling[index].error or outcome
                self._undelivered.append(
                    SequenceOutput(request_id, index, -1, 0.0, (), "abort", None, error=error)
                )
                self._abort(request_id)

    def _end_at_grammar(self, update: SequenceUpdate) -> SequenceUpdate:
        """End a sequence whose grammar leaves nothing to add; its last token counts."""
        sequence = update.sequence
        live = self._live[sequence.request.request_id]
        if update.finished or not live.sampling[sequence.index].advance():
            return update
        self.scheduler.finish(sequence, "stop")
        return replace(update, finished=True)

    def _calibrate(self, output: SchedulerOutput, result: StepResult) -> None:
        """Let predictions follow what steps take."""
        self._calibration.observe(output.load, result.forward_ms + result.sampling_ms)
        self.scheduler.step_time = self._calibration.step_time

    def _account(
        self, output: SchedulerOutput, updates: SequenceOf[SequenceUpdate], now: float
    ) -> None:
        for item in output.scheduled:
            live = self._live.get(item.sequence.request.request_id)
            if live is not None:  # wanted to the end of the step
                live.num_computed += item.num_tokens
        for update in updates:
            live = self._live[update.sequence.request.request_id]
            live.first_token = now if live.first_token is None else live.first_token
            live.last_token = now
        self._counters.num_computed_tokens += output.num_tokens
        self._counters.num_generated_tokens += len(updates)


def _key(sequence: Sequence) -> SampleKey:
    return sequence.request.request_id, sequence.index


def _sampled_keys(output: SchedulerOutput) -> list[SampleKey]:
    """Whose token each logits row becomes, in the order of the rows."""
    return [
        (item.sequence.request.request_id, index)
        for item in output.scheduled
        for index in item.samples
    ]
