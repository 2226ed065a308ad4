"""Server-sent events, decoded from pieces of bytes; not what their data mean."""

from __future__ import annotations


class EventDecoder:
    """Decodes a stream of events (WHATWG HTML, section 9.2) that is cut anywhere.

    Only `data` fields are kept. Comments, which servers send to keep a connection alive, and
    other fields are passed over.
    """

    def __init__(self) -> None:
        self._rest = b""
        self._data: list[bytes] = []

    def push(self, piece: bytes) -> list[str]:
        """The data of the events that these bytes complete.

        Args:
            piece: the next bytes of the stream.

        Returns:
            One string per event; bytes that are no UTF-8 are replaced.
        """
        buffer = self._rest + piece
        # A carriage return at the very end may be the first half of a line's end.
        end = max(buffer.rfind(b"\n"), buffer.rfind(b"\r", 0, max(len(buffer) - 1, 0))) + 1
        self._rest = buffer[end:]
        events = []
        for line in buffer[:end].splitlines():
            if line.startswith(b"data:"):
                self._data.append(line[5:].removeprefix(b" "))
            elif not line and self._data:
                events.append(b"\n".join(self._data).decode("utf-8", "replace"))
                self._data.clear()
        return events
