from __future__ import annotations

import threading
import time

import pytest
from jinja2 import TemplateError, TemplateSyntaxError
from jinja2.exceptions import SecurityError

from firstword.text.sandbox import ChatEnvironment, render


def rendered(source: str, **variables: object) -> str:
    return render(ChatEnvironment().from_string(source), variables)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("a\n  {% if true %}\n  b\n  {% endif %}\nc", "a\n  b\nc"),
        ("{% for i in range(5) %}{% if i == 3 %}{% break %}{% endif %}{{ i }}{% endfor %}", "012"),
        ("{% for i in 'ab' %}{% if i == 'a' %}{% continue %}{% endif %}{{ i }}{% endfor %}", "b"),
        ("{% generation %}x{{ 1 }}{% endgeneration %}y", "x1y"),
        ("{{ {'k': '<é>&'} | tojson }}", '{"k": "<é>&"}'),
        ("{{ {'b': 1, 'a': 2} | tojson(indent=1, sort_keys=true) }}", '{\n "a": 2,\n "b": 1\n}'),
        ("{{ 'a' ~ 1 ~ none }}", "a1None"),
        ("{{ 'a%03d' % 7 }}{{ '%s!' | format('b') }}{{ '{:>3}'.format('c') }}", "a007b!  c"),
        ("[{{ 'ab' | center(4) }}]{{ 'a\nb' | indent(1) }}", "[ ab ]a\n b"),
        ("{{ 2 ** 8 }}{{ 'ab' * 2 }}{{ [0] * 2 + [1] }}{{ 7 % 4 }}", "256abab[0, 0, 1]3"),
        (
            "{% for x in 'abc' %}{{ loop.index }}{{ loop.length }}{{ loop.last }}"
            "{{ loop.previtem }}{{ loop.nextitem }} {% endfor %}",
            "13Falseb 23Falseac 33Trueb ",
        ),
        ("{% for k, v in {'a': 1}.items() %}{{ k }}{{ v }}{% else %}none{% endfor %}", "a1"),
        ("{% for x in missing %}{{ x }}{% else %}none{% endfor %}", "none"),
        (
            "{% set ns = namespace(n=0) %}{% for x in 'ab' %}{% set ns.n = ns.n + 1 %}{% endfor %}"
            "{{ ns.n }}",
            "2",
        ),
    ],
)
def test_renders_as_chat_templates_expect(source: str, expected: str) -> None:
    assert rendered(source) == expected


def test_time_and_exceptions() -> None:
    assert rendered("{{ strftime_now('%Y') }}") == time.strftime("%Y")
    with pytest.raises(TemplateError, match="roles must alternate"):
        rendered("{{ raise_exception('roles must alternate') }}")
    with pytest.raises(TemplateSyntaxError):
        rendered("{% generation %}x")


NAMESPACE = "{% set ns = namespace(x='ab', n=3) %}{% for i in range(64) %}"


@pytest.mark.parametrize(
    "source",
    [
        "{{ x.append(1) }}",
        "{{ ''.__class__.__mro__ }}",
        "{% for i in range(10**9) %}{% endfor %}",
        "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
        "{% for a in range(99999) %}{% for b in range(99999) %}{{ a }}{% endfor %}{% endfor %}",
        "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}"
        "{{ f(40) }}",
        "{{ 'a' * 10 ** 10 }}",
        "{{ 10 ** 10 * [1] }}",
        "{{ 9 ** 9 ** 9 }}",
        "{{ '%999999999d' % 1 }}",
        "{{ '%*d' % (999999999, 1) }}",
        "{{ '%999999999d' | format(1) }}",
        "{{ '{:999999999}'.format(1) }}",
        "{{ 'a' | center(999999999) }}",
        "{{ 'a\nb' | indent(width=999999999) }}",
        "{{ 'a'.ljust(999999999) }}",
        NAMESPACE + "{% set ns.x = ns.x ~ ns.x %}{% endfor %}",
        NAMESPACE + "{% set ns.x = ns.x + ns.x %}{% endfor %}",
        NAMESPACE + "{% set ns.n = ns.n * ns.n %}{% endfor %}",
        NAMESPACE + "{% set ns.x %}{{ ns.x }}{{ ns.x }}{% endset %}{% endfor %}",
        "{% for a in range(9999) %}" + "lorem ipsum " * 999 + "{% endfor %}",
    ],
)
def test_hostile_templates_are_stopped(source: str) -> None:
    start = time.process_time()
    with pytest.raises((SecurityError, OverflowError)):
        rendered(source, x=[])
    assert time.process_time() - start < 5


def test_each_rendering_has_its_own_budget() -> None:
    template = ChatEnvironment().from_string("{% for i in range(99999) %}{% endfor %}ok")
    results: list[str] = []
    threads = [
        threading.Thread(target=lambda: results.extend(render(template, {}) for _ in range(6)))
        for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == ["ok"] * 12
