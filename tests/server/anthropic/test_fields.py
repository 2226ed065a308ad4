from __future__ import annotations

import pytest

from firstword.server.anthropic.fields import COUNT_FIELDS, MESSAGE_FIELDS
from firstword.server.anthropic.schema import CountBody, MessageBody, Strict
from firstword.server.openai.fields import Field


@pytest.mark.parametrize(
    ("fields", "model"), [(MESSAGE_FIELDS, MessageBody), (COUNT_FIELDS, CountBody)]
)
def test_the_table_and_the_types_agree(fields: tuple[Field, ...], model: type[Strict]) -> None:
    supported = {field.name for field in fields if field.decision == "supported"}
    assert supported == set(model.model_fields)
    assert len({field.name for field in fields}) == len(fields)
