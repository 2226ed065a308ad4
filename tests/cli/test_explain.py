from __future__ import annotations

import json

import pytest

from tests.cli.commands import Terminal

ASK = ("--max-tokens", "6", "--seed", "5")


def test_the_story_comes_in_order(terminal: Terminal, chat_model: str) -> None:
    end = terminal.run("explain", "Hello", "-m", chat_model, *ASK)
    assert end.status == 0
    heads = [line for line in end.stdout.splitlines() if line[:1].isdigit()]
    assert [head.split(".")[0] for head in heads] == list("12345678")
    for words in ("of what was typed", "one value: a float16 number = 2 bytes", "TTFT"):
        assert words in end.stdout


def test_json_adds_up(terminal: Terminal, chat_model: str) -> None:
    story = json.loads(terminal.run("explain", "Hello", "-m", chat_model, *ASK, "--json").stdout)
    num_prompt = story["prompt"]["num_tokens"]
    assert story["prefill"]["num_rows"] == num_prompt
    assert [part["num_input_tokens"] for part in story["decode"]] == [
        num_prompt + i for i in range(6)
    ]
    assert all(len(part["candidates"]) == 5 for part in story["decode"])
    assert story["cache"]["num_computed"] == num_prompt + 5
    timeline = story["timeline"]
    for division in ("phases", "shares"):
        assert sum(s["ms"] for s in timeline[division]) == pytest.approx(timeline["e2e_ms"])


def test_without_the_cache_every_position_is_computed_at_every_step(
    terminal: Terminal, chat_model: str
) -> None:
    options = (*ASK, "--json", "--no-kv-cache")
    story = json.loads(terminal.run("explain", "Hello", "-m", chat_model, *options).stdout)
    first = story["prompt"]["num_tokens"]
    assert story["cache"]["num_computed"] == sum(range(first, first + 6))
    assert story["cache"]["num_computed"] == story["cache"]["positions"]["without_cache"]


def test_a_narrow_terminal_is_kept_to(chat_model: str, terminal: Terminal) -> None:
    from firstword.cli.explain import _fold

    lines = _fold(["word " * 30], 40)
    assert max(map(len, lines)) <= 40
    assert lines[1].startswith("  ")
