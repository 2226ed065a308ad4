from __future__ import annotations

import pytest

from firstword.bench.split import Split, Timed, fit_split

TRUTH = Split(linear=1e-11, attention=4e-11)


def timed(linear: float, attention: float, error: float = 0.0) -> Timed:
    exact = TRUTH.linear * linear + TRUTH.attention * attention
    return Timed(linear, attention, exact * (1 + error))


def test_prompts_of_different_lengths_tell_the_parts_apart() -> None:
    prompts = [timed(1e9, 1e6, 0.01), timed(4e9, 3e8, -0.01), timed(4e9, 2e9, 0.01)]
    split = fit_split(prompts)
    assert split is not None
    assert split.linear == pytest.approx(TRUTH.linear, rel=0.03)
    assert split.attention == pytest.approx(TRUTH.attention, rel=0.05)
    assert split.attention_share(prompts[2]) == pytest.approx(2 / 3, abs=0.02)


def test_prompts_that_are_alike_do_not() -> None:
    assert fit_split([timed(1e9, 1e6)]) is None
    assert fit_split([timed(1e9, 1e6), timed(2e9, 2.1e6)]) is None


def test_times_that_contradict_the_model_give_nothing() -> None:
    assert fit_split([Timed(1e9, 1e6, 1.0), Timed(1e9, 1e9, 0.1)]) is None
