"""An `AsyncLLM` without a model: scripted answers, delays and failures, and a real tokenizer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field

from firstword.batch import Candidate
from firstword.engine.messages import EngineInfo
from firstword.engine.outputs import (
    CompletionOutput,
    PromptProgress,
    RequestMetrics,
    RequestOutput,
    TextDelta,
    TokenLogprob,
)
from firstword.engine.request import RequestOptions
from firstword.engine.stats import EngineStats
from firstword.errors import ConfigError, PromptTooLongError
from firstword.kvcache.sources import CacheMiss, PromptSources
from firstword.processor.prompt import EncodedPrompt, Prompt, PromptEncoder
from firstword.sampling.params import SamplingParams
from firstword.text.chat_template import ChatTemplate
from firstword.text.stream import TextStream
from firstword.text.tokenizer import Tokenizer
from firstword.trace.misses import ExplainedMiss, explained
from tests.text import vocabularies

CHATML = (
    "{% if tools %}<|im_start|>tools\n{{ tools | tojson }}<|im_end|>\n{% endif %}"
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] or '' }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def byte_tokenizer(chat_template: str | None = CHATML) -> Tokenizer:
    """A real tokenizer whose tokens are bytes, besides three control tokens."""
    metadata = vocabularies.byte_level(chat_template=chat_template)
    return Tokenizer.from_gguf(metadata, "fake.gguf")


@dataclass(frozen=True)
class Script:
    """What one answer is and how it comes.

    Args:
        text: the answer; control strings in it are control tokens.
        samples: answers of further samples; missing ones repeat `text`.
        tokens_per_delta: how many tokens come at once.
        progress: told before the first token.
        delay: seconds before each delta, progress included.
        refusal: raised instead of the first delta.
        refusal_after: seconds before it.
        failure: raised after `failure_after` tokens.
        failure_after: see `failure`.
        sources: cached tokens of the prompt.
        miss: why there are no more.
        never_ends: nothing comes after the progress.
    """

    text: str = "Hello"
    samples: tuple[str, ...] = ()
    tokens_per_delta: int = 1
    progress: tuple[PromptProgress, ...] = ()
    delay: float = 0.0
    refusal: Exception | None = None
    refusal_after: float = 0.0
    failure: Exception | None = None
    failure_after: int = 0
    sources: PromptSources = field(default_factory=PromptSources)
    miss: CacheMiss | None = None
    never_ends: bool = False


@dataclass
class FakeRequest:
    """One request that the fake received."""

    request_id: str
    prompt: EncodedPrompt
    params: SamplingParams
    options: RequestOptions


@dataclass
class FakeAsyncLLM:
    """The interface of `AsyncLLM`.

    Args:
        script: of every answer.
        tokenizer: real.
        max_model_len: context in tokens.
        name: the model's.

    Attributes:
        requests: all that came, in order.
        live: ids of the requests in flight.
        aborted: ids of those that were closed before their end.
        variables: the template variables of the last `encode`.
        num_steps: deltas given so far.
    """

    script: Script = field(default_factory=Script)
    tokenizer: Tokenizer = field(default_factory=byte_tokenizer)
    max_model_len: int = 1000
    name: str = "fake:1m"

    def __post_init__(self) -> None:
        self._encoder = PromptEncoder(self.tokenizer, self.name)
        self.requests: list[FakeRequest] = []
        self.live: set[str] = set()
        self.aborted: list[str] = []
        self.variables: dict[str, object] = {}
        self.num_steps = 0
        self.kv_dtype = "float16"

    @property
    def template(self) -> ChatTemplate | None:
        return self._encoder.template

    @property
    def info(self) -> EngineInfo:
        return EngineInfo(
            max_model_len=self.max_model_len,
            max_num_seqs=64,
            block_size=32,
            num_blocks=100,
            kv_bytes_per_token=10,
            kv_dtype=self.kv_dtype,
            kv_pool_bytes=32_000,
            weight_bytes=1_000_000,
            backend="fake (isa)",
            num_threads=2,
            fingerprint="f",
            notices=("this model is a fake",),
            memory_summary="room for 3,200 tokens",
        )

    async def encode(self, prompt: Prompt, **variables: object) -> EncodedPrompt:
        self.variables = variables
        return self._encoder.encode(prompt, **variables)

    async def stream(
        self,
        prompt: Prompt | EncodedPrompt,
        params: SamplingParams | None = None,
        options: RequestOptions | None = None,
        *,
        request_id: str | None = None,
    ) -> AsyncGenerator[TextDelta, None]:
        if not isinstance(prompt, EncodedPrompt):
            prompt = await self.encode(prompt)
        params = params or SamplingParams()
        request = FakeRequest(request_id or "?", prompt, params, options or RequestOptions())
        self.requests.append(request)
        if self.script.refusal_after:
            await asyncio.sleep(self.script.refusal_after)
        self._check(prompt, params)
        self.live.add(request.request_id)
        done = False
        try:
            async for delta in self._deltas(request):
                done = delta.output is not None
                self.num_steps += 1
                yield delta
        finally:
            self.live.discard(request.request_id)
            if not done:
                self.aborted.append(request.request_id)

    def stats(self) -> EngineStats:
        return EngineStats(num_running=len(self.live), num_blocks=100, num_steps=self.num_steps)

    def _check(self, prompt: EncodedPrompt, params: SamplingParams) -> None:
        if self.script.refusal is not None:
            raise self.script.refusal
        if not prompt.token_ids:
            raise ConfigError("the prompt has no tokens: give at least one character")
        if any(not 0 <= token < self.tokenizer.vocab_size for token in prompt.token_ids):
            raise ConfigError("a prompt token id is not in the vocabulary")
        if len(prompt.token_ids) >= self.max_model_len:
            raise PromptTooLongError(len(prompt.token_ids), self.max_model_len)
        params.check_vocabulary(self.tokenizer.vocab_size)

    async def _deltas(self, request: FakeRequest) -> AsyncGenerator[TextDelta, None]:
        for progress in self.script.progress:
            await asyncio.sleep(self.script.delay)
            yield TextDelta(request.request_id, 0, "", (), progress=progress)
        if self.script.never_ends:
            await asyncio.Event().wait()
        room = self.max_model_len - len(request.prompt.token_ids)
        samples = [_FakeSample(self, request, i, room) for i in range(request.params.n)]
        num_tokens = 0
        for index, sample in enumerate(samples):
            async for delta in self._sample_deltas(sample, index == len(samples) - 1, samples):
                yield delta
                num_tokens += len(delta.token_ids)
                if self.script.failure is not None and num_tokens >= self.script.failure_after:
                    raise self.script.failure

    async def _sample_deltas(
        self, sample: _FakeSample, is_last: bool, samples: Sequence[_FakeSample]
    ) -> AsyncGenerator[TextDelta, None]:
        size = self.script.tokens_per_delta
        while sample.finish_reason is None:
            await asyncio.sleep(self.script.delay)
            start, text = len(sample.token_ids), sample.advance(size)
            ended = sample.finish_reason is not None
            yield TextDelta(
                request_id=sample.request.request_id,
                index=sample.index,
                text=text,
                token_ids=tuple(sample.token_ids[start:]),
                finish_reason=sample.finish_reason,
                output=self._output(samples) if ended and is_last else None,
                logprobs=tuple(sample.logprobs[start:]),
                stop_reason=sample.stop_reason,
            )

    def _output(self, samples: Sequence[_FakeSample]) -> RequestOutput:
        request = samples[0].request
        num_computed = len(request.prompt.token_ids) - self.script.sources.num_cached
        return RequestOutput(
            request_id=request.request_id,
            prompt=request.prompt.text,
            prompt_token_ids=request.prompt.token_ids,
            outputs=tuple(sample.output() for sample in samples),
            seed=1234 if request.params.seed is None else request.params.seed,
            metrics=RequestMetrics(
                0.1,
                0.2,
                self.script.sources.num_cached,
                num_computed,
                0,
                1024,
                sources=self.script.sources,
                miss=self.script.miss,
            ),
            cache_miss=self._cache_miss(request),
        )

    def _cache_miss(self, request: FakeRequest) -> ExplainedMiss | None:
        if self.script.miss is None:
            return None
        return explained(self.script.miss, request.prompt.token_ids, self.tokenizer.decode)


class _FakeSample:
    """One scripted sample, cut by the real stop strings and limits."""

    def __init__(self, llm: FakeAsyncLLM, request: FakeRequest, index: int, room: int) -> None:
        texts = (llm.script.text, *llm.script.samples)
        self.request, self.index, self._tokenizer = request, index, llm.tokenizer
        text = texts[index] if index < len(texts) else llm.script.text
        eos = sorted(llm.tokenizer.eos_ids)[:1]
        self._script = [*llm.tokenizer.encode(text, parse_special=True), *eos]
        self._limit = min(request.params.max_tokens or room, room)
        self._stream = TextStream(
            llm.tokenizer,
            request.params.stop,
            skip_special=request.params.skip_special_tokens,
            keep_leading_space=not request.prompt.is_chat,
        )
        self.token_ids: list[int] = []
        self.logprobs: list[TokenLogprob] = []
        self._text = ""
        self.finish_reason: str | None = None
        self.stop_reason: str | int | None = None

    def advance(self, count: int) -> str:
        """The text of the next `count` tokens."""
        text = ""
        for _ in range(count):
            if self.finish_reason is None:
                text += self._next()
        self._text += text
        return text

    def _next(self) -> str:
        token_id = self._script[len(self.token_ids)]
        self.token_ids.append(token_id)
        if self.request.params.logprobs is not None:
            self.logprobs.append(self._logprob(token_id, self.request.params.logprobs))
        if token_id in self._tokenizer.eos_ids and not self.request.params.ignore_eos:
            self.finish_reason = "stop"
            return self._stream.finish()
        text = self._stream.push(token_id)
        if self._stream.stop_reason is not None:
            self.finish_reason, self.stop_reason = "stop", self._stream.stop_reason
        elif len(self.token_ids) in (self._limit, len(self._script)):
            self.finish_reason = "length"
            text += self._stream.finish()
        return text

    def _logprob(self, token_id: int, count: int) -> TokenLogprob:
        candidates = [Candidate((token_id + i) % 256, -0.5 - i, 0.5) for i in range(count)]
        return TokenLogprob(token_id, -0.5, tuple(candidates), probability=0.75)

    def output(self) -> CompletionOutput:
        """The whole sample."""
        return CompletionOutput(
            index=self.index,
            text=self._text,
            token_ids=tuple(self.token_ids),
            finish_reason=str(self.finish_reason),
            stop_reason=self.stop_reason,
            logprobs=tuple(self.logprobs) if self.request.params.logprobs is not None else None,
        )
