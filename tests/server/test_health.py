from __future__ import annotations

from dataclasses import replace

from firstword.server.health import Progress, ProgressWatch


class Bench:
    """A watch whose engine and clock are set by hand."""

    def __init__(self) -> None:
        self.now = 0.0
        self.progress = Progress(None, 0, is_awaited=False)
        self.watch = ProgressWatch(lambda: self.progress, 10.0, lambda: self.now)

    def at(self, now: float, num_steps: int, is_awaited: bool = True) -> str | None:
        """What the watch says then."""
        self.now = now
        self.progress = replace(self.progress, num_steps=num_steps, is_awaited=is_awaited)
        return self.watch.problem()


def test_p26_an_engine_that_stands_still_while_work_waits_is_not_ready() -> None:
    bench = Bench()
    assert bench.at(0, 5) is None
    assert bench.at(10, 5) is None
    problem = bench.at(11, 5)
    assert problem is not None and "11 s" in problem and "limit 10 s" in problem
    assert bench.at(12, 6) is None, "it has made a step"


def test_p26_an_idle_engine_is_ready_however_long_it_idles() -> None:
    bench = Bench()
    assert bench.at(0, 5, is_awaited=False) is None
    assert bench.at(1000, 5, is_awaited=False) is None
    assert bench.at(1001, 5) is None, "the work has only just come"
    assert bench.at(1012, 5) is not None


def test_p26_long_steps_that_were_predicted_do_not_hang() -> None:
    bench = Bench()
    bench.progress = replace(bench.progress, predicted_step_seconds=4.0)
    bench.at(0, 1)
    assert bench.at(39, 1) is None
    assert bench.at(41, 1) is not None


def test_an_engine_that_takes_no_work_says_why() -> None:
    bench = Bench()
    bench.progress = replace(bench.progress, problem="the engine is being started")
    assert bench.at(0, 0, is_awaited=False) == "the engine is being started"
