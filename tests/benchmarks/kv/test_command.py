from __future__ import annotations

from pathlib import Path

from benchmarks.kv.command import num_cached_tokens, run_command


def test_the_text_comes_from_the_input() -> None:
    command = run_command(Path("m.gguf"), 8, 1, "--context", "99")
    assert command[2:6] == ["firstword", "run", "-m", "m.gguf"]
    assert command[-3:] == ["--context", "99", "-"]


def test_cached_tokens_are_read_from_what_it_says() -> None:
    assert num_cached_tokens("prompt 4,001 tokens (3,999 cached, 3,999 from disk) · output") == 3999
    assert num_cached_tokens("prompt 59 tokens (0 cached) · output 8 tokens") == 0
    assert num_cached_tokens("no such model") is None
