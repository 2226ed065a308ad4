"""What does not fit, and a line that is full, for all or for one key."""

from __future__ import annotations

import pytest

from firstword.config import EngineConfig
from firstword.engine.admission import QueueLimits, check_size, queue_limits
from firstword.engine.request import Request
from firstword.engine.step import StepTime
from firstword.errors import CapacityError, PromptTooLongError, QueueFullError
from tests.fakes import Driver


def driver(max_requests: int, max_tokens: int = 10_000) -> Driver:
    made = Driver(max_num_seqs=1, step_time=StepTime(ms_per_token=500))
    made.scheduler.limits = QueueLimits(max_requests, max_tokens)
    return made


def add(driver: Driver, name: str, num_tokens: int = 5, key: str = "") -> None:
    first = 100 * ord(name[0])
    driver.scheduler.add(Request(name, tuple(range(first, first + num_tokens)), 2, key=key))


def test_one_more_than_may_wait_is_refused_and_told_when_to_come_back() -> None:
    it = driver(2)
    add(it, "a")
    add(it, "b")
    with pytest.raises(QueueFullError, match="3 requests would wait, but at most 2 may") as caught:
        add(it, "c")
    assert caught.value.retry_after == it.scheduler.predicted_wait_ms() / 1e3 > 5
    assert not caught.value.key_only
    it.run()
    add(it, "c")
    it.run()


def test_tokens_are_limited_but_never_for_the_only_one() -> None:
    it = driver(100, max_tokens=12)
    add(it, "long", 40)
    it.step()
    add(it, "a", 10)
    with pytest.raises(QueueFullError, match="13 tokens would wait, but at most 12 may"):
        add(it, "b", 3)
    add(it, "c", 2)


def test_a_key_takes_half_of_the_line_at_most() -> None:
    it = driver(4)
    add(it, "a", key="flood")
    add(it, "b", key="flood")
    with pytest.raises(QueueFullError, match="3 requests of your key would wait") as caught:
        add(it, "c", key="flood")
    assert caught.value.key_only
    add(it, "d", key="other")


def test_who_is_refused_leaves_nothing_behind() -> None:
    it = driver(1)
    add(it, "a")
    with pytest.raises(QueueFullError):
        add(it, "b")
    it.scheduler.check_invariants()
    it.run()
    assert not it.scheduler.has_work


@pytest.mark.parametrize(
    ("config", "limits"),
    [
        (EngineConfig(), None),
        (EngineConfig(max_queued_requests=3), QueueLimits(3, 800)),
        (EngineConfig(max_queued_requests=3, max_queued_tokens=7), QueueLimits(3, 7)),
    ],
)
def test_limits_are_those_asked_for(config: EngineConfig, limits: QueueLimits | None) -> None:
    assert queue_limits(config, 100) == limits


def test_tokens_alone_may_be_limited() -> None:
    limits = queue_limits(EngineConfig(max_queued_tokens=7), 100)
    assert limits is not None
    assert limits.max_tokens == 7
    assert limits.max_requests > 10**9


def test_what_could_not_run_alone_is_refused() -> None:
    it = Driver(num_blocks=4)  # of 4 tokens
    check_size(Request("a", tuple(range(12)), 4), it.manager, 64, 8)
    with pytest.raises(CapacityError, match="pool has 4"):
        check_size(Request("a", tuple(range(12)), 9), it.manager, 64, 8)
    with pytest.raises(PromptTooLongError, match="12 tokens"):
        check_size(Request("a", tuple(range(12)), 4), it.manager, 12, 8)
