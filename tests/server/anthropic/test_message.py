from __future__ import annotations

import pytest

from firstword.kvcache.sources import PromptSources
from firstword.server.anthropic.blocks import BlockStart
from firstword.server.anthropic.message import Block, stop_reason, usage
from firstword.server.chat import SampleEnd, Usage
from firstword.trace.misses import ExplainedMiss
from tests.server.anthropic.harness import CALL, WEATHER, ask, new_llm


def test_a_message() -> None:
    answer = ask(new_llm("Hello"))
    assert answer.pop("id").startswith("msg_")
    prompt = answer["usage"].pop("input_tokens")
    assert prompt > 0
    assert answer == {
        "type": "message",
        "role": "assistant",
        "model": "fake:1m",
        "content": [{"type": "text", "text": "Hello"}],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": {
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 0,
            "output_tokens": 6,  # its end token too
        },
    }


def test_input_tokens_leave_out_those_from_the_cache() -> None:
    whole = ask(new_llm("Hello"))["usage"]["input_tokens"]
    counted = ask(new_llm("Hello", sources=PromptSources(7)))["usage"]
    assert counted["cache_read_input_tokens"] == 7
    assert counted["input_tokens"] == whole - 7


def test_an_answer_that_is_too_long() -> None:
    answer = ask(new_llm("Hello"), max_tokens=2)
    assert answer["content"] == [{"type": "text", "text": "He"}]
    assert answer["stop_reason"] == "max_tokens"


def test_an_answer_that_a_stop_sequence_ends() -> None:
    answer = ask(new_llm("one two three"), stop_sequences=["two"])
    assert answer["content"] == [{"type": "text", "text": "one "}]
    assert (answer["stop_reason"], answer["stop_sequence"]) == ("stop_sequence", "two")


def test_a_call() -> None:
    answer = ask(new_llm("Let me see.\n" + CALL), tools=[WEATHER])
    text, call = answer["content"]
    assert text["text"].strip() == "Let me see."
    assert call.pop("id")
    assert call == {"type": "tool_use", "name": "weather", "input": {"city": "Rome"}}
    assert answer["stop_reason"] == "tool_use"


def test_reasoning_is_a_block_of_its_own() -> None:
    answer = ask(new_llm("<think>Hm.</think>Yes."))
    assert answer["content"] == [
        {"type": "thinking", "thinking": "Hm.", "signature": ""},
        {"type": "text", "text": "Yes."},
    ]
    assert answer["usage"]["output_tokens_details"]["thinking_tokens"] > 0


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a": 1}', {"a": 1}),
        ("", {}),
        ('{"a": 1, "b": [1, ', {"a": 1, "b": [1]}),  # cut by the limit
        ('{"a": x}', {}),
        ("[1]", {}),
    ],
)
def test_arguments_are_an_object_whatever_came(text: str, value: object) -> None:
    block = Block(BlockStart(0, "tool_use", "c1", "f"), [text])
    assert block.content()["input"] == value


@pytest.mark.parametrize(
    ("end", "reason"),
    [
        (SampleEnd(0, "stop"), "end_turn"),
        (SampleEnd(0, "length"), "max_tokens"),
        (SampleEnd(0, "tool_calls"), "tool_use"),
        (SampleEnd(0, "stop", "END"), "stop_sequence"),
    ],
)
def test_stop_reasons(end: SampleEnd, reason: str) -> None:
    assert stop_reason(end) == reason


def test_usage_names_thinking_only_where_there_was_some() -> None:
    assert "output_tokens_details" not in usage(Usage(5, PromptSources(), 3, 0))
    assert usage(Usage(5, PromptSources(), 3, 1)) == {
        "input_tokens": 5,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 0,
        "output_tokens": 3,
        "output_tokens_details": {"thinking_tokens": 1},
    }


def test_usage_tells_where_the_prompt_came_from_and_why_no_more_of_it() -> None:
    miss = ExplainedMiss("expired", 2, 3, "It is", " late", "")
    counted = usage(Usage(5, PromptSources(1, 1), 3, miss=miss))
    assert (counted["input_tokens"], counted["cache_read_input_tokens"]) == (3, 2)
    assert counted["cache_read_by_source"] == {"memory": 1, "disk": 1, "neighbour": 0}
    assert counted["cache_miss"] == miss.to_dict()
