"""Requests held to a grammar or with penalties: an engine on a fake model, and on tiny ones."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import jsonschema
import numpy as np
import pytest
from numpy.typing import NDArray

from firstword.batch import StepInput
from firstword.engine.engine import Engine
from firstword.engine.outputs import SequenceOutput
from firstword.errors import ConfigError, GrammarError, SamplingError
from firstword.sampling.params import Grammar, SamplingParams
from firstword.text.grammar import GrammarCompiler
from tests.engine.rig import BLOCKS, EOS, Rig, by_name, rig
from tests.harness import Model, finish
from tests.text.constrained import text_of, tiny_tokenizer
from tests.weights.tiny_gguf import write_tiny_llama

GREEDY = SamplingParams(temperature=0, max_tokens=8, grammar=Grammar("json_object"))


class Choices:
    """Holds a sequence to one of several lists of token ids; `broken` cannot be accepted."""

    def __init__(
        self, *choices: Sequence[int], taken: tuple[int, ...] = (), broken: int | None = None
    ) -> None:
        self.choices, self.taken, self.broken = choices, taken, broken

    def _next(self) -> set[int]:
        at = len(self.taken)
        left = [[*choice, EOS] for choice in self.choices]
        return {
            choice[at] for choice in left if len(choice) > at and tuple(choice[:at]) == self.taken
        }

    def mask(self) -> NDArray[np.uint32]:
        return np.array([sum(1 << token_id for token_id in self._next())], np.uint32)

    def accept(self, token_id: int) -> None:
        if token_id == self.broken or token_id not in self._next():
            raise SamplingError(f"token {token_id} is not allowed after {self.taken}")
        self.taken += (token_id,)

    @property
    def is_done(self) -> bool:
        return self._next() <= {EOS}

    def fork(self) -> Choices:
        return Choices(*self.choices, taken=self.taken, broken=self.broken)


def held(constraint: Choices, **config: object) -> Rig:
    return rig(frozenset({EOS}), lambda grammar: constraint, **config)


def outputs_of(one: Rig, params: SamplingParams = GREEDY) -> list[SequenceOutput]:
    one.engine.add_request("a", [1, 2], params)
    return list(one.outputs())


def test_a_sequence_ends_with_the_token_that_completes_its_grammar() -> None:
    one = held(Choices((3, 9, 4)))
    outputs = outputs_of(one)
    assert [output.token_id for output in outputs] == [3, 9, 4]
    assert [output.finish_reason for output in outputs] == [None, None, "stop"]
    assert outputs[-1].stop_reason is None
    assert not outputs[-1].ended_by_token
    assert one.num_free == BLOCKS
    assert not one.engine.has_work


@pytest.mark.parametrize("ignore_eos", [False, True])
def test_the_end_token_ends_it_where_the_grammar_may_end(ignore_eos: bool) -> None:
    params = replace(GREEDY, logit_bias={5: -100.0}, ignore_eos=ignore_eos)
    outputs = outputs_of(held(Choices((3,), (3, 5))), params)
    assert [output.token_id for output in outputs] == [3, EOS]
    assert (outputs[-1].finish_reason, outputs[-1].ended_by_token) == ("stop", True)


def test_min_tokens_holds_as_long_as_the_grammar_can_go_on() -> None:
    params = replace(GREEDY, logit_bias={5: -100.0, 6: -100.0}, min_tokens=4)
    outputs = outputs_of(held(Choices((3,), (3, 5), (3, 5, 6))), params)
    assert [output.token_id for output in outputs] == [3, 5, 6]


def test_samples_of_one_request_go_their_own_ways() -> None:
    choices = [(3, 4, 5), (3, 9), (8, 1, 1), (12,)]
    params = replace(GREEDY, temperature=100, n=8, seed=1)
    one = held(Choices(*choices))
    answers = by_name(outputs_of(one, params))
    assert len(answers) == 8
    assert {tuple(tokens) for tokens in answers.values()} <= {
        *choices,
        *((*c, EOS) for c in choices),
    }
    assert len({tuple(tokens) for tokens in answers.values()}) > 2
    assert one.num_free == BLOCKS


@pytest.mark.parametrize("at", [1, 2, 3])
def test_a_step_taken_back_moves_neither_grammar_nor_counts_on_twice(at: int) -> None:
    one, num_steps = held(Choices((3, 9, 4, 4, 4))), 0

    def fail_once(step: StepInput) -> None:
        nonlocal num_steps
        num_steps += 1
        if num_steps == at:
            raise RuntimeError("a failure")

    one.runner.before = fail_once
    one.engine.add_request("a", [1, 2], replace(GREEDY, frequency_penalty=0.5))
    with pytest.raises(RuntimeError):
        one.run()
    assert one.engine.has_work
    one.run()
    last = one.runner.steps[-1].sampling[0].penalties
    assert last is not None
    assert dict(zip(last.token_ids, last.counts, strict=True)) == {3: 1, 9: 1, 4: 2}


def test_without_a_compiler_a_grammar_is_refused_and_the_request_forgotten() -> None:
    one = rig()
    with pytest.raises(GrammarError, match="leave the grammar out"):
        one.engine.add_request("a", [1], GREEDY)
    one.engine.add_request("a", [1], replace(GREEDY, grammar=None))


def test_a_grammar_that_is_refused_leaves_nothing_behind() -> None:
    def refuse(grammar: Grammar) -> Choices:
        raise GrammarError("no", "/a")

    one = rig(compile_grammar=refuse)
    with pytest.raises(ConfigError, match="/a: no"):
        one.engine.add_request("a", [1], GREEDY)
    assert not one.engine.has_work


def test_a_grammar_that_cannot_go_on_fails_its_own_request_alone() -> None:
    one = held(Choices((3, 9, 4), broken=9))
    one.engine.add_request("free", [5], replace(GREEDY, grammar=None, max_tokens=5))
    outputs = outputs_of(one)
    errors = [output for output in outputs if output.error is not None]
    assert [str(output.error) for output in errors] == ["token 9 is not allowed after (3,)"]
    free = [output.token_id for output in outputs if output.request_id == "free"]
    assert free == [6, 7, 8, 9, 10]
    assert one.num_free == BLOCKS


def test_p22_penalties_turn_away_from_what_the_scope_counts() -> None:
    one = rig()
    params = SamplingParams(
        temperature=0, max_tokens=3, presence_penalty=2, frequency_penalty=1, logit_bias={4: 9.0}
    )
    one.engine.add_request("free", [4, 5, 3], SamplingParams(temperature=0, max_tokens=3))
    one.engine.add_request("output", [4, 5, 3], params)
    one.engine.add_request("all", [4, 5, 3], replace(params, penalty_scope="all", logit_bias={}))
    tokens = one.run()
    assert tokens["free"] == [4, 5, 6]
    # 4 has 9 more than the others, less 2 and 1, then less 2 and 2; those before it are far below.
    assert tokens["output"] == [4, 5, 6]
    assert tokens["all"] == [6, 7, 8]


# --- a tiny network ---

TOKENIZER = tiny_tokenizer()
SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 12},
        "age": {"type": "integer", "minimum": 0, "maximum": 120},
        "tags": {"type": "array", "items": {"enum": ["x", "yy"]}, "maxItems": 3},
    },
    "required": ["name", "age", "tags"],
    "additionalProperties": False,
}
GRAMMARS = [
    Grammar("json_schema", json.dumps(SCHEMA)),
    Grammar("regex", "[a-z]{1,9}[0-9]{2}"),
    Grammar("choice", '["red", "green", "blue"]'),
    None,
]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_llama(tmp_path_factory.mktemp("constrained") / "tiny.gguf")


def engine_of(model: Model, num_blocks: int = 400) -> Engine:
    return model.engine(
        num_blocks=num_blocks,
        eos=TOKENIZER.eos_ids,
        compile_grammar=GrammarCompiler(TOKENIZER, model.config.vocab_size).compile,
    )


def params_of(index: int) -> SamplingParams:
    return SamplingParams(
        temperature=1.5,
        seed=index,
        max_tokens=90,
        frequency_penalty=0.3 * (index % 3),
        repetition_penalty=1.1 if index % 2 else 1.0,
        penalty_scope="all" if index % 5 else "output",
        grammar=GRAMMARS[index % len(GRAMMARS)],
        n=1 + (index % 6 == 0),
    )


def prompt_of(index: int) -> list[int]:
    return random.Random(index).choices(range(200), k=3 + index * 7 % 20)


def assert_holds(text: str, grammar: Grammar | None) -> None:
    if grammar is None:
        return
    if grammar.kind == "json_schema":
        jsonschema.validate(json.loads(text), SCHEMA)
    elif grammar.kind == "regex":
        assert re.fullmatch(grammar.text, text)
    else:
        assert text in json.loads(grammar.text)


@pytest.mark.parametrize("numerics", ["native", "exact"])
def test_p23_constrained_tokens_are_the_same_alone_in_a_batch_and_preempted(
    path: Path, numerics: str
) -> None:
    model = Model(path, numerics=numerics)  # type: ignore[arg-type]
    count = 12
    together, crowded = engine_of(model), engine_of(model, num_blocks=8)
    for engine in (together, crowded):
        for index in range(count):
            engine.add_request(str(index), prompt_of(index), params_of(index))
    expected = finish(together)
    num_preemptions = 0
    assert finish(crowded) == expected
    for index in range(count):
        num_preemptions += crowded.release(str(index)).num_preemptions
    assert num_preemptions > 0
    for index in range(count):
        alone = engine_of(model)
        alone.add_request(str(index), prompt_of(index), params_of(index))
        for key, tokens in finish(alone).items():
            assert tokens == expected[key]


def test_p28_thousands_of_hot_answers_of_a_random_network_hold(path: Path) -> None:
    engine, count = engine_of(Model(path, numerics="native")), 1200
    outputs: list[SequenceOutput] = []
    for index in range(count):
        params = SamplingParams(
            temperature=1.5, seed=index, max_tokens=200, grammar=GRAMMARS[index % 3]
        )
        while engine.scheduler.num_waiting > 100:
            outputs += engine.step()
        engine.add_request(str(index), [index % 200, 7], params)
    while engine.has_work:
        outputs += engine.step()
    num_ended = 0
    ended: dict[str, str | None] = {}
    tokens: dict[str, list[int]] = {}
    for output in outputs:
        assert output.error is None
        tokens.setdefault(output.request_id, []).append(output.token_id)
        ended[output.request_id] = output.finish_reason
    for index in range(count):
        if ended[str(index)] == "stop":
            num_ended += 1
            assert_holds(text_of(TOKENIZER, tokens[str(index)]), GRAMMARS[index % 3])
    assert num_ended > 0.95 * count
