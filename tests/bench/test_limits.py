from __future__ import annotations

from firstword import LLM
from firstword.bench.cases import Case
from firstword.bench.limits import WorkCounter
from firstword.kvcache.spec import kv_bytes


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
