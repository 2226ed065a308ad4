"""Logs: one line per finished request, as text or JSON. Prompts, answers and keys never appear.

Not here: metrics, and what happens inside a request (trace).
"""

from __future__ import annotations

import json
import logging
import logging.config
import time
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from firstword.server.settings import LogFormat, LogLevel

REQUESTS = logging.getLogger("firstword.requests")
SERVER = logging.getLogger("firstword.server")


@dataclass
class RequestRecord:
    """What is known of an HTTP request; filled while it runs, logged when it ends.

    Args:
        request_id: as in X-Request-Id.
        method: HTTP method.
        path: path without the query.
        client: address that the connection comes from.
        arrival: seconds, time.monotonic.
        key: the name of the API key; "" without.
        status: HTTP status of the answer; 0 where the client left before one.
        model: the model asked, where one was.
        num_prompt_tokens: tokens of all its prompts.
        num_cached_tokens: of these, tokens whose K/V were reused.
        num_disk_tokens: of those, tokens whose K/V were loaded from the disk.
        miss: why no more were reused and from which token on, as in `evicted@512`; "" without.
        num_output_tokens: tokens produced.
        num_preemptions: how often they lost their KV blocks and began again.
        ttft: seconds from arrival to the first token.
        finish_reason: how its generation ended.
    """

    request_id: str
    method: str
    path: str
    client: str = ""
    arrival: float = field(default_factory=time.monotonic)
    key: str = ""
    status: int = 0
    model: str = ""
    num_prompt_tokens: int = 0
    num_cached_tokens: int = 0
    num_disk_tokens: int = 0
    miss: str = ""
    num_output_tokens: int = 0
    num_preemptions: int = 0
    ttft: float | None = None
    finish_reason: str = ""

    def fields(self, now: float) -> dict[str, object]:
        """What the log line says, in its order; generation's part only where there was one."""
        fields: dict[str, object] = {
            "id": self.request_id,
            "method": self.method,
            "path": self.path,
            "status": self.status,
            "seconds": round(now - self.arrival, 4),
            "client": self.client,
        }
        if self.key:
            fields["key"] = self.key
        if self.model:
            fields |= {
                "model": self.model,
                "prompt_tokens": self.num_prompt_tokens,
                "cached_tokens": self.num_cached_tokens,
                "output_tokens": self.num_output_tokens,
                "ttft": None if self.ttft is None else round(self.ttft, 4),
                "finish": self.finish_reason,
            }
        if self.num_disk_tokens:
            fields["disk_tokens"] = self.num_disk_tokens
        if self.miss:
            fields["miss"] = self.miss
        if self.num_preemptions:
            fields["preemptions"] = self.num_preemptions
        return fields


current_request: ContextVar[RequestRecord | None] = ContextVar("current_request", default=None)
"""The record of the HTTP request that this task works for."""


def log_request(record: RequestRecord) -> None:
    """Log a finished request: errors of ours as errors, probes of health quietly."""
    level = logging.INFO
    if record.status >= 500 and record.status != 503:
        level = logging.ERROR
    elif record.path in ("/health", "/ready", "/metrics"):
        level = logging.DEBUG
    if REQUESTS.isEnabledFor(level):
        fields = record.fields(time.monotonic())
        REQUESTS.log(level, "request", extra={"fields": fields})


class TextFormatter(logging.Formatter):
    """`2026-01-31T10:20:30.123Z INFO request id=... status=200`."""

    def format(self, record: logging.LogRecord) -> str:
        """The line, and a traceback below it where there is one."""
        fields: dict[str, object] = getattr(record, "fields", {})
        words = [f"{name}={_word(value)}" for name, value in fields.items() if value is not None]
        line = " ".join([_time(record), record.levelname, record.getMessage(), *words])
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        return line


class JsonFormatter(logging.Formatter):
    """One JSON object per line."""

    def format(self, record: logging.LogRecord) -> str:
        """The object; a traceback is a field of it."""
        content: dict[str, object] = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            content["traceback"] = self.formatException(record.exc_info)
        return json.dumps(content, default=str)


def logging_config(level: LogLevel, log_format: LogFormat) -> dict[str, Any]:
    """A configuration for logging.config.dictConfig: everything on stderr, in one format."""
    formatter = JsonFormatter if log_format == "json" else TextFormatter
    # uvicorn tells of its own start and end at INFO; ours say what matters of it.
    quiet = max(logging.getLevelName(level.upper()), logging.WARNING)
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"line": {"()": formatter}},
        "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line"}},
        "loggers": {
            "firstword": {"handlers": ["stderr"], "level": level.upper(), "propagate": False},
            "uvicorn": {"handlers": ["stderr"], "level": quiet, "propagate": False},
        },
    }


def set_up_logging(level: LogLevel, log_format: LogFormat) -> None:
    """Send this process's logs to stderr."""
    logging.config.dictConfig(logging_config(level, log_format))


def _time(record: logging.LogRecord) -> str:
    moment = datetime.fromtimestamp(record.created, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _word(value: object) -> str:
    """A value that stays one word and one line, whatever a client sent."""
    text = str(value)
    return text if text and text.isprintable() and " " not in text else json.dumps(text)
