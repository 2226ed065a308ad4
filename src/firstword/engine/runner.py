"""Runs a step on a backend: the forward pass, then one token per logits row.

`submit` starts a step and `collect` waits for it, so that a backend may compute while the next
step is prepared; the reference backend computes within `submit`.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

import numpy as np

from firstword.batch import Float32Array, SampledToken, StepInput, StepResult
from firstword.models.registry import Model
from firstword.ops.protocol import KVPool
from firstword.sampling.sampler import sample_each

if TYPE_CHECKING:
    from firstword.ops.native_kv import NativeKVPool
    from firstword.ops.native_plan import NativeModel


class Runner(Protocol):
    """What the engine needs of a backend bound to a model."""

    def submit(self, step: StepInput) -> int:
        """Start a step; returns a handle for `collect`."""
        ...

    def collect(self, handle: int) -> StepResult:
        """The result of a step; each handle can be collected once."""
        ...

    def stop(self) -> None:
        """End the step under way soon, where that is possible; any thread may call it."""
        ...


class ReferenceRunner:
    """Op by op on NumPy arrays, on the caller's thread.

    Args:
        model: a network bound to the reference backend.
        kv: its KV pool.
    """

    def __init__(self, model: Model[Float32Array], kv: KVPool) -> None:
        self._model, self._kv = model, kv
        self._results: dict[int, StepResult] = {}
        self._next_handle = 0
        self._last: StepResult | None = None

    def submit(self, step: StepInput) -> int:
        """Compute the step now and keep its result for `collect`."""
        batch = resolve_token_ids(step, self._last).batch
        start = time.perf_counter()
        logits = self._model(batch, self._kv)  # [R, V]
        computed = time.perf_counter()
        sampled = sample_each(logits, step.sampling)
        result = StepResult(
            sampled=sampled,
            forward_ms=(computed - start) * 1e3,
            sampling_ms=(time.perf_counter() - computed) * 1e3,
        )
        handle, self._next_handle = self._next_handle, self._next_handle + 1
        self._results[handle] = self._last = result
        return handle

    def collect(self, handle: int) -> StepResult:
        """The result of the step that `submit` returned `handle` for."""
        return self._results.pop(handle)

    def stop(self) -> None:
        """Do nothing: a step in NumPy runs to its end."""


class NativeRunner:
    """One native call per step, model and tokens, on the backend's threads.

    Args:
        model: a planned network of the compiled backend.
        kv: its KV pool.
    """

    def __init__(self, model: NativeModel, kv: NativeKVPool) -> None:
        from firstword.sampling import native  # only where the module is compiled

        self.model, self._kv, self._sampling = model, kv, native
        self._results: dict[int, StepResult] = {}
        self._next_handle = 0
        self._last: StepResult | None = None

    def submit(self, step: StepInput) -> int:
        """Compute the step now and keep its result for `collect`.

        Raises:
            KeyboardInterrupt: Ctrl-C was pressed on the way.
            StepStoppedError: `stop` was called.
        """
        batch = resolve_token_ids(step, self._last).batch
        start = time.perf_counter()
        strategies = self._sampling.native_strategies(step.sampling)
        native = self.model.run(batch, self._kv, strategies)
        sampled = self._sampling.sampled_tokens(
            native.outcomes, step.sampling, native.values, native.rows
        )
        result = StepResult(
            sampled=sampled,
            forward_ms=(time.perf_counter() - start) * 1e3 - native.sampling_ms,
            sampling_ms=native.sampling_ms,
            native_ms=self.model.native_ms,
        )
        handle, self._next_handle = self._next_handle, self._next_handle + 1
        self._results[handle] = self._last = result
        return handle

    def collect(self, handle: int) -> StepResult:
        """The result of the step that `submit` returned `handle` for."""
        return self._results.pop(handle)

    def stop(self) -> None:
        """End the step under way, or else the next one, within 100 ms; any thread may call it."""
        self.model.stop()


def resolve_token_ids(step: StepInput, last: StepResult | None) -> StepInput:
    """Replace each token id -(row + 1) by the token sampled for `row` in the step before."""
    ids = step.batch.token_ids
    if min(ids.tolist(), default=0) >= 0:  # quicker than an array's minimum for few of them
        return step
    pending = np.flatnonzero(ids < 0)
    if last is None:
        raise ValueError("a step refers to tokens of the step before, but there was none")
    resolved = ids.copy()
    for index in pending:
        outcome = last.sampled[-int(ids[index]) - 1]
        assert isinstance(outcome, SampledToken), "a sequence without a token went on"
        resolved[index] = outcome.token_id
    return replace(step, batch=replace(step.batch, token_ids=resolved))
