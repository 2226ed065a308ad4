from __future__ import annotations

import io
import sys
from dataclasses import replace

import pytest

from firstword.cli.terminal import PromptProgress, StatusLine, format_bytes, note_stats, stats_line
from firstword.engine.outputs import RequestMetrics, RequestOutput
from firstword.kvcache.sources import PromptSources
from firstword.trace import events
from firstword.trace.misses import ExplainedMiss


class Screen(io.StringIO):
    """A stderr that is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("num_bytes", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (131_072, "128 KiB"),
        (536_870_912, "512 MiB"),
        (17_179_869_184, "16 GiB"),
        (23_040, "22.5 KiB"),
        (5 * 2**50, "5120 TiB"),
    ],
)
def test_bytes_for_people(num_bytes: int, text: str) -> None:
    assert format_bytes(num_bytes) == text


def test_a_status_line_is_silent_where_there_is_no_terminal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    screen = io.StringIO()
    monkeypatch.setattr(sys, "stderr", screen)
    with StatusLine() as status:
        status.show("loading")
    assert screen.getvalue() == ""


def test_a_status_line_is_rewritten_cut_to_the_width_and_removed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    screen = Screen()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("COLUMNS", "20")
    with StatusLine() as status:
        status.show("x" * 100)
    assert screen.getvalue() == "\r\x1b[K" + "x" * 19 + "\r\x1b[K"


def test_progress_counts_cached_and_computed_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Screen()
    monkeypatch.setattr(sys, "stderr", screen)
    progress = PromptProgress(StatusLine())
    progress(events.RequestQueued(0, "a", 1000, 5, 1, "greedy", 0, 0))
    progress(events.PrefixMatched(0, "a", 0, 100, 4))
    assert "100 of 1000" in screen.getvalue()
    chunk = events.ScheduledChunk("a", 0, 100, 512)
    progress(events.StepExecuted(1, 1, 0, (chunk,), 1, 1, 0, 0, 0, 0, 0))
    assert screen.getvalue().endswith("612 of 1000 tokens")


@pytest.mark.parametrize(
    ("sources", "words"),
    [
        (PromptSources(), "prompt 4,000 tokens (0 cached)"),
        (
            PromptSources(memory=31, disk=3968),
            "prompt 4,000 tokens (3,999 cached, 3,968 from disk)",
        ),
    ],
)
def test_what_came_from_the_disk_is_in_the_statistics(sources: PromptSources, words: str) -> None:
    metrics = RequestMetrics(0.5, 1.0, sources.num_cached, 1, 0, 0, sources=sources)
    output = RequestOutput("a", None, tuple(range(4000)), (), 1, metrics)
    assert stats_line(output).startswith(words + " · ")


def test_a_miss_stands_below_the_statistics(capsys: pytest.CaptureFixture[str]) -> None:
    output = RequestOutput("a", None, (1, 2, 3), (), 1, RequestMetrics(0.5, 1.0, 0, 3, 0, 0))
    note_stats(output)
    assert capsys.readouterr().err == stats_line(output) + "\n"
    miss = ExplainedMiss("different_text", 1, 2, "It is", " 10:42", " 10:41")
    note_stats(replace(output, cache_miss=miss))
    assert capsys.readouterr().err.splitlines()[1:] == [miss.in_words()]
