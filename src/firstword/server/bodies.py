"""Reading a request's JSON body: whatever comes, it is the model asked for or a 4xx.

Not here: which fields an API has (its schema), what its page says of them (openapi), the size of
bodies (middleware).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, TypeVar

from pydantic import BaseModel, Field, ValidationError
from pydantic_core import ErrorDetails, from_json
from starlette.requests import Request

from firstword.server.errors import RequestError, UnsupportedMediaTypeError

Model = TypeVar("Model", bound=BaseModel)
Item = TypeVar("Item")

Items = Annotated[list[Item], Field(fail_fast=True)]
"""A list that is not read on after its first mistake.

A body of 4 MiB can hold a million mistakes: to gather them all takes seconds, in which nothing
else is answered, and gigabytes."""

_MAX_VALUE = 80  # characters of a value that a message quotes


async def read_json(request: Request) -> dict[str, object]:
    """The JSON object that a request brought.

    Another content type is refused, since a web page may send such bodies to any server without
    asking it first; "application/json" makes the browser ask.

    Raises:
        RequestError: it is no JSON (RFC 8259: NaN, lone surrogates and bytes that are no UTF-8
            are none), no object, or nested more than 200 deep.
        UnsupportedMediaTypeError: the content type is not application/json, or it is compressed.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json" and not kind.endswith("+json"):
        raise UnsupportedMediaTypeError(
            f"the content type is {kind[:_MAX_VALUE]!r}: send application/json"
        )
    coding = request.headers.get("content-encoding", "identity").strip().lower()
    if coding not in ("", "identity"):
        raise UnsupportedMediaTypeError(
            f"the content encoding is {coding[:_MAX_VALUE]!r}: send the body uncompressed"
        )
    try:
        body = from_json(await request.body(), allow_inf_nan=False)
    except ValueError as error:
        raise RequestError(f"the body is not valid JSON: {error}", code="invalid_json") from None
    if not isinstance(body, dict):
        raise RequestError("the body must be a JSON object", code="invalid_json")
    return body


def validate(model: type[Model], body: Mapping[str, object]) -> Model:
    """The body as a model.

    Raises:
        RequestError: a field is missing, of another type or out of its range; names it.
    """
    try:
        return model.model_validate(body)
    except ValidationError as error:
        details = error.errors(include_url=False, include_context=False)
        raise _refusal(_deepest(details)) from None


def _deepest(details: Sequence[ErrorDetails]) -> ErrorDetails:
    # Of a value that may have several types, each type has its error: the one that came
    # furthest into the value says most.
    return max(details, key=lambda detail: len(detail["loc"]))


def _refusal(detail: ErrorDetails) -> RequestError:
    param = path(detail["loc"])
    if detail["type"] == "missing":
        return RequestError(f"{param} is missing", param, "missing_required_parameter")
    if detail["type"] == "extra_forbidden":
        return RequestError(f"unknown field {param}: leave it out", param, "unknown_parameter")
    value = repr(detail["input"])
    if len(value) > _MAX_VALUE:
        value = value[: _MAX_VALUE - 3] + "..."
    return RequestError(f"{param} is {value}: {detail['msg']}", param)


def path(location: Sequence[int | str]) -> str:
    """A place in a body as people write it: messages[2].content.

    Args:
        location: keys and indices; names of types among them, which pydantic puts between the
            alternatives of a union, are left out.
    """
    written = ""
    for step in location:
        if isinstance(step, int):
            written += f"[{step}]"
        elif not _names_type(step):
            written += f".{step}" if written else step
    return written


def _names_type(step: str) -> bool:
    words = {"str", "int", "bool", "float", "dict", "list", "literal", "constrained-str"}
    return step in words or "[" in step or step[:1].isupper()
