from __future__ import annotations

import json
import random
import re
import threading
from typing import Any

import jsonschema
import numpy as np
import pytest

from firstword.errors import GrammarError, SamplingError
from firstword.sampling.params import Grammar, GrammarKind
from firstword.text import grammar as module
from firstword.text.grammar import MAX_CHOICES, MAX_TEXT_BYTES, GrammarCompiler
from firstword.text.tokenizer import Tokenizer
from tests.text.constrained import allowed_ids, text_of, tiny_compiler, tiny_tokenizer, write
from tests.text.vocabularies import byte_level

TOKENIZER = tiny_tokenizer()
COMPILER = tiny_compiler()


def of_schema(schema: object) -> Grammar:
    return Grammar("json_schema", json.dumps(schema))


def matches(grammar: Grammar, text: str) -> bool:
    """Whether a whole text is one of the grammar's, by its bytes."""
    constraint = COMPILER.compile(grammar)
    for token_id in TOKENIZER.encode(text):
        if token_id not in allowed_ids(constraint.mask()):
            return False
        constraint.accept(token_id)
    return bool(TOKENIZER.eos_ids & set(allowed_ids(constraint.mask())))


def refusal(kind: GrammarKind, text: str) -> GrammarError:
    with pytest.raises(GrammarError) as caught:
        COMPILER.check(Grammar(kind, text))
    return caught.value


# --- each kind ---


@pytest.mark.parametrize(
    ("grammar", "good", "bad"),
    [
        (Grammar("regex", "[a-c]{2}/x"), ["ab/x"], ["", "ab/", "ab/xy", "zab/x"]),
        (Grammar("regex", "^ab$"), ["ab"], ["xab", "abx"]),
        (Grammar("choice", '["yes", "no.", "a|b", "né"]'), ["no.", "a|b", "né"], ["nox", "a", ""]),
        (Grammar("choice", '["-[]{}()^$#&~/ *+?\\\\"]'), ["-[]{}()^$#&~/ *+?\\"], ["-"]),
        (Grammar("lark", 'start: "f(" /[0-9]+/ ")"'), ["f(12)"], ["f()", "f(1"]),
        (Grammar("lark", 'start: "x" %json {"type": "integer"}'), ["x-3"], ["x1.5", "3"]),
        (Grammar("json_object"), ["{}", '{"a": [1, {"b": null}]}'], ["[]", '"a"', "{} "]),
        (of_schema(True), ["3", '{"a":[]}'], ["x"]),
        (
            of_schema({"properties": {"a": {"type": "integer"}}, "required": ["a"]}),
            ['{"a": 1}', '{"a":1,"b":"x"}', "[1]"],
            ["{}", '{"a":"1"}', '{"b":"x","a":1}'],
        ),
    ],
)
def test_what_a_grammar_allows(grammar: Grammar, good: list[str], bad: list[str]) -> None:
    assert [text for text in good if not matches(grammar, text)] == []
    assert [text for text in bad if matches(grammar, text)] == []


def test_white_space_cannot_run_away() -> None:
    for text, expected in (
        ('{"a":1,"b":[]}', True),
        ('{ "a": 1, "b": [ ] }', True),
        ('{"a":  1}', False),
        ('{"a":\n1}', False),
        (" {}", False),
    ):
        assert matches(Grammar("json_object"), text) is expected
        assert matches(Grammar("lark", 'start: %json {"type": "object"}'), text) is expected


def test_p28_a_declared_name_cannot_be_spelled_past_its_schema() -> None:
    schema = {
        "properties": {"a": {"type": "integer"}},
        "additionalProperties": {"type": "string"},
        "type": "object",
    }
    assert matches(of_schema(schema), '{"b":"x"}')
    assert not matches(of_schema(schema), '{"a":"x"}')
    assert not matches(of_schema(schema), '{"\\u0061":"x"}')


def test_control_tokens_are_no_text() -> None:
    constraint = COMPILER.compile(Grammar("regex", r"<\|im_start\|>"))
    start = TOKENIZER.encode("<|im_start|>", parse_special=True)
    assert len(start) == 1
    assert start[0] not in allowed_ids(constraint.mask())


# --- the state of a sequence ---


