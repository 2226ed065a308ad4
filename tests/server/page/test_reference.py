"""The page at /docs: all paths, and no request to anybody else."""

from __future__ import annotations

import re

import pytest
from starlette.testclient import TestClient

from firstword.server.app import create_app
from firstword.server.page.reference import reference
from tests.server.operated import OperatedFake


@pytest.fixture(scope="module")
def client() -> TestClient:
    return TestClient(create_app(OperatedFake()), base_url="http://localhost")


def test_it_lists_every_path(client: TestClient) -> None:
    page = client.get("/docs").text
    paths = client.get("/openapi.json").json()["paths"]
    assert len(paths) > 10
    for path in paths:
        assert f"<code>{path}</code>" in page
    assert "The models that this server has." in page


def test_it_asks_nobody_and_runs_nothing(client: TestClient) -> None:
    response = client.get("/docs")
    assert response.headers["content-type"] == "text/html; charset=utf-8"
    assert "script-src 'none'" in response.headers["content-security-policy"]
    assert set(re.findall(r'(?:href|src)="([^"]*)"', response.text)) == {"data:,", "/openapi.json"}
    assert "//" not in response.text.replace("http://localhost", "")
    assert client.get("/redoc").status_code == 404


def test_words_are_never_read_as_html() -> None:
    operation = {"summary": "<b>1</b>"}
    info = {"title": "<i>", "version": "1", "summary": "&"}
    page = reference({"info": info, "paths": {"/<a>": {"get": operation}}})
    assert not re.findall("<(?:i|b|a)>", page)
    assert "&lt;b&gt;1&lt;/b&gt;" in page
