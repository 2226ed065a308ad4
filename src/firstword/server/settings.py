"""What a server is told: addresses, keys, limits. Not here: the model and the engine (config)."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field
from typing import Literal, get_args

from firstword.errors import ConfigError
from firstword.server.auth import ApiKey

LogFormat = Literal["text", "json"]
LogLevel = Literal["debug", "info", "warning", "error"]

_LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True)
class ServerSettings:
    """How a server listens, and what it lets clients do. Times are seconds.

    Args:
        host: the address to listen on; a loopback address is reached from this machine alone.
        port: 0 to 65535; 0 for one that is free.
        model_name: what clients call the model; None for its own name.
        api_keys: who may ask; empty: everyone who reaches the server.
        isolate_keys: requests of different keys share no cached blocks, so that nobody can find out
            by timing what another has asked.
        metrics_need_key: whether /metrics asks for a key, where there are keys.
        cors_origins: origins whose pages may call, like "https://chat.example"; "*" for all.
        allowed_hosts: names that clients may call the server by, beside its own.
        max_body_bytes: most bytes of a request's body, above 0.
        max_header_bytes: most bytes of its target and headers together, at least 1024.
        body_timeout: time in which a body must have come.
        request_timeout: time after which a request ends with an error; None: no limit.
        keep_alive_seconds: time an idle connection is kept, and between two comments in a stream.
        drain_seconds: time that running requests have to end once the server is told to stop.
        stall_seconds: time without a step, while work waits, after which it is not ready.
        log_level: least severity that is logged.
        log_format: "text" for people, "json" for programs.

    Raises:
        ConfigError: a value is out of its range.
    """

    host: str = "127.0.0.1"
    port: int = 8000
    model_name: str | None = None
    api_keys: tuple[ApiKey, ...] = field(default=(), repr=False)
    isolate_keys: bool = False
    metrics_need_key: bool = True
    cors_origins: tuple[str, ...] = ()
    allowed_hosts: tuple[str, ...] = ()
    max_body_bytes: int = 4 * 2**20
    max_header_bytes: int = 32 * 2**10
    body_timeout: float = 30.0
    request_timeout: float | None = 600.0
    keep_alive_seconds: float = 15.0
    drain_seconds: float = 30.0
    stall_seconds: float = 10.0
    log_level: LogLevel = "info"
    log_format: LogFormat = "text"

    def __post_init__(self) -> None:
        self._check_whole("port", 0, 65535)
        self._check_whole("max_body_bytes", 1)
        self._check_whole("max_header_bytes", 1024)
        for name in ("body_timeout", "keep_alive_seconds", "stall_seconds"):
            self._check_time(name, above=True)
        self._check_time("drain_seconds")
        if self.request_timeout is not None:
            self._check_time("request_timeout", above=True)
        self._check_choice("log_level", get_args(LogLevel))
        self._check_choice("log_format", get_args(LogFormat))
        for origin in self.cors_origins:
            _check_origin(origin)
        names = [key.name for key in self.api_keys]
        if len(set(names)) != len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise ConfigError(f"two API keys are named {twice!r}: give each a name of its own")

    def _check_whole(self, name: str, low: int, high: int | None = None) -> None:
        value = getattr(self, name)
        if not isinstance(value, int) or value < low or (high is not None and value > high):
            limits = f"of at least {low}" if high is None else f"from {low} to {high}"
            raise ConfigError(f"{name} is {value!r}: it must be a whole number {limits}")

    def _check_time(self, name: str, above: bool = False) -> None:
        value = getattr(self, name)
        # NaN and infinity are in no range either.
        if not 0 <= value < 1e9 or (above and value == 0):
            raise ConfigError(
                f"{name} is {value!r}: it must be a number of seconds "
                f"{'above' if above else 'of at least'} 0"
            )

    def _check_choice(self, name: str, choices: tuple[str, ...]) -> None:
        if getattr(self, name) not in choices:
            raise ConfigError(
                f"{name} is {getattr(self, name)!r}: it must be one of {', '.join(choices)}"
            )

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach the server."""
        return is_loopback(self.host)

    @property
    def host_names(self) -> frozenset[str] | None:
        """Names that a Host header may have, in lower case; None: any.

        A page of any site can make a browser that runs on this machine call a loopback address,
        under a name that the site chose (DNS rebinding). Such a call is known by its Host header.
        """
        if not self.is_loopback and not self.allowed_hosts:
            return None
        own = _LOOPBACK_NAMES if self.is_loopback else ()
        return frozenset(name.lower() for name in (*own, self.host, *self.allowed_hosts))


def is_loopback(host: str) -> bool:
    """Whether an address is reached from the same machine alone."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def _check_origin(origin: str) -> None:
    scheme, separator, rest = origin.partition("://")
    if origin != "*" and not (scheme and separator and rest and "/" not in rest):
        raise ConfigError(
            f"the CORS origin {origin!r} is none: write it as a browser sends it, like "
            "https://chat.example, without a path, or * for all"
        )
