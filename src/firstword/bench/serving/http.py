"""The least of HTTP/1.1 that a load generator needs: one connection, one request, its answer.

Not a general client: no redirects, no compression, no connection kept for the next request. A
general one (httpx) takes almost three times the processor time for each event of a stream, 21
against 7 microseconds where that was measured (benchmarks/serving/client_cost.py), and with
sixteen streams on two cores that time is the server's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

from firstword.errors import ConfigError

_READ_BYTES = 64 * 1024
_HEAD_BYTES = 64 * 1024
_LINE_END = b"\r\n"


class RequestFailedError(Exception):
    """A request that got no proper answer.

    Args:
        kind: a few words that failures are counted under.
        detail: what was found.
    """

    def __init__(self, kind: str, detail: str = "") -> None:
        self.kind, self.detail = kind, detail
        super().__init__(f"{kind}: {detail}" if detail else kind)


@dataclass(frozen=True)
class Address:
    """Where a server listens.

    Args:
        host: name or number.
        port: of TCP.
        tls: whether the connection is encrypted.
        path: before every path of the API, without a slash at its end.
    """

    host: str
    port: int
    tls: bool = False
    path: str = ""

    @classmethod
    def parse(cls, url: str) -> Address:
        """The address that a URL names.

        Raises:
            ConfigError: it is none of HTTP or HTTPS.
        """
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port
        except ValueError as error:
            raise ConfigError(f"the URL is {url!r}: {error}") from error
        if parts.scheme not in ("http", "https") or not host:
            raise ConfigError(f"the URL is {url!r}: give one like http://127.0.0.1:8000/v1")
        tls = parts.scheme == "https"
        return cls(host, port or (443 if tls else 80), tls, parts.path.rstrip("/"))

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.tls else 'http'}://{host}:{self.port}{self.path}"


class ChunkedDecoder:
    """The chunked transfer coding (RFC 9112, section 7.1), from pieces cut anywhere.

    Trailers are read and dropped.
    """

    def __init__(self) -> None:
        self.is_done = False
        self._buffer = b""
        self._left = 0  # bytes of the present chunk still to come, its line end included
        self._in_trailers = False

    def push(self, data: bytes) -> bytes:
        """The content that these bytes bring.

        Raises:
            RequestFailedError: they are no chunks.
        """
        self._buffer += data
        pieces = []
        while self._buffer and not self.is_done:
            if self._left:
                pieces.append(self._take_content())
            elif not self._take_line():
                break
        return b"".join(pieces)

    def _take_content(self) -> bytes:
        taken = self._buffer[: self._left]
        self._buffer = self._buffer[len(taken) :]
        before, self._left = self._left, self._left - len(taken)
        # The last two of the bytes that were left are the line's end, which is no content.
        return taken[: max(before - len(_LINE_END), 0)]

    def _take_line(self) -> bool:
        line, end, rest = self._buffer.partition(_LINE_END)
        if not end:
            return False
        self._buffer = rest
        if self._in_trailers:
            self.is_done = not line
            return True
        try:
            size = int(line.partition(b";")[0], 16)
        except ValueError:
            raise RequestFailedError("malformed answer", f"chunk size {line[:40]!r}") from None
        if size < 0:
            raise RequestFailedError("malformed answer", f"chunk size {line[:40]!r}")
        self._in_trailers = size == 0
        self._left = size + len(_LINE_END) if size else 0
        return True


class LengthDecoder:
    """A body of a known length, or one that lasts until the connection ends.

    Args:
        length: in bytes; None where the end of the connection is the end of the body.
    """

    def __init__(self, length: int | None) -> None:
        self._left = length

    @property
    def is_done(self) -> bool:
        """Whether all of it came; never known where there is no length."""
        return self._left == 0

    @property
    def ends_with_connection(self) -> bool:
        """Whether the connection's end is a proper end."""
        return self._left is None

    def push(self, data: bytes) -> bytes:
        """The content that these bytes bring."""
        if self._left is None:
            return data
        taken = data[: self._left]
        self._left -= len(taken)
        return taken


class Connection:
    """One request to a server, as an asynchronous context; leaving it closes the connection.

    Args:
        address: of the server.
    """

    def __init__(self, address: Address) -> None:
        self._address = address
        self._body: ChunkedDecoder | LengthDecoder = LengthDecoder(0)

    async def __aenter__(self) -> Self:
        address = self._address
        try:
            self._reader, self._writer = await asyncio.open_connection(
                address.host, address.port, ssl=address.tls or None, limit=_HEAD_BYTES
            )
        except OSError as error:
            raise RequestFailedError("no connection", str(error)) from error
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # At once: the server is to see that the client is gone, whatever it still has to send.
        self._writer.transport.abort()

    async def send(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> int:
        """Send the request and read the head of its answer.

        Args:
            method: GET or POST.
            path: below the address's own.
            headers: besides Host, Content-Length and Connection.
            body: may be empty.

        Returns:
            The status.

        Raises:
            RequestFailedError: the connection broke, or what came is no HTTP.
        """
        lines = [
            f"{method} {self._address.path}{path} HTTP/1.1",
            f"Host: {self._address.host}:{self._address.port}",
            f"Content-Length: {len(body)}",
            "Connection: close",
            *(f"{name}: {value}" for name, value in headers.items()),
        ]
        self._writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + body)
        try:
            # Not drained first: a server may answer, and close, before it has read all.
            head = await self._reader.readuntil(b"\r\n\r\n")
            while head.split(b" ", 2)[1:2] == [b"100"]:
                head = await self._reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError as error:
            raise RequestFailedError("malformed answer", "endless headers") from error
        except (asyncio.IncompleteReadError, OSError) as error:
            raise RequestFailedError("closed early", "before the answer's headers") from error
        status, self._body = _parse_head(head)
        return status

    async def read(self) -> bytes:
        """The next piece of the body, as soon as it is there; empty at its end.

        Raises:
            RequestFailedError: the connection ended before the body.
        """
        while not self._body.is_done:
            try:
                data = await self._reader.read(_READ_BYTES)
            except OSError as error:
                raise RequestFailedError("closed early", str(error)) from error
            if not data:
                if isinstance(self._body, LengthDecoder) and self._body.ends_with_connection:
                    return b""
                raise RequestFailedError("closed early", "within the answer's body")
            if content := self._body.push(data):
                return content
        return b""

    async def read_all(self) -> bytes:
        """The whole body."""
        pieces = []
        while piece := await self.read():
            pieces.append(piece)
        return b"".join(pieces)


def _parse_head(head: bytes) -> tuple[int, ChunkedDecoder | LengthDecoder]:
    """The status, and the decoder that the headers ask for."""
    first, *lines = head.decode("latin-1").split("\r\n")
    words = first.split(" ", 2)
    if len(words) < 2 or not words[0].startswith("HTTP/1.") or not words[1].isdecimal():
        raise RequestFailedError("malformed answer", f"status line {first[:40]!r}")
    headers = {}
    for line in lines:
        name, _, value = line.partition(":")
        headers[name.strip().lower()] = value.strip().lower()
    if "chunked" in headers.get("transfer-encoding", ""):
        return int(words[1]), ChunkedDecoder()
    length = headers.get("content-length")
    if length is not None and not length.isdecimal():
        raise RequestFailedError("malformed answer", f"content length {length[:40]!r}")
    return int(words[1]), LengthDecoder(None if length is None else int(length))
