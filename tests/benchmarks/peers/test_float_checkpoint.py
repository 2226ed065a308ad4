from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from benchmarks.make_model import SHAPES, write_model
from benchmarks.peers.float_checkpoint import rotary_halves, write_float_checkpoint
from firstword.quant import dequantize
from firstword.weights.checkpoint import open_checkpoint


def test_the_checkpoint_holds_the_files_values_under_the_familys_names(tmp_path: Path) -> None:
    model, folder = tmp_path / "tiny.gguf", tmp_path / "floats"
    write_model(model, SHAPES["tiny"], "Q4_0")
    write_float_checkpoint(model, folder)
    config = json.loads((folder / "config.json").read_text())
    assert config["architectures"] == ["LlamaForCausalLM"] and config["model_type"] == "llama"
    assert config["hidden_size"] == 256 and "rope_interleaved" not in config

    content = (folder / "model.safetensors").read_bytes()
    start = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:start])
    name = "model.layers.1.mlp.down_proj.weight"
    begin, end = header[name]["data_offsets"]
    values = np.frombuffer(content[start + begin : start + end], np.float16)
    source = open_checkpoint(model).tensors[name]
    expected = dequantize(source).astype(np.float16)
    assert header[name]["shape"] == list(expected.shape)
    np.testing.assert_array_equal(values.reshape(expected.shape), expected)
    assert max(entry["data_offsets"][1] for entry in header.values()) == len(content) - start


def test_rotary_pairs_become_halves_of_a_head() -> None:
    rows = np.arange(8, dtype=np.float32)[:, None]  # two heads of 4
    assert rotary_halves(rows, 4)[:, 0].tolist() == [0, 2, 1, 3, 4, 6, 5, 7]
