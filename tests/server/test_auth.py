from __future__ import annotations

from pathlib import Path

import pytest

from firstword.errors import ConfigError
from firstword.server.auth import ApiKey, Authenticator, read_keys

ANN, BOB = ApiKey.parse("ann:secret-of-ann", ""), ApiKey.parse("secret-of-bob", "key2")
BOTH = Authenticator((ANN, BOB))


@pytest.mark.parametrize(
    ("header", "owner"),
    [
        ((b"authorization", b"Bearer secret-of-ann"), "ann"),
        ((b"authorization", b"bearer  secret-of-bob "), "key2"),
        ((b"x-api-key", b"secret-of-ann"), "ann"),
        ((b"authorization", b"Basic secret-of-ann"), None),
        ((b"authorization", b"secret-of-ann"), None),
        ((b"authorization", b"Bearer ann:secret-of-ann"), None),
        ((b"authorization", b"Bearer "), None),
        ((b"x-api-key", b"secret-of-an"), None),
        ((b"x-api-key", b"\xff\xfe"), None),
        ((b"accept", b"secret-of-ann"), None),
    ],
)
def test_whose_request_it_is(header: tuple[bytes, bytes], owner: str | None) -> None:
    assert BOTH.owner([header]) == owner


def test_a_good_key_beside_a_bad_one_counts() -> None:
    headers = [(b"authorization", b"Bearer dummy-key"), (b"x-api-key", b"secret-of-bob")]
    assert BOTH.owner(headers) == "key2"


def test_without_keys_everyone_may_ask() -> None:
    nobody = Authenticator(())
    assert nobody.is_open and not BOTH.is_open
    assert nobody.owner([]) == ""


@pytest.mark.parametrize(
    "text",
    ["short", "name:short", "a b:long-enough", ":long-enough", "with space", "ann:key\u00e9-long"],
)
def test_keys_that_are_none_are_refused_without_being_told(text: str) -> None:
    with pytest.raises(ConfigError, match="key") as caught:
        ApiKey.parse(text, "key7")
    assert text not in str(caught.value)


def test_a_key_forgets_itself() -> None:
    assert "secret" not in repr(ANN) and b"secret" not in ANN.digest


def test_keys_of_the_command_line_come_before_those_of_the_file(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("# team\n\nbob:secret-of-bob\n  secret-of-eve  \n")
    keys = read_keys(["secret-of-ann"], file)
    assert [key.name for key in keys] == ["key1", "bob", "key3"]
    assert Authenticator(keys).owner([(b"x-api-key", b"secret-of-eve")]) == "key3"


def test_files_without_keys_are_refused(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.write_text("# none yet\n")
    with pytest.raises(ConfigError, match="holds no API key"):
        read_keys(file=empty)
    with pytest.raises(ConfigError, match="cannot be read"):
        read_keys(file=tmp_path / "missing")
    (tmp_path / "bytes").write_bytes(b"\xff\xfe\xff")
    with pytest.raises(ConfigError, match="cannot be read"):
        read_keys(file=tmp_path / "bytes")


def test_odd_headers_are_no_keys_and_hide_none() -> None:
    odd = (
        b"",
        b"Bearer",
        b"Bearer ",
        b"Bearer \xff\xfe",
        b"Bearer " + b"k" * 100_000,
        b"\xc3\xa9 x",
    )
    assert all(BOTH.owner([(b"authorization", value)]) is None for value in odd)
    assert all(BOTH.owner([(b"x-api-key", value)]) is None for value in odd)
    right = (b"authorization", b"bearer  secret-of-ann ")
    assert BOTH.owner([*((b"authorization", value) for value in odd), right]) == "ann"
