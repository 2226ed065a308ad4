from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from firstword.cli.options import Machine
from firstword.cli.serve import _engine_config, start_lines
from firstword.server.run import listen
from tests.cli.commands import Terminal
from tests.server.operated import OperatedFake


def test_the_start_says_what_there_is_and_why() -> None:
    lines = start_lines(OperatedFake(), "http://127.0.0.1:8000", None)
    assert lines[0] == "firstword: note: this model is a fake"
    text = "\n".join(lines)
    for word in ("fake:1m", "2 threads (", "room for 3,200 tokens", ":8000/v1"):
        assert word in text
    assert "(as asked)" in "\n".join(start_lines(OperatedFake(), "", 2))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--memory", "lots"), "800M"),
        (("--log-format", "xml"), "text, json"),
        (("--api-key", "short"), "8 to 512"),
        (("--api-key-file", "/nonexistent/keys"), "cannot be read"),
        (("--max-body-mb", "0"), "max_body_bytes"),
        (("--cors-origin", "chat.example"), "CORS origin"),
        (("--numerics", "magic"), "numerics"),
    ],
)
def test_mistakes_are_told_before_anything_is_loaded(
    terminal: Terminal, arguments: tuple[str, ...], message: str
) -> None:
    finished = terminal.run("serve", "smollm2:135m", *arguments)
    assert finished.status == 1
    assert message in finished.stderr


def test_a_port_in_use_is_told(terminal: Terminal, chat_model: str) -> None:
    with listen("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        finished = terminal.run("serve", chat_model, "--port", str(port))
    assert finished.status == 1
    assert "is in use" in finished.stderr and "--port" in finished.stderr


def test_a_server_open_to_everyone_is_warned_of(terminal: Terminal, chat_model: str) -> None:
    with listen("0.0.0.0", 0) as taken:
        port = str(taken.getsockname()[1])
        open_to_all = terminal.run("serve", chat_model, "--host", "0.0.0.0", "--port", port)
        keyed = terminal.run(
            "serve", chat_model, "--host", "0.0.0.0", "--port", port, "--api-key", "long-enough"
        )  # fmt: skip
    assert "warning: everyone" in open_to_all.stderr
    assert "warning" not in keyed.stderr


def test_without_the_extra_the_remedy_is_told(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("firstword.cli.serve.find_spec", lambda name: None)
    finished = terminal.run("serve")
    assert finished.status == 1
    assert 'pip install "firstword[server]"' in finished.stderr


def test_a_real_model_is_served_and_the_server_ends_well(chat_model: str, tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("ann:secret-of-ann\n")
    command = [sys.executable, "-m", "firstword", "serve", chat_model, "--port", "0"]
    command += ["--threads", "1", "--api-key-file", str(keys), "--name", "tiny"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ)
    try:
        assert process.stdout is not None
        lines: list[str] = []
        while not lines or "chat at" not in lines[-1]:
            lines.append(process.stdout.readline())
            assert lines[-1], "it ended before it served"
        url = lines[-1].split()[2].rstrip("/,")
        body = {"model": "tiny", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 4}
        with httpx.Client(base_url=url, timeout=30) as client:
            assert client.get("/ready").json() == {"status": "ready", "model": "tiny"}
            assert client.post("/v1/chat/completions", json=body).status_code == 401
            headers = {"authorization": "Bearer secret-of-ann"}
            answer = client.post("/v1/chat/completions", json=body, headers=headers)
            assert answer.status_code == 200, answer.text
            assert answer.json()["usage"]["completion_tokens"] <= 4
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.communicate()


def test_the_line_is_limited() -> None:
    config = _engine_config(None, None, 64, Machine(kv_disk="2G"))
    assert config.kv_disk_bytes == 2 * 2**30
    assert config.max_queued_requests == 512
    assert config.max_queued_tokens is None  # by the KV pool
