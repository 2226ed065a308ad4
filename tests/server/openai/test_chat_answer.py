"""Each event as chunks, and all of them as one answer."""

from __future__ import annotations

import json
from typing import Any

from firstword.sampling.params import SamplingParams
from firstword.server.events import Delta, SampleEnd, Started, Usage
from firstword.server.openai.chat_answer import ChatChunks, piece_json
from firstword.server.openai.envelope import Envelope, StreamForm
from firstword.text.pieces import (
    ContentPiece,
    ReasoningPiece,
    ToolArguments,
    ToolCallEnd,
    ToolCallStart,
)
from tests.server.fake_llm import byte_tokenizer

ENVELOPE = Envelope("chatcmpl", "chat.completion", "chat.completion.chunk", "m", "f")


def written(chunks: ChatChunks, event: Any) -> list[dict[str, Any]]:
    events = chunks.write(event).decode().split("\n\n")
    return [json.loads(one.removeprefix("data: ")) for one in events if one]


def test_pieces_as_the_api_has_them() -> None:
    call = {"index": 1, "id": "c", "type": "function", "function": {"name": "f", "arguments": ""}}
    assert json.loads(piece_json(ContentPiece('a"\n'))) == {"content": 'a"\n'}
    assert json.loads(piece_json(ReasoningPiece("hm"))) == {"reasoning_content": "hm"}
    assert json.loads(piece_json(ToolCallStart(1, "c", "f"))) == {"tool_calls": [call]}
    assert json.loads(piece_json(ToolArguments(1, '{"'))) == {
        "tool_calls": [{"index": 1, "function": {"arguments": '{"'}}]
    }
    assert piece_json(ToolCallEnd(1)) == b""


def test_each_piece_is_a_chunk_of_its_sample() -> None:
    chunks = ChatChunks(ENVELOPE, StreamForm(), byte_tokenizer(), 2)
    roles = written(chunks, Started(Usage(), SamplingParams(n=2)))
    assert [chunk["choices"][0]["index"] for chunk in roles] == [0, 1]
    pieces = (ContentPiece("a"), ToolCallStart(0, "c", "f"), ToolArguments(0, "{}"), ToolCallEnd(0))
    sent = written(chunks, Delta(1, pieces, (), Usage()))
    assert len(sent) == 3
    assert {chunk["choices"][0]["index"] for chunk in sent} == {1}
    (end,) = written(chunks, SampleEnd(1, "tool_calls"))
    assert end["choices"][0]["finish_reason"] == "tool_calls"
    assert end["choices"][0]["delta"] == {}
