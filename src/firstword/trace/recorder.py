"""Keeps the events of recent requests, and passes them on to whoever listens.

Memory is bounded whether or not anyone fetches or drops anything. Not here: what the events mean
(explain, metrics).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Lock

from firstword.errors import ConfigError
from firstword.trace.events import Event, ModelLoaded, SequenceFinished, StepExecuted

Listener = Callable[[Event], None]


@dataclass
class _Record:
    events: list[Event] = field(default_factory=list)
    num_left_out: int = 0


class Recorder:
    """Collects events by request.

    A step belongs to each request that took part in it; loading a model belongs to all. Any
    thread may call any method.

    Args:
        max_events_per_request: events kept of one request, at least 1. Later ones are counted,
            not kept, but for the one that ends a sequence: what came first explains most.
        max_requests: requests kept, at least 1; a new one pushes out the oldest.
    """

    enabled: bool = True
    """False: nobody would see an event, so none need be made."""

    def __init__(self, max_events_per_request: int = 20_000, max_requests: int = 256) -> None:
        for name, value in (
            ("max_events_per_request", max_events_per_request),
            ("max_requests", max_requests),
        ):
            if value < 1:
                raise ConfigError(f"{name} is {value}: it must be at least 1")
        self._max_events = max_events_per_request
        self._max_requests = max_requests
        self._model: ModelLoaded | None = None
        self._records: dict[str, _Record] = {}
        self._listeners: list[Listener] = []
        self._lock = Lock()

    def emit(self, event: Event) -> None:
        """Keep an event, then call the listeners with it, in this thread."""
        with self._lock:
            if isinstance(event, ModelLoaded):
                self._model = event
            for request_id in _requests_of(event):
                self._keep(request_id, event)
            listeners = tuple(self._listeners)
        for listener in listeners:
            listener(event)

    def _keep(self, request_id: str, event: Event) -> None:
        record = self._records.get(request_id)
        if record is None:
            if len(self._records) >= self._max_requests:
                del self._records[next(iter(self._records))]
            record = self._records[request_id] = _Record()
        if len(record.events) < self._max_events or isinstance(event, SequenceFinished):
            record.events.append(event)
        else:
            record.num_left_out += 1

    def for_request(self, request_id: str) -> tuple[Event, ...]:
        """The events of a request, in the order of their arrival, after the model's loading.

        Empty for a request that is not, or no longer, kept.
        """
        with self._lock:
            record = self._records.get(request_id)
            if record is None:
                return ()
            loaded = () if self._model is None else (self._model,)
            return (*loaded, *record.events)

    def num_left_out(self, request_id: str) -> int:
        """Events of a request that came when it had its full number of them."""
        with self._lock:
            record = self._records.get(request_id)
            return 0 if record is None else record.num_left_out

    def drop(self, request_id: str) -> None:
        """Forget a request; nothing happens if it is not kept."""
        with self._lock:
            self._records.pop(request_id, None)

    def listen(self, listener: Listener) -> Callable[[], None]:
        """Call `listener` with each event from now on.

        It runs in the thread that emits, so it must be quick.

        Returns:
            A function that ends this; calling it again does nothing.
        """
        with self._lock:
            self._listeners.append(listener)

        def stop() -> None:
            with self._lock:
                if listener in self._listeners:
                    self._listeners.remove(listener)

        return stop


class NullRecorder(Recorder):
    """The off switch: keeps nothing, tells nobody."""

    enabled = False

    def emit(self, event: Event) -> None:
        """Do nothing."""


def _requests_of(event: Event) -> tuple[str, ...]:
    """Ids of the requests an event belongs to, each once."""
    if isinstance(event, StepExecuted):
        return tuple(dict.fromkeys(chunk.request_id for chunk in event.chunks))
    request_id = getattr(event, "request_id", None)
    return () if request_id is None else (request_id,)
