from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from firstword.batch import StepInput, StepResult
from firstword.config import EngineConfig
from firstword.engine.engine import Engine
from firstword.engine.outputs import SequenceOutput
from firstword.engine.runner import Runner
from firstword.errors import StepStoppedError
from firstword.llm import LLM
from firstword.sampling.params import SamplingParams
from tests.weights.tiny_gguf import write_tiny_llama

CONFIG = EngineConfig(max_num_batched_tokens=16, enable_panel_cache=False, debug=True)
PROMPTS = {"a": [5, 6, 7], "b": list(range(3, 40)), "c": [9]}
PARAMS = SamplingParams(seed=3, temperature=1.5, max_tokens=24)


class Watched:
    """Passes steps on, and notes those that ran ahead.

    Args:
        inner: computes them.
        runs_ahead: whether they may.
    """

    def __init__(self, inner: Runner, runs_ahead: bool = True) -> None:
        self.inner, self.runs_ahead = inner, runs_ahead
        self.num_steps = self.num_ahead = self.num_dropped = 0
        self.fails_at: int | None = None
        self.refuses_ahead = False

    def submit(self, step: StepInput) -> int:
        if self.refuses_ahead and (step.batch.token_ids < 0).any():
            self.refuses_ahead = False
            raise RuntimeError("no room")
        self.num_steps += 1
        self.num_ahead += bool((step.batch.token_ids < 0).any())
        return self.inner.submit(step)

    def collect(self, handle: int) -> StepResult:
        result = self.inner.collect(handle)
        if self.fails_at == self.num_steps:
            self.fails_at = None
            raise StepStoppedError("stopped by the test")
        return result

    def stop(self) -> None:
        self.inner.stop()

    def drop(self) -> None:
        self.num_dropped += 1
        self.inner.drop()


@pytest.fixture
def engine(tmp_path: Path) -> Engine:
    path = write_tiny_llama(tmp_path / "model.gguf")
    return LLM(path, config=CONFIG, numerics="native").engine


def watch(engine: Engine, runs_ahead: bool = True) -> Watched:
    watched = Watched(engine.runner, runs_ahead)
    engine.runner = watched
    return watched


def run(engine: Engine) -> dict[tuple[str, int], list[int]]:
    tokens: dict[tuple[str, int], list[int]] = {}
    while engine.has_work:
        take(engine.step(), tokens)
    return tokens


def take(outputs: list[SequenceOutput], tokens: dict[tuple[str, int], list[int]]) -> None:
    for output in outputs:
        tokens.setdefault((output.request_id, output.sample_index), []).append(output.token_id)


def answers(
    engine: Engine, params: SamplingParams, runs_ahead: bool
) -> tuple[dict[tuple[str, int], list[int]], Watched]:
    watched = watch(engine, runs_ahead)
    for name, prompt in PROMPTS.items():
        engine.add_request(name, prompt, params)
    tokens = run(engine)
    for name in PROMPTS:
        engine.release(name)
    engine.runner = watched.inner
    return tokens, watched


@pytest.mark.parametrize(
    "params",
    [
        PARAMS,
        replace(PARAMS, ignore_eos=True),
        replace(PARAMS, n=3, min_tokens=4),
        replace(PARAMS, stop_token_ids=tuple(range(0, 250, 7))),
    ],
    ids=["plain", "to the limit", "samples", "ends early"],
)
def test_running_ahead_changes_no_token(engine: Engine, params: SamplingParams) -> None:
    one_by_one, _ = answers(engine, params, runs_ahead=False)
    ahead, watched = answers(engine, params, runs_ahead=True)
    assert ahead == one_by_one
    assert watched.num_ahead > 0
    assert engine.stats.num_used_blocks == 0


def test_most_steps_of_plain_decoding_run_ahead(engine: Engine) -> None:
    _, watched = answers(engine, replace(PARAMS, ignore_eos=True), runs_ahead=True)
    assert watched.num_ahead >= 20
    assert watched.num_dropped == 0, "lengths are known: nothing is computed for nothing"


