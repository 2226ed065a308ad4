"""Which JSON Schemas can be enforced on an answer: everything else is refused by its place.

Follows JSON Schema draft 2020-12, whose keywords are known here by name: one that is not known may
be misspelt, and is refused like one that is known and cannot be enforced. Not here: the grammar
that a schema becomes (grammar).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping

from firstword.errors import GrammarError

MAX_DEPTH = 64
"""Parts of the longest JSON pointer to a schema; an object in another takes two."""

FORMATS = frozenset(
    "date-time time date duration email hostname ipv4 ipv6 uuid uri".split()  # the library's
)
TYPES = frozenset("null boolean object array number string integer".split())

_ANNOTATIONS = frozenset(
    "$schema $comment title description default examples deprecated readOnly writeOnly "
    "discriminator".split()  # the last is OpenAPI's: it says which of several schemas will match
)
_SCHEMA = frozenset("items additionalProperties".split())
_SCHEMA_LISTS = frozenset("allOf anyOf oneOf prefixItems".split())
_SCHEMA_MAPS = frozenset("properties patternProperties $defs definitions".split())
_NUMBERS = frozenset("minimum maximum exclusiveMinimum exclusiveMaximum multipleOf".split())
_COUNTS = frozenset("minLength maxLength minItems maxItems minProperties maxProperties".split())

_REMEDIES = {
    "nullable": 'write "type": ["...", "null"]',
    "additionalItems": 'write "prefixItems" and "items"',
    "dependencies": "leave it out",
    "$id": "leave it out and refer by #/$defs/NAME",
    "$anchor": "leave it out and refer by #/$defs/NAME",
}
_UNWRITABLE = re.compile("[\x00-\x07\x0b\x0e-\x1f]")
"""Control characters without an escape of their own: see `grammar.JSON_OPTIONS`."""


def check_schema(schema: object, pointer: str = "") -> None:
    """Refuse a schema that would not be enforced whole.

    Args:
        schema: as JSON was parsed.
        pointer: where it stands, as a JSON pointer (RFC 6901).

    Raises:
        GrammarError: names the keyword at fault by its JSON pointer.
    """
    if pointer.count("/") > MAX_DEPTH:
        raise GrammarError(f"nested deeper than {MAX_DEPTH} levels: flatten the schema", pointer)
    if schema is True:
        return
    if schema is False:
        raise GrammarError("false matches nothing: leave it out", pointer)
    if not isinstance(schema, dict):
        raise GrammarError(f"{_shown(schema)} is no schema: it must be an object", pointer)
    for keyword, value in schema.items():
        _check_keyword(keyword, value, f"{pointer}/{escaped(keyword)}")
    _check_min_properties(schema, pointer)


def subschemas(schema: Mapping[str, object], pointer: str) -> Iterator[tuple[str, object]]:
    """The schemas directly inside one, with their JSON pointers."""
    for keyword, value in schema.items():
        place = f"{pointer}/{escaped(keyword)}"
        if keyword in _SCHEMA:
            yield place, value
        elif keyword in _SCHEMA_LISTS and isinstance(value, list):
            yield from ((f"{place}/{index}", item) for index, item in enumerate(value))
        elif keyword in _SCHEMA_MAPS and isinstance(value, dict):
            yield from ((f"{place}/{escaped(name)}", item) for name, item in value.items())


def escaped(name: str) -> str:
    """A name as one part of a JSON pointer."""
    return name.replace("~", "~0").replace("/", "~1")


def _check_keyword(keyword: str, value: object, pointer: str) -> None:
    if keyword in _ANNOTATIONS or (keyword.startswith("x-") and keyword != "x-guidance"):
        return
    check = _CHECKS.get(keyword)
    if check is None:
        remedy = _REMEDIES.get(keyword, "leave it out, or say the same by other keywords")
        raise GrammarError(f"{keyword} cannot be enforced: {remedy}", pointer)
    check(value, pointer)


def _check_additional(value: object, pointer: str) -> None:
    if value is not False:  # nothing more: the one place where that has a meaning
        check_schema(value, pointer)


def _check_schema_list(value: object, pointer: str) -> None:
    if not isinstance(value, list) or not value:
        raise GrammarError(f"{_shown(value)} must be a list of schemas, not empty", pointer)
    for index, item in enumerate(value):
        check_schema(item, f"{pointer}/{index}")


def _check_schema_map(value: object, pointer: str) -> None:
    if not isinstance(value, dict):
        raise GrammarError(f"{_shown(value)} must be an object of schemas", pointer)
    for name, item in value.items():
        place = f"{pointer}/{escaped(name)}"
        _check_writable(name, place)
        check_schema(item, place)


def _check_type(value: object, pointer: str) -> None:
    names = value if isinstance(value, list) else [value]
    if not names or not all(isinstance(name, str) and name in TYPES for name in names):
        raise GrammarError(
            f"{_shown(value)} must be one or a list of {', '.join(sorted(TYPES))}", pointer
        )


def _check_number(value: object, pointer: str) -> None:
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise GrammarError(f"{_shown(value)} must be a number", pointer)


def _check_multiple(value: object, pointer: str) -> None:
    if not isinstance(value, int | float) or isinstance(value, bool) or not value > 0:
        raise GrammarError(f"{_shown(value)} must be a number above 0", pointer)


def _check_count(value: object, pointer: str) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise GrammarError(f"{_shown(value)} must be a whole number of at least 0", pointer)


def _check_pattern(value: object, pointer: str) -> None:
    if not isinstance(value, str):
        raise GrammarError(f"{_shown(value)} must be a regular expression", pointer)


def _check_format(value: object, pointer: str) -> None:
    if not isinstance(value, str) or value not in FORMATS:
        raise GrammarError(
            f"the format {_shown(value)} cannot be enforced: use one of "
            f"{', '.join(sorted(FORMATS))}, or a pattern",
            pointer,
        )


def _check_names(value: object, pointer: str) -> None:
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise GrammarError(f"{_shown(value)} must be a list of names", pointer)
    for index, name in enumerate(value):
        _check_writable(name, f"{pointer}/{index}")


def _check_enum(value: object, pointer: str) -> None:
    if not isinstance(value, list) or not value:
        raise GrammarError(f"{_shown(value)} must be a list of values, not empty", pointer)
    for index, item in enumerate(value):
        _check_writable(item, f"{pointer}/{index}")


def _check_reference(value: object, pointer: str) -> None:
    if not isinstance(value, str) or not (value == "#" or value.startswith("#/")):
        raise GrammarError(f"{_shown(value)} is outside the schema: refer by #/$defs/NAME", pointer)


def _check_writable(value: object, pointer: str) -> None:
    """Refuse strings that no answer could spell."""
    if isinstance(value, dict):
        for name, item in value.items():
            _check_writable(name, pointer)
            _check_writable(item, f"{pointer}/{escaped(name)}")
    elif isinstance(value, list):
        for index, item in enumerate(value):
            _check_writable(item, f"{pointer}/{index}")
    elif isinstance(value, str) and _UNWRITABLE.search(value):
        raise GrammarError(
            f"{_shown(value)} holds a control character without a short escape, which answers "
            "cannot spell: leave it out",
            pointer,
        )


def _check_min_properties(schema: Mapping[str, object], pointer: str) -> None:
    """Names that no `properties` gives may come twice, and then count as one when read."""
    least, required = schema.get("minProperties", 0), schema.get("required", [])
    assert isinstance(least, int) and isinstance(required, list)
    if least > max(1, len(set(required))):
        raise GrammarError(
            f"minProperties {least} cannot be enforced, since names could repeat: name the "
            'properties in "required"',
            f"{pointer}/minProperties",
        )


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}..."


_CHECKS: dict[str, Callable[[object, str], None]] = {
    "$ref": _check_reference,
    "type": _check_type,
    "const": _check_writable,
    "enum": _check_enum,
    "required": _check_names,
    "pattern": _check_pattern,
    "format": _check_format,
    "items": _check_additional,
    "additionalProperties": _check_additional,
    **dict.fromkeys(_SCHEMA_LISTS, _check_schema_list),
    **dict.fromkeys(_SCHEMA_MAPS, _check_schema_map),
    **dict.fromkeys(_NUMBERS, _check_number),
    **dict.fromkeys(_COUNTS, _check_count),
    "multipleOf": _check_multiple,
}
