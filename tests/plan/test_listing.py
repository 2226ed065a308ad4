from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firstword.config import ModelConfig
from firstword.errors import ConfigError
from firstword.ops.cost import Cost
from firstword.plan.listing import Listing, find_repeats, list_plan
from firstword.quant import GGMLType
from firstword.weights.checkpoint import ShapeCheckpoint, open_checkpoint
from tests.weights.tiny_gguf import write_tiny_gemma3, write_tiny_llama

LLAMA_8B = {
    "model_type": "llama",
    "vocab_size": 128256,
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "max_position_embeddings": 131072,
    "rms_norm_eps": 1e-5,
    "torch_dtype": "bfloat16",
}


@pytest.fixture(scope="module")
def large() -> Listing:
    return list_plan(ShapeCheckpoint(ModelConfig.from_hf(LLAMA_8B)), 512)


def test_layers_that_are_alike_are_shown_once(large: Listing) -> None:
    first, repeated, last = large.blocks
    assert (first.times, repeated.times, last.times) == (1, 31, 1)
    assert first.layers == ()
    assert repeated.layers == tuple(range(31))
    assert last.layers == (31,)
    assert large.num_stages == len(first.stages) + 31 * len(repeated.stages) + len(last.stages)


def test_p09_lines_say_kernel_shape_and_type(large: Listing) -> None:
    ops = [op for stage in large.blocks[1].stages for op in stage.ops]
    words = [(op.kernel, op.shape, op.weight_type) for op in ops]
    assert words[:3] == [
        ("linear", "4096 -> 4096", "BF16"),
        ("linear", "4096 -> 1024", "BF16"),
        ("linear", "4096 -> 1024", "BF16"),
    ]
    assert ("rope", "8 heads x 128", None) in words
    assert ("store_kv", "2 x 8 heads x 128", None) in words
    assert ("attention", "32/8 heads x 128", None) in words
    assert ("silu_mul", "14336", None) in words
    assert ("rms_norm", "4096", "F32") in words


def test_costs_of_a_linear_are_those_of_each_weight(large: Listing) -> None:
    q, k, _ = large.blocks[1].stages[0].ops
    assert [cost.flops for cost in q.costs] == [2 * 4096 * 4096, 512 * 2 * 4096 * 4096]
    assert q.costs[0].weight_bytes == 4 * k.costs[0].weight_bytes == 2 * 4096 * 4096


def test_totals_are_the_sum_of_what_is_shown(large: Listing) -> None:
    for step, total in enumerate(large.totals):
        shown = Cost()
        for block in large.blocks:
            for _ in range(block.times):
                for stage in block.stages:
                    shown = sum((op.costs[step] for op in stage.ops), shown)
        assert shown == total


def test_a_decode_step_reads_all_weights_but_the_embeddings(large: Listing) -> None:
    weights = 2 * (8_030_261_248 - 128_256 * 4096) + 2 * 4096
    assert large.totals[0].weight_bytes == weights
    assert large.totals[0].kv_bytes_written == 131_072


def test_windows_and_head_norms(tmp_path: Path) -> None:
    path = write_tiny_gemma3(tmp_path / "m.gguf", dtype=GGMLType.Q8_0)
    listing = list_plan(open_checkpoint(path))
    ops = [op for block in listing.blocks for stage in block.stages for op in stage.ops]
    assert {op.shape.endswith(", last 48") for op in ops if op.kernel == "attention"} == {
        True,
        False,
    }
    assert {"gelu_mul", "quantize_a32", "take"} <= {op.kernel for op in ops}
    assert any("heads x" in op.shape for op in ops if op.kernel == "rms_norm")
    assert listing.steps == ("1 token after 0",)


def test_no_data_of_a_weight_is_read(tmp_path: Path) -> None:
    """Large matrices of a file that has been cut short behind its headers."""
    whole = write_tiny_llama(tmp_path / "whole.gguf", dtype=GGMLType.Q8_0)
    checkpoint = open_checkpoint(whole)
    for tensor in checkpoint.tensors.values():
        if len(tensor.shape) > 1:
            object.__setattr__(tensor, "data", None)
    assert list_plan(checkpoint).totals[0].weight_bytes > 0


@pytest.mark.parametrize("num_tokens", [0, 513])
def test_a_prompt_of_impossible_length_is_refused(tmp_path: Path, num_tokens: int) -> None:
    checkpoint = open_checkpoint(write_tiny_llama(tmp_path / "m.gguf"))
    with pytest.raises(ConfigError, match=f"tokens is {num_tokens}: the model takes 1 to 512"):
        list_plan(checkpoint, num_tokens)


@pytest.mark.parametrize(
    ("items", "runs"),
    [
        ("", []),
        ("abc", [(3, 1)]),
        ("xababab", [(1, 1), (2, 3)]),
        ("aaabaaab", [(4, 2)]),
        ("aaaaaabaaaaaab", [(1, 6), (1, 1), (1, 6), (1, 1)]),
    ],
)
def test_repeats(items: str, runs: list[tuple[int, int]]) -> None:
    assert find_repeats(items) == runs


@given(st.lists(st.sampled_from("ab"), max_size=24))
def test_runs_make_the_sequence_again(items: list[str]) -> None:
    again: list[str] = []
    for length, times in find_repeats(items):
        again += items[len(again) : len(again) + length] * times
    assert again == items