def test_the_end_is_allowed_only_where_the_grammar_may_end() -> None:
    constraint = COMPILER.compile(Grammar("regex", "ab?"))
    (end,) = TOKENIZER.eos_ids
    a, b = TOKENIZER.encode("a") + TOKENIZER.encode("b")
    assert allowed_ids(constraint.mask()) == [a]
    constraint.accept(a)
    assert set(allowed_ids(constraint.mask())) == {b, end}
    assert not constraint.is_done
    other = constraint.fork()
    constraint.accept(b)
    assert constraint.is_done
    assert not other.is_done
    other.accept(end)
    assert other.is_done


def test_a_token_that_is_not_allowed_is_an_error_and_stays_one() -> None:
    constraint = COMPILER.compile(Grammar("regex", "ab"))
    with pytest.raises(SamplingError, match="cannot go on"):
        constraint.accept(TOKENIZER.encode("x")[0])
    with pytest.raises(SamplingError, match="cannot go on"):
        constraint.mask()
    assert not constraint.is_done


@pytest.mark.parametrize("vocab_size", [266, 288, 300, 320])
def test_masks_have_the_words_of_the_models_vocabulary(vocab_size: int) -> None:
    compiler = GrammarCompiler(TOKENIZER, vocab_size)
    constraint = compiler.compile(Grammar("regex", "(?s:.*)"))
    mask = constraint.mask()
    assert mask.dtype == np.uint32
    assert len(mask) == -(-vocab_size // 32)
    assert max(allowed_ids(mask)) < TOKENIZER.vocab_size


def test_states_of_one_grammar_are_apart_and_the_grammar_is_kept() -> None:
    grammar = Grammar("choice", '["one", "two"]')
    first, second = COMPILER.compile(grammar), COMPILER.compile(grammar)
    first.accept(TOKENIZER.encode("o")[0])
    assert len(allowed_ids(second.mask())) == 2
    assert COMPILER._start(grammar) is COMPILER._start(grammar)


def test_only_the_grammars_used_last_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_CACHE_SIZE", 2)
    compiler = GrammarCompiler(TOKENIZER)
    a, b, c = (Grammar("regex", text) for text in "abc")
    for grammar in (a, b, a, c):
        compiler.check(grammar)
    assert list(compiler._compiled) == [a, c]


def test_threads_share_one_compiler() -> None:
    compiler, masks = GrammarCompiler(TOKENIZER), list[list[int]]()

    def work(index: int) -> None:
        masks.append(allowed_ids(compiler.compile(Grammar("regex", "ab" * (index % 2 + 1))).mask()))

    threads = [threading.Thread(target=work, args=(index,)) for index in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert masks == [TOKENIZER.encode("a")] * 8


# --- refusals ---


@pytest.mark.parametrize(
    ("schema", "pointer", "problem"),
    [
        ({"properties": {"a": {"pattern": "(?=x)"}}}, "/properties/a/pattern", "look-around"),
        ({"items": {"pattern": "("}}, "/items/pattern", "unclosed group"),
        ({"items": {"oneOf": [{"type": "number"}, {"type": "integer"}]}}, "/items/oneOf", "oneOf"),
        ({"$defs": {"a": {}}, "items": {"$ref": "#/$defs/b"}}, "/items/$ref", "does not exist"),
        (
            {"type": "object", "properties": {"a": {}, "b": {}}, "maxProperties": 1},
            "/properties",
            "required",
        ),
    ],
)
def test_p28_what_the_library_refuses_is_found_in_the_schema(
    schema: dict[str, Any], pointer: str, problem: str
) -> None:
    error = refusal("json_schema", json.dumps(schema))
    assert problem in str(error)
    assert error.pointer == pointer


@pytest.mark.parametrize(
    ("kind", "text", "problem"),
    [
        ("json_schema", "", "not valid JSON"),
        ("json_schema", '{"a": NaN}', "NaN is no JSON"),
        ("json_schema", "[" * 100_000, "nested too deeply|not valid JSON"),
        ("json_schema", '{"const": "\\ud800"}', "cannot be"),
        ("json_schema", '{"$ref": "#"}', "no answer can match"),
        ("json_schema", '{"minimum": 3, "maximum": 2, "type": "integer"}', "greater than"),
        ("json_object", "{}", "takes no text"),
        ("regex", "(", "unclosed group"),
        ("regex", r"(a)\1", "backreferences"),
        ("regex", "a(?=b)", "look-around"),
        ("regex", r"[^\x00-\U0010FFFF]", "no answer can match|cannot be enforced"),
        ("choice", "[]", "0 choices: give 1 to"),
        ("choice", "yes", "not valid JSON"),
        ("choice", '["a", ""]', "not empty"),
        ("choice", '["a", 1]', "list of strings"),
        ("choice", json.dumps([str(i) for i in range(MAX_CHOICES + 1)]), "10001 choices"),
        ("lark", "", "cannot be enforced"),
        ("lark", "start: nothing", "unknown name"),
        ("lark", "start: <|no_such_token|>", "unknown special token"),
        ("lark", "start: x\nx[temperature=0.5]: /a+/", "parameter of sampling"),
        ("lark", 'start: x "\\""\nx[temperature = 1]: "a"', "parameter of sampling"),
        ("lark", 'start: x /"/\nx[temperature = 1]: "a"', "parameter of sampling"),
        ("lark", 'start: x <"> x\nx[temperature=1]: "a"', "parameter of sampling"),
        ("lark", 'start: x # "\nx[temperature=1]: "a"', "parameter of sampling"),
        ("lark", "start: x\nx[temperature // why\n = 1]: /a/", "parameter of sampling"),
        ("lark", "start: %json {", "after %json is not valid JSON"),
        ("lark", 'start: %json {"uniqueItems": true}', "/uniqueItems: uniqueItems cannot"),
        ("lark", 'start: %json {"x-guidance": {"lenient": true}}', "x-guidance cannot"),
        ("regex", "a" * (MAX_TEXT_BYTES + 1), "262144 are allowed"),
    ],
)
def test_p28_malformed_grammars_are_refused(kind: GrammarKind, text: str, problem: str) -> None:
    assert re.search(problem, str(refusal(kind, text)))


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ('start: "temperature = 20"', "temperature = 20"),
        ("start: /temperature *=/", "temperature ="),
        ('start: "x" // not temperature = 20', "x"),
        ('start: %json {"const": "temperature = 20"}', '"temperature = 20"'),
        ('start: "a" %json {"description": "temperature = 20", "type": "null"}', "anull"),
        ('start: temperature\ntemperature: "20"', "20"),
        ('start: "%json {"', "%json {"),
    ],
)
def test_words_of_grammars_mean_nothing_inside_of_texts(text: str, answer: str) -> None:
    assert matches(Grammar("lark", text), answer)


