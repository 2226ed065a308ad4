"""Answers given before, or instead of, an API's own: refusals in the shape of the family called.

Not here: which exception becomes which status (errors).
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from starlette.types import Scope, Send

from firstword.server.errors import ErrorKind, ErrorReport


@dataclass(frozen=True)
class Refusal:
    """Why a request gets no answer.

    Args:
        kind: status, and the types that clients know.
        message: the value, the limit and the remedy.
        headers: beside those of every answer; names in lower case.
        closes: whether the connection ends with this answer.
    """

    kind: ErrorKind
    message: str
    headers: dict[str, str] = field(default_factory=dict)
    closes: bool = False

    def body(self, path: str, request_id: str) -> dict[str, object]:
        """The JSON that clients of the API at `path` read."""
        told = ErrorReport(self.kind, self.message, code=self.kind.code)
        if is_anthropic(path):
            return {**told.anthropic(), "request_id": request_id}
        return told.openai()


def is_anthropic(path: str) -> bool:
    """Whether a path belongs to the Anthropic API; all others have OpenAI's errors."""
    return path == "/v1/messages" or path.startswith("/v1/messages/")


async def send_refusal(scope: Scope, send: Send, refusal: Refusal) -> None:
    """Answer a request, whose state has its id, with a refusal."""
    content = refusal.body(scope["path"], scope["state"]["request_id"])
    body = json.dumps(content).encode()
    headers = {"content-type": "application/json", "content-length": str(len(body))}
    if refusal.closes:
        headers["connection"] = "close"
    raw = [(name.encode(), value.encode()) for name, value in (headers | refusal.headers).items()]
    await send({"type": "http.response.start", "status": refusal.kind.status, "headers": raw})
    await send({"type": "http.response.body", "body": body})
