from __future__ import annotations

import math
from typing import Any

import pytest

from firstword.errors import ConfigError
from firstword.server.auth import ApiKey
from firstword.server.settings import ServerSettings, is_loopback


def test_the_defaults_serve_this_machine_alone() -> None:
    settings = ServerSettings()
    assert settings.is_loopback
    assert settings.host_names == frozenset({"localhost", "127.0.0.1", "::1"})


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("port", -1),
        ("port", 65536),
        ("port", "8000"),
        ("max_body_bytes", 0),
        ("max_header_bytes", 10),
        ("body_timeout", 0),
        ("request_timeout", 0),
        ("request_timeout", -1.0),
        ("request_timeout", math.inf),
        ("drain_seconds", -1),
        ("drain_seconds", math.nan),
        ("log_level", "loud"),
        ("log_format", "xml"),
    ],
)
def test_values_out_of_range_are_refused_by_name(field: str, value: object) -> None:
    given: dict[str, Any] = {field: value}
    with pytest.raises(ConfigError, match=field):
        ServerSettings(**given)


@pytest.mark.parametrize("origin", ["chat.example", "https://", "https://a.example/page", ""])
def test_origins_that_are_none_are_refused(origin: str) -> None:
    with pytest.raises(ConfigError, match="CORS origin"):
        ServerSettings(cors_origins=(origin,))


def test_two_keys_of_one_name_are_refused() -> None:
    keys = (ApiKey.parse("ann:secret-one", ""), ApiKey.parse("ann:secret-two", ""))
    with pytest.raises(ConfigError, match="'ann'"):
        ServerSettings(api_keys=keys)


def test_keys_are_not_shown() -> None:
    assert "key1" not in repr(ServerSettings(api_keys=(ApiKey.parse("secret-one", "key1"),)))


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", True),
        ("127.1.2.3", True),
        ("::1", True),
        ("[::1]", True),
        ("Localhost", True),
        ("0.0.0.0", False),
        ("::", False),
        ("192.168.1.5", False),
        ("my-box", False),
    ],
)
def test_loopback_addresses(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected


def test_other_addresses_have_any_name_unless_some_are_given() -> None:
    assert ServerSettings(host="0.0.0.0").host_names is None
    named = ServerSettings(host="0.0.0.0", allowed_hosts=("Chat.Example",))
    assert named.host_names == frozenset({"0.0.0.0", "chat.example"})
