"""Between text and the engine: prompts become token ids, tokens become streamed text.

Used by every shell (`LLM`, later `AsyncLLM`), so that streamed and whole answers are made by the
same lines. Not here: loading models, threads, processes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from firstword.engine.engine import Engine, RequestOptions
from firstword.engine.outputs import (
    CompletionOutput,
    RequestOutput,
    SequenceOutput,
    TextDelta,
    TokenLogprob,
)
from firstword.errors import ChatTemplateError, ConfigError
from firstword.sampling.params import SamplingParams
from firstword.text.chat_template import ChatTemplate
from firstword.text.stream import TextStream
from firstword.text.tokenizer import Tokenizer
from firstword.trace import events

Message = Mapping[str, str]
Prompt = str | Sequence[int] | Sequence[Message]
"""Raw text, token ids, or the messages of a chat."""


@dataclass(frozen=True)
class EncodedPrompt:
    """A prompt as token ids.

    Args:
        token_ids: all of them.
        text: the prompt as text, template included; None when it came as token ids.
        num_typed_tokens: tokens of what the user typed; the rest were added by the template or
            by the model's rule for the beginning of a text.
        is_chat: it ends where an answer begins, rather than in the middle of a text.
        seconds: time it took.
    """

    token_ids: tuple[int, ...]
    text: str | None
    num_typed_tokens: int
    is_chat: bool = False
    seconds: float = 0.0


@dataclass
class _Sample:
    """One sequence's answer so far."""

    stream: TextStream
    text: list[str] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprob] = field(default_factory=list)
    finish_reason: str | None = None
    stop_reason: str | int | None = None


@dataclass
class _Request:
    prompt: EncodedPrompt
    params: SamplingParams
    seed: int
    samples: list[_Sample]

    @property
    def is_finished(self) -> bool:
        return all(sample.finish_reason for sample in self.samples)


