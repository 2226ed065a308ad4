from __future__ import annotations

import pytest

from firstword.text.tools.registry import tool_format


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("{% if tools %}<tools></tools><tool_call>{% endif %}<|im_start|>", "hermes"),
        ("<|start_header_id|>{{ role }}<|end_header_id|>", "llama3"),
        ("<start_of_turn>{{ role }}", "gemma"),
        ("<|im_start|>{{ role }}", "generic"),
        (None, "generic"),
    ],
)
def test_the_template_tells_the_format(source: str | None, name: str) -> None:
    assert tool_format(source).name == name


def test_marks_that_are_control_tokens_must_be_seen() -> None:
    assert not tool_format("<tool_call>").needs_special
    assert tool_format("<tool_call>", lambda text: text == "</tool_call>").needs_special
    assert tool_format(None, lambda text: text == "<tool_call>").needs_special
