from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import rich.progress

from firstword.bench.serving.load import LoadGenerator
from firstword.bench.serving.workloads import Phase
from tests.bench.serving.scripted_server import Request, ScriptedServer, json_reply, usual
from tests.cli.commands import Terminal

QUICK = ("--requests", "4", "--concurrency", "2", "--input-tokens", "30", "--output-tokens", "3")


def test_a_server_is_measured(terminal: Terminal, tmp_path: Path) -> None:
    file = tmp_path / "serve.json"
    with ScriptedServer(usual) as server:
        finished = terminal.run(
            "bench", "serve", "--base-url", server.url, *QUICK, "--ttft-limit-ms", "60000",
            "--itl-limit-ms", "60000", "--json", str(file),
        )  # fmt: skip
    assert finished.status == 0, finished.stderr
    assert f"tiny at {server.url}" in finished.stdout
    assert "4 of 4 requests complete, 0 failed" in finished.stdout
    assert "tokens  120 in (0 cached), 12 out" in finished.stdout
    assert "100% of all" in finished.stdout
    report = json.loads(file.read_text())
    assert len(report["requests"]) == 4 and report["setting"]["limits"]["ttft"] == 60


def test_an_open_loop_and_keys(terminal: Terminal) -> None:
    with ScriptedServer(usual) as server:
        finished = terminal.run(
            "bench", "serve", "--base-url", server.url, *QUICK, "--workload", "two-keys",
            "--api-key", "a", "--api-key", "b", "--rate", "50",
        )  # fmt: skip
        keys = {request.headers["authorization"] for request in server.requests}
    assert finished.status == 0, finished.stderr
    assert "beside a flood: 4 of 4" in finished.stdout and "key 1" in finished.stdout
    assert keys == {"Bearer a", "Bearer b"}


def test_failures_are_counted_and_all_failed_is_status_1(terminal: Terminal) -> None:
    asked: list[Request] = []

    def script(request: Request) -> Iterator[bytes]:
        asked.append(request)
        if len([one for one in asked if "chat" in one.path]) > 1:
            yield json_reply({"error": {"message": "the queue is full"}}, "429 Busy")
        else:
            yield from usual(request)

    with ScriptedServer(script) as server:
        finished = terminal.run("bench", "serve", "--base-url", server.url, *QUICK)
    assert finished.status == 1
    assert "4 x HTTP 429: the queue is full" in finished.stdout


def test_no_server_is_one_line(terminal: Terminal) -> None:
    with ScriptedServer(usual) as server:
        url = server.url
    finished = terminal.run("bench", "serve", "--base-url", url)
    assert finished.status == 1 and "--base-url" in finished.stderr
    assert "Traceback" not in finished.stderr


def test_ctrl_c_prints_what_was_measured(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = LoadGenerator.run

    async def interrupted(self: LoadGenerator, phase: Phase) -> None:
        await run(self, phase)
        if phase.traffic[0].group == "chats alone":
            raise KeyboardInterrupt

    monkeypatch.setattr(LoadGenerator, "run", interrupted)
    with ScriptedServer(usual) as server:
        words = ("--workload", "long-prompt", "--base-url", server.url, *QUICK)
        finished = terminal.run("bench", "serve", *words)
    assert finished.status == 130
    assert "Interrupted" in finished.stdout and "chats alone: 4 of 4" in finished.stdout


def test_progress_is_shown_on_a_terminal_only(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int | None] = []

    class Bar(rich.progress.Progress):
        def add_task(self, description: str, *args: Any, **options: Any) -> rich.progress.TaskID:
            asked.append(options["total"])
            return super().add_task(description, *args, **options)

    monkeypatch.setattr(rich.progress, "Progress", Bar)
    with ScriptedServer(usual) as server:
        words = ("bench", "serve", "--base-url", server.url, *QUICK)
        assert terminal.run(*words).stderr == "" and asked == []
        monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
        assert terminal.run(*words).status == 0 and asked == [4]
        terminal.run(*words, "--workload", "long-prompt", "--long-tokens", "40")
        assert asked == [4, None]