class Processor:
    """Encodes prompts, steps the engine, and turns its tokens into text.

    Args:
        engine: runs the model.
        tokenizer: the model's own.
        template: the model's chat template, None when it has none.
        name: the model's name, for messages.
    """

    def __init__(
        self, engine: Engine, tokenizer: Tokenizer, template: ChatTemplate | None, name: str
    ) -> None:
        self.engine, self.tokenizer, self.template, self.name = engine, tokenizer, template, name
        self._requests: dict[str, _Request] = {}

    def encode(self, prompt: Prompt) -> EncodedPrompt:
        """Token ids of a prompt.

        Raises:
            ConfigError: an empty prompt or one of another type.
            ChatTemplateError: messages for a model without a chat template, or refused by it.
        """
        clock = self.engine.clock
        start = clock()
        if isinstance(prompt, str):
            encoded = self._encode_text(prompt)
        else:
            ids = tuple(item for item in prompt if isinstance(item, int))
            messages = [dict(item) for item in prompt if isinstance(item, Mapping)]
            if ids and len(ids) == len(prompt):
                encoded = EncodedPrompt(ids, None, len(ids))
            elif messages and len(messages) == len(prompt):
                encoded = self._encode_chat(messages)
            else:
                raise ConfigError(
                    "the prompt is empty or mixed: give text, token ids, or a list of messages "
                    "with 'role' and 'content'"
                )
        return replace(encoded, seconds=clock() - start)

    def _encode_text(self, text: str) -> EncodedPrompt:
        ids = self.tokenizer.encode(text, parse_special=True)
        bos = self.tokenizer.bos_ids
        # A text that already begins with it gets no second one.
        if bos and ids[: len(bos)] == bos:
            bos = []
        return EncodedPrompt(tuple([*bos, *ids]), text, len(ids))

    def _encode_chat(self, messages: list[dict[str, str]]) -> EncodedPrompt:
        if self.template is None:
            raise ChatTemplateError(
                f"{self.name} has no chat template: it was made to continue text, not to answer. "
                "Use --raw (in Python: generate() with a plain string) or choose a chat model"
            )
        chat = self.template.encode(self.tokenizer, messages)
        return EncodedPrompt(tuple(chat.token_ids), chat.text, chat.num_typed_tokens, is_chat=True)

    def submit(
        self,
        request_id: str,
        prompt: EncodedPrompt,
        params: SamplingParams,
        options: RequestOptions | None = None,
    ) -> None:
        """Queue a request; its text comes out of `step`.

        A request without an arrival time of its own arrived when its encoding began.

        Raises:
            ConfigError, PromptTooLongError, CapacityError: see `Engine.add_request`.
        """
        options = options or RequestOptions()
        if options.arrival is None:
            options = replace(options, arrival=self.engine.clock() - prompt.seconds)
        self.engine.add_request(request_id, prompt.token_ids, params, options)
        samples = [_Sample(self._text_stream(prompt, params)) for _ in range(params.n)]
        seed = self.engine.seed_of(request_id)
        self._requests[request_id] = _Request(prompt, params, seed, samples)
        self._emit_prompt(request_id, prompt)

    def _text_stream(self, prompt: EncodedPrompt, params: SamplingParams) -> TextStream:
        return TextStream(
            self.tokenizer,
            params.stop,
            skip_special=params.skip_special_tokens,
            # An answer held to a grammar is just what the grammar saw.
            keep_leading_space=not prompt.is_chat or params.grammar is not None,
        )

    def abort(self, request_id: str) -> None:
        """End a request now; what it produced is dropped. Unknown ids are ignored."""
        if request_id in self._requests:
            self.engine.abort(request_id)
            self.engine.release(request_id)
            del self._requests[request_id]

    @property
    def has_work(self) -> bool:
        """Whether a step would do anything."""
        return self.engine.has_work

    def step(self) -> list[TextDelta]:
        """Run one step of the engine; returns the new pieces of text."""
        outputs = self.engine.step()
        deltas = []
        for output in outputs:
            # An error of one sample ends the whole request: its other outputs are dropped.
            if output.request_id in self._requests:
                deltas.append(self._advance(output))
        return deltas

    def _advance(self, output: SequenceOutput) -> TextDelta:
        request = self._requests[output.request_id]
        if output.error is not None:
            self.abort(output.request_id)
            return TextDelta(output.request_id, output.sample_index, "", (), error=output.error)
        sample = request.samples[output.sample_index]
        sample.token_ids.append(output.token_id)
        logprobs: tuple[TokenLogprob, ...] = ()
        if request.params.logprobs is not None:
            logprobs = (_logprob(output, request.params.logprobs),)
            sample.logprobs += logprobs
        text = self._text(sample, output)
        sample.text.append(text)
        if text:
            self._emit_text(output, text)
        done = self._finish(output.request_id) if request.is_finished else None
        return TextDelta(
            request_id=output.request_id,
            index=output.sample_index,
            text=text,
            token_ids=(output.token_id,),
            finish_reason=sample.finish_reason,
            output=done,
            logprobs=logprobs,
        )

    def _text(self, sample: _Sample, output: SequenceOutput) -> str:
        """The text that became certain, and whether the sample ends with it."""
        ended_by_token = output.stop_reason is not None
        text = "" if ended_by_token else sample.stream.push(output.token_id)
        if sample.stream.stop_reason is not None:
            sample.finish_reason, sample.stop_reason = "stop", sample.stream.stop_reason
            self.engine.stop(output.request_id, output.sample_index, sample.stream.stop_reason)
        elif output.finish_reason is not None:
            text += sample.stream.finish()
            sample.finish_reason = output.finish_reason
            sample.stop_reason = output.stop_reason
            if sample.stream.stop_reason is not None:  # the held-back end completed a stop string
                sample.finish_reason, sample.stop_reason = "stop", sample.stream.stop_reason
            elif output.stop_reason in self.engine.model.eos_token_ids:
                sample.stop_reason = None
        return text

    def _finish(self, request_id: str) -> RequestOutput:
        request = self._requests.pop(request_id)
        return RequestOutput(
            request_id=request_id,
            prompt=request.prompt.text,
            prompt_token_ids=request.prompt.token_ids,
            outputs=tuple(
                CompletionOutput(
                    index=index,
                    text="".join(sample.text),
                    token_ids=tuple(sample.token_ids),
                    finish_reason=str(sample.finish_reason),
                    stop_reason=sample.stop_reason,
                    logprobs=(None if request.params.logprobs is None else tuple(sample.logprobs)),
                )
                for index, sample in enumerate(request.samples)
            ),
            seed=request.seed,
            metrics=self.engine.release(request_id),
        )

    def _emit_prompt(self, request_id: str, prompt: EncodedPrompt) -> None:
        recorder = self.engine.recorder
        if not recorder.enabled:
            return
        recorder.emit(
            events.PromptEncoded(
                time=self.engine.clock(),
                request_id=request_id,
                seconds=prompt.seconds,
                token_ids=prompt.token_ids,
                token_texts=tuple(self.tokenizer.token_text(t) for t in prompt.token_ids),
                num_typed_tokens=prompt.num_typed_tokens,
                num_template_tokens=len(prompt.token_ids) - prompt.num_typed_tokens,
                prompt_text=prompt.text or "",
            )
        )

    def _emit_text(self, output: SequenceOutput, text: str) -> None:
        recorder = self.engine.recorder
        if not recorder.enabled:
            return
        recorder.emit(
            events.TextEmitted(
                time=self.engine.clock(),
                request_id=output.request_id,
                sample_index=output.sample_index,
                text=text,
            )
        )


def _logprob(output: SequenceOutput, num_candidates: int) -> TokenLogprob:
    return TokenLogprob(
        token_id=output.token_id,
        logprob=output.logprob,
        candidates=output.candidates[:num_candidates],
        probability=output.probability,
    )
