"""An HTTP connection whose unfinished request head is limited in bytes and in time.

uvicorn's own limits begin once a head is complete. Not here: limits of complete heads and of
bodies (middleware).
"""

from __future__ import annotations

import asyncio
from typing import ClassVar

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

_MESSAGE = b"the headers of the request are too large"
_TOO_LARGE = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\n"
    b"content-type: text/plain; charset=utf-8\r\ncontent-length: %d\r\n\r\n%b"
) % (len(_MESSAGE), _MESSAGE)


class BoundedConnection(HttpToolsProtocol):
    """uvicorn's connection, with limits on a head that does not end; see `bounded`."""

    max_head_bytes: ClassVar[int]
    head_seconds: ClassVar[float]
    _head_timer: asyncio.TimerHandle | None = None
    _num_head_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Also start the time of the first head: who connects and is silent is let go."""
        super().connection_made(transport)
        self._await_head()

    def data_received(self, data: bytes) -> None:
        """Also count what comes before a head is complete."""
        super().data_received(data)
        if self._head_timer is None or self.transport.is_closing():
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

    def _await_head(self) -> None:
        self._num_head_bytes = 0
        self._head_timer = self.loop.call_later(self.head_seconds, self.transport.close)

    def _end_head(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None


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
