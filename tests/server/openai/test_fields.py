"""Every field has a decision, and docs/api.md shows the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from firstword.server.fields import Field
from firstword.server.openai.fields import CHAT_FIELDS, COMPLETION_FIELDS
from firstword.server.openai.schema import ChatBody, CompletionBody
from tests.server.openai.api import CHAT, TEXT, Api

PAGE = (Path(__file__).parents[3] / "docs" / "api.md").read_text(encoding="utf-8")
REFUSED = [
    (path, field)
    for path, fields in ((CHAT, CHAT_FIELDS), (TEXT, COMPLETION_FIELDS))
    for field in fields
    if field.decision == "refused"
]

# Of the API reference: a field that it gains needs a decision here.
CHAT_API = """audio frequency_penalty function_call functions logit_bias logprobs
max_completion_tokens max_tokens messages metadata modalities model moderation n
parallel_tool_calls prediction presence_penalty prompt_cache_key prompt_cache_options
prompt_cache_retention reasoning_effort response_format safety_identifier seed service_tier stop
store stream stream_options temperature tool_choice tools top_logprobs top_p user verbosity
web_search_options""".split()
COMPLETION_API = """best_of echo frequency_penalty logit_bias logprobs max_tokens model n
presence_penalty prompt seed stop stream stream_options suffix temperature top_p user""".split()


def row(field: Field) -> str:
    return f"| `{field.name}` | {field.decision} | {field.note} |"


@pytest.mark.parametrize(
    ("fields", "names"), [(CHAT_FIELDS, CHAT_API), (COMPLETION_FIELDS, COMPLETION_API)]
)
def test_every_field_of_the_api_has_a_decision(fields: tuple[Field, ...], names: list[str]) -> None:
    assert set(names) <= {field.name for field in fields}
    assert len({field.name for field in fields}) == len(fields)


@pytest.mark.parametrize(
    ("fields", "body"), [(CHAT_FIELDS, ChatBody), (COMPLETION_FIELDS, CompletionBody)]
)
def test_supported_fields_are_those_of_the_schema(fields: tuple[Field, ...], body: Any) -> None:
    supported = {field.name for field in fields if field.decision == "supported"}
    assert supported == set(body.model_fields)


@pytest.mark.parametrize(
    ("title", "fields"),
    [("### Fields of a chat", CHAT_FIELDS), ("### Fields of a completion", COMPLETION_FIELDS)],
)
def test_page_shows_the_table(title: str, fields: tuple[Field, ...]) -> None:
    section = PAGE.partition(title)[2].partition("\n#")[0]
    shown = [line for line in section.splitlines() if line.startswith("| `")]
    assert shown == [row(field) for field in fields]


@pytest.mark.parametrize(("path", "field"), REFUSED, ids=lambda value: getattr(value, "name", ""))
def test_refused_fields_are_a_400_that_names_them(path: str, field: Field) -> None:
    api = Api()
    error = api.refused(path, **{field.name: {"some": "value"}})
    assert error["param"] == field.name
    assert field.note in error["message"]
    assert not api.llm.requests
    for value in (None, *field.harmless):
        assert api.post(path, **{field.name: value}).status_code == 200


@pytest.mark.parametrize("path", [CHAT, TEXT])
def test_inert_fields_take_anything(path: str) -> None:
    fields = CHAT_FIELDS if path == CHAT else COMPLETION_FIELDS
    inert = {field.name: {"x": [1]} for field in fields if field.decision == "inert"}
    assert Api().post(path, **inert).status_code == 200
