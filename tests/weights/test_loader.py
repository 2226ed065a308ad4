from collections.abc import Sequence
from pathlib import Path

import pytest

from firstword.config import ModelConfig
from firstword.errors import CheckpointError, UnsupportedModelError
from firstword.quant import GGMLType, RawTensor
from firstword.weights.checkpoint import Checkpoint, ShapeCheckpoint, open_checkpoint
from firstword.weights.gguf import GGUFFile
from firstword.weights.loader import Loader
from tests.weights.raw_gguf import Info, RawGGUF, text_value, u32, value
from tests.weights.test_checkpoint import HF
from tests.weights.tiny_gguf import write_tiny_llama

Loaded = tuple[str, tuple[int, ...]]


def prepare(role: str, tensors: Sequence[RawTensor]) -> Loaded:
    (tensor,) = tensors
    return role, tensor.shape


@pytest.fixture
def load(tmp_path: Path) -> Loader[Loaded]:
    return Loader(open_checkpoint(write_tiny_llama(tmp_path / "m.gguf", layers=1)), prepare)


def test_scopes_roles_and_shapes(load: Loader[Loaded]) -> None:
    attention = load.at("model").at("layers.0").at("self_attn")
    assert attention.matrix("k_proj.weight", 32, 64) == ("linear", (32, 64))
    embedding = load.matrix("model.embed_tokens.weight", 288, 64, role="embedding")
    assert embedding == ("embedding", (288, 64))
    assert load.at("model").vector("norm.weight", 64) == ("vector", (64,))
    assert attention.has("q_proj.weight") and not attention.has("q_norm.weight")


def test_optional_tensors(load: Loader[Loaded]) -> None:
    assert load.optional_matrix("lm_head.weight", 288, 64) == ("linear", (288, 64))
    assert load.optional_vector("rope_freqs.weight", 8) is None
    with pytest.raises(CheckpointError, match="expected shape"):
        load.optional_vector("model.norm.weight", 63)


def test_a_missing_tensor_is_named_with_its_shape(load: Loader[Loaded]) -> None:
    with pytest.raises(CheckpointError, match=r"'model.layers.1.w': is missing.*\[3, 1,024\]"):
        load.at("model.layers.1").matrix("w", 3, 1024)


def test_a_wrong_shape_is_named_with_both(load: Loader[Loaded]) -> None:
    with pytest.raises(CheckpointError, match=r"norm.weight'.*\[65\].*found \[64\]"):
        load.vector("model.norm.weight", 65)
    with pytest.raises(CheckpointError, match=r"lm_head.weight'.*\[64, 288\].*found \[288, 64\]"):
        load.matrix("lm_head.weight", 64, 288)


def test_finish_names_what_nobody_asked_for(load: Loader[Loaded]) -> None:
    with pytest.raises(CheckpointError, match=r"no use for 12 of .*'model.embed_tokens.weight'"):
        load.finish()


def test_finish_is_content_when_all_was_asked_for(tmp_path: Path) -> None:
    checkpoint = open_checkpoint(write_tiny_llama(tmp_path / "m.gguf", layers=1))
    load = Loader(checkpoint, prepare)
    for name, tensor in checkpoint.tensors.items():
        prefix, _, last = name.rpartition(".")
        if len(tensor.shape) == 2:
            load.at(prefix).matrix(last, *tensor.shape)
        else:
            load.at(prefix).vector(last, *tensor.shape)
    load.finish()


def checkpoint_of(folder: Path, *infos: Info) -> Checkpoint:
    whole = {
        "llama.block_count": 1,
        "llama.context_length": 8,
        "llama.embedding_length": 32,
        "llama.feed_forward_length": 32,
        "llama.attention.head_count": 1,
    }
    keys: list[tuple[str | bytes, bytes]] = [("general.architecture", text_value("llama"))]
    keys += [(key, u32(number)) for key, number in whole.items()]
    keys.append(("llama.attention.layer_norm_rms_epsilon", value(6, bytes(4))))
    embedding = Info("token_embd.weight", (32, 1), offset=1024)
    path = RawGGUF(keys, [*infos, embedding], bytes(2048)).write(folder)
    return Checkpoint(GGUFFile.open(path))


def test_a_type_that_is_not_built_is_named(tmp_path: Path) -> None:
    info = Info("output.weight", (256, 2), GGMLType.IQ2_XS)
    load = Loader(checkpoint_of(tmp_path, info), prepare)
    with pytest.raises(UnsupportedModelError, match=r"'lm_head.weight'.*IQ2_XS.*Q4_K"):
        load.matrix("lm_head.weight", 2, 256)


def test_finish_overlooks_what_follows_from_the_config(tmp_path: Path) -> None:
    load = Loader(checkpoint_of(tmp_path, Info("blk.0.attn_rot_embd.weight", (16,))), prepare)
    load.matrix("model.embed_tokens.weight", 1, 32, role="embedding")
    load.finish()


def test_shapes_alone_load_any_model() -> None:
    load = Loader(ShapeCheckpoint(ModelConfig.from_hf(HF)), prepare)
    assert load.matrix("lm_head.weight", 128256, 4096) == ("linear", (128256, 4096))
    assert load.at("model").vector("norm.weight", 4096) == ("vector", (4096,))
    assert load.optional_vector("rope_freqs.weight", 64) is None
    load.finish()
