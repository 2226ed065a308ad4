"""The process that serves: its socket, its event loop, and how signals end it.

Not here: what is served (app).
"""

from __future__ import annotations

import asyncio
import errno
import gc
import os
import signal
import socket
import time
from collections.abc import Awaitable, Callable
from types import FrameType

import uvicorn

from firstword.errors import ConfigError
from firstword.server.app import Operations, create_app
from firstword.server.connection import bounded
from firstword.server.errors import ShuttingDownError
from firstword.server.log import SERVER, set_up_logging
from firstword.server.observed import OperatedLLM
from firstword.server.settings import ServerSettings

FAREWELL_SECONDS = 2
"""Time for the errors of requests that were not over in time to reach their clients."""

_DOUBLE_SECONDS = 0.3
"""A terminal and a wrapper may both pass on one Ctrl-C: within this time it is the same."""


def serve(
    load: Callable[[], Awaitable[OperatedLLM]],
    settings: ServerSettings,
    on_start: Callable[[OperatedLLM, str], None],
) -> None:
    """Load a model and serve it until a signal says otherwise.

    SIGTERM and Ctrl-C let running requests end, for `settings.drain_seconds`; a second Ctrl-C
    ends the process at once.

    Args:
        load: starts the model, on the event loop that will serve it.
        settings: addresses, keys and limits.
        on_start: told of the model and the server's URL once requests are answered.

    Raises:
        ConfigError: the address cannot be listened on.
        FirstwordError: what `load` raises.
    """
    set_up_logging(settings.log_level, settings.log_format)
    with (
        listen(settings.host, settings.port) as listener,
        asyncio.Runner(loop_factory=_loop_factory()) as runner,
    ):
        runner.run(_serve(load, settings, listener, on_start))


async def _serve(
    load: Callable[[], Awaitable[OperatedLLM]],
    settings: ServerSettings,
    listener: socket.socket,
    on_start: Callable[[OperatedLLM, str], None],
) -> None:
    llm = await load()
    app = create_app(llm, settings)
    operations: Operations = app.state.operations
    config = uvicorn.Config(
        app,
        http=bounded(2 * settings.max_header_bytes, settings.body_timeout),
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=max(1, round(settings.keep_alive_seconds)),
        timeout_graceful_shutdown=FAREWELL_SECONDS,
    )
    url = url_of(listener, settings.host)
    # What is there by now stays. Full collections, whose number depends on how much lives, then
    # come soon enough for what requests leave in cycles, and take no time.
    gc.collect()
    gc.freeze()
    await DrainingServer(config, operations, lambda: on_start(llm, url)).serve([listener])


class DrainingServer(uvicorn.Server):
    """uvicorn's server, which answers on while it ends.

    Uvicorn stops listening as soon as it is told to end. This one goes on, so that new requests
    are told 503 and when to come again, until those that run are over or their time is.

    Args:
        config: as for uvicorn.
        operations: of the app.
        on_start: called once requests are answered.
    """

    def __init__(
        self, config: uvicorn.Config, operations: Operations, on_start: Callable[[], None]
    ) -> None:
        super().__init__(config)
        self._llm, self._drain = operations.llm, operations.drain
        self._on_start = on_start
        self._first_signal = 0.0
        self._farewell_until: float | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """As uvicorn, and tell who waits for it."""
        await super().startup(sockets)
        self._on_start()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begin to end; a second Ctrl-C does not wait."""
        now = time.monotonic()
        if not self._drain.has_begun:
            self._first_signal = now
            self._drain.begin()
        elif sig == signal.SIGINT and now - self._first_signal > _DOUBLE_SECONDS:
            # The engine's process sees its pipe close, and ends as well.
            os._exit(128 + signal.SIGINT)

    async def on_tick(self, counter: int) -> bool:
        """As uvicorn, ten times a second: whether it is time to close everything."""
        if await super().on_tick(counter):
            return True
        if not self._drain.has_begun:
            return False
        if counter % 50 == 0 or self._drain.num_running == 0:
            self._say_what_runs()
        return self._drain.num_running == 0 or self._is_time_over()

    def _is_time_over(self) -> bool:
        if self._drain.seconds_left > 0:
            return False
        now = time.monotonic()
        if self._farewell_until is None:
            self._farewell_until = now + FAREWELL_SECONDS
            self._llm.end_all(ShuttingDownError("the server shut down before the request ended"))
        return now > self._farewell_until

    def _say_what_runs(self) -> None:
        fields = {
            "running": self._drain.num_running,
            "seconds_left": round(self._drain.seconds_left, 1),
        }
        SERVER.info("shutting down", extra={"fields": fields})


def listen(host: str, port: int) -> socket.socket:
    """A socket bound to an address; it takes connections once it is served.

    Raises:
        ConfigError: the address is not this machine's, is taken, or not for this user.
    """
    problem: OSError | None = None
    try:
        addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise ConfigError(f"host {host!r} is no address: {error.strerror or error}") from None
    for family, kind, protocol, _, address in addresses:
        listener = socket.socket(family, kind, protocol)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            # Without this the port would look free until the model is loaded.
            listener.listen()
        except OSError as error:
            listener.close()
            problem = error
        else:
            return listener
    assert problem is not None
    raise ConfigError(_why_not(problem, host, port)) from None


def _why_not(error: OSError, host: str, port: int) -> str:
    if error.errno == errno.EADDRINUSE:
        return (
            f"port {port} of {host} is in use: end the program that has it, or choose another "
            "with --port (0 for any that is free)"
        )
    if error.errno == errno.EACCES:
        return f"port {port} is not for this user: choose one above 1023 with --port"
    return f"{host}:{port} cannot be listened on: {error.strerror}"


def url_of(listener: socket.socket, host: str) -> str:
    """Where a browser on this machine, or one that knows it as `host`, finds the server."""
    port = listener.getsockname()[1]
    name = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, host)
    if ":" in name and not name.startswith("["):
        name = f"[{name}]"
    return f"http://{name}:{port}"


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop's, where there is one: an event loop in C."""
    try:
        import uvloop
    except ImportError:  # not on Windows
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory
