from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from firstword.cli.models import models
from firstword.weights.catalogue import CATALOGUE

APP = typer.Typer()
APP.command()(models)


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The default model, and no other, is on the machine."""
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setenv("FIRSTWORD_HOME", str(tmp_path))
    path = tmp_path / "models" / "smollm2-135m" / "SmolLM2-135M-Instruct.Q4_1.gguf"
    path.parent.mkdir(parents=True)
    path.touch()
    os.truncate(path, CATALOGUE["smollm2:135m"].size)
    return path


def test_the_table_is_plain_and_fits_60_columns(here: Path) -> None:
    result = CliRunner().invoke(APP, [])
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert "\x1b" not in result.stdout
    assert all(len(line) <= 60 for line in lines if str(here) not in line)
    rows = {line.split()[0]: line.split()[-2:] for line in lines[1 : len(CATALOGUE) + 1]}
    assert list(rows) == list(CATALOGUE)
    assert rows["smollm2:135m"] == ["yes", "yes"]
    assert rows["gemma3:270m"] == ["yes", "no"]
    assert rows["qwen3:8b"] == ["no", "no"]
    assert f"smollm2:135m: {here}" in lines
    assert lines[-1] == "prepared weights: 0 files, 0 bytes; see firstword cache"


def test_json_tells_everything(here: Path) -> None:
    result = CliRunner().invoke(APP, ["--json"])
    rows = {row["name"]: row for row in json.loads(result.stdout)}
    assert list(rows) == list(CATALOGUE)
    assert rows["smollm2:135m"]["path"] == str(here)
    assert rows["gemma3:270m"] == {
        "name": "gemma3:270m",
        "description": "Gemma 3 270M, Q4_K_M: a base model, continues text",
        "size_bytes": 253_113_024,
        "license": "gemma",
        "license_url": "https://ai.google.dev/gemma/terms",
        "needs_acceptance": True,
        "chat": False,
        "tested": True,
        "path": None,
    }