def test_a_model_without_an_end_cannot_be_held_to_a_grammar() -> None:
    metadata = byte_level(controls=())
    del metadata["tokenizer.ggml.eos_token_id"], metadata["tokenizer.ggml.bos_token_id"]
    compiler = GrammarCompiler(Tokenizer.from_gguf(metadata, "test.gguf"))
    with pytest.raises(GrammarError, match="no end token"):
        compiler.check(Grammar("json_object"))


# --- many texts ---


def _random_schema(rng: random.Random, depth: int) -> dict[str, Any]:
    make = rng.choice(_LEAVES if depth == 0 else _LEAVES + _NODES)
    return make(rng, depth)


def _some(rng: random.Random, chance: float, **values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if rng.random() < chance}


def _string(rng: random.Random, depth: int) -> dict[str, Any]:
    pattern = rng.choice(["^a+$", "b", "^[a-c]{2,4}$", "x.y", r"^\d+$"])
    low = rng.randrange(4)
    limits = _some(rng, 0.4, minLength=low, maxLength=low + rng.randrange(4), pattern=pattern)
    return {"type": "string", **limits}


def _formatted(rng: random.Random, depth: int) -> dict[str, Any]:
    return {"type": "string", "format": rng.choice(["date", "ipv4", "uuid", "date-time", "email"])}


def _number(rng: random.Random, depth: int) -> dict[str, Any]:
    low = rng.choice([-3, -1.5, 0, 2, 10])
    limits = _some(rng, 0.4, minimum=low, exclusiveMaximum=low + 20, multipleOf=rng.choice([1, 3]))
    return {"type": rng.choice(["integer", "number"]), **limits}


