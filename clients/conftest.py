"""A running server for the clients' tests: the one at FIRSTWORD_URL, or one of their own."""

from __future__ import annotations

import os
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

FIRSTWORD = Path(__file__).parent.parent / ".venv" / "bin" / "firstword"
START_SECONDS = 120


@pytest.fixture(scope="session")
def model() -> str:
    """The model served; small enough for any machine, too small to be sensible."""
    return os.environ.get("FIRSTWORD_MODEL", "smollm2:135m")


@pytest.fixture(scope="session")
def url(model: str) -> Iterator[str]:
    """Where the server is, without a path."""
    given = os.environ.get("FIRSTWORD_URL")
    if given:
        yield given.rstrip("/")
        return
    port = _free_port()
    server = subprocess.Popen([FIRSTWORD, "serve", model, "--port", str(port)])
    try:
        address = f"http://127.0.0.1:{port}"
        _wait_until_ready(server, address)
        yield address
    finally:
        server.terminate()
        server.wait(timeout=60)


@pytest.fixture(scope="session")
def v1(url: str) -> str:
    """Where the OpenAI API is."""
    return f"{url}/v1"


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _wait_until_ready(server: subprocess.Popen[bytes], address: str) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if server.poll() is not None:
            pytest.exit(f"firstword serve ended with status {server.returncode}")
        try:
            with urllib.request.urlopen(f"{address}/ready", timeout=5):
                return
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            time.sleep(0.2)
    pytest.exit(f"the server was not ready within {START_SECONDS} s")
