"""Chat messages to the text and the token ids that a model was trained on.

Not here: the Jinja2 environment (sandbox), messages of tools and of roles that a template does
not know (chat_messages). Control strings that a user typed stay text: while
the template is rendered private-use markers stand for them, and only what the template itself
writes is read as control tokens.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING

from firstword.errors import ChatTemplateError
from firstword.text.chat_markers import (
    Markers,
    Range,
    Ranges,
    find_typed,
    map_strings,
    search_typed,
    strings_in,
)
from firstword.text.chat_messages import Adapted, Adapter, Message, check_messages
from firstword.text.template_traits import TemplateTraits
from firstword.text.tokenizer import Encoding, Tokenizer
from firstword.text.tools.registry import tool_format

if TYPE_CHECKING:
    from jinja2 import Template


@dataclass(frozen=True)
class EncodedChat:
    """A conversation as the model reads it.

    Args:
        token_ids: [T], BOS included where the template writes it or the model wants it.
        num_typed_tokens: tokens with at least one character of a message's content.
        num_template_tokens: the others, which the template and BOS added.
        text: what the template rendered.
    """

    token_ids: list[int]
    num_typed_tokens: int
    num_template_tokens: int
    text: str


class ChatTemplate:
    """A model's own chat template, compiled at its first use; can be used from several threads.

    Args:
        source: Jinja2 source; None for a model without one, which is refused with advice.
        bos_token: string that templates write for BOS.
        eos_token: string that templates write for EOS.

    Raises:
        ChatTemplateError: there is no template. One that is no Jinja2 raises it at its first use.
    """

    def __init__(self, source: str | None, bos_token: str = "", eos_token: str = "") -> None:
        if source is None:
            raise ChatTemplateError(
                "this model has no chat template: it continues text and was not tuned to chat. "
                "Use `firstword run --raw` to give it a raw prompt, or choose a chat-tuned model"
            )
        self._source = source
        self._tokens = {"bos_token": bos_token, "eos_token": eos_token}
        traits = TemplateTraits(source, self._render)
        self._adapter = Adapter(traits, tool_format(source))

    @cached_property
    def _template(self) -> Template:
        from jinja2 import TemplateSyntaxError

        from firstword.text.sandbox import ChatEnvironment

        try:
            return ChatEnvironment().from_string(self._source)
        except TemplateSyntaxError as error:
            raise ChatTemplateError(
                f"chat template line {error.lineno}: {error.message}: the template cannot be used"
            ) from None
        except Exception as error:
            raise ChatTemplateError(f"chat template cannot be read: {error}") from None

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> ChatTemplate:
        """The template that came with a tokenizer.

        Raises:
            ChatTemplateError: there is none.
        """
        return cls(tokenizer.chat_template, tokenizer.bos_token, tokenizer.eos_token)

    def render(
        self, messages: Sequence[Message], *, add_generation_prompt: bool = True, **extra: object
    ) -> str:
        """The conversation as text; control strings in contents stand there as typed.

        Args:
            messages: at least one; see `chat_messages.check_messages`.
            add_generation_prompt: end with what opens the assistant's answer.
            extra: further variables of the template, such as `tools` (each as from
                `ToolSpec.for_template`) or `enable_thinking`.

        Raises:
            ChatTemplateError: the messages are malformed or the template refuses them; names the
                message and the line of the template where known.
        """
        variables = extra | {"add_generation_prompt": add_generation_prompt}
        adapted = self._adapted(messages, variables)
        return self._render_adapted([m.fields for m in adapted], variables, adapted)

    def encode(
        self,
        tokenizer: Tokenizer,
        messages: Sequence[Message],
        *,
        add_generation_prompt: bool = True,
        parse_special: bool = False,
        **extra: object,
    ) -> EncodedChat:
        """The conversation as token ids.

        BOS comes once: where the template writes it, or first if the template does not and the
        model wants one.

        Args:
            tokenizer: the model's.
            messages: as for `render`.
            add_generation_prompt: as for `render`.
            parse_special: read control strings in contents as control tokens.
            extra: as for `render`.

        Raises:
            ChatTemplateError: as for `render`; or the template drops or alters a control string
                that stands in a content, so that it cannot be kept apart.
            ConfigError: a text holds a lone surrogate.
        """
        variables = extra | {"add_generation_prompt": add_generation_prompt}
        adapted = self._adapted(messages, variables)
        markers = Markers(
            [self._source, *strings_in([m.fields for m in adapted]), *strings_in(variables)]
        )

        def protect(text: str) -> str:
            return text if parse_special else _marked(tokenizer, markers, text)

        contents = [protect(message.content) for message in adapted]
        num_required = len(markers)
        others = [map_strings({**message.fields, "content": ""}, protect) for message in adapted]
        safe = _with_contents(others, contents)
        variables = {key: map_strings(value, protect) for key, value in variables.items()}
        rendered = self._render_adapted(safe, variables, adapted)
        typed, exact = self._find_typed(rendered, safe, variables)
        controls = tokenizer.find_controls(rendered)
        if exact and not parse_special:
            controls = [control for control in controls if not typed.overlap(control)]
        restored = markers.restore(rendered)
        _refuse_dropped(restored.numbers, num_required)
        encoding = _encode(tokenizer, restored.text, restored.moved(controls))
        num_typed = sum(map(Ranges(restored.moved(typed)).overlap, encoding.spans))
        token_ids = _with_bos(tokenizer, encoding.token_ids)
        return EncodedChat(token_ids, num_typed, len(token_ids) - num_typed, restored.text)

    def _adapted(self, messages: object, variables: dict[str, object]) -> list[Adapted]:
        """The messages as the template takes them; it loses `tools` where it takes none."""
        tools = _checked_tools(variables.get("tools"))
        adapted, gives_tools = self._adapter.adapt(check_messages(messages), tools)
        if tools and not gives_tools:
            variables["tools"] = None
        return adapted

    def _render(
        self, messages: Sequence[Mapping[str, object]], variables: Mapping[str, object]
    ) -> str:
        return self._render_adapted(
            messages, variables, [Adapted(message, i) for i, message in enumerate(messages)]
        )

    def _render_adapted(
        self,
        messages: Sequence[Mapping[str, object]],
        variables: Mapping[str, object],
        adapted: Sequence[Adapted],
    ) -> str:
        from firstword.text import sandbox

        # tools and documents: templates ask whether they are none, so they are never undefined.
        given = {"tools": None, "documents": None, **self._tokens, **variables}
        template = self._template
        rendering = [dict(message) for message in messages]
        try:
            return sandbox.render(template, {**given, "messages": rendering})
        except Exception as error:
            where = _where(error.__traceback__, rendering, [m.origin for m in adapted])
            problem = str(error) or type(error).__name__
            raise ChatTemplateError(
                f"the chat template refuses the messages{where}: {problem}"
            ) from None

    def _find_typed(
        self,
        rendered: str,
        messages: Sequence[Mapping[str, object]],
        variables: Mapping[str, object],
    ) -> tuple[Ranges, bool]:
        """(where the contents lie in `rendered`, whether that is certain).

        The messages are rendered once more with a marker for each whole content, which shows
        what the template writes around them.
        """
        contents = [str(message["content"]) for message in messages]
        markers = Markers([self._source, rendered, *strings_in(list(messages))])
        probes = [markers.mark(content) for content in contents]
        try:
            skeleton = self._render(_with_contents(messages, probes), variables)
            ranges = find_typed(rendered, contents, *markers.split(skeleton))
        except ChatTemplateError:
            ranges = None  # the template looks into the contents
        if ranges is None:
            return Ranges(search_typed(rendered, contents)), False
        return Ranges(ranges), True


def _checked_tools(tools: object) -> list[Mapping[str, object]]:
    if tools is None:
        return []
    if isinstance(tools, str | bytes | Mapping) or not isinstance(tools, Sequence):
        raise ChatTemplateError(f"tools must be a list of tools, found {type(tools).__name__}")
    for index, tool in enumerate(tools):
        if not isinstance(tool, Mapping):
            raise ChatTemplateError(f"tool {index} must be a mapping, found {type(tool).__name__}")
    return list(tools)


def _with_contents(messages: Sequence[object], contents: Sequence[str]) -> list[dict[str, object]]:
    return [
        {**message, "content": content}
        for message, content in zip(messages, contents, strict=True)
        if isinstance(message, Mapping)
    ]


def _marked(tokenizer: Tokenizer, markers: Markers, text: str) -> str:
    """The text with a marker in place of each control string."""
    pieces = []
    done = 0
    for start, end in tokenizer.find_controls(text):
        pieces += [text[done:start], markers.mark(text[start:end])]
        done = end
    return "".join([*pieces, text[done:]])


def _encode(tokenizer: Tokenizer, text: str, controls: Sequence[Range]) -> Encoding:
    """Encode with control tokens at these ranges only; each span between them as a whole."""
    result = Encoding([], [])

    def append(start: int, end: int, parse_special: bool) -> None:
        part = tokenizer.encode_with_spans(text[start:end], parse_special=parse_special)
        result.token_ids.extend(part.token_ids)
        result.spans.extend((start + first, start + last) for first, last in part.spans)

    done = 0
    for start, end in controls:
        append(done, start, False)
        append(start, end, True)
        done = end
    append(done, len(text), False)
    return result


def _with_bos(tokenizer: Tokenizer, token_ids: list[int]) -> list[int]:
    begins = tokenizer.bos_id is not None and token_ids[:1] == [tokenizer.bos_id]
    return token_ids if begins else [*tokenizer.bos_ids, *token_ids]


def _refuse_dropped(numbers: Collection[int], num_required: int) -> None:
    """A control string that the template left out or copied in part is not kept apart."""
    if not set(numbers).issuperset(range(num_required)):
        raise ChatTemplateError(
            "the chat template drops control strings typed in messages, so they cannot be kept "
            "apart from its own: remove them from the messages, or ask for them to be parsed"
        )


def _where(
    traceback: TracebackType | None, messages: Sequence[object], origins: Sequence[int]
) -> str:
    """The line of the template and the message at which it failed, as far as known."""
    line = message = None
    while traceback is not None:
        if traceback.tb_frame.f_code.co_filename == "<template>":
            line = traceback.tb_lineno
            for value in traceback.tb_frame.f_locals.values():
                for index, candidate in enumerate(messages):
                    message = origins[index] if value is candidate else message
        traceback = traceback.tb_next
    known = [] if line is None else [f"template line {line}"]
    known += [] if message is None else [f"message {message}"]
    return f" ({', '.join(known)})" if known else ""
