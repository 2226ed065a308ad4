"""The events of a chat as the API's chunks, or as one whole answer.

Chunks are put together from bytes that do not change and the escaped new text: with 16 streams a
step must not wait for models of chunks to be built. Not here: HTTP (chat).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from firstword.engine.outputs import TokenLogprob
from firstword.server.chat import (
    ChatEvent,
    Delta,
    Done,
    Progress,
    SampleEnd,
    Started,
    Usage,
)
from firstword.server.openai.envelope import (
    Envelope,
    StreamForm,
    progress_fields,
    usage_fields,
)
from firstword.server.openai.logprobs import LogprobWriter, writers
from firstword.server.responses import json_bytes
from firstword.server.sse import comment, quote
from firstword.text.pieces import (
    ContentPiece,
    Piece,
    ReasoningPiece,
    ToolArguments,
    ToolCallStart,
)
from firstword.text.tokenizer import Tokenizer


def piece_json(piece: Piece) -> bytes:
    """The `delta` of one piece; empty for the end of a call, which the API does not tell."""
    if isinstance(piece, ContentPiece):
        return b'{"content":%b}' % quote(piece.text)
    if isinstance(piece, ReasoningPiece):
        return b'{"reasoning_content":%b}' % quote(piece.text)
    if isinstance(piece, ToolArguments):
        return b'{"tool_calls":[{"index":%d,"function":{"arguments":%b}}]}' % (
            piece.index,
            quote(piece.text),
        )
    if isinstance(piece, ToolCallStart):
        return (
            b'{"tool_calls":[{"index":%d,"id":%b,"type":"function",'
            b'"function":{"name":%b,"arguments":""}}]}'
        ) % (piece.index, quote(piece.call_id), quote(piece.name))
    return b""


class ChatChunks:
    """Writes a chat's events as chunks.

    Args:
        envelope: what each chunk carries.
        form: what the stream is to carry.
        tokenizer: the model's.
        num_samples: n.
    """

    def __init__(
        self,
        envelope: Envelope,
        form: StreamForm,
        tokenizer: Tokenizer,
        num_samples: int,
    ) -> None:
        self._envelope, self._form, self._tokenizer = envelope, form, tokenizer
        self._logprobs: list[LogprobWriter] = []
        head = envelope.chunk_head()
        self._heads = [head + b'{"index":%d,"delta":' % i for i in range(num_samples)]
        self._end = b',"usage":null}\n\n' if form.include_usage else b"}\n\n"

    def write(self, event: ChatEvent) -> bytes:
        """The chunks of one event, one after the other; none for `Done` without usage."""
        if isinstance(event, Delta):
            return self._delta(event)
        if isinstance(event, SampleEnd):
            reason = b'"%b"' % event.finish_reason.encode()
            return self._heads[event.index] + b"{}" + self._tail(event.usage, reason=reason)
        if isinstance(event, Started):
            count = len(self._heads)
            self._logprobs = writers(self._tokenizer, event.params, count, is_raw=False)
            return self._roles(event.usage)
        if isinstance(event, Progress):
            words = comment(event.in_words())
            if not self._form.progress:
                return words
            fields = progress_fields(event.progress)
            return words + self._envelope.chunk(prompt_progress=fields)
        if self._form.include_usage:
            return self._envelope.chunk(usage=usage_fields(event.usage))
        return b""

    def _roles(self, usage: Usage) -> bytes:
        role = b'{"role":"assistant","content":"","refusal":null}'
        tail = self._tail(usage)
        return b"".join(head + role + tail for head in self._heads)

    def _delta(self, event: Delta) -> bytes:
        head = self._heads[event.index]
        deltas = [delta for piece in event.pieces if (delta := piece_json(piece))]
        if not event.logprobs:
            tail = self._tail(event.usage)
            return b"".join([head + delta + tail for delta in deltas])
        # All its log probabilities come with the first chunk, which may have no text yet.
        logprobs = self._logprobs_json(event.index, event.logprobs)
        first, *rest = deltas or [b'{"content":""}']
        tail = self._tail(event.usage)
        chunks = [head + first + self._tail(event.usage, logprobs)]
        return b"".join([*chunks, *(head + delta + tail for delta in rest)])

    def _logprobs_json(self, index: int, tokens: tuple[TokenLogprob, ...]) -> bytes:
        return json_bytes({"content": self._logprobs[index].chat(tokens), "refusal": None})

    def _tail(self, usage: Usage, logprobs: bytes = b"null", reason: bytes = b"null") -> bytes:
        end = self._end
        if self._form.continuous_usage:
            end = b',"usage":%b}\n\n' % json_bytes(usage_fields(usage))
        return b',"logprobs":%b,"finish_reason":%b}]%b' % (logprobs, reason, end)


@dataclass
class _Choice:
    """One sample, being gathered."""

    content: list[str] = field(default_factory=list)
    reasoning: list[str] = field(default_factory=list)
    calls: dict[int, dict[str, str]] = field(default_factory=dict)
    logprobs: list[dict[str, object]] = field(default_factory=list)
    finish_reason: str = "stop"

    def add(self, piece: Piece) -> None:
        if isinstance(piece, ContentPiece):
            self.content.append(piece.text)
        elif isinstance(piece, ReasoningPiece):
            self.reasoning.append(piece.text)
        elif isinstance(piece, ToolCallStart):
            self.calls[piece.index] = {"id": piece.call_id, "name": piece.name, "arguments": ""}
        elif isinstance(piece, ToolArguments):
            self.calls[piece.index]["arguments"] += piece.text

    def message(self) -> dict[str, object]:
        """The assistant's message."""
        content = "".join(self.content)
        message: dict[str, object] = {
            "role": "assistant",
            "content": None if self.calls and not content else content,
            "refusal": None,
        }
        if self.reasoning:
            message["reasoning_content"] = "".join(self.reasoning)
        if self.calls:
            message["tool_calls"] = [_call(call) for _, call in sorted(self.calls.items())]
        return message


