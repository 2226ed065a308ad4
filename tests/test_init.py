"""The public names: exactly these, all there, and cheap to import."""

from __future__ import annotations

import subprocess
import sys

import pytest

import firstword

PUBLIC = [
    "LLM",
    "AsyncLLM",
    "CapacityError",
    "ChatTemplateError",
    "CheckpointError",
    "CompletionOutput",
    "ConfigError",
    "DownloadError",
    "EngineDiedError",
    "FirstwordError",
    "Grammar",
    "GrammarError",
    "LicenseError",
    "ModelNotFoundError",
    "PromptTooLongError",
    "QueueFullError",
    "RequestOptions",
    "RequestOutput",
    "SamplingParams",
    "UnsupportedModelError",
    "__version__",
]


def in_a_fresh_process(code: str) -> list[str]:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.split()


def test_public_names_are_pinned() -> None:
    assert firstword.__all__ == PUBLIC
    assert dir(firstword) == sorted(PUBLIC)


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_is_there_and_is_called_so(name: str) -> None:
    value = getattr(firstword, name)
    assert name == "__version__" or value.__name__ == name


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'LLMM'"):
        _ = firstword.LLMM
    assert not hasattr(firstword, "os")


def test_import_brings_nothing_heavy_with_it() -> None:
    heavy = in_a_fresh_process(
        "import sys, firstword\n"
        "print(*{name.partition('.')[0] for name in sys.modules})\n"
        "print(*(name for name in sys.modules if name.startswith('firstword.')))"
    )
    assert not set(heavy) & {"numpy", "tokenizers", "typer", "rich", "jinja2", "huggingface_hub"}
    assert not [name for name in heavy if name.startswith("firstword.")]


def test_a_public_name_is_imported_on_first_use() -> None:
    before_after = in_a_fresh_process(
        "import sys, firstword\n"
        "print('firstword.errors' in sys.modules)\n"
        "firstword.ConfigError\n"
        "print('firstword.errors' in sys.modules, 'numpy' in sys.modules)"
    )
    assert before_after == ["False", "True", "False"]
