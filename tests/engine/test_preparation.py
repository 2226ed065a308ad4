"""What is refused before anything is queued, and what is filled in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pytest
from numpy.typing import NDArray

from firstword.engine.model import EngineModel
from firstword.engine.preparation import Preparation, Prepared
from firstword.engine.request import RequestOptions
from firstword.errors import ConfigError, GrammarError, PromptTooLongError
from firstword.kvcache.manager import KVCacheManager
from firstword.sampling.constraint import TokenConstraint
from firstword.sampling.params import Grammar, SamplingParams
from tests.engine.rig import BLOCKS, CONTEXT, EOS, GREEDY, SPEC, VOCAB
from tests.fakes import FakeClock


def preparation(
    seed: int | None = None, compile_grammar: Callable[[Grammar], TokenConstraint] | None = None
) -> Preparation:
    model = EngineModel(VOCAB, CONTEXT, frozenset({EOS}), "f", SPEC, BLOCKS)
    model = replace(model, compile_grammar=compile_grammar)
    return Preparation(model, KVCacheManager(SPEC, BLOCKS), seed, FakeClock(100.0))


def prepare(
    prompt: list[int], params: SamplingParams, options: RequestOptions | None = None
) -> Prepared:
    return preparation().prepare("a", prompt, params, options or RequestOptions())


# --- What is refused ---


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        ([], "no tokens"),
        ([1, 16], "token id 16 .*0 to 15"),
        ([-1], "token id -1 .*0 to 15"),
        ([1, 2.0], "token id 2.0 .*whole numbers"),
        (["1"], "token id '1' .*whole numbers"),
    ],
)
def test_a_prompt_of_other_tokens_is_refused(prompt: list[int], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        prepare(prompt, GREEDY)


@pytest.mark.parametrize(
    "params",
    [SamplingParams(stop_token_ids=(3, 16)), SamplingParams(logit_bias={16: 1.0})],
)
def test_parameters_with_tokens_the_model_lacks_are_refused(params: SamplingParams) -> None:
    """Else a row would fail at its first token, when min_tokens bans the end tokens."""
    with pytest.raises(ConfigError, match=r"token id 16: .* 0 to 15"):
        prepare([1], params)


@pytest.mark.parametrize("length", [CONTEXT, CONTEXT + 7])
def test_a_prompt_too_long_is_refused_with_both_numbers(length: int) -> None:
    with pytest.raises(PromptTooLongError, match=f"{length} tokens.* holds {CONTEXT} ") as caught:
        prepare([1] * length, GREEDY)
    assert (caught.value.num_prompt_tokens, caught.value.max_model_len) == (length, CONTEXT)
    assert prepare([1] * (CONTEXT - 1), GREEDY).params.max_tokens == 1


def test_a_grammar_is_refused_where_nothing_can_hold_answers_to_it() -> None:
    with pytest.raises(GrammarError, match="leave the grammar out"):
        prepare([1], SamplingParams(grammar=Grammar("regex", "a+")))


# --- What is filled in ---


@pytest.mark.parametrize(
    ("max_tokens", "min_tokens", "expected"),
    [(None, 0, (30, 0)), (7, 5, (7, 5)), (50, 40, (30, 30)), (None, 100, (30, 30))],
)
def test_lengths_are_fitted_to_the_rest_of_the_context(
    max_tokens: int | None, min_tokens: int, expected: tuple[int, int]
) -> None:
    params = SamplingParams(max_tokens=max_tokens, min_tokens=min_tokens)
    prepared = prepare([1] * 10, params)
    assert (prepared.params.max_tokens, prepared.params.min_tokens) == expected
    assert (prepared.request.max_tokens, prepared.request.min_tokens) == expected


def test_a_seed_is_the_requests_own_or_the_engines_or_a_fresh_one() -> None:
    own = {"a": GREEDY, "b": replace(GREEDY, seed=8), "c": replace(GREEDY, seed=0)}
    it, options = preparation(seed=7), RequestOptions()
    seeds = [it.prepare(name, [1], params, options).params.seed for name, params in own.items()]
    assert seeds == [7, 8, 0]
    fresh = [preparation().prepare("a", [1], GREEDY, options).params.seed for _ in range(2)]
    assert fresh[0] != fresh[1]
    assert all(seed is not None and 0 <= seed < 2**32 for seed in fresh)


def test_the_end_token_ends_an_answer_unless_it_is_ignored() -> None:
    stop = SamplingParams(stop_token_ids=(2,))
    assert prepare([1], stop).request.stop_token_ids == {2, EOS}
    assert prepare([1], replace(stop, ignore_eos=True)).request.stop_token_ids == {2}


def test_options_and_the_time_of_arrival_are_the_requests() -> None:
    options = RequestOptions(priority=3, key="k", salt="s")
    request = prepare([1], GREEDY, options).request
    assert (request.priority, request.key, request.salt) == (3, "k", "s")
    assert request.arrival_time == 100.0
    assert prepare([1], GREEDY, replace(options, arrival=99.5)).request.arrival_time == 99.5


def test_blocks_are_named_and_every_sample_has_its_own_state() -> None:
    prepared = prepare(list(range(9)), replace(GREEDY, n=2))
    assert len(prepared.request.sequences[0].block_keys) == 1 + 2  # a root, and 4 tokens each
    assert len(prepared.sampling) == 2


@dataclass
class Start:
    """The beginning of a grammar that allows every token; counts how often it was forked."""

    num_forks: int = 0
    is_done: bool = False

    def mask(self) -> NDArray[np.uint32]:
        return np.array([(1 << VOCAB) - 1], np.uint32)

    def accept(self, token_id: int) -> None: ...

    def fork(self) -> Start:
        self.num_forks += 1
        return Start()


def test_each_sample_gets_a_fork_of_the_grammar_which_says_where_it_ends() -> None:
    start = Start()
    it = preparation(compile_grammar=lambda grammar: start)
    params = SamplingParams(grammar=Grammar("regex", "a+"), n=3, ignore_eos=True)
    prepared = it.prepare("a", [1], params, RequestOptions())
    assert start.num_forks == 3
    assert prepared.request.stop_token_ids == {EOS}
