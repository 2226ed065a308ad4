"""The tokens of one request to the text of its answer, piece by piece.

Streamed and whole answers, of a model in this process or another, are all made here. Not here:
where the tokens come from.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from firstword.engine.outputs import (
    CompletionOutput,
    RequestMetrics,
    RequestOutput,
    SequenceOutput,
    TextDelta,
    TokenLogprob,
)
from firstword.kvcache.sources import CacheMiss
from firstword.processor.prompt import EncodedPrompt
from firstword.sampling.params import SamplingParams
from firstword.text.stream import TextStream
from firstword.text.tokenizer import Tokenizer
from firstword.trace.misses import ExplainedMiss, explained

StopAt = Callable[[int, str], None]
"""Called with a sample's index and the stop string that its text reached."""


@dataclass
class _Sample:
    """One sequence's answer so far."""

    stream: TextStream
    text: list[str] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprob] = field(default_factory=list)
    finish_reason: str | None = None
    stop_reason: str | int | None = None


class Answer:
    """All samples of one request.

    Args:
        request_id: the request.
        prompt: what it answers.
        params: how it is answered; its seed is resolved.
        tokenizer: the model's own.
        stop_at: told when a text reaches a stop string, so that no more is computed.
    """

    def __init__(
        self,
        request_id: str,
        prompt: EncodedPrompt,
        params: SamplingParams,
        tokenizer: Tokenizer,
        stop_at: StopAt,
    ) -> None:
        assert params.seed is not None
        self.request_id, self.prompt, self.params = request_id, prompt, params
        self._seed, self._tokenizer = params.seed, tokenizer
        self._stop_at = stop_at
        self._samples = [
            _Sample(
                TextStream(
                    tokenizer,
                    params.stop,
                    skip_special=params.skip_special_tokens,
                    # An answer held to a grammar is just what the grammar saw.
                    keep_leading_space=not prompt.is_chat or params.grammar is not None,
                )
            )
            for _ in range(params.n)
        ]

    @property
    def is_finished(self) -> bool:
        """Whether the text of every sample has ended."""
        return all(sample.finish_reason for sample in self._samples)

    @property
    def num_output_tokens(self) -> int:
        """Tokens so far, over all samples."""
        return sum(len(sample.token_ids) for sample in self._samples)

    def advance(self, output: SequenceOutput) -> TextDelta | None:
        """Take in a token.

        Returns:
            The piece of text that became certain, maybe an empty one; None for a token that
            comes after the end of the sample's text.
        """
        sample = self._samples[output.sample_index]
        if sample.finish_reason is not None:
            return None
        sample.token_ids.append(output.token_id)
        logprobs: tuple[TokenLogprob, ...] = ()
        if self.params.logprobs is not None:
            logprobs = (_logprob(output, self.params.logprobs),)
            sample.logprobs += logprobs
        text = self._text(sample, output)
        sample.text.append(text)
        return TextDelta(
            request_id=self.request_id,
            index=output.sample_index,
            text=text,
            token_ids=(output.token_id,),
            finish_reason=sample.finish_reason,
            logprobs=logprobs,
            stop_reason=sample.stop_reason,
        )

    def _text(self, sample: _Sample, output: SequenceOutput) -> str:
        """The text that became certain, and whether the sample ends with it."""
        text = "" if output.ended_by_token else sample.stream.push(output.token_id)
        if sample.stream.stop_reason is not None:
            sample.finish_reason, sample.stop_reason = "stop", sample.stream.stop_reason
            self._stop_at(output.sample_index, sample.stream.stop_reason)
        elif output.finish_reason is not None:
            text += sample.stream.finish()
            sample.finish_reason = output.finish_reason
            sample.stop_reason = output.stop_reason
            if sample.stream.stop_reason is not None:  # the held-back end completed a stop string
                sample.finish_reason, sample.stop_reason = "stop", sample.stream.stop_reason
        return text

    def output(self, metrics: RequestMetrics) -> RequestOutput:
        """The whole answer; samples that have not ended count as aborted."""
        return RequestOutput(
            request_id=self.request_id,
            prompt=self.prompt.text,
            prompt_token_ids=self.prompt.token_ids,
            outputs=tuple(map(self._completion, range(len(self._samples)))),
            seed=self._seed,
            metrics=metrics,
            cache_miss=self._cache_miss(metrics.miss),
        )

    def _cache_miss(self, miss: CacheMiss | None) -> ExplainedMiss | None:
        def text_of(token_ids: Sequence[int]) -> str:
            return self._tokenizer.decode(token_ids, skip_special=False, keep_leading_space=True)

        return None if miss is None else explained(miss, self.prompt.token_ids, text_of)

    def _completion(self, index: int) -> CompletionOutput:
        sample = self._samples[index]
        return CompletionOutput(
            index=index,
            text="".join(sample.text),
            token_ids=tuple(sample.token_ids),
            finish_reason=sample.finish_reason or "abort",
            stop_reason=sample.stop_reason,
            logprobs=None if self.params.logprobs is None else tuple(sample.logprobs),
        )


def with_output(delta: TextDelta, output: RequestOutput) -> TextDelta:
    """The last piece of a request, which carries all of it."""
    return replace(delta, output=output)


def _logprob(output: SequenceOutput, num_candidates: int) -> TokenLogprob:
    return TokenLogprob(
        token_id=output.token_id,
        logprob=output.logprob,
        candidates=output.candidates[:num_candidates],
        probability=output.probability,
    )
