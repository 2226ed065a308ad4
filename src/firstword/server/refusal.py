"""Answers given before, or instead of, an API's own: refusals in the shape of the family called.

Not here: which errors of the engine become which status (errors).
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Literal

from starlette.types import Scope, Send

Family = Literal["openai", "anthropic"]


@dataclass(frozen=True)
class Refusal:
    """Why a request gets no answer.

    Args:
        status: HTTP status, 400 to 599.
        message: the value, the limit and the remedy.
        code: OpenAI's `code`, like "invalid_api_key".
        headers: beside those of every answer; names in lower case.
        closes: whether the connection ends with this answer.
    """

    status: int
    message: str
    code: str | None = None
    headers: dict[str, str] = field(default_factory=dict)
    closes: bool = False


def family_of(path: str) -> Family:
    """Whose shape errors of a path have."""
    is_anthropic = path == "/v1/messages" or path.startswith("/v1/messages/")
    return "anthropic" if is_anthropic else "openai"


def error_body(family: Family, refusal: Refusal, request_id: str) -> dict[str, object]:
    """The JSON that a client of that family reads.

    OpenAI's and Anthropic's API references, under errors.
    """
    if family == "anthropic":
        kind = _ANTHROPIC_TYPES.get(refusal.status) or _by_class(refusal.status, "api_error")
        error: dict[str, object] = {"type": kind, "message": refusal.message}
        return {"type": "error", "error": error, "request_id": request_id}
    kind = _OPENAI_TYPES.get(refusal.status) or _by_class(refusal.status, "server_error")
    return {
        "error": {
            "message": refusal.message,
            "type": kind,
            "param": None,
            "code": refusal.code,
        }
    }


async def send_refusal(scope: Scope, send: Send, refusal: Refusal, request_id: str) -> None:
    """Answer a request with a refusal."""
    content = error_body(family_of(scope["path"]), refusal, request_id)
    body = json.dumps(content).encode()
    headers = {"content-type": "application/json", "content-length": str(len(body))}
    if refusal.closes:
        headers["connection"] = "close"
    raw = [(name.encode(), value.encode()) for name, value in (headers | refusal.headers).items()]
    await send({"type": "http.response.start", "status": refusal.status, "headers": raw})
    await send({"type": "http.response.body", "body": body})


def _by_class(status: int, server_side: str) -> str:
    return "invalid_request_error" if status < 500 else server_side


_OPENAI_TYPES = {403: "permission_error", 429: "rate_limit_error", 504: "timeout"}
_ANTHROPIC_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
    529: "overloaded_error",
}
