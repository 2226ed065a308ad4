from __future__ import annotations

from pathlib import Path

import pytest

from firstword.ops import build


def test_the_digest_changes_with_the_code_that_computes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in ("layers", "models", "ops", "quant"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "a.py").write_text("x = 1\n", encoding="utf-8")
    monkeypatch.setattr(build, "_PACKAGE", tmp_path)
    before = build.build_digest()
    assert build.build_digest() == before
    (tmp_path / "layers" / "a.py").write_text("x = 2\n", encoding="utf-8")
    assert build.build_digest() != before


def test_the_compiled_module_counts_if_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    with_module = build.build_digest()
    monkeypatch.setattr(build, "find_spec", lambda name: None)
    assert build.build_digest() != with_module
