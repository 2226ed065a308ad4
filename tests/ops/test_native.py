"""The compiled backend on whole tiny models, against the int8 oracle and against itself."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from firstword.batch import Float32Array, ForwardBatch
from firstword.errors import ConfigError, UnsupportedModelError
from firstword.kvcache.spec import KVCacheSpec, KVGroup
from firstword.models.registry import build_model
from firstword.ops.cost import planned_batch
from firstword.ops.native import (
    NativeOps,
    activation_run,
    built_isas,
    panel_sizes,
    usable_isas,
)
from firstword.ops.native_plan import NativeModel
from firstword.ops.passes import make_plan
from firstword.ops.record import Symbol
from firstword.ops.reference import ReferenceOps
from firstword.ops.weight_types import memory_bytes
from firstword.quant import DEQUANTIZABLE, GGMLType, RawTensor
from tests.harness import Model
from tests.logits import chunk_batch, chunks_of_logits
from tests.ops.builders import attention_spec, float_tensor, normal, random_tensor, same_bits
from tests.weights.tiny_gguf import TinyOptions, write_tiny_gemma3, write_tiny_llama

NUM_TOKENS = 75
IDS = [(7 * i * i + 3 * i + 11) % 250 for i in range(NUM_TOKENS)]
WIDE: TinyOptions = {"hidden": 256, "intermediate": 512, "heads": 4, "kv_heads": 2}

FILES: dict[str, tuple[str, TinyOptions]] = {
    "llama F32": ("llama", {"dtype": GGMLType.F32}),
    "llama BF16": ("llama", {"dtype": GGMLType.BF16}),
    "llama Q4_0": ("llama", {"dtype": GGMLType.Q4_0}),
    "llama Q8_0": ("llama", {"dtype": GGMLType.Q8_0}),
    "llama MXFP4": ("llama", {"dtype": GGMLType.MXFP4}),
    "llama Q2_K": ("llama", {"dtype": GGMLType.Q2_K, **WIDE}),
    "llama Q3_K": ("llama", {"dtype": GGMLType.Q3_K, **WIDE}),
    "llama IQ4_XS": ("llama", {"dtype": GGMLType.IQ4_XS, **WIDE}),
    "llama Q4_K": ("llama", {"dtype": GGMLType.Q4_K, **WIDE}),
    "llama Q5_K": ("llama", {"dtype": GGMLType.Q5_K, **WIDE}),
    "qwen2 Q4_1": ("llama", {"dtype": GGMLType.Q4_1, "architecture": "qwen2"}),
    "qwen3 Q6_K": ("llama", {"dtype": GGMLType.Q6_K, "architecture": "qwen3", **WIDE}),
    "gemma3 Q5_0": ("gemma3", {"dtype": GGMLType.Q5_0}),
    "gemma3 Q5_1": ("gemma3", {"dtype": GGMLType.Q5_1}),
    "gemma3 IQ4_NL": ("gemma3", {"dtype": GGMLType.IQ4_NL}),
    "gemma3 F16": ("gemma3", {"dtype": GGMLType.F16}),
}


@pytest.fixture(scope="module", params=FILES)
def path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    family, options = FILES[request.param]
    write = write_tiny_llama if family == "llama" else write_tiny_gemma3
    return write(tmp_path_factory.mktemp("native") / "model.gguf", **options)


def logits_of(model: Model) -> Float32Array:
    return np.concatenate(list(chunks_of_logits(model, IDS)))


@pytest.fixture(scope="module")
def logits(path: Path) -> Float32Array:
    return logits_of(Model(path, "native", threads=1))


def test_logits_are_those_of_the_int8_oracle(path: Path, logits: Float32Array) -> None:
    """Norms, activations and attention round in another order than the oracle's float64.

    Where such a last bit moves an activation over the border between two 8-bit codes, the rows
    from there on differ by a code's worth. Those before it show that nothing else does.
    """
    oracle = logits_of(Model(path, "int8"))
    difference = np.abs(logits - oracle).max(axis=1) / np.abs(oracle).max()  # [T]
    assert difference[:8].max() < 1e-4
    assert difference.max() < 3e-2


def test_every_instruction_set_and_number_of_threads_gives_the_same_bits(
    path: Path, logits: Float32Array
) -> None:
    for isa, threads in ((isa, 1 + i) for i, isa in enumerate(usable_isas())):
        assert same_bits(logits_of(Model(path, "native", threads=threads, isa=isa)), logits)


def test_chunks_of_any_size_give_the_same_bits(path: Path, logits: Float32Array) -> None:
    model = Model(path, "native")
    for cuts in ([1, 2, 40], [31, 32, 33], range(60, 75)):
        kv = model.ops.new_kv_pool(model.spec, 3 * len(model.spec.groups))
        parts = []
        for start, stop in zip([0, *cuts], [*cuts, NUM_TOKENS], strict=True):
            batch = chunk_batch(model.spec, IDS[:stop], start)
            tables = chunk_batch(model.spec, IDS, 0).block_tables
            slots = tuple(
                table[0, batch.positions // 32] * 32 + batch.positions % 32 for table in tables
            )
            batch = replace(batch, block_tables=tables, slot_mapping=slots)
            parts.append(model.network(batch, kv))
        assert same_bits(np.concatenate(parts), logits)


def test_recordings_do_not_depend_on_the_batch(path: Path) -> None:
    model = Model(path, "native")
    ops = model.ops
    assert isinstance(ops, NativeOps)
    network = build_model(model.checkpoint, ops, model.spec)
    groups = len(model.spec.groups)
    one = ops.record(network, planned_batch([(0, 1)], groups))
    many = ops.record(network, planned_batch([(0, 100), (5, 9)], groups))
    assert one == many
    assert make_plan(one, activation_run) == make_plan(many, activation_run)


class OneLinear:
    """A network of one linear: its input is a table of float32 rows.

    Args:
        ops: what it is made of.
        x: [T, K] the table.
        tensor: [N, K] the weight.
    """

    def __init__(self, ops: NativeOps, x: Float32Array, tensor: RawTensor) -> None:
        self._ops = ops
        self._table = ops.prepare("embedding", [float_tensor(x)])
        self._weight = ops.prepare("linear", [tensor])

    def __call__(self, batch: ForwardBatch, kv: object) -> Symbol:
        self._ops.begin_step(batch, kv)
        return self._ops.linear(self._ops.embedding(self._table, batch), self._weight)


@pytest.mark.parametrize("ggml_type", sorted(DEQUANTIZABLE))
@pytest.mark.parametrize("num_rows", [1, 7])
def test_every_linear_is_that_of_the_int8_oracle(ggml_type: GGMLType, num_rows: int) -> None:
    """Through the whole backend: a relative error of 1e-5 is allowed, and there is none."""
    tensor, x = random_tensor(ggml_type, (70, 512)), normal(3, num_rows, 512)
    ops, oracle = NativeOps(2), ReferenceOps("int8")
    spec = KVCacheSpec((KVGroup("full", "full", (0,), 1, 16, "float16", "float16"),))
    model = NativeModel(ops, OneLinear(ops, x, tensor), spec, 70)
    rows = np.arange(num_rows, dtype=np.int32)
    batch = replace(
        planned_batch([(0, num_rows)], 1),
        token_ids=rows,
        logits_indices=rows,
        block_tables=(np.zeros((1, 1), np.int32),),
    )
    ours = model(batch, ops.new_kv_pool(spec, 1))
    theirs = oracle.linear(x, oracle.prepare("linear", [tensor]))
    assert np.abs(ours - theirs).max() <= 1e-5 * np.abs(theirs).max()
    assert same_bits(ours, theirs)


def test_the_files_have_every_type_that_is_built() -> None:
    assert {options["dtype"] for _, options in FILES.values()} == set(DEQUANTIZABLE)


@pytest.mark.parametrize("ggml_type", sorted(DEQUANTIZABLE))
def test_every_type_that_is_built_has_panels_of_the_size_foretold(ggml_type: GGMLType) -> None:
    tensor = random_tensor(ggml_type, (64, 512))
    ops = NativeOps()
    ops.prepare("linear", [tensor])
    assert ops.weights.nbytes == memory_bytes(tensor)


def unbuilt() -> RawTensor:
    return RawTensor("w", (4, 256), GGMLType.IQ2_XS, np.zeros(4 * 74, np.uint8))


def test_a_type_that_is_not_built_is_refused_with_a_way_out() -> None:
    with pytest.raises(UnsupportedModelError, match=r"type IQ2_XS is not built: choose.*Q4_K"):
        NativeOps().prepare("linear", [unbuilt()])


def test_tensors_of_one_type_are_stacked_and_others_refused() -> None:
    ops = NativeOps()
    a, b = (random_tensor(GGMLType.Q4_0, (n, 64), seed=n) for n in (3, 5))
    assert ops.prepare("linear", [a, b]).shape == (8, 64)
    with pytest.raises(UnsupportedModelError, match="several types"):
        ops.prepare("linear", [a, random_tensor(GGMLType.Q8_0, (3, 64))])


def test_weights_say_in_which_runs_they_want_their_input() -> None:
    ops = NativeOps()
    runs = {GGMLType.F16: 0, GGMLType.Q4_0: 32, GGMLType.Q8_0: 32, GGMLType.Q6_K: 256}
    for ggml_type, run in runs.items():
        assert activation_run(ops.prepare("linear", [random_tensor(ggml_type, (4, 256))])) == run
    assert ops.weights.nbytes > 0


class OneMatrix:
    """A store for the panels of one matrix.

    Args:
        tensor: the matrix.
        memory: room for its panels.
    """

    def __init__(self, tensor: RawTensor, memory: NDArray[np.uint8]) -> None:
        self.name, self.memory, self.is_blank = tensor.name, memory, True

    def blank(self, name: str) -> NDArray[np.uint8] | None:
        return self.memory if self.is_blank and name == self.name else None

    def panels(self, name: str) -> NDArray[np.uint8] | None:
        return self.memory if name == self.name else None


def aligned(num_bytes: int) -> NDArray[np.uint8]:
    memory = np.full(num_bytes + 64, 99, np.uint8)
    start = -memory.ctypes.data % 64
    return memory[start : start + num_bytes]


def test_kept_panels_are_written_once_and_used_from_where_they_are() -> None:
    kept = random_tensor(GGMLType.Q4_0, (40, 64), seed=1)
    other = replace(random_tensor(GGMLType.Q4_0, (40, 64), seed=2), name="other")
    ((name, num_bytes),) = panel_sizes([kept, float_tensor(np.ones(4, np.float32))])
    assert (name, num_bytes) == (kept.name, 64 * 2 * 18)
    store = OneMatrix(kept, aligned(num_bytes))
    first = NativeOps(panels=store)
    first.prepare("linear", [kept])
    written = store.memory.copy()
    assert not (written == 99).all()
    assert first.weights.nbytes == num_bytes
    store.is_blank = False
    second = NativeOps(panels=store)
    second.prepare("linear", [other])  # not kept: made in memory
    second.prepare("linear", [kept])
    assert second.weights.nbytes == 2 * num_bytes
    assert (store.memory == written).all()


def test_panels_that_do_not_fit_are_refused() -> None:
    tensor = random_tensor(GGMLType.Q4_0, (40, 64))
    ((_, num_bytes),) = panel_sizes([tensor])
    for memory in (aligned(num_bytes - 64), aligned(num_bytes + 64)):
        for is_blank in (True, False):
            store = OneMatrix(tensor, memory)
            store.is_blank = is_blank
            with pytest.raises(ValueError, match="do not match the shape"):
                NativeOps(panels=store).prepare("linear", [tensor])
    crooked = OneMatrix(tensor, aligned(num_bytes + 64)[4 : 4 + num_bytes])
    with pytest.raises(ValueError, match="aligned to 64"):
        NativeOps(panels=crooked).prepare("linear", [tensor])
    assert panel_sizes([unbuilt()]) == []


def test_what_has_no_kernel_is_refused_while_recording() -> None:
    ops = NativeOps()
    embedding = ops.prepare("embedding", [random_tensor(GGMLType.F32, (4, 96))])
    batch = planned_batch([(0, 1)], 1)
    ops.begin_step(batch, None)
    x = ops.embedding(embedding, batch)
    with pytest.raises(UnsupportedModelError, match="head_dim 24 is no multiple of 16"):
        ops.paged_attention(x, batch, None, attention_spec(4, 2, 24))
    sinks = replace(attention_spec(6, 2, 16), sinks=(0.0,) * 6)
    with pytest.raises(UnsupportedModelError, match="attention sinks"):
        ops.paged_attention(x, batch, None, sinks)


def test_an_unknown_instruction_set_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"FIRSTWORD_ISA is 'sse9'.*generic"):
        NativeOps(isa="sse9")
    assert usable_isas()[-1] == built_isas()[-1] == "generic"
    assert [isa for isa in built_isas() if isa in usable_isas()] == usable_isas()
    for isa in usable_isas():
        assert NativeOps(isa=isa).isa == isa
    assert NativeOps(3).num_threads == 3


def kl_divergence(p_logits: Float32Array, q_logits: Float32Array) -> Float32Array:
    """KL(p || q) of each row in nats [T]."""
    p, q = (x.astype(np.float64) - x.max(axis=1, keepdims=True) for x in (p_logits, q_logits))
    p, q = (x - np.log(np.exp(x).sum(axis=1, keepdims=True)) for x in (p, q))
    divergence: Float32Array = (np.exp(p) * (p - q)).sum(axis=1)
    return divergence


@pytest.mark.real_model
@pytest.mark.parametrize("name", ["smollm2", "gemma3"])
def test_every_instruction_set_gives_the_bits_of_real_models(
    name: str, request: pytest.FixtureRequest
) -> None:
    """All logits of 64 tokens; the scalar kernels take most of the time."""
    path = request.getfixturevalue(f"{name}_path")
    ids = [(7919 * i * i + 31 * i + 11) % 40_000 for i in range(64)]
    models = {isa: Model(path, "native", threads=2, isa=isa) for isa in usable_isas()}
    found = {
        isa: np.concatenate(list(chunks_of_logits(model, ids))) for isa, model in models.items()
    }
    for isa in found:
        assert same_bits(found[isa], found["generic"]), isa


@pytest.mark.real_model
@pytest.mark.parametrize("name", ["smollm2", "gemma3"])
def test_real_models_agree_with_float_arithmetic(name: str, request: pytest.FixtureRequest) -> None:
    from firstword.text.tokenizer import Tokenizer

    path = request.getfixturevalue(f"{name}_path")
    native, blas = Model(path, "native"), Model(path, "blas")
    tokenizer = Tokenizer.from_gguf(native.checkpoint.tokenizer_metadata, str(path))
    text = "Gravity is the force by which a planet draws objects toward its center. "
    ids = [*tokenizer.bos_ids, *tokenizer.encode(text * 3)][:32]
    ours, theirs = (np.concatenate(list(chunks_of_logits(m, ids))) for m in (native, blas))
    agreement = (ours.argmax(axis=1) == theirs.argmax(axis=1)).mean()
    divergence = kl_divergence(theirs, ours)
    assert agreement >= 0.9, agreement
    assert divergence.mean() < 0.02, divergence.mean()
