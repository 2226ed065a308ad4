from __future__ import annotations

import io
import sys

import pytest

from firstword.weights.progress import NullReporter, StderrReporter, format_bytes


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("num_bytes", "text"),
    [(0, "0 bytes"), (9_999, "9999 bytes"), (10_000, "10 kB"), (98_362_432, "98 MB")],
)
def test_sizes_are_decimal(num_bytes: int, text: str) -> None:
    assert format_bytes(num_bytes) == text
    assert format_bytes(4_920_000_000) == "4.9 GB"


def test_without_a_terminal_two_plain_lines_and_nothing_on_stdout(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with StderrReporter().progress("tiny:1b", 2_000_000) as progress:
        progress.advance(2_000_000)
    captured = capsys.readouterr()
    assert captured.out == ""
    first, last = captured.err.splitlines()
    assert first == "tiny:1b: 2 MB to fetch"
    assert last.startswith("tiny:1b: fetched in ")


def test_a_transfer_that_fails_is_not_called_fetched(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(KeyboardInterrupt), StderrReporter().progress("tiny:1b", 10):
        raise KeyboardInterrupt
    assert "fetched in" not in capsys.readouterr().err


def test_on_a_terminal_a_bar_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setenv("TERM", "xterm")
    with StderrReporter().progress("tiny[1b]", 2_000_000) as progress:
        progress.advance(1_500_000)
    assert "tiny[1b]" in terminal.getvalue()
    assert "1.5/2.0 MB" in terminal.getvalue()
    assert terminal.getvalue().splitlines()[-1].endswith(" s")


def test_the_null_reporter_is_silent(capsys: pytest.CaptureFixture[str]) -> None:
    reporter = NullReporter()
    reporter.note("hello")
    with reporter.progress("x", 1) as progress:
        progress.advance(1)
    captured = capsys.readouterr()
    assert captured.out + captured.err == ""
