"""Whether the server can answer: alive, ready, or not ready and why.

Not here: measuring how well it does (metrics).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass

from fastapi import APIRouter
from fastapi.responses import JSONResponse

from firstword.server.drain import Drain

SAMPLE_SECONDS = 0.5
PREDICTED_STEPS = 10
"""A step may take so many times what was predicted before it counts as hanging."""


@dataclass(frozen=True)
class Progress:
    """Where the engine stands, as readiness sees it.

    Args:
        problem: why the engine takes no work; None when it does.
        num_steps: steps run so far.
        is_awaited: whether anybody waits for the engine's next token.
        predicted_step_seconds: what the next step should take; 0 where nobody knows.
    """

    problem: str | None
    num_steps: int
    is_awaited: bool
    predicted_step_seconds: float = 0.0


class ProgressWatch:
    """Notices that the engine stands still while somebody waits for it.

    A server can accept connections, and even answer a plain health check, long after the thread
    that computes has stopped: only the count of steps proves that it has not.

    Args:
        look: says where the engine stands.
        stall_seconds: time without a step, while somebody waits, that is too long.
        clock: seconds, monotonic.
    """

    def __init__(
        self,
        look: Callable[[], Progress],
        stall_seconds: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._look, self._stall_seconds, self._clock = look, stall_seconds, clock
        self._num_steps = -1
        self._since: float | None = None

    def sample(self) -> Progress:
        """Look once; called again and again, more often than steps are expected to hang."""
        progress = self._look()
        if not progress.is_awaited:
            self._since = None
        elif self._since is None or progress.num_steps != self._num_steps:
            self._since = self._clock()
        self._num_steps = progress.num_steps
        return progress

    async def run(self) -> None:
        """Sample until cancelled."""
        while True:
            self.sample()
            await asyncio.sleep(SAMPLE_SECONDS)

    def problem(self) -> str | None:
        """Why no request would be answered now; None when nothing speaks against it."""
        progress = self.sample()
        if progress.problem is not None:
            return progress.problem
        if self._since is None:
            return None
        stood = self._clock() - self._since
        limit = max(self._stall_seconds, PREDICTED_STEPS * progress.predicted_step_seconds)
        if stood <= limit:
            return None
        return f"no step was completed for {stood:.0f} s while requests wait (limit {limit:.0f} s)"


def router(name: str, watch: ProgressWatch, drain: Drain) -> APIRouter:
    """/health: the process lives. /ready: it would answer a request.

    Args:
        name: the model served.
        watch: notices an engine that stands still.
        drain: tells whether the server is ending.
    """
    routes = APIRouter(tags=["operations"])

    @routes.head("/health", include_in_schema=False)
    @routes.get("/health", summary="Whether the process lives")
    async def health() -> JSONResponse:
        return JSONResponse({"status": "ok"})

    @routes.head("/ready", include_in_schema=False)
    @routes.get(
        "/ready",
        summary="Whether a request is answered",
        responses={503: {"description": "It would not be; `reason` says why."}},
    )
    async def ready() -> JSONResponse:
        problem = "the server is shutting down" if drain.has_begun else watch.problem()
        if problem is not None:
            content = {"status": "not ready", "reason": problem, "model": name}
            return JSONResponse(content, status_code=503, headers={"Retry-After": "1"})
        return JSONResponse({"status": "ready", "model": name})

    return routes
