"""The Jinja2 environment that chat templates are written for, with bounds on what they may do.

Not here: messages and tokens (chat_template). Behaviour follows `transformers`
(`apply_chat_template`): trimmed blocks, loop controls, `raise_exception`, `strftime_now`,
`tojson` without HTML escapes, and a `generation` block that only marks.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextvars import ContextVar
from datetime import datetime
from typing import NoReturn

from jinja2 import Template, TemplateError, nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment

MAX_STEPS = 1_000_000
"""Loop rounds in one rendering; a conversation of 1,000 messages needs some thousands."""

STEPS_OF_CALL = 10
"""A call takes about as long as ten loop rounds."""

MAX_CHARACTERS = 1 << 25
"""Characters that one rendering may write, and the longest string or list it may build."""


class _Budget:
    """What one rendering has left."""

    def __init__(self) -> None:
        self.steps = MAX_STEPS
        self.characters = MAX_CHARACTERS

    def spend(self, steps: int) -> None:
        self.steps -= steps
        if self.steps < 0:
            raise SecurityError(f"more than {MAX_STEPS} steps of loops and calls")

    def write(self, num_characters: int) -> None:
        self.characters -= num_characters
        if self.characters < 0:
            raise SecurityError(f"more than {MAX_CHARACTERS} characters")


_budget: ContextVar[_Budget | None] = ContextVar("_budget", default=None)


def render(template: Template, variables: Mapping[str, object]) -> str:
    """Render within a fresh budget.

    Raises:
        jinja2.TemplateError: and whatever else the template's own operations raise.
    """
    budget = _Budget()
    token = _budget.set(budget)
    try:
        chunks = []
        num_characters = 0
        for chunk in template.generate(variables):
            num_characters += len(chunk)
            if num_characters > MAX_CHARACTERS:
                raise SecurityError(f"more than {MAX_CHARACTERS} characters")
            chunks.append(chunk)
        return "".join(chunks)
    finally:
        _budget.reset(token)


class ChatEnvironment(ImmutableSandboxedEnvironment):
    """Sandbox for chat templates: no attribute tricks, no mutation, bounded work."""

    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=[_GenerationBlock, loopcontrols],
            finalize=_count_output,
        )
        self.filters["tojson"] = _to_json
        self.filters["format"] = _bounded_layout(self.filters["format"])
        self.filters["center"] = _bounded_numbers(self.filters["center"])
        self.filters["indent"] = _bounded_numbers(self.filters["indent"])
        self.filters[_COUNT_ROUNDS] = _count_rounds
        self.filters[_CONCATENATE] = _concatenate
        self.globals["raise_exception"] = _raise_exception
        self.globals["strftime_now"] = _strftime_now

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        tree = super()._parse(source, name, filename)
        for loop in tree.find_all(nodes.For):
            loop.iter = _filtered(loop.iter, _COUNT_ROUNDS)
        _bound_concatenations(tree)
        return tree

    def call(
        self, context: Context, function: object, /, *args: object, **kwargs: object
    ) -> object:
        """Call on behalf of a template, within the budget."""
        budget = _budget.get()
        if budget is not None:
            budget.spend(STEPS_OF_CALL)
        _check_numbers(args)
        # str.format comes wrapped by the sandbox.
        _check_layout(getattr(getattr(function, "__wrapped__", None), "__self__", None))
        return super().call(context, function, *args, **kwargs)

    def call_binop(self, context: Context, operator: str, left: object, right: object) -> object:
        """Compute `left operator right` unless the result is out of all proportion."""
        if operator == "*":
            _check_product(left, right)
        if operator == "**" and not (_is_small(left) and _is_small(right)):
            raise SecurityError("a power of large numbers")
        if operator == "%":
            _check_layout(left)
        result: object = super().call_binop(context, operator, left, right)
        return _checked_size(result)


def _check_product(left: object, right: object) -> None:
    for size, times in ((left, right), (right, left)):
        if isinstance(size, str | list | tuple) and isinstance(times, int):
            if len(size) * times > MAX_CHARACTERS:
                raise SecurityError(f"a repetition to more than {MAX_CHARACTERS} items")


def _check_layout(layout: object) -> None:
    """Refuse format strings that pad to millions of characters."""
    if isinstance(layout, str) and re.search(r"\d{6}|%[-+ #0]*\*", layout):
        raise SecurityError(f"padding to a great width in the format {layout[:40]!r}")


def _check_numbers(arguments: Iterable[object]) -> None:
    for argument in arguments:
        if isinstance(argument, int) and abs(argument) > MAX_CHARACTERS:
            raise SecurityError(f"the argument {argument}, above {MAX_CHARACTERS}")


def _bounded_layout(function: Callable[..., str]) -> Callable[..., str]:
    def bounded(layout: str, *args: object, **kwargs: object) -> str:
        _check_layout(layout)
        return function(layout, *args, **kwargs)

    return bounded


def _bounded_numbers(function: Callable[..., str]) -> Callable[..., str]:
    def bounded(text: str, *args: object, **kwargs: object) -> str:
        _check_numbers([*args, *kwargs.values()])
        return function(text, *args, **kwargs)

    return bounded


def _is_small(number: object) -> bool:
    return isinstance(number, int | float) and abs(number) <= 64


def _checked_size(value: object) -> object:
    if isinstance(value, str | list | tuple) and len(value) > MAX_CHARACTERS:
        raise SecurityError(f"a value of more than {MAX_CHARACTERS} items")
    if isinstance(value, int) and value.bit_length() > 1024:
        raise SecurityError("a number of more than 1024 bits")
    return value


_COUNT_ROUNDS = "_count_rounds"
_CONCATENATE = "_concatenate"


def _filtered(expression: nodes.Node, name: str) -> nodes.Filter:
    return nodes.Filter(expression, name, [], [], None, None, lineno=expression.lineno)


def _bound_concatenations(tree: nodes.Node) -> None:
    """Replace every `a ~ b` below by a filter that looks at the length of the result."""
    for field, value in list(tree.iter_fields()):
        values = value if isinstance(value, list) else [value]
        replaced = [_bounded(item) for item in values]
        setattr(tree, field, replaced if isinstance(value, list) else replaced[0])


def _bounded(item: object) -> object:
    if isinstance(item, nodes.Node):
        _bound_concatenations(item)
    if isinstance(item, nodes.Concat):
        return _filtered(nodes.List(item.nodes, lineno=item.lineno), _CONCATENATE)
    return item


def _count_rounds(items: Iterable[object]) -> Iterator[object]:
    budget = _budget.get()
    for item in items:
        if budget is not None:
            budget.spend(1)
        yield item


def _concatenate(parts: list[object]) -> object:
    return _checked_size("".join(map(str, parts)))


def _count_output(value: object) -> object:
    budget = _budget.get()
    if budget is not None and isinstance(value, str):
        budget.write(len(value))
    return value


class _GenerationBlock(Extension):
    """`{% generation %}` marks what the assistant wrote, for training; here it marks nothing."""

    tags = {"generation"}  # noqa: RUF012 (declared so by the base class)

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _to_json(
    value: object,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )


def _raise_exception(message: str) -> NoReturn:
    raise TemplateError(message)


def _strftime_now(layout: str) -> str:
    return datetime.now().strftime(layout)
