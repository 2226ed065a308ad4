"""From a model's name to an engine that runs it: file, backend, memory, tokenizer.

Used by every shell (`LLM`, `AsyncLLM`, the engine's own process). Not here: requests.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from hashlib import blake2b
from pathlib import Path

import numpy as np

from firstword.batch import ForwardBatch, SamplingRow, StepInput
from firstword.config import EngineConfig
from firstword.engine.binding import Binding, Numerics, bind, choose_numerics
from firstword.engine.calibration import nominal_step_time
from firstword.engine.engine import Engine
from firstword.engine.messages import EngineInfo
from firstword.engine.model import EngineModel
from firstword.errors import ConfigError
from firstword.kvcache.disk.limit import kv_disk_bytes
from firstword.kvcache.disk.record import StoreIdentity
from firstword.kvcache.disk.store import DiskStore
from firstword.kvcache.disk.tier import QUEUE_BYTES, DiskTier, Pages, PageSizes
from firstword.kvcache.spec import DTYPE_BYTES, SCALE_BYTES, KVCacheSpec, kv_bytes
from firstword.models.registry import build_model, model_kv_spec
from firstword.ops.cost import Cost, CostOps, planned_batch, step_cost
from firstword.plan.hardware import process_memory, usable_cores, usable_memory
from firstword.plan.memory import PoolPlan, PoolRequest, ProcessBudget, plan_pool
from firstword.text.grammar import GrammarCompiler
from firstword.text.tokenizer import Tokenizer
from firstword.text.vocabulary_cache import open_tokenizer
from firstword.trace import events
from firstword.trace.recorder import Recorder
from firstword.weights.catalogue import DEFAULT_MODEL, resolve
from firstword.weights.checkpoint import Checkpoint, open_checkpoint
from firstword.weights.store import kv_home


@dataclass(frozen=True)
class ModelFile:
    """A model's file, opened: what can be known before its weights are prepared.

    Args:
        name: the model as the user named it.
        checkpoint: the file.
        tokenizer: the model's own.
    """

    name: str
    checkpoint: Checkpoint
    tokenizer: Tokenizer


@dataclass(frozen=True)
class LoadOptions:
    """How to load a model.

    Args:
        config: limits and switches of the engine.
        numerics: which arithmetic; None for the fastest there is.
        threads: threads to compute with; None for the usable physical cores.
    """

    config: EngineConfig
    numerics: Numerics | None = None
    threads: int | None = None


@dataclass(frozen=True)
class LoadedModel:
    """A model bound to its backend, with a plan for its memory, and the engine that runs it.

    Args:
        file: the model's file.
        engine: runs requests.
        kv: the KV groups.
        pool: the KV pool that was chosen.
        backend: its name, as the explanation shows it.
        num_threads: threads it computes with.
        notices: what the user should know, one sentence each.
    """

    file: ModelFile
    engine: Engine
    kv: KVCacheSpec
    pool: PoolPlan
    backend: str
    num_threads: int
    notices: tuple[str, ...]


def open_model(model: str | Path | None, config: EngineConfig) -> ModelFile:
    """Find a model's file, fetching it if need be, and open it.

    Args:
        model: a catalogue name, a path, or hf:ORG/REPO[:FILE]; None for the default model.
        config: says whether a compiled vocabulary may be kept.

    Raises:
        ModelNotFoundError, DownloadError, LicenseError: the model cannot be had.
        CheckpointError: the file is not what it says.
    """
    path = resolve(None if model is None else str(model))
    checkpoint = open_checkpoint(path)
    tokenizer = open_tokenizer(checkpoint, keep=config.enable_panel_cache)
    return ModelFile(DEFAULT_MODEL if model is None else str(model), checkpoint, tokenizer)


def load_model(
    model: str | Path | None, options: LoadOptions, recorder: Recorder | None = None
) -> LoadedModel:
    """Open a model, prepare its weights, size its memory, and make an engine.

    Args:
        model: as for `open_model`.
        options: how to load it.
        recorder: receives the events of every request; None keeps none.

    Raises:
        ConfigError: the number of threads or the arithmetic cannot be.
        CapacityError: the context asked for does not fit the memory.
        ModelNotFoundError, DownloadError, LicenseError, CheckpointError: see `open_model`.
    """
    start = time.monotonic()
    num_threads = thread_count(options.threads)
    file = open_model(model, options.config)
    bound = _bind(file.checkpoint, options, num_threads)
    runner = bound.binding.new_runner(bound.pool.num_blocks)
    identity = _kv_identity(file, bound)
    tier = _open_tier(identity, runner.kv, bound.disk_bytes)
    engine = Engine(
        runner,
        _engine_model(file, bound, identity),
        options.config,
        recorder=recorder,
        tier=tier,
    )
    disk_notice = tier.store.notice if tier is not None else None
    own = (bound.notice, bound.binding.notice, bound.pool.notice, disk_notice)
    notices = (*own, *file.tokenizer.notices)
    loaded = LoadedModel(
        file=file,
        engine=engine,
        kv=bound.spec,
        pool=bound.pool,
        backend=bound.binding.name,
        num_threads=num_threads,
        notices=tuple(notice for notice in notices if notice),
    )
    engine.recorder.emit(_loaded_event(loaded, time.monotonic() - start))
    return loaded


def engine_info(loaded: LoadedModel) -> EngineInfo:
    """What there is to know of a loaded model."""
    return EngineInfo(
        max_model_len=loaded.pool.max_model_len,
        max_num_seqs=loaded.engine.config.max_num_seqs,
        block_size=loaded.kv.block_size,
        num_blocks=loaded.pool.num_blocks,
        kv_bytes_per_token=kv_bytes(loaded.kv, 1),
        kv_dtype=loaded.kv.groups[0].k_dtype,
        kv_pool_bytes=loaded.pool.num_bytes,
        weight_bytes=loaded.file.checkpoint.num_bytes,
        backend=loaded.backend,
        num_threads=loaded.num_threads,
        fingerprint=loaded.file.checkpoint.fingerprint,
        notices=loaded.notices,
        memory_summary=loaded.pool.summary,
    )


def thread_count(threads: int | None) -> int:
    """How many threads to compute with.

    Raises:
        ConfigError: more or fewer are asked for than can be.
    """
    if threads is None:
        return usable_cores().count
    if not 1 <= threads <= 1024:
        raise ConfigError(f"threads is {threads}: give 1 to 1024")
    return threads


@dataclass(frozen=True)
class _Bound:
    """A checkpoint bound to its backend, with a plan for its memory."""

    spec: KVCacheSpec
    pool: PoolPlan
    binding: Binding
    notice: str | None
    disk_bytes: int


def _bind(checkpoint: Checkpoint, options: LoadOptions, num_threads: int) -> _Bound:
    config, numerics = options.config, options.numerics
    spec = model_kv_spec(checkpoint.config, config.kv_dtype)
    notice = None
    if numerics is None:
        numerics, notice = choose_numerics(checkpoint, config)
    binding = bind(checkpoint, spec, config, numerics, num_threads)
    if binding.unpacks_later:
        _warm_up(binding, spec)
    disk_bytes = _disk_bytes(config)
    promised = binding.reserved_bytes + (QUEUE_BYTES if disk_bytes else 0)
    pool = plan_pool(spec, _pool_request(checkpoint, config, promised))
    return _Bound(spec, pool, binding, notice, disk_bytes)


def _pool_request(checkpoint: Checkpoint, config: EngineConfig, promised: int) -> PoolRequest:
    """What the KV pool is wanted for, and the memory for it, `promised` bytes being spoken for."""
    usable = usable_memory()
    reason, pool_bytes = usable.reason, config.kv_memory_bytes
    if config.memory_bytes is not None:
        left = ProcessBudget(config.memory_bytes, process_memory(), promised).pool_bytes()
        reason = f"of a memory of {config.memory_bytes:,} bytes"
        pool_bytes = left if pool_bytes is None else min(left, pool_bytes)
    elif pool_bytes is not None:
        reason = "as asked"
    return PoolRequest(
        model_context=checkpoint.config.max_position_embeddings,
        max_model_len=config.max_model_len,
        max_num_seqs=config.max_num_seqs,
        num_step_tokens=config.max_num_batched_tokens,
        memory_bytes=pool_bytes,
        free_bytes=max(usable.num_bytes - promised, 0),
        reason=reason,
    )


def _warm_up(binding: Binding, spec: KVCacheSpec) -> None:
    """Run one position, so that the first request does not pay for unpacking the weights."""
    num_groups = len(spec.groups)
    one_block = (np.zeros((1, 1), np.int32),) * num_groups
    batch = replace(planned_batch([(0, 1)], num_groups), block_tables=one_block)
    runner = binding.new_runner(1)
    runner.collect(runner.submit(StepInput(batch, (SamplingRow(temperature=0),))))


def _kv_identity(file: ModelFile, bound: _Bound) -> StoreIdentity:
    """What tells keys and values of this model, bound like this, from any others."""
    spec, dtype = bound.spec, bound.spec.groups[0].k_dtype
    parts = (file.checkpoint.fingerprint, bound.binding.numbers, repr(spec))
    return StoreIdentity(
        digest=blake2b("\n".join(parts).encode(), digest_size=16).digest(),
        name=file.name,
        settings=f"{dtype}, {bound.binding.name}",
        page_bytes=tuple(g.bytes_per_block(spec.block_size) for g in spec.groups),
        block_size=spec.block_size,
    )


def _disk_bytes(config: EngineConfig) -> int:
    """What KV blocks may take of the disk; 0: none are kept."""
    if not (config.enable_kv_cache and config.enable_prefix_caching):
        return 0
    try:
        home = kv_home()
    except ConfigError:  # there is none, and the panel cache has said so
        return 0
    return kv_disk_bytes(config.kv_disk_bytes, home)


def _open_tier(identity: StoreIdentity, pages: Pages, max_bytes: int) -> DiskTier | None:
    """The disk below the pool; None where it is not wanted."""
    if max_bytes == 0:
        return None
    sizes = PageSizes(identity.page_bytes, max(identity.page_bytes))
    return DiskTier(DiskStore(kv_home(), identity, max_bytes), pages, sizes)


def _engine_model(file: ModelFile, bound: _Bound, identity: StoreIdentity) -> EngineModel:
    @cache  # made when a step's cost is first asked for: not all runs do
    def cost_model() -> Callable[[ForwardBatch], Cost]:
        ops = CostOps()
        model = build_model(file.checkpoint, ops, bound.spec)
        pool = ops.new_kv_pool(bound.spec, bound.pool.num_blocks)
        return lambda batch: step_cost(ops, model, batch, pool).total

    def cost_of(batch: ForwardBatch) -> Cost:
        return cost_model()(batch)

    return EngineModel(
        vocab_size=file.checkpoint.config.vocab_size,
        max_model_len=bound.pool.max_model_len,
        eos_token_ids=file.tokenizer.eos_ids,
        fingerprint=identity.fingerprint,
        kv=bound.spec,
        num_blocks=bound.pool.num_blocks,
        cost_of=cost_of,
        # 4 ms, and not later: from the first step on times are predicted, and corrected by what
        # steps take; here nobody waits for a token yet.
        step_time=nominal_step_time(cost_of, len(bound.spec.groups)),
        compile_grammar=GrammarCompiler(file.tokenizer, file.checkpoint.config.vocab_size).compile,
    )


def _loaded_event(loaded: LoadedModel, seconds: float) -> events.ModelLoaded:
    config, spec = loaded.file.checkpoint.config, loaded.kv
    dtype = spec.groups[0].k_dtype
    return events.ModelLoaded(
        time=time.monotonic(),
        name=loaded.file.name,
        seconds=seconds,
        num_layers=config.num_hidden_layers,
        num_heads=config.num_attention_heads,
        num_kv_heads=config.num_key_value_heads,
        head_dim=config.head_dim,
        kv_dtype=dtype,
        kv_value_bytes=DTYPE_BYTES[dtype],
        kv_scale_bytes=SCALE_BYTES.get(dtype, 0),
        kv_bytes_per_token=kv_bytes(spec, 1),
        sliding_window=config.sliding_window,
        num_sliding_layers=sum(t == "sliding_attention" for t in config.layer_types),
        max_model_len=loaded.pool.max_model_len,
        kv_bytes_full_context=kv_bytes(spec, loaded.pool.max_model_len),
        kv_pool_bytes=loaded.pool.num_bytes,
        weight_bytes=loaded.file.checkpoint.num_bytes,
        backend=loaded.backend,
        num_threads=loaded.num_threads,
    )
