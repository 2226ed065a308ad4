"""What the clients ask: small enough for a model that is too small to be sensible.

Answers that must have a form are of a bounded length, so that every one of them ends.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field

QUESTION = "Name one city in Italy."
LIMIT = 24
"""Tokens of a free answer."""
FORM_LIMIT = 256
"""Tokens of an answer that has a form, which ends before."""


class City(BaseModel):
    """A city."""

    name: Literal["Rome", "Milan", "Turin"]
    age: int = Field(ge=1, le=99)


WEATHER_PARAMETERS = {
    "type": "object",
    "properties": {"city": {"type": "string", "enum": ["Rome", "Milan", "Turin"]}},
    "required": ["city"],
    "additionalProperties": False,
}
WEATHER_QUESTION = "What is the weather in Rome?"


def weather(city: str) -> str:
    """The weather of a city."""
    return f"It is sunny in {city}, 24 degrees."
