"""A tiny model that chats (nonsense, but fast), for the commands."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.commands import Terminal
from tests.weights.tiny_gguf import write_tiny_llama

CHATML = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}"
    "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@pytest.fixture(scope="session")
def chat_model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Path of a tiny model with a chat template and a context of 512 tokens."""
    path = tmp_path_factory.mktemp("chat") / "tiny chat.gguf"
    return str(write_tiny_llama(path, chat_template=CHATML))


@pytest.fixture(scope="session")
def base_model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Path of a tiny model without a chat template."""
    return str(write_tiny_llama(tmp_path_factory.mktemp("base") / "tiny base.gguf"))


@pytest.fixture
def short_model(tmp_path: Path) -> str:
    """Path of a tiny chat model with a context of 96 tokens."""
    return str(write_tiny_llama(tmp_path / "short.gguf", chat_template=CHATML, context=96))


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Terminal:
    return Terminal(monkeypatch, capfd)
