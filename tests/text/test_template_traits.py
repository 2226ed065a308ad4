from __future__ import annotations

import pytest

from firstword.text.chat_template import ChatTemplate
from firstword.text.template_traits import TemplateTraits
from tests.text.templates import CHATML, GEMMA, LLAMA3, QWEN, TEXT_ARGUMENTS


def traits_of(source: str) -> TemplateTraits:
    return TemplateTraits(source, ChatTemplate(source)._render)


@pytest.mark.parametrize(
    ("source", "system", "tools", "calls", "parallel", "text"),
    [
        (QWEN, True, True, True, True, False),
        (TEXT_ARGUMENTS, True, True, True, True, True),
        (LLAMA3, True, True, True, False, False),
        (GEMMA, False, False, False, False, False),
        (CHATML, True, False, False, False, False),
        ("{{ raise_exception('never') }}", True, False, False, False, False),
    ],
)
def test_traits_are_seen_in_what_is_rendered(
    source: str, system: bool, tools: bool, calls: bool, parallel: bool, text: bool
) -> None:
    traits = traits_of(source)
    assert traits.takes_system == system
    assert traits.takes_tools == tools
    assert traits.takes_calls == calls
    assert traits.takes_parallel_calls == parallel
    assert traits.wants_text == text


def test_developers_are_known_where_the_template_speaks_of_them() -> None:
    assert not traits_of(CHATML).knows_developer
    assert traits_of("{# system, developer #}" + CHATML).knows_developer
    assert not traits_of("{# no developer #}{{ messages[1].content }}").knows_developer
