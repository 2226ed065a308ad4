"""An HTTP connection that no client can hold for nothing: limits where uvicorn has none.

A request head that does not end is limited in bytes and in time; a connection that waits for
nothing is let go; one whose client reads nothing, or has gone without a word, is cut off.
Not here: limits of complete heads and of bodies (middleware).
"""

from __future__ import annotations

import asyncio
import socket
from typing import ClassVar

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

_MESSAGE = b"the headers of the request are too large"
_TOO_LARGE = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\n"
    b"content-type: text/plain; charset=utf-8\r\ncontent-length: %d\r\n\r\n%b"
) % (len(_MESSAGE), _MESSAGE)


DEAD_SECONDS = 120
"""Time in which a client takes at least some of the bytes that wait for it, or answers whether it
is still there. Closing a connection would wait for such a client for ever."""


class BoundedConnection(HttpToolsProtocol):
    """uvicorn's connection, with limits of its own; see `bounded`."""

    max_head_bytes: ClassVar[int]
    head_seconds: ClassVar[float]
    dead_seconds: ClassVar[int] = DEAD_SECONDS
    _head_timer: asyncio.TimerHandle | None = None
    _num_head_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Also start the time of the first head: who connects and is silent is let go."""
        super().connection_made(transport)
        _notice_the_dead(transport.get_extra_info("socket"), self.dead_seconds)
        self._await_head()

    def data_received(self, data: bytes) -> None:
        """Also count what comes before a head is complete."""
        super().data_received(data)
        if self.transport.is_closing():
            return
        if self._head_timer is None:
            self._let_go_if_idle()
            return
        self._num_head_bytes += len(data)
        if self._num_head_bytes > self.max_head_bytes:
            self.transport.write(_TOO_LARGE)
            self.transport.close()

    def on_message_begin(self) -> None:
        """Also start the time of a later head; the first one's runs already."""
        super().on_message_begin()
        if self._head_timer is None:
            self._await_head()

    def on_headers_complete(self) -> None:
        """Also end the head's time."""
        self._end_head()
        super().on_headers_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        """Also end the head's time."""
        self._end_head()
        super().connection_lost(exc)

    def _let_go_if_idle(self) -> None:
        # What is left of a refused body ends the keep-alive time, and is followed by nothing that
        # would start it again.
        if self.cycle.response_complete and self.timeout_keep_alive_task is None:
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )

    def _await_head(self) -> None:
        self._num_head_bytes = 0
        self._head_timer = self.loop.call_later(self.head_seconds, self.transport.close)

    def _end_head(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None


def _notice_the_dead(connection: socket.socket | None, seconds: int) -> None:
    """Let the system end a connection whose other end is not there or takes nothing (RFC 5482)."""
    if connection is None or connection.family not in (socket.AF_INET, socket.AF_INET6):
        return
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    options = (("TCP_KEEPIDLE", -(-seconds // 4)), ("TCP_KEEPINTVL", -(-seconds // 8)))
    for name, value in (*options, ("TCP_USER_TIMEOUT", 1000 * seconds)):
        if hasattr(socket, name):  # not on every system
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def bounded(max_bytes: int, seconds: float) -> type[BoundedConnection]:
    """A class of connections for uvicorn.

    Args:
        max_bytes: most bytes of an unfinished head, roughly: what comes at once is taken whole.
        seconds: time in which a head must have come.
    """

    class Connection(BoundedConnection):
        max_head_bytes = max_bytes
        head_seconds = seconds

    return Connection
