"""What the OpenAPI page says of every route."""

from __future__ import annotations

import json

from firstword.server.app import create_app
from firstword.server.openai.schema import ChatBody
from firstword.server.openapi import request_body
from tests.server.operated import OperatedFake

PAGE = create_app(OperatedFake()).openapi()
ERRORS = {"400", "401", "403", "404", "408", "413", "415", "429", "431", "500", "503", "504"}


def test_a_body_stands_alone() -> None:
    body = request_body(ChatBody, ["user"])
    assert "$ref" not in json.dumps(body)
    assert '"user": {"description": "Inert."}' in json.dumps(body)


def test_every_route_that_reads_a_body_says_which_and_what_may_go_wrong() -> None:
    routes = {path: told["post"] for path, told in PAGE["paths"].items() if "post" in told}
    assert len(routes) == 6
    for path, told in routes.items():
        schema = told["requestBody"]["content"]["application/json"]["schema"]
        assert schema["additionalProperties"] is False, path
        assert set(told["responses"]) == {"200"} | ERRORS, path


def test_errors_have_the_shape_of_their_api() -> None:
    for path, told in PAGE["paths"].items():
        name = "AnthropicErrorBody" if path.startswith("/v1/messages") else "ErrorBody"
        for status in ERRORS & set(told.get("post", {}).get("responses", ())):
            shape = told["post"]["responses"][status]["content"]["application/json"]["schema"]
            assert shape == {"$ref": f"#/components/schemas/{name}"}, (path, status)
