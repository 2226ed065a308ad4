from __future__ import annotations

import pytest

from firstword.bench.serving.events import EventDecoder

STREAM = (
    ": keep-alive\n\n"
    'data: {"text": "Grüße 😀"}\n\n'
    "event: ping\nid: 7\ndata:first\ndata: second\n\n"
    "retry: 5\n\n"
    "\r\n: again\r\n"
    "data: windows\r\n\r\n"
    "data: old\r\r"
    "data: [DONE]\n\n"
).encode()
EVENTS = ['{"text": "Grüße 😀"}', "first\nsecond", "windows", "old", "[DONE]"]


@pytest.mark.parametrize("size", range(1, len(STREAM) + 1))
def test_events_may_be_cut_anywhere(size: int) -> None:
    decoder = EventDecoder()
    pieces = (STREAM[start : start + size] for start in range(0, len(STREAM), size))
    assert [event for piece in pieces for event in decoder.push(piece)] == EVENTS


def test_an_event_without_its_end_is_none() -> None:
    decoder = EventDecoder()
    assert decoder.push(b"data: whole\n\ndata: half\n") == ["whole"]
    assert decoder.push(b"\n") == ["half"]


def test_bytes_that_are_no_utf8_do_not_stop_the_stream() -> None:
    assert EventDecoder().push(b"data: a\xffb\n\n") == ["a\N{REPLACEMENT CHARACTER}b"]