def _constant(rng: random.Random, depth: int) -> dict[str, Any]:
    values = rng.sample([1, 2, "a", "bb", None, True, 1.5, [1], {"a": 1}, "x\ny"], 3)
    return rng.choice([{"enum": values}, {"const": values[0]}, {"enum": values, "minLength": 2}])


def _mixed(rng: random.Random, depth: int) -> dict[str, Any]:
    kinds = rng.sample(["null", "boolean", "integer", "string", "array"], 2)
    return {"type": kinds, **_some(rng, 0.5, minimum=3, maxLength=2, maxItems=1)}


def _object(rng: random.Random, depth: int) -> dict[str, Any]:
    names = rng.sample(["a", "b", "c d", 'q"', "é"], rng.randrange(4))
    return {
        "type": "object",
        "properties": {name: _random_schema(rng, depth - 1) for name in names},
        "additionalProperties": rng.choice([False, _random_schema(rng, depth - 1)]),
        **_some(rng, 0.6, required=names[:2]),
        **_some(rng, 0.2, minProperties=1, patternProperties={"^x": _random_schema(rng, 0)}),
    }


def _array(rng: random.Random, depth: int) -> dict[str, Any]:
    return {
        "type": "array",
        "items": _random_schema(rng, depth - 1),
        **_some(rng, 0.3, prefixItems=[_random_schema(rng, 0)], minItems=1, maxItems=3),
    }


def _combined(rng: random.Random, depth: int) -> dict[str, Any]:
    parts = [_random_schema(rng, depth - 1), _random_schema(rng, depth - 1)]
    whole = {rng.choice(["anyOf", "allOf", "oneOf"]): parts}
    return rng.choice([whole, {**_random_schema(rng, depth - 1), **whole}])


def _referring(rng: random.Random, depth: int) -> dict[str, Any]:
    return {"$defs": {"r": _random_schema(rng, 0)}, "items": {"$ref": "#/$defs/r"}, "maxItems": 3}


_LEAVES = [_string, _formatted, _number, _constant, _mixed]
_NODES = [_object, _object, _array, _combined]


def _assert_all_texts_validate(rng: random.Random, num_schemas: int) -> None:
    num_texts = num_refused = 0
    for index in range(num_schemas):
        schema = _referring(rng, 0) if index % 10 == 0 else _random_schema(rng, 2)
        try:
            start = COMPILER.compile(of_schema(schema))
        except GrammarError:  # parts that contradict each other, oneOf that may overlap
            num_refused += 1
            continue
        validator = jsonschema.Draft202012Validator(schema)
        for _ in range(2):
            text = write(start.fork(), TOKENIZER, rng)
            if text is not None:
                num_texts += 1
                validator.validate(json.loads(text))
    assert num_refused < num_schemas / 2 < num_texts


def test_p28_every_text_of_random_schemas_validates() -> None:
    _assert_all_texts_validate(random.Random(1), 60)


@pytest.mark.deep
@pytest.mark.parametrize("seed", range(4))
def test_p28_every_text_of_many_random_schemas_validates(seed: int) -> None:
    _assert_all_texts_validate(random.Random(100 + seed), 500)


@pytest.mark.parametrize(
    "pattern", [r"[a-f0-9]{4}(-[a-f0-9]{2}){0,3}", r"(?i)no|yes+", r"[^x\n]{3}"]
)
def test_every_text_of_a_regular_expression_matches(pattern: str) -> None:
    start, rng = COMPILER.compile(Grammar("regex", pattern)), random.Random(2)
    for _ in range(30):
        text = write(start.fork(), TOKENIZER, rng)
        assert text is not None and re.fullmatch(pattern, text)


def test_every_text_of_choices_is_one_of_them() -> None:
    choices = ["red", "green", "blue", "true", "truer"]
    start, rng = COMPILER.compile(Grammar("choice", json.dumps(choices))), random.Random(3)
    assert {write(start.fork(), TOKENIZER, rng) for _ in range(100)} == set(choices)


def test_text_of_tokens_is_what_is_decoded() -> None:
    assert text_of(TOKENIZER, TOKENIZER.encode('{"é": true}')) == '{"é": true}'
