"""What becomes of each field of a body: taken, refused by name, or without any effect.

Not here: the fields of each API (its own fields), their types and limits (its schema).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from firstword.server.errors import UnsupportedFieldError

Decision = Literal["supported", "refused", "inert"]


@dataclass(frozen=True)
class Field:
    """What becomes of one field.

    Args:
        name: as the body has it.
        decision: "supported"; "refused" with a 400, since it would change the output and is not
            built; "inert": any value is taken, since none changes the output.
        note: what it does, or why it is not supported and what to use instead.
        harmless: values of a refused field that change nothing, so that they are taken.
    """

    name: str
    decision: Decision
    note: str
    harmless: tuple[object, ...] = ()


def supported(**notes: str) -> tuple[Field, ...]:
    """Supported fields, each with what it does."""
    return tuple(Field(name, "supported", note) for name, note in notes.items())


def inert(**notes: str) -> tuple[Field, ...]:
    """Inert fields, each with why nothing need be done."""
    return tuple(Field(name, "inert", note) for name, note in notes.items())


def drop_unsupported(body: Mapping[str, object], fields: tuple[Field, ...]) -> dict[str, object]:
    """The supported fields of a body that are not null.

    Args:
        body: a request's JSON object.
        fields: all that such a body may have.

    Raises:
        UnsupportedFieldError: a field is refused, or unknown; names it and what to do.
    """
    known = {field.name: field for field in fields}
    kept = {}
    for name, value in body.items():
        field = known.get(name)
        if field is None:
            raise UnsupportedFieldError(
                f"unknown field {name!r}: {_advice(name, fields)}", name, "unknown_parameter"
            )
        if value is None or field.decision == "inert" or value in field.harmless:
            continue
        if field.decision == "refused":
            raise UnsupportedFieldError(f"{name} is not supported: {field.note}", name)
        kept[name] = value
    return kept


def _advice(name: str, fields: tuple[Field, ...]) -> str:
    from difflib import get_close_matches  # only when there is a mistake to explain

    names = [field.name for field in fields if field.decision != "refused"]
    close = get_close_matches(name[:64], names, n=1)
    return (
        f"did you mean {close[0]!r}?" if close else "leave it out; /openapi.json lists all fields"
    )
