"""JSON as this server writes it, and the response that carries it.

Not here: responses that stream (sse), what an error's body holds (errors).
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from starlette.responses import Response


def json_bytes(value: object) -> bytes:
    """Compact JSON in UTF-8."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def json_response(
    value: object, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """A value as the whole body.

    Args:
        value: of JSON's types.
        status: of HTTP.
        headers: besides those of the body.
    """
    return Response(json_bytes(value), status, headers=headers, media_type="application/json")
