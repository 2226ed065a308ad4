from __future__ import annotations

import pytest

from firstword.errors import GrammarError
from firstword.text.json_schema import FORMATS, MAX_DEPTH, check_schema, escaped, subschemas

REFUSED = {
    # Known to JSON Schema, not enforced: each with what gives it its meaning.
    "not": {},
    "if": {},
    "then": {},
    "else": {},
    "uniqueItems": True,
    "contains": {},
    "minContains": 1,
    "maxContains": 1,
    "dependentRequired": {"a": ["b"]},
    "dependentSchemas": {"a": {}},
    "dependencies": {"a": ["b"]},
    "propertyNames": {"maxLength": 3},
    "unevaluatedProperties": False,
    "unevaluatedItems": False,
    "additionalItems": False,
    "contentEncoding": "base64",
    "contentMediaType": "text/html",
    "contentSchema": {},
    "$id": "http://example.org/a",
    "$anchor": "a",
    "$dynamicRef": "#a",
    "$dynamicAnchor": "a",
    "$recursiveRef": "#",
    "$vocabulary": {},
    # Known to others, or misspelt.
    "nullable": True,
    "maxLenght": 3,
    "x-guidance": {"lenient": True},
}


@pytest.mark.parametrize("keyword", REFUSED)
def test_p28_a_keyword_that_is_not_enforced_is_refused_by_its_pointer(keyword: str) -> None:
    schema = {"type": "object", "properties": {"a/b": {"items": {keyword: REFUSED[keyword]}}}}
    with pytest.raises(GrammarError, match="cannot be enforced") as caught:
        check_schema(schema)
    assert caught.value.pointer == f"/properties/a~1b/items/{escaped(keyword)}"


@pytest.mark.parametrize(
    ("schema", "pointer"),
    [
        (3, ""),
        (None, ""),
        ([], ""),
        (False, ""),
        ({"type": "text"}, "/type"),
        ({"type": []}, "/type"),
        ({"type": ["string", 3]}, "/type"),
        ({"minLength": -1}, "/minLength"),
        ({"maxItems": 1.5}, "/maxItems"),
        ({"minimum": "3"}, "/minimum"),
        ({"exclusiveMinimum": True}, "/exclusiveMinimum"),
        ({"multipleOf": 0}, "/multipleOf"),
        ({"multipleOf": True}, "/multipleOf"),
        ({"pattern": 3}, "/pattern"),
        ({"format": "regex"}, "/format"),
        ({"format": ["date"]}, "/format"),
        ({"enum": []}, "/enum"),
        ({"enum": "ab"}, "/enum"),
        ({"required": "a"}, "/required"),
        ({"required": [1]}, "/required"),
        ({"items": [{}]}, "/items"),
        ({"prefixItems": {}}, "/prefixItems"),
        ({"anyOf": []}, "/anyOf"),
        ({"allOf": [{}, {"anyOf": [3]}]}, "/allOf/1/anyOf/0"),
        ({"properties": []}, "/properties"),
        ({"properties": {"a": False}}, "/properties/a"),
        ({"$defs": {"a~b": {"not": {}}}}, "/$defs/a~0b/not"),
        ({"patternProperties": {"^a": {"not": {}}}}, "/patternProperties/^a/not"),
        ({"additionalProperties": {"not": {}}}, "/additionalProperties/not"),
        ({"$ref": "http://example.org/a"}, "/$ref"),
        ({"$ref": "other.json#/a"}, "/$ref"),
        ({"$ref": 5}, "/$ref"),
        ({"minProperties": 2}, "/minProperties"),
        ({"minProperties": 2, "required": ["a", "a"]}, "/minProperties"),
        ({"const": {"a": ["\x01"]}}, "/const/a/0"),
        ({"enum": ["a", "\x00"]}, "/enum/1"),
        ({"properties": {"\x1f": {}}}, "/properties/\x1f"),
        ({"required": ["\x07"]}, "/required/0"),
    ],
)
def test_p28_malformed_and_unenforceable_values_are_refused(schema: object, pointer: str) -> None:
    with pytest.raises(GrammarError) as caught:
        check_schema(schema)
    assert caught.value.pointer == pointer


@pytest.mark.parametrize(
    "schema",
    [
        True,
        {},
        {"type": ["string", "null"], "title": "T", "description": "d", "default": None},
        {"$schema": "https://json-schema.org/draft/2020-12/schema", "examples": [1]},
        {"oneOf": [{"$ref": "#/$defs/a"}], "$defs": {"a": {}}, "discriminator": {"x": 1}},
        {"properties": {"not": {"type": "integer"}}, "required": ["not"], "x-order": 3},
        {"minProperties": 1},
        {"minProperties": 2, "required": ["a", "b"]},
        {"items": False, "prefixItems": [{}]},
        {"additionalProperties": False},
        {"const": "two\nlines", "enum": [1, None, {"a": []}]},
        {"multipleOf": 0.5, "minimum": -1.5, "exclusiveMaximum": 10},
        *({"format": name} for name in sorted(FORMATS)),
    ],
)
def test_what_can_be_enforced_passes(schema: object) -> None:
    check_schema(schema)


def test_p28_depth_is_limited() -> None:
    schema: dict[str, object] = {}
    for _ in range(MAX_DEPTH):
        schema = {"items": schema}
    check_schema(schema)
    with pytest.raises(GrammarError, match="deeper than 64 levels"):
        check_schema({"items": schema})


def test_subschemas_with_their_pointers() -> None:
    schema: dict[str, object] = {
        "items": {},
        "anyOf": [True, {}],
        "properties": {"a/b": {}},
        "const": {},
    }
    places = [place for place, _ in subschemas(schema, "/x")]
    assert places == ["/x/items", "/x/anyOf/0", "/x/anyOf/1", "/x/properties/a~1b"]
