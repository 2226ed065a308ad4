"""Answers of a real model held to grammars, hot, many at once: all of them hold."""

from __future__ import annotations

import json
import re
from pathlib import Path

import jsonschema
import pytest

from firstword.llm import LLM
from firstword.sampling.params import Grammar, SamplingParams

SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 20},
        "age": {"type": "integer", "minimum": 0, "maximum": 130},
        "colours": {"type": "array", "items": {"enum": ["red", "green"]}, "maxItems": 3},
        "home": {
            "type": "object",
            "properties": {"city": {"type": "string", "pattern": "^[A-Z][a-z]{2,9}$"}},
            "required": ["city"],
            "additionalProperties": False,
        },
    },
    "required": ["name", "age", "colours", "home"],
    "additionalProperties": False,
}
PATTERN = "[A-Z][a-z]{1,11}, [0-9]{4}"
CHOICES = ["yes", "no", "maybe so"]
GRAMMARS = [
    Grammar("json_schema", json.dumps(SCHEMA)),
    Grammar("regex", PATTERN),
    Grammar("choice", json.dumps(CHOICES)),
]


@pytest.fixture(scope="module")
def llm(smollm2_path: Path) -> LLM:
    return LLM(smollm2_path)


def assert_hold(llm: LLM, seeds: range) -> None:
    params = [
        SamplingParams(temperature=1.5, seed=i, max_tokens=120, grammar=GRAMMARS[i % 3])
        for i in seeds
    ]
    prompts = [f"Person number {i} of the list, as JSON: " for i in seeds]
    for index, output in zip(seeds, llm.generate(prompts, params), strict=True):
        (answer,) = output.outputs
        assert answer.finish_reason == "stop", answer
        if index % 3 == 0:
            jsonschema.validate(json.loads(answer.text), SCHEMA)
        elif index % 3 == 1:
            assert re.fullmatch(PATTERN, answer.text)
        else:
            assert answer.text in CHOICES


@pytest.mark.real_model
def test_p28_hot_answers_of_a_real_model_hold(llm: LLM) -> None:
    assert_hold(llm, range(36))


@pytest.mark.real_model
@pytest.mark.deep
def test_p28_a_thousand_hot_answers_of_a_real_model_hold(llm: LLM) -> None:
    for start in range(0, 1000, 250):  # as many as may wait
        assert_hold(llm, range(start, start + 250))
