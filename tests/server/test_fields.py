"""Fields are taken, refused by name, or dropped."""

from __future__ import annotations

import pytest

from firstword.server.errors import UnsupportedFieldError
from firstword.server.fields import Field, drop_unsupported, inert, supported

FIELDS = (
    *supported(max_completion_tokens="tokens", seed="a number"),
    *inert(user="nobody asks"),
    Field("echo", "refused", "put it there yourself", harmless=(False,)),
)


def test_supported_fields_are_kept_and_inert_ones_dropped() -> None:
    assert drop_unsupported({"seed": 0, "user": [1], "echo": False}, FIELDS) == {"seed": 0}


def test_refused_field_says_what_to_do() -> None:
    with pytest.raises(
        UnsupportedFieldError, match="echo is not supported: put it there"
    ) as caught:
        drop_unsupported({"echo": True}, FIELDS)
    assert caught.value.param == "echo"


def test_unknown_field_names_the_nearest() -> None:
    with pytest.raises(UnsupportedFieldError, match="did you mean 'max_completion_tokens'"):
        drop_unsupported({"max_completion_token": 1}, FIELDS)
    with pytest.raises(UnsupportedFieldError, match=r"/openapi\.json") as caught:
        drop_unsupported({"xyzzy": 1}, FIELDS)
    assert (caught.value.param, caught.value.code) == ("xyzzy", "unknown_parameter")


def test_null_is_the_default() -> None:
    everything = {field.name: None for field in FIELDS}
    assert drop_unsupported(everything, FIELDS) == {}
