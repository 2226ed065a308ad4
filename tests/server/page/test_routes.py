from __future__ import annotations

import re
from base64 import b64encode
from hashlib import sha256

import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient

from firstword.server.page import router
from firstword.server.page.routes import policy


@pytest.fixture(scope="module")
def client() -> TestClient:
    app = FastAPI()
    app.include_router(router())
    return TestClient(app)


@pytest.fixture(scope="module")
def page(client: TestClient) -> str:
    return client.get("/").text


def test_it_is_html_that_a_browser_takes_at_its_word(client: TestClient) -> None:
    response = client.get("/")
    assert response.status_code == 200
    assert response.headers["content-type"] == "text/html; charset=utf-8"
    assert response.headers["x-content-type-options"] == "nosniff"
    assert client.head("/").status_code == 200


def test_it_asks_nobody_but_this_server(page: str) -> None:
    assert not re.findall(r"(?:https?:)?//[a-z0-9]", re.sub(r"(?m)//\s.*$", "", page))
    assert not re.findall(r"\b(?:src|srcset|@import|url\()", page)
    assert re.findall(r'href="([^"]*)"', page) == ["data:,"]


def test_the_policy_allows_nothing_but_its_own_script_and_style(
    client: TestClient, page: str
) -> None:
    rules = client.get("/").headers["content-security-policy"]
    assert rules.startswith("default-src 'none'; ")
    assert "unsafe" not in rules
    for tag in ("script", "style"):
        (content,) = re.findall(f"<{tag}>(.*?)</{tag}>", page, re.DOTALL)
        digest = b64encode(sha256(content.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in rules


def test_what_the_policy_would_block_is_not_there(page: str) -> None:
    assert not re.findall(r'\s(?:style|on[a-z]+)="', page)


def test_a_page_of_two_scripts_is_refused() -> None:
    with pytest.raises(AssertionError, match="2 <script>"):
        policy("<style></style><script></script><script></script>")


def test_text_is_never_read_as_html(page: str) -> None:
    for way in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("):
        assert way not in page


def test_an_input_method_may_use_enter(page: str) -> None:
    assert "event.isComposing" in page
    assert "229" in page


def test_the_conversation_is_told_to_screen_readers(page: str) -> None:
    assert 'role="log" aria-live="polite"' in page
    for name in ("prompt", "key"):
        assert f'<label for="{name}"' in page


def test_a_key_is_kept_for_the_session_only(page: str) -> None:
    assert "sessionStorage" in page
    assert "localStorage" not in page
