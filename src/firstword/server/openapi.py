"""What the OpenAPI page says of bodies and errors, the same for every API.

Not here: the fields themselves (each API's schema), and when an error is raised.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pydantic import BaseModel

_OF_HEADS = {
    401: "No valid API key.",
    403: "Called by a name that is not this server's, or by a page of another site.",
    431: "The target and the headers are too large.",
    500: "The server failed on this request; its log says why.",
    503: "Too many requests wait, or the server restarts; `Retry-After` says when to come again.",
}
_OF_BODIES = {
    400: "A field that is wrong, unknown, or not supported; the message names it.",
    404: "A model that is not served.",
    408: "The body did not come in time.",
    413: "The body is too large.",
    415: "The body is not sent as plain application/json.",
    429: "Too many requests of this key wait; `Retry-After` says when to come again.",
    504: "The request took too long.",
}

Responses = dict[int | str, dict[str, Any]]  # as FastAPI takes them


def errors_of_heads(body: type[BaseModel]) -> Responses:
    """The errors of a route that reads no body.

    Args:
        body: shape of the errors.
    """
    return _described(_OF_HEADS, body)


def errors_of_bodies(body: type[BaseModel]) -> Responses:
    """The errors of a route that reads one.

    Args:
        body: shape of the errors.
    """
    return _described(_OF_HEADS | _OF_BODIES, body)


def _described(texts: dict[int, str], body: type[BaseModel]) -> Responses:
    return {status: {"description": texts[status], "model": body} for status in sorted(texts)}


def request_body(model: type[BaseModel], inert: Iterable[str] = ()) -> dict[str, object]:
    """What the page says of a request's body, without references to other places.

    Args:
        model: the body; none of its models holds itself.
        inert: further fields, which take any value.
    """
    schema = model.model_json_schema()
    definitions = schema.pop("$defs", {})
    schema["properties"] |= {name: {"description": "Inert."} for name in inert}

    def inline(node: object) -> object:
        if isinstance(node, list):
            return [inline(item) for item in node]
        if not isinstance(node, dict):
            return node
        if "$ref" in node:
            return inline(definitions[node["$ref"].rpartition("/")[2]])
        return {key: inline(value) for key, value in node.items()}

    content = {"application/json": {"schema": inline(schema)}}
    return {"requestBody": {"required": True, "content": content}}
