from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import gguf
import numpy as np
import pytest

from benchmarks import make_model
from benchmarks.make_model import SHAPES, gets_more_bits, llama3_divisors, tensors, write_model
from benchmarks.random_blocks import Type, type_named
from benchmarks.vocabulary import byte_level
from firstword import LLM, SamplingParams
from firstword.weights.checkpoint import open_checkpoint

TINY = SHAPES["tiny"]


def total_bytes(shape: str, mix: str) -> int:
    return sum(tensor.num_bytes for tensor in tensors(SHAPES[shape], mix))


def test_sizes_are_those_of_the_published_shapes() -> None:
    parameters = {
        name: sum(t.rows * t.cols for t in tensors(SHAPES[name], "F16")) for name in SHAPES
    }
    assert parameters["llama-3.2-1b"] == 1_235_814_432
    assert parameters["llama-3.1-8b"] == 8_030_261_312
    # Published Q4_K_M files are 807,694,464 and 4,920,739,232 bytes, headers of 8 MB included.
    assert total_bytes("llama-3.2-1b", "Q4_K_M") == 799_862_912
    assert total_bytes("llama-3.1-8b", "Q4_K_M") == 4_912_898_304


def test_a_mixture_gives_more_bits_to_the_ends_and_every_third_layer() -> None:
    better = [layer for layer in range(16) if gets_more_bits(layer, 16)]
    assert better == [0, 1, 4, 7, 10, 13, 14, 15]
    types = {t.name: t.type for t in tensors(SHAPES["llama-3.1-8b"], "Q4_K_M")}
    assert types["blk.0.attn_v.weight"] == types["blk.0.ffn_down.weight"] == Type.Q6_K
    assert types["blk.4.attn_v.weight"] == types["blk.0.attn_q.weight"] == Type.Q4_K
    assert types["output.weight"] == Type.Q6_K and types["token_embd.weight"] == Type.Q4_K


def test_unquantized_and_q8_files_keep_their_type_at_the_output() -> None:
    for mix in ("Q8_0", "F16", "BF16"):
        types = {t.name: t.type for t in tensors(SHAPES["llama-3.2-1b"], mix)}
        assert types["token_embd.weight"] == type_named(mix)


def test_long_wavelengths_are_stretched_and_short_ones_kept() -> None:
    divisors = llama3_divisors(SHAPES["llama-3.2-1b"])
    assert divisors.shape == (32,)
    assert divisors[0] == 1.0 and divisors[-1] == 32.0
    assert (np.diff(divisors) >= 0).all()


@pytest.mark.parametrize("mix", ["Q4_0", "Q8_0", "Q4_K_M", "F16"])
def test_both_readers_open_the_file_and_it_answers(mix: str, tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    size = write_model(path, TINY, mix)
    theirs = gguf.GGUFReader(path)
    ours = open_checkpoint(path)
    assert sum(int(t.n_bytes) for t in theirs.tensors) == size
    assert ours.config.vocab_size == TINY.vocab
    output = LLM(path, numerics="blas").generate("hello", SamplingParams(max_tokens=3, seed=1))[0]
    assert output.num_output_tokens == 3


def test_the_command_line_takes_another_files_vocabulary(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    donor, path = tmp_path / "donor.gguf", tmp_path / "model.gguf"
    write_model(donor, TINY, "Q4_0", byte_level(TINY.vocab, num_controls=7))
    monkeypatch.setattr(
        sys, "argv", ["make_model", "tiny", "Q8_0", str(path), "--vocab", str(donor)]
    )
    make_model.main()
    donated, taken = (open_checkpoint(p).tokenizer_metadata for p in (donor, path))
    assert {k: str(v) for k, v in donated.items()} == {k: str(v) for k, v in taken.items()}


def test_what_does_not_fit_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="1000"):
        write_model(tmp_path / "a.gguf", TINY, "Q4_0", byte_level(1000))
    with pytest.raises(ValueError, match="96"):
        write_model(tmp_path / "b.gguf", replace(TINY, hidden=96), "Q4_K_M")
