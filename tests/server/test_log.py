from __future__ import annotations

import json
import logging
import sys
from dataclasses import replace

import pytest

from firstword.server.log import (
    REQUESTS,
    JsonFormatter,
    RequestRecord,
    TextFormatter,
    log_request,
    logging_config,
)


def record_of(fields: dict[str, object]) -> logging.LogRecord:
    record = logging.LogRecord("firstword.requests", logging.INFO, "", 0, "request", (), None)
    record.fields = fields
    record.created = 0.25
    return record


FINISHED = RequestRecord("r1", "POST", "/v1/chat/completions", "10.0.0.1", arrival=100.0)
FINISHED.status, FINISHED.key, FINISHED.model = 200, "ann", "smollm2:135m"
FINISHED.num_prompt_tokens, FINISHED.num_cached_tokens, FINISHED.num_output_tokens = 20, 16, 5
FINISHED.ttft, FINISHED.finish_reason = 0.12345, "stop"


def test_a_finished_request_is_one_line_of_text() -> None:
    line = TextFormatter().format(record_of(FINISHED.fields(now=101.0)))
    assert line == (
        "1970-01-01T00:00:00.250Z INFO request id=r1 method=POST path=/v1/chat/completions "
        "status=200 seconds=1.0 client=10.0.0.1 key=ann model=smollm2:135m prompt_tokens=20 "
        "cached_tokens=16 output_tokens=5 ttft=0.1235 finish=stop"
    )


def test_a_finished_request_is_one_object_of_json() -> None:
    told = json.loads(JsonFormatter().format(record_of(FINISHED.fields(now=101.0))))
    assert (told["level"], told["logger"], told["id"]) == ("info", "firstword.requests", "r1")
    assert (told["prompt_tokens"], told["cached_tokens"], told["ttft"]) == (20, 16, 0.1235)


def test_what_came_from_the_disk_and_a_miss_are_told_where_there_were_any() -> None:
    record = replace(FINISHED, num_disk_tokens=12, miss="evicted@16")
    line = TextFormatter().format(record_of(record.fields(now=101.0)))
    assert line.endswith(" finish=stop disk_tokens=12 miss=evicted@16")


def test_a_request_without_generation_is_shorter() -> None:
    assert "model" not in RequestRecord("r", "GET", "/health").fields(now=0.0)


@pytest.mark.parametrize("text", ["a b", "a\nb", 'a"b c', "", "a\u2028b"])
def test_what_clients_send_stays_one_word_of_one_line(text: str) -> None:
    line = TextFormatter().format(record_of({"path": text}))
    assert len(line.splitlines()) == 1
    assert json.loads(line.split("path=")[1]) == text


def test_tracebacks_are_kept() -> None:
    record = record_of({})
    try:
        raise ZeroDivisionError("oh")
    except ZeroDivisionError:
        record.exc_info = sys.exc_info()
    assert "ZeroDivisionError: oh" in TextFormatter().format(record)
    assert "ZeroDivisionError: oh" in json.loads(JsonFormatter().format(record))["traceback"]


@pytest.mark.parametrize(
    ("path", "status", "level"),
    [
        ("/v1/models", 200, logging.INFO),
        ("/v1/models", 404, logging.INFO),
        ("/v1/models", 500, logging.ERROR),
        ("/v1/models", 503, logging.INFO),
        ("/health", 200, logging.DEBUG),
    ],
)
def test_how_loud_a_request_is(
    path: str, status: int, level: int, caplog: pytest.LogCaptureFixture
) -> None:
    record = RequestRecord("r", "GET", path)
    record.status = status
    with caplog.at_level(logging.DEBUG, REQUESTS.name):
        log_request(record)
    assert [entry.levelno for entry in caplog.records] == [level]


def test_uvicorn_speaks_only_of_trouble() -> None:
    loggers = logging_config("debug", "json")["loggers"]
    assert (loggers["firstword"]["level"], loggers["uvicorn"]["level"]) == ("DEBUG", 30)
    assert logging_config("error", "text")["loggers"]["uvicorn"]["level"] == logging.ERROR
