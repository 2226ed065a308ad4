from __future__ import annotations

import math
import pickle
import subprocess
import sys
from typing import Any

import pytest

from firstword.errors import ConfigError
from firstword.sampling.params import Grammar, SamplingParams

NAN, INF = math.nan, math.inf


def test_defaults_are_the_models_own_distribution() -> None:
    params = SamplingParams()
    assert (params.n, params.temperature, params.top_k, params.top_p) == (1, 1.0, 0, 1.0)
    assert params.seed is None
    assert params.max_tokens is None
    assert params.strategy == "temperature 1"


@pytest.mark.parametrize(
    "values",
    [
        {"n": 1024},
        {"temperature": 0},
        {"temperature": 100},
        {"top_k": 10**9},
        {"top_p": 1},
        {"top_p": 1e-300},
        {"seed": 0},
        {"seed": 2**64 - 1},
        {"max_tokens": 1},
        {"max_tokens": 5, "min_tokens": 5},
        {"logprobs": 50},
        {"logit_bias": {0: -100, 5: 100.0, 7: -INF}},
        {"presence_penalty": -2, "frequency_penalty": 2.0},
        {"repetition_penalty": 10},
        {"repetition_penalty": 1e-300},
        {"penalty_scope": "all"},
        {"grammar": Grammar("json_object")},
    ],
)
def test_limits_themselves_are_accepted(values: dict[str, Any]) -> None:
    params = SamplingParams(**values)
    for name, value in values.items():
        assert getattr(params, name) == value


@pytest.mark.parametrize(
    ("name", "limits", "values"),
    [
        ("n", "from 1 to 1024", [0, -1, 1025, 1.0, True, "2", None]),
        ("temperature", "from 0 to 100", [-0.1, 100.1, NAN, INF, -INF, True, "1", None]),
        ("top_k", "of at least 0", [-1, 1.5, NAN, False, "40", None]),
        ("top_p", "above 0 and at most 1", [0, -0.5, 1.0001, NAN, INF, True, "1", None]),
        ("seed", f"from 0 to {2**64 - 1}", [-1, 2**64, 1.0, NAN, True, "7"]),
        ("max_tokens", "of at least 1", [0, -1, 1.5, INF, True, "9"]),
        ("min_tokens", "of at least 0", [-1, 0.5, NAN, True, None]),
        ("ignore_eos", "True or False", [0, 1, None, "yes"]),
        ("skip_special_tokens", "True or False", [0, 1, None]),
        ("stop", "string", ["", [""], ["a", 3], [b"x"], 5, None]),
        ("stop_token_ids", "list of token ids|of at least 0", [[-1], [1.0], [True], "12", 7, None]),
        ("presence_penalty", "from -2 to 2", [-2.1, 2.1, NAN, INF, True, "1", None]),
        ("frequency_penalty", "from -2 to 2", [-2.1, 2.1, NAN, INF, True, "1", None]),
        ("repetition_penalty", "above 0 and at most 10", [0, -1, 10.1, NAN, INF, True, "1", None]),
        ("penalty_scope", "'output' or 'all'", ["prompt", "", None, 1]),
        ("grammar", "a Grammar or None", ["json", {}, 1]),
        ("logprobs", "from 0 to 50", [-1, 51, 5.0, True, NAN]),
        (
            "logit_bias",
            "map token ids|from -100 to 100|of at least 0",
            [{1: NAN}, {1: INF}, {1: 100.5}, {1: -101}, {-1: 0.0}, {"1": 0.0}, {1: True}, [1]],
        ),
    ],
)
def test_bad_values_are_refused_by_name_value_and_range(
    name: str, limits: str, values: list[Any]
) -> None:
    for value in values:
        with pytest.raises(ConfigError, match=limits) as caught:
            SamplingParams(**{name: value})
        assert name in str(caught.value)
    with pytest.raises(ConfigError) as caught:
        SamplingParams(temperature=101.5)
    assert str(caught.value) == "temperature is 101.5: it must be a number from 0 to 100"


def test_min_tokens_above_max_tokens_is_refused() -> None:
    with pytest.raises(ConfigError, match="min_tokens is 6, above max_tokens 5"):
        SamplingParams(min_tokens=6, max_tokens=5)
    SamplingParams(min_tokens=6)  # the rest of the context is not known here


