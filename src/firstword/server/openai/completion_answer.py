"""The events of text completions as the API's chunks, or as one whole answer.

One request may hold several prompts: choice `prompt * n + sample` is a sample of a prompt. Not
here: HTTP (completions), running several prompts together (completions).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from firstword.server.chat import ChatEvent, Delta, Done, Progress, SampleEnd, Started, Usage
from firstword.server.openai.envelope import (
    Envelope,
    StreamForm,
    progress_fields,
    usage_fields,
)
from firstword.server.openai.logprobs import LogprobWriter, writers
from firstword.server.responses import json_bytes
from firstword.server.sse import comment, quote
from firstword.text.pieces import ContentPiece
from firstword.text.tokenizer import Tokenizer


def text_of(event: Delta) -> str:
    """The text of an event of a raw prompt, which has no other pieces."""
    return "".join(piece.text for piece in event.pieces if isinstance(piece, ContentPiece))


class CompletionChunks:
    """Writes the events of completions as chunks.

    Args:
        envelope: what each chunk carries.
        form: what the stream is to carry.
        tokenizer: the model's.
        num_prompts: prompts of the request.
        num_samples: n, for each prompt.
    """

    def __init__(
        self,
        envelope: Envelope,
        form: StreamForm,
        tokenizer: Tokenizer,
        num_prompts: int,
        num_samples: int,
    ) -> None:
        self._envelope, self._form, self._tokenizer = envelope, form, tokenizer
        self._logprobs: list[LogprobWriter] = []
        self._num_samples = num_samples
        head = envelope.chunk_head()
        choices = range(num_prompts * num_samples)
        self._heads = [head + b'{"index":%d,"text":' % i for i in choices]
        self._end = b',"usage":null}\n\n' if form.include_usage else b"}\n\n"
        self._usage = [Usage()] * num_prompts

    def write(self, prompt: int, event: ChatEvent) -> bytes:
        """The chunks of one event.

        Args:
            prompt: index of its prompt.
            event: the event.
        """
        if isinstance(event, Delta | SampleEnd):
            return self._choice(prompt, event)
        if isinstance(event, Progress):
            fields = {**progress_fields(event.progress), "prompt": prompt}
            words = comment(event.in_words())
            if self._form.progress:
                return words + self._envelope.chunk(prompt_progress=fields)
            return words
        self._usage[prompt] = event.usage
        if isinstance(event, Started) and not self._logprobs:
            count = len(self._heads)
            self._logprobs = writers(self._tokenizer, event.params, count, is_raw=True)
        return b""

    def _choice(self, prompt: int, event: Delta | SampleEnd) -> bytes:
        self._usage[prompt] = event.usage
        choice = prompt * self._num_samples + event.index
        text, logprobs, reason = "", b"null", b"null"
        if isinstance(event, SampleEnd):
            reason = b'"%b"' % event.finish_reason.encode()
        else:
            text = text_of(event)
            if event.logprobs:
                logprobs = json_bytes(self._logprobs[choice].completion(event.logprobs))
        tail = b',"logprobs":%b,"finish_reason":%b}]' % (logprobs, reason)
        return self._heads[choice] + quote(text) + tail + self._usage_end()

    def finish(self) -> bytes:
        """The last chunk, once all prompts are done."""
        if not self._form.include_usage:
            return b""
        return self._envelope.chunk(usage=usage_fields(sum(self._usage, Usage())))

    def _usage_end(self) -> bytes:
        if not self._form.continuous_usage:
            return self._end
        usage = usage_fields(sum(self._usage, Usage()))
        return b',"usage":%b}\n\n' % json_bytes(usage)


@dataclass
class _Choice:
    """One sample of one prompt, being gathered."""

    text: list[str] = field(default_factory=list)
    logprobs: dict[str, list[object]] = field(default_factory=dict)
    finish_reason: str = "stop"


class CompletionAnswer:
    """Gathers the events of completions into one answer.

    Args:
        envelope: what it carries.
        tokenizer: the model's.
        num_prompts: prompts of the request.
        num_samples: n, for each prompt.

    Attributes:
        done: the last event of each prompt, None until it came.
    """

    def __init__(
        self,
        envelope: Envelope,
        tokenizer: Tokenizer,
        num_prompts: int,
        num_samples: int,
    ) -> None:
        self._envelope, self._tokenizer, self._num_samples = envelope, tokenizer, num_samples
        self._logprobs: list[LogprobWriter] = []
        self._choices = [_Choice() for _ in range(num_prompts * num_samples)]
        self.done: list[Done | None] = [None] * num_prompts

    def add(self, prompt: int, event: ChatEvent) -> None:
        """Take one event in.

        Args:
            prompt: index of its prompt.
            event: the event.
        """
        if isinstance(event, Started) and not self._logprobs:
            count = len(self._choices)
            self._logprobs = writers(self._tokenizer, event.params, count, is_raw=True)
        if isinstance(event, Done):
            self.done[prompt] = event
        if not isinstance(event, Delta | SampleEnd):
            return
        number = prompt * self._num_samples + event.index
        choice = self._choices[number]
        if isinstance(event, SampleEnd):
            choice.finish_reason = event.finish_reason
            return
        choice.text.append(text_of(event))
        if event.logprobs:
            for name, values in self._logprobs[number].completion(event.logprobs).items():
                choice.logprobs.setdefault(name, []).extend(values)

    def json(self, **extra: object) -> bytes:
        """The answer, once all are done.

        Args:
            extra: further fields.
        """
        choices = [
            {
                "index": index,
                "text": "".join(choice.text),
                "logprobs": choice.logprobs if self._logprobs else None,
                "finish_reason": choice.finish_reason,
            }
            for index, choice in enumerate(self._choices)
        ]
        usage = sum((done.usage for done in self.done if done is not None), Usage())
        return self._envelope.whole(choices=choices, usage=usage_fields(usage), **extra)
