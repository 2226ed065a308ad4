from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firstword.text.pieces import ContentPiece, Piece, ReasoningPiece, merged
from firstword.text.reasoning import ReasoningFormat, ReasoningSplitter, reasoning_format
from tests.text.tools.matching import accepts

THINK = ReasoningFormat("<think>", "</think>")
CONTROL = ReasoningFormat("<think>", "</think>", needs_special=True)


def split(*chunks: str, inside: bool = False) -> list[Piece]:
    splitter = ReasoningSplitter(THINK, inside=inside)
    pieces = [piece for chunk in chunks for piece in splitter.push(chunk)]
    return merged([*pieces, *splitter.finish()])


def thought_then(thought: str, content: str) -> list[Piece]:
    pieces: list[Piece] = [ReasoningPiece(thought)] if thought else []
    return [*pieces, ContentPiece(content)] if content else pieces


@pytest.mark.parametrize(
    ("text", "thought", "content"),
    [
        ("<think>\nhm, so\n</think>\n\nYes.", "hm, so", "Yes."),
        ("\n<think>hm</think>Yes. </think> <think>", "hm", "Yes. </think> <think>"),
        ("<think>\n\n</think>\n\nYes.\n", "", "Yes.\n"),
        ("<think>a < b </thin </think>", "a < b </thin", ""),
        ("<think> a \n b", "a \n b", ""),
        ("<think>", "", ""),
        ("<think> \n", "", ""),
        ("<thin", "", "<thin"),
        (" Yes <think>x</think>", "", " Yes <think>x</think>"),
        ("hm</think>Yes.", "", "hm</think>Yes."),
        ("", "", ""),
    ],
)
def test_reasoning_stands_first(text: str, thought: str, content: str) -> None:
    assert split(text) == split(*text) == thought_then(thought, content)


def test_reasoning_that_the_prompt_has_opened() -> None:
    assert split("\nhm\n</think>\n\nYes.", inside=True) == thought_then("hm", "Yes.")
    assert split("hm", inside=True) == thought_then("hm", "")
    assert split("</think>Yes.", inside=True) == thought_then("", "Yes.")


def test_a_cut_thought_keeps_its_end() -> None:
    assert split("<think>a </thi") == thought_then("a </thi", "")


texts = st.lists(st.sampled_from(["<think>", "</think>", "<", "</th", " ", "\n", "a", "ink>"]))


@given(texts, st.booleans())
def test_chunks_do_not_matter(chunks: list[str], inside: bool) -> None:
    text = "".join(chunks)
    assert split(*chunks, inside=inside) == split(text, inside=inside)
    assert split(*text, inside=inside) == split(text, inside=inside)


def test_thoughts_are_streamed() -> None:
    splitter = ReasoningSplitter(THINK)
    assert splitter.push("<thi") == []
    assert (splitter.is_undecided, splitter.has_begun) == (True, False)
    assert splitter.push("nk>\na") == [ReasoningPiece("a")]
    assert splitter.is_open
    assert splitter.push(" b") == [ReasoningPiece(" b")]
    assert splitter.push("\n") == []
    assert splitter.push("</think>") == []
    assert not splitter.is_open
    assert splitter.push("\n") == []
    assert splitter.push("\nYes ") == [ContentPiece("Yes ")]


def test_the_format_comes_from_the_template() -> None:
    assert reasoning_format(None) is None
    assert reasoning_format("{{ content }}<think>") is None
    assert reasoning_format("a<think>b</think>") == THINK
    assert reasoning_format("<think></think>", "<think>".__eq__) == CONTROL
    mistral = reasoning_format("[THINK]x[/THINK]", lambda text: text.startswith("["))
    assert mistral == ReasoningFormat("[THINK]", "[/THINK]", needs_special=True)


def test_the_prompt_tells_whether_it_opened_the_reasoning() -> None:
    assert THINK.is_opened_by("<|im_start|>assistant\n<think>\n")
    assert not THINK.is_opened_by("<|im_start|>assistant\n<think>\n\n</think>\n\n")
    assert not THINK.is_opened_by("<|im_start|>assistant\n")


@pytest.mark.parametrize("marks", [THINK, CONTROL, ReasoningFormat("[THINK]", "[/THINK]")])
def test_grammars_leave_room_for_reasoning(marks: ReasoningFormat) -> None:
    start, end = marks.start, marks.end
    controls = [start, end] if marks.needs_special else []
    plain = marks.in_grammar('start: "yes"\n')
    inside = marks.in_grammar('start: "yes"\n', inside=True)
    for text, outside_allows, inside_allows in [
        ("yes", True, False),
        (f"{start}\nhm < /\n{end}\n\nyes", True, False),
        (f"\nhm{end}yes", False, True),
        (f"{start}hm", False, False),
        (f"{start}hm{end}no", False, False),
    ]:
        assert accepts(plain, text, controls) == outside_allows
        assert accepts(inside, text, controls) == inside_allows or text.startswith(start)
