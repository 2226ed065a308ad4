"""The tests mirror the source: every module that has anything to test has its own test file."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "firstword"
MODULES = sorted(path.relative_to(SOURCE) for path in SOURCE.rglob("*.py"))

# Modules with code of which nothing can be tested alone, and why.
NOTHING_TO_TEST = {
    "engine/messages.py": "plain values; the tests of the loop and of AsyncLLM send all",
    "engine/model.py": "plain values; the tests of who reads them use all",
    "engine/stats.py": "plain values; the engine's tests read them",
    "kvcache/tier.py": "what a tier promises; the tests of the disk tier hold it to that",
    "ops/protocol.py": "what backends promise; every backend's tests hold it to that",
    "sampling/constraint.py": "what a grammar promises; the tests of text.grammar hold it to that",
    "trace/events.py": "plain values; the tests of who emits and who reads them use all",
}


def mirror_of(module: Path) -> Path:
    """a/b.py -> a/test_b.py; __init__ and __main__ without their underscores."""
    return module.with_name(f"test_{module.stem.strip('_')}.py")


def only_names_things(module: Path) -> bool:
    """Whether a module has nothing but a docstring, imports and __all__."""
    for node in ast.parse((SOURCE / module).read_text(encoding="utf-8")).body:
        is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        is_all = isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
        if not (is_text or is_all or isinstance(node, ast.Import | ast.ImportFrom)):
            return False
    return True


@pytest.mark.parametrize("module", [m for m in MODULES if not only_names_things(m)], ids=str)
def test_every_module_has_its_tests(module: Path) -> None:
    mirrored = (ROOT / "tests" / mirror_of(module)).is_file()
    excused = module.as_posix() in NOTHING_TO_TEST
    assert mirrored or excused, f"write tests/{mirror_of(module)}"
    assert not (mirrored and excused), f"{module} has tests: it needs no excuse"


def test_excuses_are_for_modules_that_exist() -> None:
    assert {Path(name) for name in NOTHING_TO_TEST} <= set(MODULES)


def test_only_dataclasses_and_protocols_are_excused() -> None:
    for name in NOTHING_TO_TEST:
        tree = ast.parse((SOURCE / name).read_text(encoding="utf-8"))
        assert not [node for node in tree.body if isinstance(node, ast.FunctionDef)], name
