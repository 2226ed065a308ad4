from __future__ import annotations

import importlib.util
import json
import re

import pytest

from firstword.cli.inspect_plan import render
from firstword.config import ModelConfig
from firstword.plan.listing import list_plan
from firstword.weights.checkpoint import ShapeCheckpoint
from tests.cli.commands import Terminal

LARGE = {
    "model_type": "llama",
    "vocab_size": 262144,
    "hidden_size": 16384,
    "intermediate_size": 53248,
    "num_hidden_layers": 126,
    "num_attention_heads": 128,
    "num_key_value_heads": 16,
    "max_position_embeddings": 131072,
    "rms_norm_eps": 1e-5,
    "torch_dtype": "bfloat16",
}


def test_the_plan_of_a_file(terminal: Terminal, chat_model: str) -> None:
    end = terminal.run("inspect", chat_model, "--plan", "--tokens", "40")
    assert end.status == 0
    lines = end.stdout.splitlines()
    assert re.match(
        rf"{re.escape(chat_model)}: \d+ stages in one native call, \w+ kernels", lines[0]
    )
    assert any("1 token after 0" in line and "prompt of 40" in line for line in lines)
    assert any(re.match(r"- linear +64 -> 64 F32 +8.19 k +16.4 k +328 k +16.4 k", x) for x in lines)
    assert re.match(r"  in all( +\S+ [kM]){4}$", lines[-1])
    assert "\x1b" not in end.stdout


def test_json_has_the_same_plan(terminal: Terminal, chat_model: str) -> None:
    plan = json.loads(terminal.run("inspect", chat_model, "--plan", "--json").stdout)
    assert plan["model"] == chat_model
    assert plan["steps"] == ["1 token after 0"]
    stages = sum(block["times"] * len(block["stages"]) for block in plan["blocks"])
    assert plan["num_stages"] == stages
    linear = plan["blocks"][0]["stages"][1]["ops"][0]
    assert (linear["kernel"], linear["weight_type"]) == ("linear", "F32")
    assert linear["costs"][0]["flops"] == 2 * 64 * 64


def test_the_largest_models_fit_80_columns() -> None:
    listing = list_plan(ShapeCheckpoint(ModelConfig.from_hf(LARGE)), 131072)
    lines = list(render(listing, "large", "generic"))
    assert max(map(len, lines)) <= 80
    assert any(line.startswith("125 times, attention of layers 0 to 124") for line in lines)


def test_a_length_without_plan_is_a_usage_error(terminal: Terminal, chat_model: str) -> None:
    for option in (("--tokens", "40"), ("--kv-type", "q8")):
        end = terminal.run("inspect", chat_model, *option)
        assert end.status == 2
        assert "--plan" in end.stderr and option[0] in end.stderr


def test_keys_and_values_are_counted_in_the_type_that_is_asked_for(
    terminal: Terminal, chat_model: str
) -> None:
    def kv_bytes(*options: str) -> int:
        plan = json.loads(terminal.run("inspect", chat_model, "--plan", "--json", *options).stdout)
        total = plan["totals"][0]
        return int(total["kv_bytes_read"]) + int(total["kv_bytes_written"])

    assert 2 * kv_bytes("--kv-type", "q8") > kv_bytes() > kv_bytes("--kv-type", "q8")
    assert terminal.run("inspect", chat_model, "--plan", "--kv-type", "q9").status == 2


def test_without_compiled_kernels_there_is_no_plan(
    terminal: Terminal, chat_model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    end = terminal.run("inspect", chat_model, "--plan")
    assert end.status == 1
    assert "no compiled kernels" in end.stderr and "C++ compiler" in end.stderr
