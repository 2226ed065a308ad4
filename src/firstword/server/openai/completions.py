"""POST /v1/completions: raw prompts, several of them together.

Not here: the answer's shape (completion_answer), what is run (server.chat).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

from starlette.requests import Request
from starlette.responses import Response

from firstword.server.auth import caller_of
from firstword.server.chat import ChatEvent, ChatService, Done, TextRequest
from firstword.server.disconnect import unless_gone
from firstword.server.openai.completion_answer import CompletionAnswer, CompletionChunks
from firstword.server.openai.envelope import Envelope, resolved_fields
from firstword.server.openai.exchange import (
    answered,
    stream_form,
    stream_response,
    whole_response,
)
from firstword.server.openai.fields import COMPLETION_FIELDS
from firstword.server.openai.params import completion_params, options_of
from firstword.server.openai.schema import CompletionBody

_END = None  # of one request: nothing more comes from it


class CompletionEndpoint:
    """Continues prompts.

    Args:
        service: runs them.
        keep_alive: seconds of silence after which a stream sends a comment.
    """

    def __init__(self, service: ChatService, keep_alive: float) -> None:
        self._service, self._keep_alive = service, keep_alive

    async def create(self, request: Request) -> Response:
        """Continuation of a raw prompt, or of several, whole or streamed."""
        kind = (CompletionBody, COMPLETION_FIELDS)
        return await answered(request, self._service, kind, self._answer)

    async def _answer(self, request: Request, body: CompletionBody) -> Response:
        service, kind = self._service, "text_completion"
        envelope = Envelope("cmpl", kind, kind, service.name, service.fingerprint)
        params, options = completion_params(body), options_of(body, *caller_of(request))
        requests = [
            TextRequest(f"{envelope.id}-{index}", prompt, params, options)
            for index, prompt in enumerate(body.prompts)
        ]
        if body.stream:
            chunks = self._chunks(body, requests, envelope)
            return stream_response(chunks, body, self._keep_alive)
        whole = self._whole(body, requests, envelope)
        return whole_response(await unless_gone(request.receive, whole))

    async def _whole(
        self, body: CompletionBody, requests: list[TextRequest], envelope: Envelope
    ) -> bytes:
        num_samples = requests[0].params.n
        tokenizer = self._service.llm.tokenizer
        answer = CompletionAnswer(envelope, tokenizer, len(requests), num_samples)
        async with aclosing(run_together(self._service, requests)) as events:
            async for prompt, event in events:
                answer.add(prompt, event)
        return answer.json(**self._resolved(body, answer.done))

    async def _chunks(
        self, body: CompletionBody, requests: list[TextRequest], envelope: Envelope
    ) -> AsyncGenerator[bytes, None]:
        num_samples = requests[0].params.n
        tokenizer, form = self._service.llm.tokenizer, stream_form(body)
        chunks = CompletionChunks(envelope, form, tokenizer, len(requests), num_samples)
        done: list[Done | None] = [None] * len(requests)
        async with aclosing(run_together(self._service, requests)) as events:
            async for prompt, event in events:
                if isinstance(event, Done):
                    done[prompt] = event
                if data := chunks.write(prompt, event):
                    yield data
        if resolved := self._resolved(body, done):
            yield envelope.chunk(**resolved)
        if data := chunks.finish():
            yield data

    def _resolved(self, body: CompletionBody, done: list[Done | None]) -> dict[str, object]:
        if not body.return_resolved:
            return {}
        with_ids, limit = body.return_prompt_token_ids is True, self._service.llm.max_model_len
        fields = [resolved_fields(event, limit, with_ids) for event in done if event is not None]
        return {"resolved": fields}


async def run_together(
    service: ChatService, requests: list[TextRequest]
) -> AsyncGenerator[tuple[int, ChatEvent], None]:
    """The events of several requests as they come, each with the index of its request.

    The first that fails ends them all.

    Args:
        service: runs them.
        requests: at least one.
    """
    if len(requests) == 1:
        async with aclosing(service.run(requests[0])) as events:
            async for event in events:
                yield 0, event
        return
    queue: asyncio.Queue[tuple[int, ChatEvent] | Exception | None] = asyncio.Queue()
    tasks = [
        asyncio.create_task(_feed(queue, index, service, request))
        for index, request in enumerate(requests)
    ]
    num_left = len(tasks)
    try:
        while num_left:
            item = await queue.get()
            if isinstance(item, Exception):
                raise item
            if item is _END:
                num_left -= 1
            else:
                yield item
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _feed(
    queue: asyncio.Queue[tuple[int, ChatEvent] | Exception | None],
    index: int,
    service: ChatService,
    request: TextRequest,
) -> None:
    try:
        async with aclosing(service.run(request)) as events:
            async for event in events:
                queue.put_nowait((index, event))
    except Exception as error:
        queue.put_nowait(error)
    queue.put_nowait(_END)
