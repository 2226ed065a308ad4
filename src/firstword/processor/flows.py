"""Requests at an engine that speaks by messages: what it says of them, as pieces for their readers.

Not here: how messages travel (async_llm), and how text comes of tokens (answer).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from firstword.engine.messages import Accepted, Command, Finished, Refused, StepMessage, Stop
from firstword.engine.outputs import PromptProgress, RequestMetrics, SequenceOutput, TextDelta
from firstword.errors import FirstwordError
from firstword.kvcache.sources import PromptSources
from firstword.processor.answer import Answer, with_output
from firstword.processor.prompt import EncodedPrompt
from firstword.text.tokenizer import Tokenizer


@dataclass
class Flow:
    """A request in flight, and what its reader has not taken yet.

    Args:
        prompt: what was asked.
        tokenizer: the model's own.
        pieces: of the answer, in order; an error is the last one.
        answer: its text in the making, once the engine has accepted it.
        last: the end of the text, before the metrics have come.
        is_over: whether the engine has done with it.
    """

    prompt: EncodedPrompt
    tokenizer: Tokenizer
    pieces: asyncio.Queue[TextDelta | FirstwordError] = field(default_factory=asyncio.Queue)
    answer: Answer | None = None
    last: TextDelta | None = None
    is_over: bool = False

    def advance(self, output: SequenceOutput) -> bool:
        """Pass a token's text on; returns whether it ends the whole answer."""
        delta = None if self.answer is None else self.answer.advance(output)
        if self.answer is None or delta is None:
            return False
        if self.answer.is_finished:
            self.last = delta
            return True
        self.pieces.put_nowait(delta)
        return False

    def end(self, request_id: str, metrics: RequestMetrics) -> None:
        """Give out the whole answer; nothing follows."""
        assert self.answer is not None, "a request ended that was never accepted"
        self.is_over = True
        last = self.last or TextDelta(request_id, 0, "", ())
        self.last = None
        self.pieces.put_nowait(with_output(last, self.answer.output(metrics)))

    def fail(self, error: FirstwordError) -> None:
        """Give out an error; nothing follows."""
        self.is_over = True
        self.pieces.put_nowait(error)


class Flows:
    """All requests in flight, by id.

    Args:
        send: sends the engine a command.
    """

    def __init__(self, send: Callable[[Command], None]) -> None:
        self._send = send
        self._flows: dict[str, Flow] = {}

    def __len__(self) -> int:
        return len(self._flows)

    def __iter__(self) -> Iterator[str]:
        return iter(self._flows)

    def __contains__(self, request_id: object) -> bool:
        return request_id in self._flows

    def open(self, request_id: str, flow: Flow) -> None:
        """Begin to listen for a request."""
        self._flows[request_id] = flow

    def close(self, request_id: str) -> None:
        """End it; what the engine still says of the request is dropped."""
        del self._flows[request_id]

    def fail_all(self, error: FirstwordError) -> None:
        """The engine is gone, and with it every request."""
        for flow in self._flows.values():
            flow.fail(error)

    def take(self, message: StepMessage) -> bool:
        """Pass on what a step led to; returns whether any request came to its end."""
        for reply in message.replies:
            if isinstance(reply, Accepted):
                self._accept(reply)
            else:
                self._refuse(reply)
        for request_id, progress in message.progress:
            if request_id in self._flows:
                self._flows[request_id].pieces.put_nowait(_progress_piece(request_id, progress))
        ended = [flow for flow in map(self._advance, message.outputs) if flow is not None]
        has_finished = False
        for finished in message.finished:
            has_finished |= self._finish(finished)
        for flow in ended:  # by a stop string: the engine will say what it took
            if flow.last is not None:
                flow.pieces.put_nowait(flow.last)
                flow.last = None
        return has_finished

    def _advance(self, output: SequenceOutput) -> Flow | None:
        """Pass a token's text on; returns the flow where it ends the whole answer."""
        flow = self._flows.get(output.request_id)
        return flow if flow is not None and flow.advance(output) else None

    def _finish(self, finished: Finished) -> bool:
        flow = self._flows.get(finished.request_id)
        if flow is None or flow.answer is None:
            return False
        flow.end(finished.request_id, finished.metrics)
        return True

    def _accept(self, reply: Accepted) -> None:
        request_id, flow = reply.request_id, self._flows.get(reply.request_id)
        if flow is None:
            return

        def stop_at(index: int, stop_string: str) -> None:
            self._send(Stop(request_id, index, stop_string))

        flow.answer = Answer(request_id, flow.prompt, reply.params, flow.tokenizer, stop_at)
        progress = PromptProgress(
            num_prompt_tokens=len(flow.prompt.token_ids),
            sources=PromptSources(),
            num_computed_tokens=0,
            num_ahead=reply.num_ahead,
            seconds=flow.prompt.seconds,
        )
        flow.pieces.put_nowait(_progress_piece(request_id, progress))

    def _refuse(self, reply: Refused) -> None:
        flow = self._flows.get(reply.request_id)
        if flow is not None:
            flow.fail(reply.error)


def _progress_piece(request_id: str, progress: PromptProgress) -> TextDelta:
    return TextDelta(request_id, 0, "", (), progress=progress)
