"""Formats, tools and answers that several tests of tool calls share."""

from __future__ import annotations

from hypothesis import strategies as st

from firstword.text.pieces import Piece, merged
from firstword.text.tools.gemma import gemma
from firstword.text.tools.generic import generic
from firstword.text.tools.hermes import CLOSE, OPEN, hermes
from firstword.text.tools.json_format import JsonFormat
from firstword.text.tools.llama3 import llama3
from firstword.text.tools.spec import ToolParser, ToolSpec

WEATHER = ToolSpec(
    "get_weather",
    "Weather of a city.",
    {
        "type": "object",
        "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
        "required": ["city"],
    },
)
CLOCK = ToolSpec("get")  # whose name begins the other's
TOOLS = [WEATHER, CLOCK]
NAMES = [tool.name for tool in TOOLS]


def no_control(text: str) -> bool:
    return False


def tags_are_control(text: str) -> bool:
    return text in (OPEN, CLOSE)


FORMATS = [llama3(), hermes(no_control), hermes(tags_are_control), gemma(), generic(no_control)]


def parse(parser: ToolParser, *chunks: str) -> list[Piece]:
    """All pieces of an answer, neighbours joined."""
    pieces = [piece for chunk in chunks for piece in parser.push(chunk)]
    return merged([*pieces, *parser.finish()])


def cuts_of(text: str) -> st.SearchStrategy[list[str]]:
    """Every way to cut a text into chunks."""
    places = st.lists(st.integers(0, len(text)), max_size=8).map(sorted)
    return places.map(lambda at: [text[a:b] for a, b in zip([0, *at], [*at, None], strict=True)])


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text('aé"\\{}[]\n,:字 </tool_call>', max_size=12),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text('ab"}', max_size=2), inner, max_size=3)
    ),
    max_leaves=6,
)
json_objects = st.dictionaries(st.sampled_from(["city", "days", 'a"b']), json_values, max_size=3)


@st.composite
def answers(draw: st.DrawFn, form: JsonFormat) -> str:
    """Text as models write it: calls, broken calls, calls of unknown tools, words and marks."""
    import json

    def call(name: str, arguments: object) -> str:
        return form.written(name, json.dumps(arguments, ensure_ascii=draw(st.booleans())))

    def reversed_call(name: str, arguments: object) -> str:
        return json.dumps({form.layout.arguments: arguments, "name": name})

    makers = st.sampled_from([call, reversed_call])
    names = st.sampled_from([*NAMES, "unknown"])
    part = st.one_of(
        st.builds(lambda make, name, arguments: make(name, arguments), makers, names, json_objects),
        st.builds(call, names, json_values),
        st.builds(
            lambda text, at: text[:at], st.builds(call, names, json_objects), st.integers(0, 80)
        ),
        st.sampled_from(
            [
                "Hi. ",
                "\n",
                "; ",
                " ",
                "<",
                "</tool_call>",
                "<tool_call>",
                "```json\n",
                "```",
                "[",
                "]",
                ", ",
                "{",
                '{"a": 1}',
                "<|python_tag|>",
                '{"name"',
                "}",
            ]
        ),
    )
    return "".join(draw(st.lists(part, max_size=6)))
