"""Shared types convert nothing and take no field that they do not have."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from firstword.server.schema import Message, Tool


@pytest.mark.parametrize(
    "message",
    [
        {"role": "user", "content": 1},
        {"role": "user", "content": "a", "colour": "red"},
        {"role": "robot", "content": "a"},
        {"role": "tool", "content": "a", "tool_call_id": 1},
    ],
)
def test_messages_are_taken_as_they_are_or_refused(message: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        Message.model_validate(message)


@pytest.mark.parametrize("name", ["", "x" * 257])
def test_names_have_1_to_256_characters(name: str) -> None:
    with pytest.raises(ValidationError):
        Tool.model_validate({"type": "function", "function": {"name": name}})
