import io
import json
import os
import struct
import sys
import types
from collections.abc import Callable
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from firstword.cli.inspect import inspect
from firstword.errors import CheckpointError
from firstword.quant import GGMLType
from firstword.weights.gguf_values import ValueType
from tests.weights.raw_gguf import RawGGUF, array, text_value, value
from tests.weights.tiny_gguf import write_tiny_gemma3, write_tiny_llama

Invoke = Callable[..., str]


def resolve_paths_only(monkeypatch: pytest.MonkeyPatch) -> None:
    catalogue = types.ModuleType("firstword.weights.catalogue")
    catalogue.resolve = Path  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "firstword.weights.catalogue", catalogue)


@pytest.fixture
def invoke(monkeypatch: pytest.MonkeyPatch) -> Invoke:
    """Runs the command on a path, as from a pipe."""
    resolve_paths_only(monkeypatch)
    app = typer.Typer()
    app.command()(inspect)

    def run(*arguments: str | Path) -> str:
        result = CliRunner().invoke(app, [str(a) for a in arguments], catch_exceptions=False)
        assert result.exit_code == 0, result.output
        return result.stdout

    return run


@pytest.fixture
def llama(tmp_path: Path) -> Path:
    return write_tiny_llama(tmp_path / "m.gguf", dtype=GGMLType.Q8_0, chat_template="{{ x }}")


def facts(output: str) -> dict[str, str]:
    return {line[:15].strip(): line[16:] for line in output.splitlines()}


def test_says_what_the_file_is(invoke: Invoke, llama: Path) -> None:
    shown = facts(invoke(llama))
    assert shown["model"] == "tiny"
    assert shown["file"] == str(llama)
    assert shown["size"].endswith("GGUF v3")
    assert shown["architecture"] == "llama"
    assert shown["parameters"] == "98,624"
    assert shown["context"] == "512 tokens"
    assert shown["layers"] == "2"
    assert shown["heads"] == "4 (2 of keys and values), each 16 wide"
    assert shown["vocabulary"] == "288 tokens"
    assert shown["chat template"] == "yes"
    assert shown["tensor types"].startswith("Q8_0: 104,448 bytes in 16 tensors")


def test_weights_that_grow_when_they_are_loaded(
    invoke: Invoke, llama: Path, tmp_path: Path
) -> None:
    assert "in memory" not in facts(invoke(llama))
    grown = write_tiny_llama(tmp_path / "grown.gguf", dtype=GGMLType.IQ4_NL)
    shown = facts(invoke(grown))
    assert shown["tensor types"].startswith("IQ4_NL: 55,296 bytes")
    # The same 98,304 values take as much as in Q8_0, and the five norms 4 bytes a value.
    assert shown["in memory"] == "105,728 bytes of tensors in all"
    assert json.loads(invoke(grown, "--json"))["memory_bytes"] == 105_728


def test_a_window_and_no_template(invoke: Invoke, tmp_path: Path) -> None:
    shown = facts(invoke(write_tiny_gemma3(tmp_path / "m.gguf")))
    assert shown["window"] == "48 tokens in some layers"
    assert shown["chat template"] == "no"


def test_tensors_and_metadata(invoke: Invoke, llama: Path) -> None:
    output = invoke(llama, "--tensors", "--metadata")
    assert "blk.1.ffn_down.weight Q8_0 [64 x 96], 6,528 bytes" in output
    tokens = next(line for line in output.splitlines() if line.startswith("tokenizer.ggml.tokens"))
    assert tokens.endswith("... 288 in all]")
    assert len(tokens) < 150


def test_json(invoke: Invoke, llama: Path) -> None:
    plain = json.loads(invoke(llama, "--json"))
    assert plain["architecture"] == "llama"
    assert plain["key_value_heads"] == 2
    assert plain["tensor_types"]["Q8_0"] == {"bytes": 104448, "tensors": 16}
    assert "tensors" not in plain and "metadata" not in plain
    whole = json.loads(invoke(llama, "--json", "--tensors", "--metadata"))
    assert whole["tensors"][0]["shape"] == [288, 64]
    assert whole["metadata"]["tokenizer.ggml.tokens"]["length"] == 288
    assert whole["metadata"]["tokenizer.chat_template"] == "{{ x }}"


def test_json_stays_json_whatever_the_numbers(invoke: Invoke, tmp_path: Path) -> None:
    infinite = value(ValueType.FLOAT32, struct.pack("<f", float("inf")))
    path = RawGGUF([("k", infinite), ("n", array(ValueType.ARRAY, 0, b""))]).write(tmp_path)
    metadata = json.loads(invoke(path, "--json", "--metadata"))["metadata"]
    assert metadata == {"k": "inf", "n": {"length": 0, "first": []}}


def test_an_architecture_that_is_not_built_is_shown_all_the_same(
    invoke: Invoke, tmp_path: Path
) -> None:
    path = RawGGUF([("general.architecture", text_value("mamba"))]).write(tmp_path)
    shown = facts(invoke(path))
    assert shown["architecture"] == "mamba"
    assert "not built: only llama" in shown["cannot run"]
    assert "layers" not in shown


def test_a_file_cannot_steer_the_terminal(invoke: Invoke, tmp_path: Path) -> None:
    evil = text_value("a\x1b[2Jb\nc" + "x" * 1000)
    path = RawGGUF([("general.name", evil), ("k\x1b", text_value("v"))]).write(tmp_path)
    output = invoke(path, "--metadata")
    assert "\x1b" not in output
    assert "k\\x1b" in output
    assert "a\\x1b[2Jb\\nc" in output and "1,008 characters" in output


def test_a_damaged_file_is_an_error(invoke: Invoke, tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(b"<html>")
    with pytest.raises(CheckpointError, match="web page"):
        invoke(path)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("columns", [40, 60, 200])
def test_lines_fit_the_terminal(llama: Path, monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    resolve_paths_only(monkeypatch)
    monkeypatch.setattr("shutil.get_terminal_size", lambda: os.terminal_size((columns, 24)))
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.chdir(llama.parent)
    inspect(llama.name, tensors=True, metadata=True)
    assert max(len(line) for line in terminal.getvalue().splitlines()) <= columns
    assert "output_norm.weight" in terminal.getvalue()
