"""The process: how it listens, and how signals end it."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

import httpx
import pytest

from firstword.errors import ConfigError
from firstword.server.run import listen, url_of
from tests.server.operated import CHAT

ROOT = Path(__file__).parent.parent.parent
PATIENCE = 30.0


class Serving:
    """A server in a process of its own.

    Args:
        script: of the fake model.
        settings: of the server.
    """

    def __init__(self, script: dict[str, object], **settings: object) -> None:
        told = json.dumps({"script": script, "settings": settings})
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.server.serving", told],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        self.url = self.process.stdout.readline().strip()
        self.client = httpx.Client(base_url=self.url, timeout=PATIENCE)

    def __enter__(self) -> Serving:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.client.close()
        self.process.kill()
        self.process.communicate()

    def status(self) -> tuple[int, str]:
        """Exit status and what was logged."""
        _, log = self.process.communicate(timeout=PATIENCE)
        return self.process.returncode, log

    def stream(self) -> Iterator[str]:
        """The lines of a streamed answer."""
        body = {**CHAT, "stream": True}
        with self.client.stream("POST", "/v1/chat/completions", json=body) as response:
            assert response.status_code == 200
            yield from response.iter_lines()


def test_an_idle_server_ends_at_once_and_well() -> None:
    with Serving({}) as serving:
        assert serving.client.get("/health").status_code == 200
        serving.process.send_signal(signal.SIGTERM)
        status, log = serving.status()
    assert (status, "shutting down" in log) == (0, True)


def test_running_requests_end_properly_and_new_ones_are_told_to_come_again() -> None:
    with Serving({"text": "x" * 40, "delay": 0.05}, drain_seconds=PATIENCE) as serving:
        lines = serving.stream()
        began = [next(lines) for _ in range(4)]
        serving.process.send_signal(signal.SIGTERM)
        with httpx.Client(base_url=serving.url, timeout=PATIENCE) as other:
            while other.get("/ready").status_code == 200:
                time.sleep(0.01)
            refused = other.post("/v1/chat/completions", json=CHAT)
            assert other.get("/health").status_code == 200
        assert refused.status_code == 503
        assert int(refused.headers["retry-after"]) >= 1
        assert refused.headers["connection"] == "close"
        assert refused.json()["error"]["code"] == "shutting_down"
        events = [line[6:] for line in (*began, *lines) if line.startswith("data: ")]
        status, _ = serving.status()
    assert (status, events[-1]) == (0, "[DONE]")
    choices = [json.loads(event)["choices"] for event in events[:-1]]
    text = "".join(choice["delta"].get("content") or "" for some in choices for choice in some)
    assert text == "x" * 40


def test_what_is_not_over_in_time_ends_with_an_error() -> None:
    with Serving({"text": "x" * 900, "delay": 0.05}, drain_seconds=0.2) as serving:
        answers: list[httpx.Response] = []
        bodies = ({**CHAT, "stream": True}, CHAT)

        def ask(body: dict[str, object]) -> None:
            answers.append(httpx.post(f"{serving.url}/v1/chat/completions", json=body, timeout=30))

        threads = [threading.Thread(target=ask, args=(body,)) for body in bodies]
        for thread in threads:
            thread.start()
        counted = 'time_to_first_token_seconds_count{model_name="fake:1m"} 2.0'
        while counted not in serving.client.get("/metrics").text:
            time.sleep(0.01)
        serving.process.send_signal(signal.SIGINT)
        for thread in threads:
            thread.join(PATIENCE)
        status, _ = serving.status()
    assert (status, sorted(answer.status_code for answer in answers)) == (0, [200, 503])
    assert all("shut down before the request ended" in answer.text for answer in answers)
    streamed = next(answer for answer in answers if answer.status_code == 200)
    assert streamed.text.endswith("data: [DONE]\n\n")


def test_a_second_ctrl_c_does_not_wait() -> None:
    with Serving({"never_ends": True}, drain_seconds=PATIENCE) as serving:
        lines = serving.stream()
        next(lines)
        serving.process.send_signal(signal.SIGINT)
        while serving.client.get("/ready").status_code == 200:
            time.sleep(0.01)
        assert serving.process.poll() is None
        time.sleep(0.4)
        serving.process.send_signal(signal.SIGINT)
        assert serving.process.wait(PATIENCE) == 130


def test_a_port_in_use_is_told_with_the_remedy() -> None:
    with listen("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=rf"port {port} of 127\.0\.0\.1 is in use.*--port"):
            listen("127.0.0.1", port)


def test_hosts_that_are_none_are_refused() -> None:
    with pytest.raises(ConfigError, match="no address"):
        listen("not an address", 0)
    with pytest.raises(ConfigError, match="cannot be listened on"):
        listen("203.0.113.7", 0)


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("localhost", "localhost"),
        ("0.0.0.0", "127.0.0.1"),
        ("::", "[::1]"),
        ("::1", "[::1]"),
        ("box.example", "box.example"),
    ],
)
def test_the_url_can_be_opened(host: str, expected: str) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
        assert url_of(listener, host) == f"http://{expected}:{port}"
