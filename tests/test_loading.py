from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from firstword.config import EngineConfig
from firstword.errors import ConfigError
from firstword.kvcache.spec import kv_bytes
from firstword.loading import LoadOptions, engine_info, load_model, open_model, thread_count
from firstword.ops.reference_weight import ReferenceWeight
from firstword.quant import RawTensor
from firstword.sampling.params import SamplingParams
from firstword.trace.events import ModelLoaded
from firstword.trace.recorder import Recorder
from tests.weights.tiny_gguf import write_tiny_llama

CONFIG = EngineConfig(max_num_seqs=4, enable_panel_cache=False)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_llama(tmp_path_factory.mktemp("tiny") / "model.gguf")


def test_a_file_is_opened_without_preparing_its_weights(path: Path) -> None:
    file = open_model(path, CONFIG)
    assert file.name == str(path)
    assert file.tokenizer.vocab_size == file.checkpoint.config.vocab_size


def test_what_is_known_of_a_loaded_model_agrees_with_its_parts(path: Path) -> None:
    recorder = Recorder()
    seen: list[object] = []
    recorder.listen(seen.append)
    loaded = load_model(path, LoadOptions(CONFIG, "exact", threads=1), recorder)
    info = engine_info(loaded)
    assert info.num_blocks == loaded.engine.kv.num_blocks == loaded.pool.num_blocks
    assert info.kv_bytes_per_token == kv_bytes(loaded.kv, 1)
    assert info.max_model_len == loaded.engine.model.max_model_len
    assert (info.max_num_seqs, info.num_threads) == (4, 1)
    assert info.backend == "reference (exact)"
    event = seen[0]
    assert isinstance(event, ModelLoaded)
    assert (event.backend, event.kv_pool_bytes) == (info.backend, info.kv_pool_bytes)


@pytest.mark.parametrize("threads", [0, -1, 1025])
def test_threads_have_a_range(threads: int) -> None:
    with pytest.raises(ConfigError, match=f"threads is {threads}: give 1 to 1024"):
        thread_count(threads)


def test_threads_are_the_usable_cores_unless_given() -> None:
    assert thread_count(3) == 3
    assert thread_count(None) >= 1


def test_p07_weights_are_unpacked_before_the_first_request(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[ReferenceWeight] = []
    make = ReferenceWeight.__init__

    def noted(weight: ReferenceWeight, tensors: Sequence[RawTensor]) -> None:
        make(weight, tensors)
        made.append(weight)

    def num_unpacked() -> int:
        return sum("dense" in vars(weight) for weight in made)

    monkeypatch.setattr(ReferenceWeight, "__init__", noted)
    engine = load_model(path, LoadOptions(CONFIG, "exact", threads=1)).engine
    before = num_unpacked()
    assert before > 10
    engine.add_request("first", [1, 2, 3], SamplingParams(max_tokens=2))
    while engine.has_work:
        engine.step()
    assert num_unpacked() == before
