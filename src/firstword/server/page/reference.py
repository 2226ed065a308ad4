"""The page at /docs: every path of this server in a line, made from its OpenAPI description.

Not here: the fields of bodies, which /openapi.json has for programs and docs/api.md for people.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from html import escape
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from firstword.server.page.routes import headers_of

_PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title}: paths</title>
<link rel="icon" href="data:,">
<style>
body {{ font: 1rem/1.5 system-ui, sans-serif; max-width: 60rem; margin: 1rem auto;
  padding: 0 1rem }}
th, td {{ text-align: left; vertical-align: top; padding: .25rem 1rem .25rem 0 }}
</style>
<h1>{title} {version}</h1>
<p>{summary}. Types and limits of all fields: <a href="/openapi.json">/openapi.json</a>.</p>
<table>
<tr><th>Method<th>Path<th>What it does
{rows}
</table>
</html>
"""


def router(openapi: Callable[[], Mapping[str, Any]]) -> APIRouter:
    """The route of the page.

    Args:
        openapi: describes the server, once all its routes are known.
    """
    routes = APIRouter()

    async def show(request: Request) -> Response:
        """The page, as the routes are now."""
        page = reference(openapi())
        return Response(page, headers=headers_of(page), media_type="text/html")

    routes.add_api_route("/docs", show, methods=["GET", "HEAD"], include_in_schema=False)
    return routes


def reference(openapi: Mapping[str, Any]) -> str:
    """The page of an OpenAPI description."""
    rows = [
        f"<tr><td>{method.upper()}<td><code>{escape(path)}</code><td>{escape(_told(operation))}"
        for path, operations in openapi["paths"].items()
        for method, operation in operations.items()
    ]
    about = {name: escape(openapi["info"][name]) for name in ("title", "version", "summary")}
    return _PAGE.format(rows="\n".join(rows), **about)


def _told(operation: Mapping[str, Any]) -> str:
    """An operation's description, or else its shorter summary."""
    return str(operation.get("description") or operation["summary"])
