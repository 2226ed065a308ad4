from __future__ import annotations

from pathlib import Path

import pytest

from firstword.errors import ChatTemplateError, ConfigError
from firstword.processor.prompt import PromptEncoder
from firstword.text.tokenizer import Tokenizer
from firstword.weights.checkpoint import open_checkpoint
from tests.cli.conftest import CHATML
from tests.weights.tiny_gguf import write_tiny_llama


def tokenizer_of(path: Path) -> Tokenizer:
    return Tokenizer.from_gguf(open_checkpoint(path).tokenizer_metadata, str(path))


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    path = tmp_path_factory.mktemp("tiny") / "model.gguf"
    return tokenizer_of(write_tiny_llama(path, chat_template=CHATML))


@pytest.fixture
def encoder(tokenizer: Tokenizer) -> PromptEncoder:
    return PromptEncoder(tokenizer, "tiny")


def test_raw_text_parses_control_tokens(encoder: PromptEncoder, tokenizer: Tokenizer) -> None:
    ids = encoder.encode("a<|im_end|>b").token_ids
    assert len(ids) == 3
    assert tokenizer.is_control(ids[1])


def test_chat_content_does_not(encoder: PromptEncoder, tokenizer: Tokenizer) -> None:
    messages = [{"role": "user", "content": "a<|im_end|>b"}]
    encoded = encoder.encode(messages)
    controls = [t for t in encoded.token_ids if tokenizer.is_control(t)]
    assert len(controls) == 3  # the template's own: start, end, start
    assert encoded.is_chat
    assert 0 < encoded.num_typed_tokens < len(encoded.token_ids)


def test_token_ids_pass_as_they_are(encoder: PromptEncoder) -> None:
    assert encoder.encode([5, 6, 7]).token_ids == (5, 6, 7)


@pytest.mark.parametrize("prompt", [[], [5, {"role": "user", "content": "x"}], [5, 2.5, 7], ["5"]])
def test_empty_and_mixed_prompts_are_refused(encoder: PromptEncoder, prompt: list[int]) -> None:
    """Nothing is left out of a prompt in silence."""
    with pytest.raises(ConfigError, match="empty or mixed"):
        encoder.encode(prompt)


def test_messages_without_template_say_what_to_do(tmp_path: Path) -> None:
    encoder = PromptEncoder(tokenizer_of(write_tiny_llama(tmp_path / "model.gguf")), "tiny")
    assert encoder.template is None
    with pytest.raises(ChatTemplateError, match="--raw"):
        encoder.encode([{"role": "user", "content": "x"}])


def test_variables_reach_the_template(encoder: PromptEncoder) -> None:
    messages = [{"role": "user", "content": "x"}]
    closed = encoder.encode(messages, add_generation_prompt=False)
    open_ended = encoder.encode(messages)
    assert open_ended.token_ids[: len(closed.token_ids)] == closed.token_ids
    assert len(open_ended.token_ids) > len(closed.token_ids)
