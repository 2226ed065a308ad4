from __future__ import annotations

import json
from pathlib import Path

import pytest

from firstword.quant import GGMLType
from tests.cli.commands import Terminal
from tests.weights.tiny_gguf import write_tiny_llama

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


@pytest.fixture
def config(tmp_path: Path) -> str:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(LLAMA_8B))
    return str(path)


def test_llama_8b_as_people_know_it(terminal: Terminal, config: str) -> None:
    out = terminal.run("plan", config, "--users", "32").stdout
    assert "one token           128 KiB   131,072 bytes, x 32 layers" in out
    assert "4,096 tokens        512 MiB   536,870,912 bytes" in out
    assert "131,072 tokens       16 GiB" in out
    assert "32 users             16 GiB   17,179,869,184 bytes, 4,096 tokens each" in out
    assert "8/32 of the 512 KiB" in out


def test_json_has_the_same_numbers(terminal: Terminal, config: str) -> None:
    values = json.loads(terminal.run("plan", config, "--json").stdout)
    assert values["kv_bytes_per_token"] == 131_072
    assert values["kv_bytes_without_grouping"] == 4 * 131_072
    assert values["weight_bytes"] == 2 * values["num_parameters"] == 16_060_522_496


def test_weights_that_grow_when_they_are_loaded(
    terminal: Terminal, config: str, tmp_path: Path
) -> None:
    assert "in memory" not in terminal.run("plan", config).stdout
    path = str(write_tiny_llama(tmp_path / "grown.gguf", dtype=GGMLType.IQ4_NL))
    assert "105,728 bytes, as the compiled kernels keep them" in terminal.run("plan", path).stdout
    values = json.loads(terminal.run("plan", path, "--json").stdout)
    assert values["memory_bytes"] == 105_728
    assert values["total_bytes"] == 105_728 + values["kv_bytes_all_users"]


def test_a_folder_with_a_config_will_do(terminal: Terminal, config: str) -> None:
    assert "128 KiB" in terminal.run("plan", str(Path(config).parent)).stdout


def test_a_model_file_needs_its_headers_only(terminal: Terminal, chat_model: str) -> None:
    end = terminal.run("plan", chat_model)
    assert end.status == 0
    assert "one token" in end.stdout


@pytest.mark.parametrize(
    ("options", "status", "words"),
    [
        (("--context", "131073"), 1, "the model takes 1 to 131072 tokens"),
        (("--users", "0"), 1, "users is 0"),
        (("--kv-type", "int4"), 2, "f16, q8, bf16, f32"),
    ],
)
def test_values_out_of_range_are_named(
    terminal: Terminal, config: str, options: tuple[str, ...], status: int, words: str
) -> None:
    end = terminal.run("plan", config, *options)
    assert end.status == status
    assert words in end.stderr


def test_a_broken_config_is_named(terminal: Terminal, tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text("{")
    end = terminal.run("plan", str(path))
    assert end.status == 1
    assert "not a readable JSON file" in end.stderr
