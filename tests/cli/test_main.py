from __future__ import annotations

import subprocess
import sys

import firstword
from tests.cli.commands import Terminal

COMMANDS = (
    "run",
    "chat",
    "explain",
    "plan",
    "pull",
    "models",
    "cache",
    "inspect",
    "doctor",
    "bench",
)


def test_every_command_has_help(terminal: Terminal) -> None:
    listing = terminal.run("--help").stdout
    for command in COMMANDS:
        assert f"  {command} " in listing
        assert terminal.run(command, "--help").status == 0


def test_no_arguments_show_where_to_start(terminal: Terminal) -> None:
    end = terminal.run()
    assert 'firstword run "What is' in end.stdout + end.stderr


def test_version(terminal: Terminal) -> None:
    assert terminal.run("--version").stdout == f"firstword {firstword.__version__}\n"


def test_a_typo_is_a_usage_error(terminal: Terminal) -> None:
    end = terminal.run("rnu")
    assert end.status == 2
    assert "rnu" in end.stderr


def test_help_imports_neither_numpy_nor_tokenizers_nor_rich() -> None:
    """`firstword --help` answers in under 200 ms because it loads nothing that it does not need."""
    script = (
        "import sys; sys.argv = ['firstword', '--help']\n"
        "from firstword.cli.main import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "heavy = {'numpy', 'tokenizers', 'rich', 'jinja2', 'huggingface_hub'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", script], check=True, capture_output=True)


def test_a_reader_that_goes_away_ends_the_command_quietly(chat_model: str) -> None:
    command = [sys.executable, "-m", "firstword", "run", "Hello", "-m", chat_model]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        errors = process.stderr.read()
    assert b"Traceback" not in errors