def _call(call: Mapping[str, str]) -> dict[str, object]:
    function = {"name": call["name"], "arguments": call["arguments"]}
    return {"id": call["id"], "type": "function", "function": function}


class ChatAnswer:
    """Gathers a chat's events into one answer.

    Args:
        envelope: what it carries.
        tokenizer: the model's.
        num_samples: n.

    Attributes:
        done: the last event, None until it came.
    """

    def __init__(self, envelope: Envelope, tokenizer: Tokenizer, num_samples: int) -> None:
        self._envelope, self._tokenizer = envelope, tokenizer
        self._logprobs: list[LogprobWriter] = []
        self._choices = [_Choice() for _ in range(num_samples)]
        self.done: Done | None = None

    def add(self, event: ChatEvent) -> None:
        """Take one event in."""
        if isinstance(event, Started):
            count = len(self._choices)
            self._logprobs = writers(self._tokenizer, event.params, count, is_raw=False)
        elif isinstance(event, Delta):
            choice = self._choices[event.index]
            for piece in event.pieces:
                choice.add(piece)
            if event.logprobs:
                choice.logprobs += self._logprobs[event.index].chat(event.logprobs)
        elif isinstance(event, SampleEnd):
            self._choices[event.index].finish_reason = event.finish_reason
        elif isinstance(event, Done):
            self.done = event

    def json(self, **extra: object) -> bytes:
        """The answer, once `done`.

        Args:
            extra: further fields.
        """
        assert self.done is not None
        choices = [
            {
                "index": index,
                "message": choice.message(),
                "logprobs": (
                    {"content": choice.logprobs, "refusal": None} if self._logprobs else None
                ),
                "finish_reason": choice.finish_reason,
            }
            for index, choice in enumerate(self._choices)
        ]
        usage = usage_fields(self.done.usage)
        return self._envelope.whole(choices=choices, usage=usage, **extra)
