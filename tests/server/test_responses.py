"""JSON is compact, in UTF-8, and says that it is JSON."""

from __future__ import annotations

from firstword.server.responses import json_bytes, json_response


def test_json_is_compact_and_in_utf8() -> None:
    assert json_bytes({"a": [1, "é"]}) == '{"a":[1,"é"]}'.encode()


def test_a_response() -> None:
    response = json_response({}, 503, {"retry-after": "1"})
    assert (response.status_code, response.body) == (503, b"{}")
    assert response.headers["retry-after"] == "1"
    assert response.headers["content-type"] == "application/json"
