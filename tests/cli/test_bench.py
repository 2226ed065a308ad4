from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.commands import Terminal

QUICK = ("--repeat", "1", "--threads", "1", "--no-chat")


@pytest.mark.parametrize("numerics", ["blas", "exact"])
def test_it_times_what_was_asked_for(
    terminal: Terminal, chat_model: str, tmp_path: Path, numerics: str
) -> None:
    file = tmp_path / "bench.json"
    finished = terminal.run(
        "bench", chat_model, "--prompt", "8,16", "--generate", "4", "--depth", "0,40",
        "--batch", "1,2", *QUICK, "--numerics", numerics, "--json", str(file),
    )  # fmt: skip
    assert finished.status == 0, finished.stderr
    assert "prefill 16 after 40 x2" in finished.stdout
    assert f"reference ({numerics}), 1 thread of" in finished.stdout
    report = json.loads(file.read_text())
    assert len(report["results"]) == 12
    assert all(len(result["speeds"]) == 1 for result in report["results"])


def test_a_chat_is_timed_unless_it_is_left_out(terminal: Terminal, tmp_path: Path) -> None:
    from tests.weights.tiny_gguf import write_tiny_llama

    model = write_tiny_llama(tmp_path / "model.gguf", context=1024)
    finished = terminal.run(
        "bench", str(model), "--prompt", "", "--generate", "", "--repeat", "1",
        "--numerics", "blas", "--threads", "1",
    )  # fmt: skip
    assert finished.status == 0, finished.stderr
    assert "chat 100+500: decode" in finished.stdout


def test_sizes_that_are_no_numbers_are_refused(terminal: Terminal, chat_model: str) -> None:
    finished = terminal.run("bench", chat_model, "--prompt", "12,x")
    assert finished.status != 0
    assert "whole numbers" in finished.stderr


def test_sizes_beyond_the_models_context_are_refused(terminal: Terminal, short_model: str) -> None:
    finished = terminal.run(
        "bench", short_model, "--prompt", "200", "--numerics", "blas", *QUICK
    )  # fmt: skip
    assert finished.status == 1
    assert "96" in finished.stderr
