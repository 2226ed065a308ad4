"""What the OpenAPI page says of the routes."""

from __future__ import annotations

from tests.server.openai.api import CHAT, TEXT, Api


def test_page_describes_the_bodies() -> None:
    page = Api().app.openapi()
    for path, field in ((CHAT, "messages"), (TEXT, "prompt")):
        operation = page["paths"][path]["post"]
        schema = operation["requestBody"]["content"]["application/json"]["schema"]
        assert field in schema["required"]
        assert schema["additionalProperties"] is False
        assert {"temperature", "user"} <= set(schema["properties"])
        assert {"400", "404", "429", "503"} <= set(operation["responses"])


def test_page_describes_the_path() -> None:
    (parameter,) = Api().app.openapi()["paths"]["/v1/models/{model}"]["get"]["parameters"]
    assert parameter["name"] == "model"
