"""Serves the page, with a policy under which nothing but its own script and style can run.

Not here: the page itself (page.html). Policy: W3C, "Content Security Policy Level 3".
"""

from __future__ import annotations

import re
from base64 import b64encode
from hashlib import sha256
from pathlib import Path

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

_PAGE = Path(__file__).with_name("page.html")


def router() -> APIRouter:
    """The route of the page; it needs no key, and asks for one where the APIs do."""
    routes = APIRouter()
    page = _PAGE.read_text(encoding="utf-8")
    headers = headers_of(page)

    async def show(request: Request) -> Response:
        """The page, as it is."""
        return Response(page, headers=headers, media_type="text/html")

    routes.add_api_route("/", show, methods=["GET", "HEAD"], include_in_schema=False)
    return routes


def headers_of(page: str) -> dict[str, str]:
    """What a browser is told beside a page: to run nothing that is not its own.

    Args:
        page: see `policy`.
    """
    return {
        "content-security-policy": policy(page),
        "cache-control": "no-cache",
        "cross-origin-opener-policy": "same-origin",
        "referrer-policy": "no-referrer",
        "x-content-type-options": "nosniff",
    }


def policy(page: str) -> str:
    """The Content-Security-Policy of a page: its own inline script and style, and this server.

    Args:
        page: HTML with at most one `<style>` and one `<script>`, both without attributes.
    """
    rules = {
        "default-src": "'none'",
        "script-src": _hash(page, "script"),
        "style-src": _hash(page, "style"),
        "connect-src": "'self'",
        "img-src": "data:",
        "base-uri": "'none'",
        "form-action": "'none'",
        "frame-ancestors": "'none'",
    }
    return "; ".join(f"{name} {value}" for name, value in rules.items())


def _hash(page: str, tag: str) -> str:
    """The inline content of a tag, as the policy names it."""
    contents = re.findall(f"<{tag}>(.*?)</{tag}>", page, re.DOTALL)
    assert len(contents) <= 1, f"the page has {len(contents)} <{tag}>, not one"
    if not contents:
        return "'none'"
    return f"'sha256-{b64encode(sha256(contents[0].encode()).digest()).decode()}'"
