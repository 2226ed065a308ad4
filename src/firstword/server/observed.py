"""The model as the APIs see it: the same interface, with every stream measured and limited.

So no API need know of metrics, logs, timeouts or shutdown. Not here: what the engine does.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import replace
from typing import Protocol, cast

from firstword.engine.messages import EngineInfo
from firstword.engine.outputs import RequestOutput, TextDelta
from firstword.engine.request import RequestOptions
from firstword.engine.stats import EngineStats
from firstword.errors import FirstwordError, QueueFullError
from firstword.processor.prompt import EncodedPrompt, Prompt
from firstword.sampling.params import SamplingParams
from firstword.server.chat import ServedLLM
from firstword.server.errors import RequestTimeoutError
from firstword.server.log import RequestRecord, current_request
from firstword.trace.metrics import RequestObserver, ServingMetrics


class OperatedLLM(ServedLLM, Protocol):
    """What the process that serves needs of a model besides (`AsyncLLM`).

    Attributes:
        on_gap: called after a step with the milliseconds that compiled code stood still before it.
    """

    on_gap: Callable[[float], None] | None

    @property
    def is_ready(self) -> bool:
        """Whether an engine takes requests."""

    @property
    def failure(self) -> FirstwordError | None:
        """Why no engine runs any more; None while one does or is being started."""

    def stats(self) -> EngineStats:
        """How the engine stood after its last step."""

    async def close(self, drain_seconds: float = 0) -> None:
        """End the engine."""


class ObservedLLM:
    """A model whose requests are measured, logged, and ended when their time is over.

    Args:
        llm: the model.
        metrics: where what requests took is added.
        request_timeout: seconds after its arrival at which a request ends with an error; None for
            no limit.
    """

    def __init__(
        self, llm: OperatedLLM, metrics: ServingMetrics, request_timeout: float | None = None
    ) -> None:
        self._llm, self._metrics, self._timeout = llm, metrics, request_timeout
        self._waits: set[_Wait] = set()
        self._ended_by: FirstwordError | None = None
        llm.on_gap = lambda ms: metrics.step_gap.observe(ms / 1e3)
        self.name = llm.name
        self.tokenizer = llm.tokenizer
        self.template = llm.template
        self.max_model_len = llm.max_model_len

    @property
    def info(self) -> EngineInfo:
        """As `AsyncLLM.info`."""
        return self._llm.info

    @property
    def is_awaited(self) -> bool:
        """Whether any stream waits for the engine now, rather than for its own reader."""
        return any(wait.is_waiting for wait in self._waits)

    @property
    def problem(self) -> str | None:
        """Why the engine takes no work, None when it does."""
        if self._llm.is_ready:
            return None
        failure = self._llm.failure
        return str(failure) if failure is not None else "the engine is being started"

    async def encode(self, prompt: Prompt, **variables: object) -> EncodedPrompt:
        """As `AsyncLLM.encode`."""
        return await self._llm.encode(prompt, **variables)

    def stats(self) -> EngineStats:
        """As `AsyncLLM.stats`."""
        return self._llm.stats()

    async def stream(
        self,
        prompt: Prompt | EncodedPrompt,
        params: SamplingParams | None = None,
        options: RequestOptions | None = None,
        *,
        request_id: str | None = None,
    ) -> AsyncGenerator[TextDelta, None]:
        """As `AsyncLLM.stream`; also raises RequestTimeoutError, and what `end_all` was given."""
        record = current_request.get() or RequestRecord(request_id or "", "", "")
        options = options or RequestOptions()
        if options.arrival is None:
            options = replace(options, arrival=record.arrival)
        follower = _Follower(RequestObserver(self._metrics, record.arrival), record)
        record.model = self.name
        # What streams is a generator, which can be closed; its protocol says less.
        deltas = cast(
            AsyncGenerator[TextDelta, None],
            self._llm.stream(prompt, params or SamplingParams(), options, request_id=request_id),
        )
        with follower:
            async with aclosing(deltas):
                wait = self._new_wait(record.arrival)
                try:
                    while (delta := await wait.next(deltas)) is not None:
                        follower.see(delta)
                        yield delta
                finally:
                    self._end_wait(wait)

    def end_all(self, error: FirstwordError) -> None:
        """End every stream with an error, those that are yet to begin too."""
        self._ended_by = error
        for wait in self._waits:
            wait.end(error)

    async def close(self, drain_seconds: float = 0) -> None:
        """As `AsyncLLM.close`."""
        await self._llm.close(drain_seconds)

    def _new_wait(self, arrival: float) -> _Wait:
        wait = _Wait()
        self._waits.add(wait)
        if self._ended_by is not None:
            wait.end(self._ended_by)
        elif self._timeout is not None:
            left = arrival + self._timeout - time.monotonic()
            error = RequestTimeoutError(
                f"the request took longer than {self._timeout:g} s, the most this server gives "
                "one: ask for fewer tokens, or start it with a longer --request-timeout"
            )
            wait.timer = asyncio.get_running_loop().call_later(max(0.0, left), wait.end, error)
        return wait

    def _end_wait(self, wait: _Wait) -> None:
        self._waits.discard(wait)
        if wait.timer is not None:
            wait.timer.cancel()


class _Wait:
    """A stream's wait for its next piece, which something else can end with an error.

    It cancels the waiting task, as asyncio.timeout does, but costs nothing per piece.
    """

    def __init__(self) -> None:
        self.timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[object] | None = None
        self._error: FirstwordError | None = None

    @property
    def is_waiting(self) -> bool:
        return self._task is not None

    def end(self, error: FirstwordError) -> None:
        """Raise `error` where the next piece is waited for, now or when it next is."""
        if self._error is None:
            self._error = error
            if self._task is not None:
                self._task.cancel()

    async def next(self, deltas: AsyncGenerator[TextDelta, None]) -> TextDelta | None:
        """The next piece; None after the last."""
        if self._error is not None:
            raise self._error
        self._task = task = asyncio.current_task()
        assert task is not None
        num_cancels = task.cancelling()
        try:
            return await anext(deltas, None)
        except asyncio.CancelledError:
            # Somebody else may have cancelled as well: that goes on as it came.
            if self._error is not None and task.uncancel() <= num_cancels:
                raise self._error from None
            raise
        finally:
            self._task = None


class _Follower:
    """Tells the observer and the record what a stream's pieces say, and how it ended."""

    def __init__(self, observer: RequestObserver, record: RequestRecord) -> None:
        self._observer, self._record = observer, record
        self._reason = "abort"

    def __enter__(self) -> None:
        pass

    def see(self, delta: TextDelta) -> None:
        """Note one piece."""
        if delta.token_ids:
            self._observer.tokens(delta.index, len(delta.token_ids), time.monotonic())
        if delta.progress is not None:
            progress = delta.progress
            self._observer.prompt(progress.num_prompt_tokens, progress.sources._asdict())
        if delta.error is not None:
            self._reason = "error"
        if delta.output is not None:
            self._see_output(delta.output)

    def _see_output(self, output: RequestOutput) -> None:
        metrics = output.metrics
        self._reason = output.outputs[0].finish_reason
        self._record.num_preemptions += metrics.num_preemptions
        sources = metrics.sources._asdict()
        self._observer.prompt(output.num_prompt_tokens, sources, metrics.miss)
        self._observer.scheduled(metrics.queue_seconds, metrics.prefill_seconds)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: object
    ) -> None:
        if isinstance(error, QueueFullError):
            self._observer.rejected("key_limit" if error.key_only else "queue_full")
            self._record.finish_reason = "rejected"
            return
        if isinstance(error, Exception):
            self._reason = "error"
        self._observer.finished(self._reason, time.monotonic())
        self._fill_record()

    def _fill_record(self) -> None:
        observer, record = self._observer, self._record
        record.num_prompt_tokens += observer.num_prompt_tokens
        record.num_cached_tokens += observer.num_cached_tokens
        record.num_disk_tokens += observer.sources.get("disk", 0)
        if observer.miss is not None and not record.miss:
            record.miss = f"{observer.miss.cause}@{observer.miss.position}"
        record.num_output_tokens += observer.num_output_tokens
        if record.ttft is None:
            record.ttft = observer.ttft
        record.finish_reason = self._reason
