"""Puts a model, its APIs and what surrounds them together into one ASGI app.

Not here: the APIs, and the process that runs the app (run).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from fastapi import FastAPI
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response

from firstword import __version__
from firstword.server import anthropic, health, metrics, openai, page, tokenization
from firstword.server.auth import Authenticator
from firstword.server.chat import ChatService
from firstword.server.drain import Drain
from firstword.server.errors import KINDS, MethodNotAllowedError, NotFoundError
from firstword.server.middleware import (
    OPEN_PATHS,
    BodyReader,
    Check,
    ExceptionBarrier,
    Gate,
    RequestContext,
    authenticate,
    check_host,
    check_origin,
    limit_header,
    refuse_when_draining,
)
from firstword.server.observed import ObservedLLM, OperatedLLM
from firstword.server.page import reference
from firstword.server.refusal import Refusal
from firstword.server.settings import ServerSettings
from firstword.trace.metrics import ServingMetrics

CUT_OFF_SECONDS = 10.0
"""How much later than its timeout a request is cut off whose client does not take the error."""


@dataclass(frozen=True)
class Operations:
    """What the process that runs the app needs of it; in `app.state.operations`.

    Args:
        llm: the model, its streams observed.
        drain: whether the server is ending.
        watch: whether the engine makes progress.
    """

    llm: ObservedLLM
    drain: Drain
    watch: health.ProgressWatch


def create_app(llm: OperatedLLM, settings: ServerSettings | None = None) -> FastAPI:
    """The app that serves a model.

    Args:
        llm: the model; closed when the app ends.
        settings: addresses, keys and limits; None for the defaults.
    """
    settings = settings or ServerSettings()
    counts = ServingMetrics()
    observed = ObservedLLM(llm, counts, settings.request_timeout)
    collector = metrics.ServerCollector(observed, counts)
    watch = health.ProgressWatch(lambda: _progress(observed), settings.stall_seconds)
    operations = Operations(observed, Drain(settings.drain_seconds), watch)
    app = FastAPI(
        title="firstword",
        version=__version__,
        summary=f"{llm.name} behind the APIs of OpenAI and Anthropic",
        middleware=_layers(settings, operations.drain, collector, counts),
        lifespan=_lifespan,
        docs_url=None,  # FastAPI's own pages load scripts from elsewhere
        redoc_url=None,
    )
    app.state.operations = operations
    service = ChatService(observed, settings.model_name)
    keep_alive = settings.keep_alive_seconds
    app.include_router(openai.router(service, keep_alive=keep_alive))
    app.include_router(anthropic.router(service, keep_alive=keep_alive))
    app.include_router(tokenization.router(service))
    app.include_router(page.router())
    app.include_router(reference.router(app.openapi))
    app.include_router(health.router(service.name, watch, operations.drain))
    app.include_router(metrics.router(collector))
    app.add_exception_handler(HTTPException, _on_http_exception)
    return app


def _progress(llm: ObservedLLM) -> health.Progress:
    return health.Progress(llm.problem, llm.stats().num_steps, llm.is_awaited)


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    operations: Operations = app.state.operations
    watching = asyncio.create_task(operations.watch.run())
    try:
        yield
    finally:
        watching.cancel()
        await operations.llm.close()


def _layers(
    settings: ServerSettings,
    drain: Drain,
    collector: metrics.ServerCollector,
    counts: ServingMetrics,
) -> list[Middleware]:
    """What surrounds the routes, in the order in which a request meets it."""
    timeout = settings.request_timeout
    limit = None if timeout is None else timeout + CUT_OFF_SECONDS
    layers = [Middleware(RequestContext, drain, collector.answered, limit)]
    if settings.cors_origins:
        layers.append(_cors(settings.cors_origins))

    def count_refused() -> None:
        counts.rejected["shutting_down"] += 1

    # A body is read before a request is refused for shutdown: that closes the connection, and
    # closing it with bytes unread would lose the answer on its way.
    return [
        *layers,
        Middleware(ExceptionBarrier),
        Middleware(Gate, _head_checks(settings)),
        Middleware(BodyReader, settings.max_body_bytes, settings.body_timeout),
        Middleware(Gate, (refuse_when_draining(drain, count_refused),)),
    ]


def _head_checks(settings: ServerSettings) -> tuple[Check, ...]:
    authenticator = Authenticator(settings.api_keys)
    open_paths = OPEN_PATHS if settings.metrics_need_key else OPEN_PATHS | {"/metrics"}
    checks = [limit_header(settings.max_header_bytes), check_host(settings.host_names)]
    if authenticator.is_open:
        checks.append(check_origin(settings.cors_origins))
    return (*checks, authenticate(authenticator, open_paths, settings.isolate_keys))


def _cors(origins: tuple[str, ...]) -> Middleware:
    return Middleware(
        CORSMiddleware,
        allow_origins=origins,
        allow_methods=["*"],
        allow_headers=["*"],
        expose_headers=["X-Request-Id", "Retry-After"],
    )


async def _on_http_exception(request: Request, error: Exception) -> Response:
    """What the router refuses: unknown paths and methods."""
    assert isinstance(error, HTTPException)
    path, headers = request.url.path, dict(error.headers or {})
    asked = f"{request.method} {path[:200]}"
    if error.status_code == 405:
        message = f"there is no {asked}: this path has {headers.get('allow', 'other methods')}"
        refusal = Refusal(KINDS[MethodNotAllowedError], message, headers)
    else:
        message = f"there is no {asked}: /docs lists what there is"
        refusal = Refusal(KINDS[NotFoundError], message, headers)
    content = refusal.body(path, request.state.request_id)
    return JSONResponse(content, refusal.kind.status, headers=headers)
