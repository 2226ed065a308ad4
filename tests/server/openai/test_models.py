"""GET /v1/models."""

from __future__ import annotations

from tests.server.openai.api import CHAT, Api


def test_served_model_is_listed() -> None:
    api = Api()
    body = api.request("GET", "/v1/models").json()
    assert body["object"] == "list"
    (model,) = body["data"]
    assert (model["id"], model["object"], model["max_model_len"]) == ("fake:1m", "model", 1000)
    assert api.request("GET", "/v1/models/fake:1m").json() == model


def test_unknown_models_are_not_found() -> None:
    for response in (
        Api().request("GET", "/v1/models/other/name"),
        Api().post(CHAT, model="other"),
    ):
        assert response.status_code == 404
        assert response.json()["error"]["code"] == "model_not_found"
        assert response.json()["error"]["param"] == "model"
