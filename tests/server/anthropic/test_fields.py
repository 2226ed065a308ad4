from __future__ import annotations

from pathlib import Path

import pytest

from firstword.server.anthropic.fields import COUNT_FIELDS, MESSAGE_FIELDS
from firstword.server.anthropic.schema import CountBody, MessageBody
from firstword.server.fields import Field
from firstword.server.schema import Strict
from tests.server.anthropic.harness import body, client_of, new_llm

PAGE = (Path(__file__).parents[3] / "docs" / "api.md").read_text(encoding="utf-8")
REFUSED = [field for field in MESSAGE_FIELDS if field.decision == "refused"]


@pytest.mark.parametrize(
    ("fields", "model"), [(MESSAGE_FIELDS, MessageBody), (COUNT_FIELDS, CountBody)]
)
def test_the_table_and_the_types_agree(fields: tuple[Field, ...], model: type[Strict]) -> None:
    supported = {field.name for field in fields if field.decision == "supported"}
    assert supported == set(model.model_fields)
    assert len({field.name for field in fields}) == len(fields)


@pytest.mark.parametrize(
    ("title", "fields"),
    [("### Fields of a message", MESSAGE_FIELDS), ("### Fields of a count", COUNT_FIELDS)],
)
def test_the_page_shows_the_table(title: str, fields: tuple[Field, ...]) -> None:
    section = PAGE.partition(f"{title}\n")[2].partition("\n#")[0]
    shown = [line for line in section.splitlines() if line.startswith("| `")]
    assert shown == [f"| `{f.name}` | {f.decision} | {f.note} |" for f in fields]


@pytest.mark.parametrize(
    "field",
    [field for field in MESSAGE_FIELDS if field.decision == "refused"],
    ids=lambda field: field.name,
)
def test_refused_fields_are_a_400_that_says_why(field: Field) -> None:
    client = client_of(new_llm())
    response = client.post("/v1/messages", json=body(**{field.name: {"some": "value"}}))
    assert response.status_code == 400
    assert field.note in response.json()["error"]["message"]
    for value in (None, *field.harmless):
        assert client.post("/v1/messages", json=body(**{field.name: value})).status_code == 200
