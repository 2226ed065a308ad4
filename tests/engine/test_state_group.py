"""A recurrent layer through the real engine: its state is kept, copied, shared and given back.

No model of the product has one yet. The network here has a full-attention group, whose "keys" are
the tokens, and a state group of two layers, which keep a running sum and a digest of the tokens;
its logits depend on all of them. Blocks have 4 tokens, checkpoints are 8 apart.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from firstword.batch import Float32Array, ForwardBatch, SamplingRow
from firstword.config import EngineConfig
from firstword.engine.engine import Engine
from firstword.engine.model import EngineModel
from firstword.engine.outputs import SequenceOutput
from firstword.engine.runner import ReferenceRunner
from firstword.kvcache.spec import KVCacheSpec, KVGroup
from firstword.kvcache.storage import PagedStorage
from firstword.models.registry import Model
from firstword.sampling.params import SamplingParams
from firstword.sampling.sampler import sample_row
from tests.harness import finish

VOCAB, CONTEXT, INTERVAL = 50, 120, 8
STATE = np.dtype([("sum", "<f8"), ("digest", "<u8")])
SPEC = KVCacheSpec(
    (
        KVGroup("full", "full", (0,), 1, 2, "float32", "float32"),
        KVGroup("state", "state", (1, 2), state_bytes=16, checkpoint_interval=INTERVAL),
    ),
    block_size=4,
)
PROMPT = [(7 * i * i + 3 * i + 11) % VOCAB for i in range(29)]
PARAMS = SamplingParams(temperature=2.0, seed=6, max_tokens=25)


Network = Model[Float32Array]


def moved_on(state: tuple[float, int], token: int, layer: int) -> tuple[float, int]:
    """The state of a layer after one more token."""
    digest = (state[1] * 6364136223846793005 + (layer + 1) * (token + 1)) % 2**64
    return 0.75 * state[0] + (layer + 1) * token, digest


def logits_of(history: Iterable[float], states: Iterable[tuple[float, int]]) -> Float32Array:
    x = math.fsum(history) + sum(s + digest % 1009 for s, digest in states)
    logits: Float32Array = (3 * np.cos(x * np.arange(1, VOCAB + 1))).astype(np.float32)
    return logits


def network(batch: ForwardBatch, kv: Any) -> Float32Array:
    """Logits [R, V], with everything but the batch's own tokens from the pool."""
    for span in batch.block_copies:
        kv.copy(span)
    keys = kv.keys(0).values[:, 0, 0, :, 0]  # [num_blocks, block_size]
    states = kv.state(1).view(STATE)[..., 0]  # [num_blocks, 2]
    rows: dict[int, Float32Array] = {}
    for i in range(batch.num_seqs):
        span_rows = batch.rows_of(i)
        start = int(batch.positions[span_rows.start])
        slots = batch.slot_mapping[0][span_rows]
        keys[slots // 4, slots % 4] = batch.token_ids[span_rows]
        at = states[batch.block_tables[1][i, 0]]
        if start == 0:
            at[:] = np.zeros(2, STATE)  # whatever the block held
        for token in batch.token_ids[span_rows].tolist():
            for layer in (0, 1):
                at[layer] = moved_on(at[layer].item(), token, layer)
        blocks = batch.block_tables[0][i]
        seen = np.concatenate([keys[b] for b in blocks if b >= 0])[: batch.seq_lens[i]]
        rows[span_rows.stop - 1] = logits_of(seen.tolist(), at.tolist())
    wanted = [rows[int(index)] for index in batch.logits_indices]
    return np.array(wanted, np.float32).reshape(-1, VOCAB)


def direct(prompt: list[int], params: SamplingParams, index: int = 0) -> list[int]:
    """The same tokens without an engine: everything anew for each."""
    tokens = list(prompt)
    assert params.max_tokens is not None
    assert params.seed is not None
    for _ in range(params.max_tokens):
        states = []
        for layer in (0, 1):
            state = (0.0, 0)
            for token in tokens:
                state = moved_on(state, token, layer)
            states.append(state)
        row = SamplingRow(
            temperature=params.temperature,
            seed=params.seed,
            position=len(tokens),
            sample_index=index,
        )
        tokens.append(sample_row(logits_of(tokens, states), row).token_id)
    return tokens[len(prompt) :]


def engine(num_blocks: int = 100, run: Network = network, **config: int) -> Engine:
    pool = PagedStorage(SPEC, num_blocks)
    pool.state(1)[:] = 0xA5  # nobody may rely on zeros
    about = EngineModel(VOCAB, CONTEXT, frozenset(), "state", SPEC, num_blocks)
    settings = replace(EngineConfig(debug=True), **config)  # type: ignore[arg-type]
    return Engine(ReferenceRunner(run, pool), about, settings)


def add(it: Engine, name: str, prompt: list[int], params: SamplingParams = PARAMS) -> None:
    it.add_request(name, prompt, params)


@pytest.mark.parametrize("chunk", [1, 3, 7, 8, 512])
def test_chunks(chunk: int) -> None:
    it = engine(max_num_batched_tokens=chunk)
    add(it, "it", PROMPT)
    assert finish(it)["it", 0] == direct(PROMPT, PARAMS)
    assert it.kv.num_free_blocks == 100


def test_without_any_cache() -> None:
    for it in (engine(enable_kv_cache=False), engine(enable_prefix_caching=False)):
        add(it, "it", PROMPT)
        assert finish(it)["it", 0] == direct(PROMPT, PARAMS)


@pytest.mark.parametrize(
    ("common", "cached"), [(7, 0), (8, 8), (15, 8), (20, 16), (24, 24), (29, 24)]
)
def test_a_prefix_is_taken_up_at_a_checkpoint(common: int, cached: int) -> None:
    it = engine()
    add(it, "first", PROMPT)
    finish(it)
    prompt = [*PROMPT[:common], *((t + 1) % VOCAB for t in PROMPT[common:])]
    add(it, "it", prompt)
    assert finish(it)["it", 0] == direct(prompt, PARAMS)
    assert it.release("it").num_cached_tokens == cached


def test_a_next_turn_goes_on_from_what_was_answered() -> None:
    it = engine()
    add(it, "first", PROMPT)
    answer = finish(it)["first", 0]
    longer = [*PROMPT, *answer, 1, 2, 3]
    add(it, "it", longer)
    assert finish(it)["it", 0] == direct(longer, PARAMS)
    assert it.release("it").num_cached_tokens == 48  # of 53 computed before


def test_a_checkpoint_is_not_written_by_those_who_start_from_it() -> None:
    it = engine()
    add(it, "first", PROMPT)
    finish(it)
    prompts = {f"r{i}": [*PROMPT[:17], i, i + 1] for i in range(4)}
    for name, prompt in prompts.items():
        add(it, name, prompt)
    tokens = finish(it)
    assert {name: tokens[name, 0] for name in prompts} == {
        name: direct(prompt, PARAMS) for name, prompt in prompts.items()
    }
    add(it, "again", PROMPT)
    assert finish(it)["again", 0] == direct(PROMPT, PARAMS)
    assert it.release("again").num_cached_tokens == 24


@pytest.mark.parametrize("length", [8, 24, 27, 29])
@pytest.mark.parametrize("seats", [64, 2])
def test_samples_fork_the_state(length: int, seats: int) -> None:
    it = engine(max_num_seqs=seats)
    params = replace(PARAMS, n=4)
    add(it, "it", PROMPT[:length], params)
    tokens = finish(it)
    expected = {("it", i): direct(PROMPT[:length], params, i) for i in range(4)}
    assert tokens == expected
    assert len({tuple(t) for t in tokens.values()}) == 4


def test_preempted_and_resumed() -> None:
    """Pools too small for two: the younger gives its blocks up, state and all."""
    preempted = 0
    needed = SPEC.blocks_per_sequence(len(PROMPT) + 25, len(PROMPT) + 25)
    for num_blocks in range(needed, needed + 12, 2):
        it = engine(num_blocks)
        other = PROMPT[::-1]
        add(it, "older", other)
        add(it, "it", PROMPT, replace(PARAMS, n=2))
        tokens = finish(it)
        assert tokens["older", 0] == direct(other, PARAMS)
        assert [tokens["it", i] for i in (0, 1)] == [direct(PROMPT, PARAMS, i) for i in (0, 1)]
        assert it.kv.num_free_blocks == num_blocks
        preempted += it.release("it").num_preemptions
    assert preempted


def test_mixed_with_others() -> None:
    it = engine(max_num_batched_tokens=9)
    prompts = {f"r{i}": PROMPT[i : i + 3 * i + 1] for i in range(7)}
    outputs = []
    for name, prompt in prompts.items():
        add(it, name, prompt)
        outputs += it.step()
    while it.has_work:
        outputs += it.step()
    for name, prompt in prompts.items():
        tokens = [o.token_id for o in outputs if o.request_id == name]
        assert tokens == direct(prompt, PARAMS), name


@pytest.mark.parametrize("at", [1, 3, 5, 12])
def test_interrupted_while_the_state_is_half_moved_on(at: int) -> None:
    calls = 0

    def interrupted(batch: ForwardBatch, kv: Any) -> Float32Array:
        nonlocal calls
        calls += 1
        logits = network(batch, kv)
        if calls == at:
            raise KeyboardInterrupt
        return logits

    it = engine(run=interrupted, max_num_batched_tokens=10)
    add(it, "it", PROMPT, replace(PARAMS, n=2))
    outputs: list[SequenceOutput] = []
    with pytest.raises(KeyboardInterrupt):
        while it.has_work:
            outputs += it.step()
    while it.has_work:
        outputs += it.step()
    for i in (0, 1):
        tokens = [o.token_id for o in outputs if o.sample_index == i]
        assert tokens == direct(PROMPT, PARAMS, i)


def test_what_is_under_test_depends_on_every_token() -> None:
    """One token changed anywhere changes the logits: a wrong state cannot go unnoticed."""

    def logits(tokens: list[int]) -> NDArray[np.float32]:
        states = [(0.0, 0), (0.0, 0)]
        for token in tokens:
            states = [moved_on(state, token, layer) for layer, state in enumerate(states)]
        return logits_of(tokens, states)

    for i in range(len(PROMPT)):
        changed = [*PROMPT[:i], (PROMPT[i] + 1) % VOCAB, *PROMPT[i + 1 :]]
        assert not np.array_equal(logits(changed), logits(PROMPT))
