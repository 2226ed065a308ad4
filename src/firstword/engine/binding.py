"""Which backend computes a model, and how a checkpoint is bound to it.

Not here: the memory that is left for the KV pool (plan) and the step loop (engine).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Literal

import numpy as np

from firstword.config import EngineConfig
from firstword.engine.runner import NativeRunner, ReferenceRunner
from firstword.errors import ConfigError
from firstword.kvcache.spec import KVCacheSpec
from firstword.models.registry import build_model
from firstword.ops.build import build_digest
from firstword.weights.checkpoint import Checkpoint
from firstword.weights.panel_cache import Opened, PanelCache, not_kept
from firstword.weights.panel_file import PanelLayout

Numerics = Literal["native", "blas", "exact", "int8"]
NUMERICS: tuple[Numerics, ...] = ("native", "blas", "exact", "int8")


@dataclass(frozen=True)
class Binding:
    """A model bound to a backend.

    Args:
        name: of the backend, as the explanation shows it.
        reserved_bytes: memory that it takes besides the KV pool and has not taken yet.
        new_runner: makes a runner with a KV pool of so many blocks.
        numbers: changes wherever keys and values, or their layout, may.
        notice: what the user should know.
        unpacks_later: weights are unpacked when a step first uses them.
    """

    name: str
    reserved_bytes: int
    new_runner: Callable[[int], NativeRunner | ReferenceRunner]
    numbers: str
    notice: str | None = None
    unpacks_later: bool = False


def choose_numerics(checkpoint: Checkpoint, config: EngineConfig) -> tuple[Numerics, str | None]:
    """The fastest arithmetic that this file and installation allow.

    Returns:
        The choice, and why it is not the compiled one, if it is not.
    """
    if find_spec("firstword._native") is None:
        return (
            "blas",
            "this installation has no compiled kernels: answers take several times longer",
        )
    if checkpoint.config.head_dim % 16:
        return "blas", (
            f"there is no compiled kernel for heads of {checkpoint.config.head_dim} values: "
            "answers take several times longer"
        )
    if config.kv_dtype not in ("float16", "q8"):
        return "blas", (
            f"the compiled kernels keep keys and values as float16 or q8, not {config.kv_dtype}: "
            "answers take several times longer"
        )
    return "native", None


def bind(
    checkpoint: Checkpoint,
    spec: KVCacheSpec,
    config: EngineConfig,
    numerics: Numerics,
    num_threads: int,
) -> Binding:
    """Make a backend's weights from a checkpoint.

    Args:
        checkpoint: the model file.
        spec: the KV groups.
        config: limits of a step, for the scratch memory.
        numerics: the arithmetic, which names the backend.
        num_threads: threads to compute with.

    Raises:
        ConfigError: no such arithmetic, or not in this installation.
        UnsupportedModelError: a tensor's type is not built.
    """
    if numerics == "native":
        return _bind_native(checkpoint, spec, config, num_threads)
    return _bind_reference(checkpoint, spec, numerics, num_threads)


def _bind_native(
    checkpoint: Checkpoint, spec: KVCacheSpec, config: EngineConfig, num_threads: int
) -> Binding:
    if find_spec("firstword._native") is None:
        raise ConfigError(
            'numerics is "native", but this installation has no compiled kernels: install '
            'firstword with a C++ compiler, or choose "blas"'
        )
    from firstword.ops.native import NativeOps
    from firstword.ops.native_plan import NativeModel

    kept = _open_panels(checkpoint) if config.enable_panel_cache else Opened()
    try:
        ops = NativeOps(num_threads, panels=kept.file)
        network = build_model(checkpoint, ops, spec)
        if kept.file is not None:
            kept.file.commit()
    except BaseException as error:
        if kept.file is not None:
            kept.file.discard()
        if not isinstance(error, OSError):
            raise
        # The disk did not take all of the panels: make them in memory.
        kept = Opened(notice=not_kept(str(error)))
        ops = NativeOps(num_threads)
        network = build_model(checkpoint, ops, spec)
    model = NativeModel(ops, network, spec, checkpoint.config.vocab_size)
    model.reserve(config.max_num_batched_tokens, config.max_num_seqs)
    checkpoint.forget_pages()  # the panels are read from now on
    return Binding(
        name=f"native ({ops.isa})",
        # Pages of a mapped file count as available memory, but the weights need theirs.
        reserved_bytes=model.scratch_bytes + (kept.file.layout.num_bytes if kept.file else 0),
        new_runner=lambda num_blocks: NativeRunner(model, ops.new_kv_pool(spec, num_blocks)),
        numbers=f"native {build_digest()}",
        notice=kept.notice,
    )


def _open_panels(checkpoint: Checkpoint) -> Opened:
    """The kept panels of a model, or a file to write them to, or a notice of what is wrong."""
    from firstword.ops.native import PANEL_LAYOUT_VERSION, panel_sizes

    sizes = panel_sizes(checkpoint.tensors.values())
    layout = PanelLayout.of(checkpoint.identity, PANEL_LAYOUT_VERSION, sizes)
    try:
        cache = PanelCache()
    except ConfigError as error:
        return Opened(notice=not_kept(str(error)))
    return cache.open(checkpoint.path, layout)


def _bind_reference(
    checkpoint: Checkpoint, spec: KVCacheSpec, numerics: Numerics, num_threads: int
) -> Binding:
    from threadpoolctl import threadpool_limits

    from firstword.ops.reference import ReferenceOps

    threadpool_limits(limits=num_threads, user_api="blas")
    if numerics == "native" or numerics not in NUMERICS:
        raise ConfigError(f"numerics is {numerics!r}: it must be one of {', '.join(NUMERICS)}")
    ops = ReferenceOps(numerics)
    model = build_model(checkpoint, ops, spec)
    return Binding(
        name=f"reference ({numerics})",
        reserved_bytes=_dense_bytes(checkpoint),
        new_runner=lambda num_blocks: ReferenceRunner(model, ops.new_kv_pool(spec, num_blocks)),
        numbers=f"{numerics} {build_digest()} numpy {np.__version__}",
        unpacks_later=True,
    )


def _dense_bytes(checkpoint: Checkpoint) -> int:
    """The reference backend keeps every weight as float32, unpacked when it is first used."""
    return sum(4 * tensor.num_values for tensor in checkpoint.tensors.values())