def test_a_single_stop_string_is_not_taken_apart() -> None:
    assert SamplingParams(stop="END").stop == ("END",)  # type: ignore[arg-type]
    assert SamplingParams(stop=["a", "b"]).stop == ("a", "b")  # type: ignore[arg-type]


def test_a_later_change_of_the_callers_lists_changes_nothing() -> None:
    bias, ids = {3: 1.0}, [4]
    params = SamplingParams(logit_bias=bias, stop_token_ids=ids)  # type: ignore[arg-type]
    bias[9] = 2.0
    ids.append(5)
    assert params.logit_bias == {3: 1.0}
    assert params.stop_token_ids == (4,)


def test_presets() -> None:
    chat = SamplingParams.preset("chat", max_tokens=512)
    assert (chat.temperature, chat.top_k, chat.top_p) == (0.7, 40, 0.95)
    assert chat.max_tokens == 512
    assert SamplingParams.preset("chat", temperature=0.2).temperature == 0.2
    assert SamplingParams.preset("factual").temperature == 0
    with pytest.raises(ConfigError, match="temperature"):
        SamplingParams.preset("chat", temperature=-1)


def test_an_unknown_preset_is_answered_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"'Factul', did you mean 'factual'.* chat, factual"):
        SamplingParams.preset("Factul")
    with pytest.raises(ConfigError, match="no preset 'zzz': The presets are chat, factual"):
        SamplingParams.preset("zzz")


@pytest.mark.parametrize(
    ("params", "words"),
    [
        (SamplingParams(temperature=0, top_k=5, top_p=0.5), "greedy: the largest logit"),
        (SamplingParams.preset("chat"), "temperature 0.7, then top-k 40, then top-p 0.95"),
        (SamplingParams(top_p=0.9), "temperature 1, then top-p 0.9"),
        (SamplingParams(logit_bias={1: 2.0}), "bias on 1 token, then temperature 1"),
        (
            SamplingParams(temperature=0, logit_bias={1: 2.0, 2: 1.0}),
            "bias on 2 tokens, then greedy: the largest logit",
        ),
        (
            SamplingParams(
                logit_bias={1: 2.0},
                repetition_penalty=1.1,
                frequency_penalty=0.5,
                presence_penalty=-1,
                penalty_scope="all",
                temperature=0,
            ),
            "bias on 1 token, then repetition penalty 1.1, then frequency penalty 0.5, then "
            "presence penalty -1 (the prompt counts), then greedy: the largest logit",
        ),
        (
            SamplingParams(frequency_penalty=0.5, grammar=Grammar("regex", "a+")),
            "only what the regular expression allows, then frequency penalty 0.5, then "
            "temperature 1",
        ),
    ],
)
def test_strategy_in_words(params: SamplingParams, words: str) -> None:
    assert params.strategy == words


def test_token_ids_outside_the_vocabulary_are_refused() -> None:
    params = SamplingParams(stop_token_ids=(99,), logit_bias={7: 1.0})
    params.check_vocabulary(100)
    with pytest.raises(ConfigError, match=r"stop_token_ids has the token id 99.* 0 to 98"):
        params.check_vocabulary(99)
    with pytest.raises(ConfigError, match="logit_bias has the token id 7"):
        SamplingParams(logit_bias={7: 1.0}).check_vocabulary(7)


def test_penalties_and_grammars_name_no_tokens_of_a_vocabulary() -> None:
    params = SamplingParams(
        presence_penalty=2, repetition_penalty=2, grammar=Grammar("choice", '["a"]')
    )
    params.check_vocabulary(1)


@pytest.mark.parametrize("name", ["presence_penalty", "frequency_penalty", "repetition_penalty"])
def test_any_one_penalty_counts(name: str) -> None:
    assert SamplingParams(**{name: 0.5}).has_penalties  # type: ignore[arg-type]
    assert not SamplingParams(penalty_scope="all").has_penalties


def test_a_grammar_of_an_unknown_kind_is_refused() -> None:
    with pytest.raises(ConfigError, match="grammar kind is 'gbnf': it must be one of json_schema"):
        Grammar("gbnf")  # type: ignore[arg-type]


def test_equal_hashable_and_sendable_to_another_process() -> None:
    params = SamplingParams(logit_bias={1: 2.0}, stop=("x",), grammar=Grammar("json_schema", "{}"))
    same = pickle.loads(pickle.dumps(params))
    assert same == params
    assert hash(same) == hash(params)


def test_importing_the_parameters_imports_no_arrays() -> None:
    code = "import sys, firstword.sampling.params; sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