@pytest.mark.parametrize(
    "params", [replace(PARAMS, presence_penalty=1.0), replace(PARAMS, repetition_penalty=1.3)]
)
def test_tokens_that_decide_on_the_next_are_waited_for(
    engine: Engine, params: SamplingParams
) -> None:
    _, watched = answers(engine, params, runs_ahead=True)
    assert watched.num_ahead == 0


def test_a_step_ahead_of_an_end_is_dropped(engine: Engine) -> None:
    params = replace(PARAMS, ignore_eos=True, max_tokens=30)
    engine.add_request("free", [5, 6, 7], params)
    free = run(engine)["free", 0]
    engine.release("free")
    watched = watch(engine)
    engine.add_request("a", [5, 6, 7], replace(params, stop_token_ids=(free[9],)))
    assert run(engine)["a", 0] == free[: free.index(free[9]) + 1]
    assert watched.num_dropped == 1
    assert engine.stats.num_used_blocks == 0


def test_an_abort_takes_the_step_ahead_with_it_where_it_was_alone(engine: Engine) -> None:
    watched = watch(engine)
    engine.add_request("a", [5, 6, 7], PARAMS)
    while watched.num_ahead == 0:
        engine.step()
    engine.abort("a")
    engine.release("a")
    assert watched.num_dropped == 1
    assert engine.stats.num_used_blocks == 0
    assert not engine.has_work


def test_an_abort_beside_others_leaves_them_as_they_would_be(engine: Engine) -> None:
    params = replace(PARAMS, ignore_eos=True)
    engine.add_request("b", PROMPTS["b"], params)
    alone = run(engine)["b", 0]
    engine.release("b")
    watched = watch(engine)
    tokens: dict[tuple[str, int], list[int]] = {}
    engine.add_request("a", PROMPTS["a"], params)
    engine.add_request("b", PROMPTS["b"], params)
    while watched.num_ahead < 3:
        take(engine.step(), tokens)
    engine.abort("a")
    engine.release("a")
    while engine.has_work:
        take(engine.step(), tokens)
    assert tokens["b", 0] == alone
    assert engine.stats.num_used_blocks == 0


def test_steps_that_are_stopped_are_taken_back_and_run_again(engine: Engine) -> None:
    expected, _ = answers(engine, PARAMS, runs_ahead=False)
    watched = watch(engine)
    for name, prompt in PROMPTS.items():
        engine.add_request(name, prompt, PARAMS)
    tokens: dict[tuple[str, int], list[int]] = {}
    num_stopped = 0
    while engine.has_work:
        if watched.num_steps % 5 == 4:
            watched.fails_at = watched.num_steps + 1
        try:
            take(engine.step(), tokens)
        except StepStoppedError:
            num_stopped += 1
            watched.num_steps += 1
    assert tokens == expected
    assert num_stopped > 2
    assert engine.stats.num_used_blocks == 0


def test_an_old_stop_does_not_end_the_next_request(engine: Engine) -> None:
    """A stop that comes too late for the step it was meant for is forgotten."""
    watched = watch(engine)
    for name in ("a", "b", "c", "d"):
        engine.add_request(name, [5, 6, 7], PARAMS)
        while watched.num_ahead == 0 or engine.stats.num_running == 0:
            engine.step()
        engine.abort(name)
        engine.release(name)
        watched.num_ahead = 0
    engine.add_request("last", [5, 6, 7], PARAMS)
    assert run(engine)["last", 0]


def test_a_step_ahead_that_cannot_begin_leaves_nothing_behind(engine: Engine) -> None:
    expected, _ = answers(engine, PARAMS, runs_ahead=False)
    watched = watch(engine)
    watched.refuses_ahead = True
    for name, prompt in PROMPTS.items():
        engine.add_request(name, prompt, PARAMS)
    tokens: dict[tuple[str, int], list[int]] = {}
    with pytest.raises(RuntimeError, match="no room"):
        while engine.has_work:
            take(engine.step(), tokens)
    while engine.has_work:
        take(engine.step(), tokens)
    assert tokens == expected
    assert engine.stats.num_used_blocks == 0
