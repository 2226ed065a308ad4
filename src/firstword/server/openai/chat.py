"""POST /v1/chat/completions: from the body to the service's request, and back.

Not here: the answer's shape (chat_answer), what is run (server.chat).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

from starlette.requests import Request
from starlette.responses import Response

from firstword.server.auth import caller_of
from firstword.server.chat import ChatRequest, ChatService, Done
from firstword.server.disconnect import unless_gone
from firstword.server.errors import RequestError, UnsupportedFieldError
from firstword.server.messages import normalize, template_variables, tool_specs
from firstword.server.openai.chat_answer import ChatAnswer, ChatChunks
from firstword.server.openai.envelope import Envelope, resolved_fields
from firstword.server.openai.exchange import (
    answered,
    stream_form,
    stream_response,
    whole_response,
)
from firstword.server.openai.fields import CHAT_FIELDS
from firstword.server.openai.params import chat_params, options_of
from firstword.server.openai.schema import ChatBody, FunctionChoice
from firstword.text.tools.spec import NamedTool, ToolChoice, ToolSpec


class ChatEndpoint:
    """Answers chats.

    Args:
        service: runs them.
        keep_alive: seconds of silence after which a stream sends a comment.
    """

    def __init__(self, service: ChatService, keep_alive: float) -> None:
        self._service, self._keep_alive = service, keep_alive

    async def create(self, request: Request) -> Response:
        """Model response for a conversation, whole or streamed."""
        kind = (ChatBody, CHAT_FIELDS)
        return await answered(request, self._service, kind, self._answer)

    async def _answer(self, request: Request, body: ChatBody) -> Response:
        kinds = ("chatcmpl", "chat.completion", "chat.completion.chunk")
        service = self._service
        envelope = Envelope(*kinds, model=service.name, fingerprint=service.fingerprint)
        chat = self._request(body, envelope.id, caller_of(request))
        if body.stream:
            chunks = self._chunks(body, chat, envelope)
            return stream_response(chunks, body, self._keep_alive)
        whole = self._whole(body, chat, envelope)
        return whole_response(await unless_gone(request.receive, whole))

    def _request(self, body: ChatBody, request_id: str, caller: tuple[str, str]) -> ChatRequest:
        tools = tool_specs(body.tools or ())
        return ChatRequest(
            request_id=request_id,
            messages=normalize(body.messages),
            params=chat_params(body),
            tools=tools,
            tool_choice=_tool_choice(body, tools),
            parallel_tool_calls=body.parallel_tool_calls is not False,
            variables=_variables(body, self._service.llm.tokenizer.chat_template or ""),
            separate_reasoning=body.separate_reasoning is not False,
            options=options_of(body, *caller),
        )

    async def _whole(self, body: ChatBody, chat: ChatRequest, envelope: Envelope) -> bytes:
        answer = ChatAnswer(envelope, self._service.llm.tokenizer, chat.params.n)
        async with aclosing(self._service.run(chat)) as events:
            async for event in events:
                answer.add(event)
        assert answer.done is not None
        return answer.json(**self._resolved(body, answer.done))

    async def _chunks(
        self, body: ChatBody, chat: ChatRequest, envelope: Envelope
    ) -> AsyncGenerator[bytes, None]:
        tokenizer = self._service.llm.tokenizer
        chunks = ChatChunks(envelope, stream_form(body), tokenizer, chat.params.n)
        async with aclosing(self._service.run(chat)) as events:
            async for event in events:
                if isinstance(event, Done) and body.return_resolved:
                    yield envelope.chunk(**self._resolved(body, event))
                if data := chunks.write(event):
                    yield data

    def _resolved(self, body: ChatBody, done: Done) -> dict[str, object]:
        if not body.return_resolved:
            return {}
        with_ids = body.return_prompt_token_ids is True
        return {"resolved": resolved_fields(done, self._service.llm.max_model_len, with_ids)}


def _tool_choice(body: ChatBody, tools: tuple[ToolSpec, ...]) -> ToolChoice:
    choice = body.tool_choice
    if choice is None or choice == "none" or choice == "auto":
        return choice or "auto"
    if not tools:
        raise RequestError("tool_choice asks for a call, but there are no tools", "tool_choice")
    if not isinstance(choice, FunctionChoice):
        return choice
    name = choice.function.name
    if name not in {tool.name for tool in tools}:
        names = ", ".join(tool.name for tool in tools)
        raise RequestError(
            f"tool_choice names {name!r}: the tools are {names}", "tool_choice.function.name"
        )
    return NamedTool(name)


def _variables(body: ChatBody, template: str) -> dict[str, object]:
    variables = template_variables(body.chat_template_kwargs)
    effort = body.reasoning_effort
    if effort is None:
        return variables
    if effort == "none" and "enable_thinking" in template:
        return {"enable_thinking": False, **variables}
    if "reasoning_effort" not in template:
        raise UnsupportedFieldError(
            "reasoning_effort is not supported: this model's chat template does not read it",
            "reasoning_effort",
        )
    return {"reasoning_effort": effort, **variables}
