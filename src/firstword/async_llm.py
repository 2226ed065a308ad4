"""`AsyncLLM`: a model for asyncio programs and for the server.

async with AsyncLLM("smollm2:135m") as llm:
    async for delta in llm.stream("What is gravity?"):
        print(delta.text, end="")

Not here: HTTP (server), how the engine runs beside the loop (engine_thread, engine_process), and
what becomes of the messages it sends (processor.flows).
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Protocol, Self, TypeVar

from firstword.config import EngineConfig
from firstword.engine.binding import Numerics
from firstword.engine.messages import (
    Abort,
    Add,
    Command,
    EngineInfo,
    LoadFailed,
    Message,
    Ready,
    Shutdown,
    StepMessage,
)
from firstword.engine.outputs import (
    RequestOutput,
    TextDelta,
)
from firstword.engine.preparation import check_prompt
from firstword.engine.request import RequestOptions
from firstword.engine.stats import EngineStats
from firstword.engine_process import ProcessClient, StartUp
from firstword.engine_thread import ThreadClient
from firstword.errors import ConfigError, EngineDiedError, FirstwordError
from firstword.loading import LoadOptions, ModelFile, open_model
from firstword.processor.flows import Flow, Flows
from firstword.processor.prompt import EncodedPrompt, Prompt, PromptEncoder
from firstword.sampling.params import SamplingParams
from firstword.text.chat_template import ChatTemplate
from firstword.text.tokenizer import Tokenizer
from firstword.trace.recorder import Recorder

T = TypeVar("T")

_READY_SECONDS = 60.0
"""A request that comes while the engine starts waits this long at most."""

_MAX_FAILED_STARTS = 3
"""An engine that died as often in a row, without finishing a request, is not started again."""


class EngineClient(Protocol):
    """Where the engine runs."""

    async def run(self) -> str:
        """Start it and pass its messages on until it ends; returns how it ended."""

    def send(self, command: Command) -> None:
        """Send a command; one that comes too late is lost."""

    def kill(self) -> None:
        """End it now, as far as that is possible."""


class AsyncLLM:
    """A loaded model that answers many prompts at once.

    Use it as an async context manager, or call `start` and `close`.

    Args:
        model: a catalogue name, a path, or hf:ORG/REPO[:FILE]; None for the default model.
        config: limits and switches of the engine.
        numerics: as for `LLM`.
        threads: threads to compute with; None for the usable physical cores.
        own_process: run the engine in a process of its own, so that this one's Python does not
            hold up its steps; one that dies is replaced. Otherwise it runs on a thread.
        recorder: receives the events of every request; only without a process of its own.

    Attributes:
        name: the model as it was asked for.
        tokenizer: the model's own, after `start`.
        info: what there is to know of the loaded model, after `start`.
        on_gap: called after a step with the milliseconds that the compiled code stood still
            before it; None for nobody.
    """

    name: str
    tokenizer: Tokenizer
    info: EngineInfo

    def __init__(
        self,
        model: str | Path | None = None,
        *,
        config: EngineConfig | None = None,
        numerics: Numerics | None = None,
        threads: int | None = None,
        own_process: bool = False,
        recorder: Recorder | None = None,
    ) -> None:
        if own_process and recorder is not None:
            raise ConfigError("a recorder cannot be had with own_process=True: leave one of them")
        self._model = None if model is None else str(model)
        self._options = LoadOptions(config or EngineConfig(), numerics, threads)
        self._own_process, self._recorder = own_process, recorder
        self._flows = Flows(self._send)
        self._ids = itertools.count()
        # One thread: more of them would only take the interpreter from the loop in turns.
        self._pool = ThreadPoolExecutor(1, "encode")
        self._ready = asyncio.Event()
        self._client: EngineClient | None = None
        self._supervisor: asyncio.Task[None] | None = None
        self._failure: FirstwordError | None = None
        self._is_closing = False
        self._stats, self._heard = EngineStats(), time.monotonic()
        self._num_restarts = self._num_failed_starts = 0
        self.on_gap: Callable[[float], None] | None = None

    # --- life ---

    async def start(self) -> Self:
        """Load the model.

        Raises:
            ModelNotFoundError, DownloadError, LicenseError, CheckpointError, CapacityError,
            ConfigError: see `LLM`.
        """
        file: ModelFile = await self._in_thread(
            lambda: open_model(self._model, self._options.config)
        )
        self.name, self.tokenizer = file.name, file.tokenizer
        self._encoder = PromptEncoder(file.tokenizer, file.name)
        self._supervisor = asyncio.create_task(self._supervise())
        await self._ready.wait()
        if self._failure is not None:
            await self.close()
            raise self._failure
        return self

    async def close(self, drain_seconds: float = 0) -> None:
        """End the engine; what runs after `drain_seconds` fails with `EngineDiedError`."""
        deadline = time.monotonic() + drain_seconds
        while self._flows and time.monotonic() < deadline:
            await asyncio.sleep(0.02)
        self._is_closing = True
        if self._client is not None and self._supervisor is not None:
            for request_id in self._flows:  # an abort ends a long step; a shutdown waits for it
                self._client.send(Abort(request_id))
            self._client.send(Shutdown())
            try:
                await asyncio.wait_for(asyncio.shield(self._supervisor), 5)
            except TimeoutError:
                self._client.kill()
                await self._supervisor
        self._pool.shutdown(wait=False, cancel_futures=True)

    async def __aenter__(self) -> Self:
        """As `start`."""
        return await self.start()

    async def __aexit__(self, *_: object) -> None:
        """As `close`."""
        await self.close()

    async def _supervise(self) -> None:
        """Keep an engine running; its requests fail with it, the next ones find another."""
        while True:
            self._client = self._new_client()
            how = await self._client.run()
            self._ready.clear()
            self._stats = EngineStats()  # its sequences and blocks are gone with it
            self._flows.fail_all(EngineDiedError(f"the engine {how}: send the request again"))
            if self._is_closing or self._failure is not None:
                break
            self._num_restarts += 1
            self._num_failed_starts += 1
            if self._num_failed_starts >= _MAX_FAILED_STARTS:
                self._failure = EngineDiedError(
                    f"the engine {how}, {self._num_failed_starts} times in a row: "
                    "it is not started again; look at its messages and restart the server"
                )
                break
        self._ready.set()  # whoever waits learns of the failure

    def _new_client(self) -> EngineClient:
        if self._own_process:
            return ProcessClient(StartUp(self._model, self._options), self._take)
        return ThreadClient(self._model, self._options, self._take, self._recorder)

    # --- what there is to know ---

    @property
    def template(self) -> ChatTemplate | None:
        """The model's chat template, None when it has none."""
        return self._encoder.template

    @property
    def max_model_len(self) -> int:
        """The context in tokens, prompt and output together."""
        return self.info.max_model_len

    @property
    def is_ready(self) -> bool:
        """Whether an engine is loaded and takes requests."""
        return self._ready.is_set() and self._failure is None and not self._is_closing

    @property
    def failure(self) -> FirstwordError | None:
        """Why no engine runs any more, None while one does or is being started."""
        return self._failure

    def stats(self) -> EngineStats:
        """How the engine stood after its last step, and how long ago that was."""
        since = time.monotonic() - self._heard if self._flows else 0.0
        return self._stats._replace(seconds_since_step=since, num_restarts=self._num_restarts)

    # --- requests ---

    async def encode(self, prompt: Prompt, **variables: object) -> EncodedPrompt:
        """Token ids of a prompt, made on a thread; see `PromptEncoder.encode`."""
        return await self._in_thread(lambda: self._encoder.encode(prompt, **variables))

    async def stream(
        self,
        prompt: Prompt | EncodedPrompt,
        params: SamplingParams | None = None,
        options: RequestOptions | None = None,
        *,
        request_id: str | None = None,
    ) -> AsyncGenerator[TextDelta, None]:
        """Answer one prompt, piece by piece.

        Pieces with `progress` come while the prompt is read; the texts of the others concatenate
        to the answer; the last one carries the whole `RequestOutput`. Closing the iterator, or
        cancelling its task, ends the request wherever it is.

        Args:
            prompt: text, token ids, messages, or what `encode` made of them.
            params: how to answer it.
            options: its place among the others.
            request_id: unique among the requests in flight; None for one of its own.

        Raises:
            ConfigError, PromptTooLongError, CapacityError, QueueFullError: it is refused.
            EngineDiedError: the engine ended before the answer did.
        """
        if not isinstance(prompt, EncodedPrompt):
            prompt = await self.encode(prompt)
        request_id = request_id or f"request-{next(self._ids)}"
        if request_id in self._flows:
            raise ConfigError(f"request id {request_id!r} is already in use: choose another")
        options = options or RequestOptions()
        if options.arrival is None:
            options = replace(options, arrival=time.monotonic() - prompt.seconds)
        await self._until_ready()
        # Refused here is what the engine would refuse, before it has to look at it.
        check_prompt(prompt.token_ids, self.tokenizer.vocab_size, self.max_model_len)
        if not self._flows:
            self._heard = time.monotonic()
        flow = Flow(prompt, self.tokenizer)
        self._flows.open(request_id, flow)
        try:
            self._send(Add(request_id, prompt.token_ids, params or SamplingParams(), options))
            while True:
                piece = await flow.pieces.get()
                if isinstance(piece, FirstwordError):
                    raise piece
                yield piece
                if piece.output is not None:
                    return
        finally:
            self._flows.close(request_id)
            if not flow.is_over:
                self._send(Abort(request_id))

    async def generate(
        self,
        prompt: Prompt | EncodedPrompt,
        params: SamplingParams | None = None,
        options: RequestOptions | None = None,
        *,
        request_id: str | None = None,
    ) -> RequestOutput:
        """Answer one prompt; arguments and errors as for `stream`."""
        output = None
        async for delta in self.stream(prompt, params, options, request_id=request_id):
            output = delta.output
        assert output is not None
        return output

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)

    async def _until_ready(self) -> None:
        try:
            # Not wait_for: before Python 3.12 it may swallow a cancellation, and a client that
            # has gone would be answered to the end.
            async with asyncio.timeout(_READY_SECONDS):
                await self._ready.wait()
        except TimeoutError:
            raise EngineDiedError(
                f"the engine was not there within {_READY_SECONDS:.0f} s: try again later"
            ) from None
        if self._is_closing:
            raise EngineDiedError("the model is being closed: send the request elsewhere")
        if self._failure is not None:
            raise self._failure

    def _send(self, command: Command) -> None:
        if self._client is not None:
            self._client.send(command)

    # --- what the engine says ---

    def _take(self, message: Message) -> None:
        self._heard = time.monotonic()
        match message:
            case Ready(info):
                self.info = info
                self._stats = EngineStats(num_blocks=info.num_blocks)
                self._ready.set()
            case LoadFailed(error):
                self._failure = error
            case StepMessage():
                self._take_step(message)

    def _take_step(self, message: StepMessage) -> None:
        self._stats = message.stats
        if self.on_gap is not None and message.gap_ms is not None:
            self.on_gap(message.gap_ms)
        if self._flows.take(message):
            self._num_failed_starts = 0
