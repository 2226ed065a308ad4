from __future__ import annotations

import pytest

from firstword.cli.chat import Conversation
from firstword.llm import LLM
from firstword.sampling.params import SamplingParams
from tests.cli.commands import Terminal

ASK = ("--max-tokens", "8", "--seed", "5")


def test_turns_come_from_a_pipe_and_answers_go_to_standard_output(
    terminal: Terminal, chat_model: str
) -> None:
    end = terminal.run("chat", "-m", chat_model, *ASK, stdin=b"Hello\nAnd now?\n")
    assert end.status == 0
    assert end.stdout.count("\n") >= 2
    assert end.stderr == ""


def test_a_second_turn_reuses_the_first(terminal: Terminal, chat_model: str) -> None:
    end = terminal.run("chat", "-m", chat_model, *ASK, "--stats", stdin=b"Hello\nAnd now?\n")
    first, second, *_ = end.stderr.splitlines()  # and why no more was reused
    assert "(0 cached)" in first
    num_prompt = int(first.split("prompt ")[1].split()[0])
    num_cached = int(second.split("(")[1].split()[0])
    # All but perhaps the last tokens of question and answer, which may be split anew.
    assert num_cached >= num_prompt


def test_reset_forgets_and_system_instructs(terminal: Terminal, chat_model: str) -> None:
    lines = b"Hello\n/reset\nHello\n/system Be brief.\nHello\n/system\nHello\n"
    end = terminal.run("chat", "-m", chat_model, *ASK, stdin=lines)
    first, again, told, last = (a for a in _answers(end.stdout))
    assert first == again == last
    assert told != first
    assert "forgotten" in end.stderr


def _answers(stdout: str) -> list[str]:
    """Four answers of equal questions; those of a tiny model may hold line ends themselves."""
    assert len(stdout) > 4
    parts = stdout.split("\n")[:-1]
    size = len(parts) // 4
    return ["\n".join(parts[i * size : (i + 1) * size]) for i in range(4)]


def test_unknown_commands_help_and_quit(terminal: Terminal, chat_model: str) -> None:
    end = terminal.run("chat", "-m", chat_model, stdin=b"/rest\n/help\n\n/quit\nnever read\n")
    assert end.status == 0
    assert "there is no command /rest" in end.stderr
    assert end.stderr.count("/reset") == 2
    assert end.stdout == ""


def test_a_full_context_drops_the_oldest_messages_and_says_so(
    terminal: Terminal, short_model: str
) -> None:
    lines = "".join(f"question {i}\n" for i in range(6)).encode()
    end = terminal.run("chat", "-m", short_model, *ASK, stdin=lines)
    assert end.status == 0
    assert "the context of 96 tokens is full: the 2 oldest messages were dropped" in end.stderr


def test_a_message_that_can_never_fit_is_refused_and_the_chat_goes_on(
    terminal: Terminal, short_model: str
) -> None:
    end = terminal.run("chat", "-m", short_model, *ASK, stdin=b"x" * 300 + b"\nHello\n")
    assert end.status == 0
    assert "the context holds 96" in end.stderr
    assert len(end.stdout) > 1


def test_a_model_without_template_says_what_to_do_and_raw_works(
    terminal: Terminal, base_model: str
) -> None:
    refused = terminal.run("chat", "-m", base_model, stdin=b"Hello\n")
    assert refused.status == 1
    assert "--raw" in refused.stderr
    assert terminal.run("chat", "--raw", "-m", base_model, *ASK, stdin=b"Hi\n").status == 0


def test_lines_that_go_on(terminal: Terminal, chat_model: str) -> None:
    joined = terminal.run("chat", "-m", chat_model, *ASK, stdin=b"one\\\ntwo\n")
    single = terminal.run("run", "one\ntwo", "-m", chat_model, *ASK)
    assert joined.stdout == single.stdout


@pytest.fixture(scope="module")
def llm(chat_model: str) -> LLM:
    return LLM(chat_model)


def test_questions_leave_with_their_answers(llm: LLM) -> None:
    conversation = Conversation(llm, SamplingParams(max_tokens=100))
    for i in range(20):
        conversation.turns += [
            {"role": "user", "content": f"question {i}"},
            {"role": "assistant", "content": f"answer {i}"},
        ]
    conversation.turns.append({"role": "user", "content": "the last"})
    dropped = conversation.make_room()
    assert dropped > 0
    assert dropped % 2 == 0
    assert conversation.turns[0]["role"] == "user"
    assert conversation.turns[-1]["content"] == "the last"
    assert llm.count_tokens(conversation.prompt()) + 100 <= llm.max_model_len
