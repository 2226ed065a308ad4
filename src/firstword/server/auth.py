"""API keys: where they come from and who a request belongs to. Keys themselves are never logged.

Not here: what is refused with which status (middleware).
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

from starlette.requests import Request

from firstword.errors import ConfigError

Headers = Iterable[tuple[bytes, bytes]]

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_KEY = re.compile(r"[\x21-\x7e]{8,512}")


@dataclass(frozen=True)
class ApiKey:
    """A key by its name and its hash; the key itself is forgotten.

    Args:
        name: whose it is, for logs and for fairness between keys.
        digest: SHA-256 of the key.
    """

    name: str
    digest: bytes = field(repr=False)

    @classmethod
    def parse(cls, text: str, default_name: str) -> ApiKey:
        """Read `key` or `name:key`.

        Args:
            text: 8 to 512 visible ASCII characters after the name.
            default_name: the name of a key that brings none.

        Raises:
            ConfigError: it is no key. The message does not repeat it.
        """
        name, colon, key = text.strip().partition(":")
        if not colon:
            name, key = default_name, name
        if not _NAME.fullmatch(name):
            raise ConfigError(
                f"the name of API key {default_name} is no name: use up to 64 letters, digits, "
                "dots, dashes and underscores before the colon"
            )
        if not _KEY.fullmatch(key):
            raise ConfigError(
                f"API key {name} has {len(key)} characters or one that is not visible ASCII: use "
                "8 to 512, for example from: openssl rand -hex 24"
            )
        return cls(name, _digest(key.encode()))


def read_keys(given: Iterable[str] = (), file: Path | None = None) -> tuple[ApiKey, ...]:
    """The keys of the command line or the environment, then those of a file.

    Args:
        given: keys as `ApiKey.parse` reads them.
        file: one key per line; empty lines and those that begin with # are skipped.

    Raises:
        ConfigError: a key is none, or the file cannot be read or holds none.
    """
    texts = list(given)
    if file is not None:
        in_file = _lines_of(file)
        if not in_file:
            raise ConfigError(f"{file} holds no API key: write one per line, or leave it out")
        texts += in_file
    return tuple(ApiKey.parse(text, f"key{i}") for i, text in enumerate(texts, 1))


def _lines_of(file: Path) -> list[str]:
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"the file of API keys cannot be read: {error}") from None
    stripped = (line.strip() for line in lines)
    return [line for line in stripped if line and not line.startswith("#")]


class Authenticator:
    """Finds out whose key a request brings.

    Args:
        keys: all there are; empty: nobody needs one.
    """

    def __init__(self, keys: tuple[ApiKey, ...]) -> None:
        self._keys = keys

    @property
    def is_open(self) -> bool:
        """Whether nobody needs a key."""
        return not self._keys

    def owner(self, headers: Headers) -> str | None:
        """The name of the key that a request brings; "" where none is needed, None: refused.

        Both families' headers are read, `Authorization: Bearer` and `x-api-key`.

        Args:
            headers: (name in lower case, value) of the request.
        """
        if self.is_open:
            return ""
        for key in _presented(headers):
            digest = _digest(key)
            # Every key is compared, and in constant time: how long it takes says nothing.
            matches = [k.name for k in self._keys if hmac.compare_digest(k.digest, digest)]
            if matches:
                return matches[0]
        return None


def caller_of(request: Request) -> tuple[str, str]:
    """(whose request it is, what its cached blocks are salted with), as the app found out."""
    state = request.state
    return str(getattr(state, "key", "")), str(getattr(state, "salt", ""))


def _digest(key: bytes) -> bytes:
    return sha256(key).digest()


def _presented(headers: Headers) -> Iterable[bytes]:
    for name, value in headers:
        if name == b"x-api-key":
            yield value.strip()
        elif name == b"authorization":
            scheme, _, key = value.strip().partition(b" ")
            if scheme.lower() == b"bearer":
                yield key.strip()
