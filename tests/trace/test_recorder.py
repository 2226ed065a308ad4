from __future__ import annotations

from threading import Thread

import pytest

from firstword.errors import ConfigError
from firstword.trace.events import (
    Event,
    ModelLoaded,
    ScheduledChunk,
    SequenceFinished,
    StepExecuted,
    TextEmitted,
)
from firstword.trace.recorder import NullRecorder, Recorder


def _text(request_id: str, text: str = "x") -> TextEmitted:
    return TextEmitted(1.0, request_id, 0, text)


def _step(*requests: str) -> StepExecuted:
    chunks = tuple(ScheduledChunk(request, 0, 0, 1) for request in requests)
    return StepExecuted(1.0, 0, 0.5, chunks, 1.0, 0.1, 1e9, 1e6, 10.0, 4096, 1.0)


def _loaded(name: str) -> ModelLoaded:
    return ModelLoaded(
        0.0, name, 1.0, 2, 4, 2, 8, "float16", 2, 128, None, 0, 64, 8192, 8192, 999, "reference", 1
    )


def test_events_are_kept_by_request_in_order() -> None:
    recorder = Recorder()
    mine, other, both = _text("a"), _text("b"), _step("a", "b", "a")
    for event in (mine, other, both, Event(5.0)):
        recorder.emit(event)
    assert recorder.for_request("a") == (mine, both)
    assert recorder.for_request("b") == (other, both)
    assert recorder.for_request("c") == ()


def test_the_latest_model_belongs_to_every_request() -> None:
    recorder = Recorder()
    recorder.emit(_loaded("old"))
    recorder.emit(_text("a"))
    recorder.emit(_loaded("new"))
    assert recorder.for_request("a") == (_loaded("new"), _text("a"))
    assert recorder.for_request("b") == ()


def test_dropping_forgets_one_request() -> None:
    recorder = Recorder()
    recorder.emit(_step("a", "b"))
    recorder.drop("a")
    recorder.drop("never seen")
    assert recorder.for_request("a") == ()
    assert recorder.for_request("b") == (_step("a", "b"),)


def test_a_full_request_keeps_its_beginning_and_its_end() -> None:
    recorder = Recorder(max_events_per_request=2)
    end = SequenceFinished(9.0, "a", 0, "length", None, 5)
    for event in (_text("a", "1"), _text("a", "2"), _text("a", "3"), _text("a", "4"), end):
        recorder.emit(event)
    assert recorder.for_request("a") == (_text("a", "1"), _text("a", "2"), end)
    assert recorder.num_left_out("a") == 2
    assert recorder.num_left_out("b") == 0


def test_the_oldest_request_makes_room() -> None:
    recorder = Recorder(max_requests=2)
    for request in ("a", "b", "a", "c"):
        recorder.emit(_text(request))
    assert recorder.for_request("a") == ()
    assert len(recorder.for_request("b")) == len(recorder.for_request("c")) == 1


@pytest.mark.parametrize("name", ["max_events_per_request", "max_requests"])
def test_bounds_must_be_positive(name: str) -> None:
    with pytest.raises(ConfigError, match=f"{name} is 0: it must be at least 1"):
        Recorder(**{name: 0})


def test_listeners_hear_each_event_until_they_stop() -> None:
    recorder = Recorder()
    heard: list[Event] = []
    stop = recorder.listen(heard.append)
    recorder.emit(_text("a"))
    stop()
    stop()
    recorder.emit(_text("b"))
    assert heard == [_text("a")]


def test_a_listener_may_ask_the_recorder() -> None:
    recorder = Recorder()
    seen: list[int] = []
    recorder.listen(lambda event: seen.append(len(recorder.for_request("a"))))
    recorder.emit(_text("a"))
    assert seen == [1]


def test_threads_lose_no_event() -> None:
    recorder = Recorder()

    def work(name: str) -> None:
        for _ in range(500):
            recorder.emit(_step(name, "all"))

    threads = [Thread(target=work, args=(str(i),)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(recorder.for_request("all")) == 2000
    assert len(recorder.for_request("3")) == 500


def test_the_off_switch_keeps_nothing() -> None:
    recorder = NullRecorder()
    heard: list[Event] = []
    recorder.listen(heard.append)
    recorder.emit(_text("a"))
    assert not recorder.enabled
    assert Recorder().enabled
    assert recorder.for_request("a") == ()
    assert heard == []
