from __future__ import annotations

import io
import sys

import pytest
import typer

from firstword.cli.options import Machine, read_prompt, sampling_params
from firstword.errors import ConfigError


class Keyboard(io.StringIO):
    """A standard input that is a terminal."""

    def isatty(self) -> bool:
        return True


def test_options_that_were_given_override_the_preset() -> None:
    params = sampling_params("chat", 10, temperature=None, top_k=3, seed=0)
    assert (params.temperature, params.top_k, params.seed, params.max_tokens) == (0.7, 3, 0, 10)


def test_no_prompt_on_a_terminal_says_how_to_give_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", Keyboard())
    with pytest.raises(typer.BadParameter, match="give a prompt, like"):
        read_prompt(None)


def test_a_byte_order_mark_is_no_part_of_the_prompt(monkeypatch: pytest.MonkeyPatch) -> None:
    pipe = io.TextIOWrapper(io.BytesIO(b"\xef\xbb\xbfhi\n"))
    monkeypatch.setattr(sys, "stdin", pipe)
    assert read_prompt(None) == "hi"


def test_disk_for_prompts_is_a_size_or_left_to_the_default() -> None:
    assert Machine().kv_disk_bytes is None
    assert Machine(kv_disk="0").kv_disk_bytes == 0
    assert Machine(kv_disk="10G").kv_disk_bytes == 10 * 2**30
    with pytest.raises(ConfigError, match="--kv-disk is 'all': write a size like"):
        _ = Machine(kv_disk="all").kv_disk_bytes
