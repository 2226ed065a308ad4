"""docs/cli.md names every command and every option, and none that there is not."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from typer.core import TyperGroup
from typer.main import get_command

from firstword.cli.main import app

PAGE = (Path(__file__).parent.parent / "docs" / "cli.md").read_text(encoding="utf-8")
SECTIONS: dict[str, str] = dict(re.findall(r"^## (.*)\n((?:(?!^## ).*\n)*)", PAGE, re.MULTILINE))
SHARING = ("run", "chat", "explain")
SHARED = "Options of run, chat and explain"
EVERYWHERE = {"--help", "-h"}

Row = tuple[str, str]
"""The options of a row, and what holds without them."""


def known_options() -> dict[str, dict[str, object]]:
    """By command: its options in all their spellings, with their defaults."""
    group = get_command(app)
    assert isinstance(group, TyperGroup)
    return {
        name: {
            spelling: parameter.default
            for parameter in command.params
            if parameter.param_type_name == "option"
            for spelling in (*parameter.opts, *parameter.secondary_opts)
        }
        for name, command in group.commands.items()
    }


KNOWN = known_options()


def rows_of(command: str) -> list[Row]:
    """The rows of the tables that are about a command."""
    text = SECTIONS[f"firstword {command}"]
    if command in SHARING:
        text += SECTIONS[SHARED]
    return re.findall(r"^\| (`-.*?`) \| .* \| (.*) \|$", text, re.MULTILINE)


def named_options(command: str) -> list[str]:
    return [name for cell, _ in rows_of(command) for name in re.findall(r"`(-[\w-]+)`", cell)]


def test_every_command_has_its_section_and_its_row() -> None:
    sections = [
        name.removeprefix("firstword ") for name in SECTIONS if name.startswith("firstword ")
    ]
    assert sections == list(KNOWN)
    rows = re.findall(r"^\| \[`([\w ]+)`\]\(#firstword-([\w-]+)\) \|", PAGE, re.MULTILINE)
    assert rows == [(name, name.replace(" ", "-")) for name in sections]


@pytest.mark.parametrize("command", KNOWN)
def test_every_option_is_named_once_and_no_other(command: str) -> None:
    assert sorted(named_options(command)) == sorted(KNOWN[command])


@pytest.mark.parametrize("command", KNOWN)
def test_defaults_are_those_of_the_program(command: str) -> None:
    for cell, otherwise in rows_of(command):
        default = KNOWN[command][re.findall(r"`(-[\w-]+)`", cell)[0]]
        if default is not None and not isinstance(default, bool):
            assert otherwise.strip("`") == str(default), cell


@pytest.mark.parametrize("command", KNOWN)
def test_examples_use_options_that_exist(command: str) -> None:
    blocks = re.findall(r"```sh\n(.*?)```", SECTIONS[f"firstword {command}"], re.DOTALL)
    lines = "".join(blocks).splitlines()
    assert lines
    for line in lines:
        words = shlex.split(line[line.index("firstword ") :])
        name = command.split()
        assert words[1 : 1 + len(name)] == name
        used = {word for word in words if word.startswith("-") and word != "-"}
        assert used <= KNOWN[command].keys() | EVERYWHERE, line


def test_environment_variables_exist() -> None:
    source = Path(__file__).parent.parent
    code = "".join(path.read_text(encoding="utf-8") for path in source.glob("src/**/*.py"))
    named = re.findall(r"`(FIRSTWORD_\w+)`", SECTIONS["Environment"])
    assert len(named) == 5
    assert all(name in code for name in named)
