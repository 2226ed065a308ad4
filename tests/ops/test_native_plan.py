"""Steps in the compiled module: what may interrupt them, and what they must not touch."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from firstword.batch import CopySpan, ForwardBatch, Int32Array
from firstword.errors import StepStoppedError
from firstword.models.registry import build_model
from firstword.ops.native_kv import NativeKVPool
from firstword.ops.native_plan import NativeModel, RopeTable
from firstword.ops.protocol import RopeSpec
from firstword.quant import GGMLType
from tests.float_env import FLUSH, control_word, flush_to_zero
from tests.harness import Model
from tests.logits import chunk_batch
from tests.ops.builders import same_bits
from tests.weights.tiny_gguf import write_tiny_llama

SLOW_TOKENS = 700


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Model:
    path = tmp_path_factory.mktemp("plan") / "model.gguf"
    return Model(write_tiny_llama(path, dtype=GGMLType.Q4_0), "native")


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> Model:
    """A model whose step takes about a second with the scalar kernels."""
    path = tmp_path_factory.mktemp("plan") / "slow.gguf"
    write_tiny_llama(path, hidden=256, intermediate=512, heads=16, dtype=GGMLType.Q4_0)
    return Model(path, "native", isa="generic")


def native_of(model: Model) -> NativeModel:
    assert model.native is not None
    return model.native


def whole_prompt(model: Model, num_tokens: int) -> tuple[ForwardBatch, NativeKVPool]:
    ids = [(7 * i + 3) % 250 for i in range(num_tokens)]
    batch = chunk_batch(model.spec, ids[:256], 0)
    batch = _longer(batch, ids)
    return batch, native_of(model).ops.new_kv_pool(model.spec, num_tokens // 32 + 1)


def _longer(batch: ForwardBatch, ids: list[int]) -> ForwardBatch:
    """One group's batch of all positions, with logits for the last one."""
    count = len(ids)
    positions = np.arange(count, dtype=np.int32)
    return replace(
        batch,
        token_ids=np.array(ids, np.int32),
        positions=positions,
        query_start_loc=np.array([0, count], np.int32),
        seq_lens=np.array([count], np.int32),
        block_tables=(np.arange(count // 32 + 1, dtype=np.int32)[None],),
        slot_mapping=(positions,),
        logits_indices=np.array([count - 1], np.int32),
    )


@contextmanager
def again_and_again(action: Callable[[], None]) -> Iterator[None]:
    """Call `action` from another thread every 10 ms."""
    done = threading.Event()

    def repeat() -> None:
        while not done.wait(0.01):
            action()

    thread = threading.Thread(target=repeat)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


@pytest.fixture
def heeds_ctrl_c() -> Iterator[None]:
    """SIGINT raises KeyboardInterrupt, also where the whole run was started with it ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("heeds_ctrl_c")
def test_ctrl_c_ends_a_step_and_the_next_one_is_whole(slow: Model) -> None:
    model, (batch, kv) = native_of(slow), whole_prompt(slow, SLOW_TOKENS)
    expected = model(batch, kv)
    before = model.progress
    timer = threading.Timer(0.05, lambda: os.kill(os.getpid(), signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):
        timer.start()
        while True:  # wherever the signal falls, within a step or between two
            model(batch, kv)
    timer.join()
    assert model.progress > before
    assert same_bits(model(batch, kv), expected)


def test_another_thread_can_stop_a_step(slow: Model) -> None:
    model, (batch, kv) = native_of(slow), whole_prompt(slow, SLOW_TOKENS)
    expected = model(batch, kv)
    # A stop between two steps is forgotten by the second: only one that meets a step counts.
    with (
        again_and_again(model.stop),
        pytest.raises(StepStoppedError, match="stopped before its end"),
    ):
        while True:
            model(batch, kv)
    assert same_bits(model(batch, kv), expected)


def test_plans_of_one_backend_take_turns_on_its_threads(tiny: Model) -> None:
    """Two threads of the caller, each with a plan and pages of its own."""
    ops, results = native_of(tiny).ops, list[tuple[int, bytes]]()
    batch, _ = whole_prompt(tiny, 40)
    expected = native_of(tiny)(batch, ops.new_kv_pool(tiny.spec, 2)).tobytes()
    network, size = build_model(tiny.checkpoint, ops, tiny.spec), native_of(tiny).vocab_size
    models = [NativeModel(ops, network, tiny.spec, size, fused=fused) for fused in (True, False)]

    def work(index: int) -> None:
        kv = ops.new_kv_pool(tiny.spec, 2)
        for _ in range(20):
            results.append((index, models[index](batch, kv).tobytes()))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(results) == [(0, expected)] * 20 + [(1, expected)] * 20


def test_progress_counts_the_stages(tiny: Model) -> None:
    model, (batch, kv) = native_of(tiny), whole_prompt(tiny, 20)
    before = model.progress
    model(batch, kv)
    assert model.progress == before + model.stages_per_step


def test_rows_may_be_named_in_any_order_and_twice(tiny: Model) -> None:
    model, (batch, kv) = native_of(tiny), whole_prompt(tiny, 40)
    every = model(replace(batch, logits_indices=np.arange(40, dtype=np.int32)), kv)
    wanted = np.array([39, 3, 3, 17], np.int32)
    assert same_bits(model(replace(batch, logits_indices=wanted), kv), every[wanted])
    none = model(replace(batch, logits_indices=np.zeros(0, np.int32)), kv)
    assert none.shape == (0, model.vocab_size)


def test_an_empty_step_does_nothing(tiny: Model) -> None:
    model, (batch, kv) = native_of(tiny), whole_prompt(tiny, 1)
    empty = np.zeros(0, np.int32)
    nothing = replace(
        batch,
        token_ids=empty,
        positions=empty,
        query_start_loc=np.zeros(1, np.int32),
        seq_lens=empty,
        block_tables=(np.zeros((0, 1), np.int32),),
        slot_mapping=(empty,),
        logits_indices=empty,
    )
    assert model(nothing, kv).shape == (0, model.vocab_size)


def test_block_copies_run_first_and_in_order(tiny: Model) -> None:
    model, (batch, kv) = native_of(tiny), whole_prompt(tiny, 40)
    alone = model(batch, kv)
    kv = model.ops.new_kv_pool(tiny.spec, 8)
    first = _longer(batch, batch.token_ids[:32].tolist())
    model(first, kv)
    rest = replace(
        batch,
        token_ids=batch.token_ids[32:],
        positions=batch.positions[32:],
        query_start_loc=np.array([0, 8], np.int32),
        block_tables=(np.array([[5, 6]], np.int32),),
        slot_mapping=((6 * 32 + np.arange(8)).astype(np.int32),),
        logits_indices=np.array([7], np.int32),
        block_copies=(CopySpan(0, 4, 32), CopySpan(4, 5, 32)),
    )
    assert same_bits(model(rest, kv), alone)


def ints(*values: int) -> Int32Array:
    return np.array(values, np.int32)


def table(block: int) -> tuple[Int32Array]:
    return (np.array([[block]], np.int32),)


WRONG: list[tuple[str, Callable[[ForwardBatch], ForwardBatch]]] = [
    ("token_ids", lambda b: replace(b, token_ids=ints(9999))),
    ("positions", lambda b: replace(b, positions=ints(-1))),
    ("slot_mapping", lambda b: replace(b, slot_mapping=(ints(10**6),))),
    ("block_tables", lambda b: replace(b, block_tables=table(-1))),
    ("block_tables", lambda b: replace(b, block_tables=table(99))),
    ("logits_rows", lambda b: replace(b, logits_indices=ints(1))),
    ("query_start_loc", lambda b: replace(b, query_start_loc=ints(0, 2))),
    ("query_start_loc", lambda b: replace(b, query_start_loc=ints(1, 1))),
    ("query_start_loc", lambda b: replace(b, query_start_loc=ints(0))),
    ("seq_lens", lambda b: replace(b, seq_lens=ints(-1))),
    ("block_copies", lambda b: replace(b, block_copies=(CopySpan(0, 99, 1),))),
]


@pytest.mark.parametrize(("what", "damage"), WRONG)
def test_numbers_that_lead_outside_an_array_are_refused(
    tiny: Model, what: str, damage: Callable[[ForwardBatch], ForwardBatch]
) -> None:
    model, (batch, kv) = native_of(tiny), whole_prompt(tiny, 1)
    with pytest.raises(ValueError, match=what):
        model(damage(batch), kv)


def test_the_floating_point_environment_is_set_for_all_and_given_back(tiny: Model) -> None:
    """Another library may have set flush-to-zero in the caller's thread."""
    model, (batch, kv) = native_of(tiny), whole_prompt(tiny, 40)
    expected = model(batch, kv)
    with flush_to_zero():
        assert same_bits(model(batch, kv), expected)
        assert control_word() & FLUSH == FLUSH


def test_idle_threads_use_no_processor(tiny: Model) -> None:
    model, (batch, kv) = native_of(tiny), whole_prompt(tiny, 40)
    model(batch, kv)
    before = time.process_time()
    time.sleep(0.3)
    assert time.process_time() - before < 0.05


def test_scratch_grows_with_the_step_and_can_be_reserved(tmp_path: Path) -> None:
    model = native_of(Model(write_tiny_llama(tmp_path / "m.gguf"), "native"))
    assert model.scratch_bytes == 0
    model.reserve(100, 4)
    reserved = model.scratch_bytes
    assert reserved > 100 * 64 * 4
    model.reserve(50, 2)
    assert model.scratch_bytes == reserved


def test_rope_tables_grow_and_keep_their_bits() -> None:
    spec = RopeSpec((1.0, 0.1, 0.01), attention_factor=1.25)
    table = RopeTable(spec)
    cos, sin = (part.copy() for part in table.up_to(10))
    longer_cos, longer_sin = table.up_to(2000)
    assert len(longer_cos) > 2000
    assert same_bits(longer_cos[: len(cos)], cos)
    assert same_bits(longer_sin[: len(sin)], sin)
    angle = np.float64(np.float32(1999) * np.float32(0.1))
    assert longer_cos[1999, 1] == np.float32(np.cos(angle)) * np.float32(1.25)
    assert longer_sin[0].tolist() == [0, 0, 0]
