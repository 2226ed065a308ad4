"""A model that says what it is told to, for the tests of the app around it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from typing import cast

from firstword.engine.engine import RequestOptions
from firstword.engine.outputs import (
    CompletionOutput,
    PromptProgress,
    RequestMetrics,
    RequestOutput,
    TextDelta,
)
from firstword.engine.stats import EngineStats
from firstword.errors import FirstwordError
from firstword.processor.prompt import EncodedPrompt, Prompt
from firstword.sampling.params import SamplingParams
from firstword.text.tokenizer import Tokenizer

WORDS = ("one", " two", " three")


class FakeEngine:
    """Streams `words`, one token each, with `delay` seconds before each.

    Args:
        delay: seconds; infinity for an engine that hangs.
        error: raised instead of the first word.
    """

    name = "fake"
    template = None
    max_model_len = 128

    def __init__(
        self,
        words: tuple[str, ...] = WORDS,
        delay: float = 0.0,
        error: Exception | None = None,
    ) -> None:
        self.tokenizer = cast(Tokenizer, None)
        self.words, self.delay, self.error = words, delay, error
        self.figures = EngineStats(num_blocks=100)
        self.options: list[RequestOptions] = []
        self.is_ready = True
        self.failure: FirstwordError | None = None
        self.num_aborted = 0
        self.num_closed = 0

    async def encode(self, prompt: Prompt, **variables: object) -> EncodedPrompt:
        return EncodedPrompt((1, 2, 3), str(prompt), 3)

    async def stream(
        self,
        prompt: Prompt | EncodedPrompt,
        params: SamplingParams,
        options: RequestOptions | None = None,
        *,
        request_id: str | None = None,
    ) -> AsyncGenerator[TextDelta]:
        assert options is not None and options.arrival is not None
        self.options.append(options)
        request_id, is_done = request_id or "r", False
        try:
            yield TextDelta(request_id, 0, "", (), progress=PromptProgress(3, 1, 2, 0, 0.0))
            for i, word in enumerate(self.words):
                await self._step()
                is_last = i == len(self.words) - 1
                output = self._output(request_id, options.arrival) if is_last else None
                is_done = is_last
                yield TextDelta(request_id, 0, word, (i,), "stop" if is_last else None, output)
        finally:
            self.num_aborted += not is_done

    async def _step(self) -> None:
        if self.error is not None:
            raise self.error
        await asyncio.sleep(min(self.delay, 1e6))
        self.figures = self.figures._replace(num_steps=self.figures.num_steps + 1)

    def _output(self, request_id: str, arrival: float) -> RequestOutput:
        ids = tuple(range(len(self.words)))
        answer = CompletionOutput(0, "".join(self.words), ids, "stop")
        metrics = RequestMetrics(0.3, time.monotonic() - arrival, 1, 5, 0, 0, queue_seconds=0.1)
        return RequestOutput(request_id, "x", (1, 2, 3), (answer,), 0, metrics)

    def stats(self) -> EngineStats:
        return self.figures

    async def close(self, drain_seconds: float = 0) -> None:
        self.num_closed += 1
