from __future__ import annotations

from pathlib import Path

from benchmarks.make_model import SHAPES, write_model
from firstword import LLM
from firstword.bench.cases import Case
from firstword.bench.limits import WorkCounter
from firstword.kvcache.spec import kv_bytes
from firstword.models.registry import model_kv_spec
from firstword.weights.checkpoint import open_checkpoint


def test_a_decode_step_reads_the_weights_once_and_all_keys_and_values(llm: LLM) -> None:
    counter = WorkCounter(llm.checkpoint, llm.kv_spec)
    near, far = (counter.decode_step(Case("decode", 2, depth)) for depth in (32, 64))
    assert far.num_bytes - near.num_bytes == kv_bytes(llm.kv_spec, 32)
    assert far.linear_macs == near.linear_macs
    together = counter.decode_step(Case("decode", 2, 64, batch=3))
    assert together.num_bytes < 3 * far.num_bytes
    assert together.linear_macs == 3 * far.linear_macs


def test_a_prefill_behind_a_prefix_attends_to_more(llm: LLM) -> None:
    counter = WorkCounter(llm.checkpoint, llm.kv_spec)
    first, second = (counter.prefill(Case("prefill", 32, depth)) for depth in (0, 64))
    assert first.linear_macs == second.linear_macs
    assert second.attention_macs > first.attention_macs
    assert second.macs == second.linear_macs + second.attention_macs


def test_narrow_weights_are_counted_by_their_type(llm: LLM, tmp_path: Path) -> None:
    case = Case("decode", 2, 32)
    assert WorkCounter(llm.checkpoint, llm.kv_spec).decode_step(case).narrow_macs == 0
    path = tmp_path / "narrow.gguf"
    write_model(path, SHAPES["tiny"], "Q4_0")
    checkpoint = open_checkpoint(path)
    counter = WorkCounter(checkpoint, model_kv_spec(checkpoint.config, "float16"))
    one, three = counter.decode_step(case), counter.decode_step(Case("decode", 2, 32, batch=3))
    wide = SHAPES["tiny"].vocab * SHAPES["tiny"].hidden  # the output matrix has 6 bits
    assert one.linear_macs - one.narrow_macs == wide
    assert three.narrow_macs == 3 * one.narrow_macs
    assert counter.weight_bytes > 0
