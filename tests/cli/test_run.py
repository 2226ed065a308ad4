from __future__ import annotations

from collections.abc import Iterator

import pytest

from firstword.engine.outputs import TextDelta
from firstword.llm import LLM
from tests.cli.commands import Terminal

ASK = ("--max-tokens", "12", "--seed", "5")


def test_standard_output_carries_the_answer_alone(terminal: Terminal, chat_model: str) -> None:
    end = terminal.run("run", "Hello", "-m", chat_model, *ASK)
    assert end.status == 0
    assert end.stdout.endswith("\n")
    assert len(end.stdout) > 1
    assert end.stderr == ""


def test_the_same_seed_gives_the_same_answer_and_another_differs(
    terminal: Terminal, chat_model: str
) -> None:
    first = terminal.run("run", "Hello", "-m", chat_model, *ASK).stdout
    assert terminal.run("run", "Hello", "-m", chat_model, *ASK).stdout == first
    other = terminal.run("run", "Hello", "-m", chat_model, "--max-tokens", "12", "--seed", "6")
    assert other.stdout != first


@pytest.mark.parametrize("arguments", [(), ("-",)])
def test_the_prompt_may_come_from_a_pipe(
    terminal: Terminal, chat_model: str, arguments: tuple[str, ...]
) -> None:
    expected = terminal.run("run", "two\nlines, 中文", "-m", chat_model, *ASK)
    piped = terminal.run(
        "run", *arguments, "-m", chat_model, *ASK, stdin="two\r\nlines, 中文\r\n".encode()
    )
    assert piped == expected


def test_a_pipe_that_is_not_utf8_is_refused(terminal: Terminal, chat_model: str) -> None:
    end = terminal.run("run", "-m", chat_model, stdin=b"ab\xff")
    assert end.status == 2
    assert "not UTF-8 (byte 2)" in end.stderr


def test_an_empty_raw_prompt_is_refused(terminal: Terminal, chat_model: str) -> None:
    end = terminal.run("run", "", "--raw", "-m", chat_model)
    assert end.status == 1
    assert "the prompt has no tokens" in end.stderr
    assert "Traceback" not in end.stderr


def test_raw_continues_the_text_without_a_template(terminal: Terminal, base_model: str) -> None:
    end = terminal.run("run", "Hello", "--raw", "-m", base_model, *ASK, "--stats")
    assert end.status == 0
    assert "prompt 5 tokens (0 cached)" in end.stderr or "prompt 4 tokens" in end.stderr


def test_a_model_without_template_says_what_to_do(terminal: Terminal, base_model: str) -> None:
    end = terminal.run("run", "Hello", "-m", base_model)
    assert end.status == 1
    assert "no chat template" in end.stderr
    assert "--raw" in end.stderr
    assert end.stdout == ""


def test_stats_name_every_count(terminal: Terminal, chat_model: str) -> None:
    line = terminal.run("run", "Hello", "-m", chat_model, *ASK, "--stats").stderr
    for word in ("prompt", "cached", "output 12 tokens", "first word after", "K/V", "seed 5"):
        assert word in line


def test_a_long_prompt_is_refused_with_both_numbers(terminal: Terminal, chat_model: str) -> None:
    end = terminal.run("run", "x" * 600, "-m", chat_model)
    assert end.status == 1
    assert "the context holds 512" in end.stderr
    assert end.stdout == ""


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--temperature", "101"), "temperature is 101"),
        (("--temperature", "nan"), "temperature is nan"),
        (("--top-p", "0"), "top_p is 0"),
        (("--top-k", "-1"), "top_k is -1"),
        (("--max-tokens", "0"), "max_tokens is 0"),
        (("--preset", "chta"), "did you mean 'chat'"),
        (("--threads", "0"), "threads is 0"),
        (("--numerics", "fast"), "numerics is 'fast'"),
        (("--stop", ""), "stop holds ''"),
        (("--context", "1"), "max_model_len is 1"),
    ],
)
def test_values_out_of_range_are_named(
    terminal: Terminal, chat_model: str, options: tuple[str, ...], words: str
) -> None:
    end = terminal.run("run", "Hello", "-m", chat_model, *options)
    assert end.status == 1
    assert words in end.stderr
    assert end.stderr.startswith("firstword: error: ")
    assert end.stderr.count("\n") == 1


def test_a_system_prompt_changes_the_answer_and_not_with_raw(
    terminal: Terminal, chat_model: str
) -> None:
    plain = terminal.run("run", "Hello", "-m", chat_model, *ASK)
    told = terminal.run("run", "Hello", "-m", chat_model, *ASK, "--system", "Be brief.")
    assert plain.stdout != told.stdout
    refused = terminal.run("run", "Hello", "-m", chat_model, "--raw", "--system", "Be brief.")
    assert refused.status == 2


def test_ctrl_c_keeps_what_was_written(
    terminal: Terminal, chat_model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = LLM.stream

    def interrupted(self: LLM, *arguments: object) -> Iterator[TextDelta]:
        for count, delta in enumerate(whole(self, *arguments)):  # type: ignore[arg-type]
            if count == 4:
                raise KeyboardInterrupt
            yield delta

    expected = terminal.run("run", "Hello", "-m", chat_model, "--max-tokens", "4", "--seed", "5")
    monkeypatch.setattr(LLM, "stream", interrupted)
    end = terminal.run("run", "Hello", "-m", chat_model, *ASK)
    assert end.status == 130
    # Four tokens were written; a half character may have been held back at the end.
    assert expected.stdout.startswith(end.stdout.rstrip("\n"))
    assert len(end.stdout) > 1


def test_a_stop_string_ends_the_answer(terminal: Terminal, chat_model: str) -> None:
    whole = terminal.run("run", "Hello", "-m", chat_model, *ASK).stdout.rstrip("\n")
    stop = whole[3:5]
    cut = terminal.run("run", "Hello", "-m", chat_model, *ASK, "--stop", stop).stdout
    assert cut == whole[: whole.index(stop)] + "\n"


def test_a_mistyped_model_is_told(terminal: Terminal) -> None:
    end = terminal.run("run", "Hello", "-m", "smolm2:135m")
    assert end.status == 1
    assert "smollm2:135m" in end.stderr
