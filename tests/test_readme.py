"""What the README says is run: its Python, and the options and commands it names."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.cli.commands import Terminal

README = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Terminal:
    return Terminal(monkeypatch, capfd)


@pytest.mark.real_model
def test_the_python_of_the_readme_runs(
    smollm2_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    snippets = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert len(snippets) == 1
    exec(compile(snippets[0], "README.md", "exec"), {})
    assert len(capsys.readouterr().out.split()) > 20


def test_every_command_and_option_that_is_named_exists(terminal: Terminal) -> None:
    for command in set(re.findall(r"^firstword (\w+)", README, re.MULTILINE)):
        assert terminal.run(command, "--help").status == 0, command
    options = re.search(r"`run` and `chat` take `(.*?)`", README, re.DOTALL)
    assert options is not None
    for command in ("run", "chat"):
        help_text = terminal.run(command, "--help").stdout
        for option in options[1].split():
            assert option in help_text, (command, option)
