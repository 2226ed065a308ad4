"""Runs a step on a backend: the forward pass, then one token per logits row.

`submit` starts a step and `collect` waits for it, so that a backend may compute while the next
step is prepared; the reference backend computes within `submit`.
"""

from __future__ import annotations

import time
import weakref
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from queue import Empty, SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING, Protocol

import numpy as np

from firstword.batch import (
    Float32Array,
    Int32Array,
    SampledToken,
    SamplingRow,
    StepInput,
    StepResult,
)
from firstword.models.registry import Model
from firstword.ops.protocol import PagedKVPool
from firstword.sampling.sampler import sample_each

if TYPE_CHECKING:
    from firstword.ops.native_kv import NativeKVPool
    from firstword.ops.native_plan import NativeModel, NativeResult, PreparedStep


class Runner(Protocol):
    """What the engine needs of a backend bound to a model.

    Attributes:
        runs_ahead: a step may be submitted before the one under way has been collected; its token
            ids may then refer to the tokens of that one.
    """

    runs_ahead: bool

    def submit(self, step: StepInput) -> int:
        """Start a step; returns a handle for `collect`."""
        ...

    def collect(self, handle: int) -> StepResult:
        """The result of a step; each handle can be collected once."""
        ...

    def stop(self) -> None:
        """End the step under way soon, where that is possible; any thread may call it."""
        ...

    def drop(self) -> None:
        """End all steps that were submitted and not collected, and forget them."""
        ...


class ReferenceRunner:
    """Op by op on NumPy arrays, on the caller's thread.

    Args:
        model: a network bound to the reference backend.
        kv: its KV pool, which stays an attribute.
    """

    runs_ahead = False

    def __init__(self, model: Model[Float32Array], kv: PagedKVPool) -> None:
        self._model, self.kv = model, kv
        self._results: dict[int, StepResult] = {}
        self._next_handle = 0
        self._last: StepResult | None = None

    def submit(self, step: StepInput) -> int:
        """Compute the step now and keep its result for `collect`."""
        batch = resolve_token_ids(step, self._last).batch
        start = time.perf_counter()
        logits = self._model(batch, self.kv)  # [R, V]
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

    def drop(self) -> None:
        """Forget the steps that were not collected."""
        self._results.clear()


_STOP_SECONDS = 1.0
"""A step that was told to stop is told again after this long, should it have begun only then."""


class NativeRunner:
    """One native call per step, model and tokens, on the backend's threads.

    The calls are made by a thread of the runner. A second step may be submitted while one runs: it
    then begins as soon as that one ends, with the tokens just sampled, while the caller is still
    busy with what came of it.

    Args:
        model: a planned network of the compiled backend.
        kv: its KV pool, which stays an attribute.
    """

    runs_ahead = True

    def __init__(self, model: NativeModel, kv: NativeKVPool) -> None:
        from firstword.sampling import native  # only where the module is compiled

        self.model, self.kv, self._sampling = model, kv, native
        self._calls = _Calls(model)
        self._next_handle = 0
        self._pending: deque[tuple[int, StepInput]] = deque()
        self._is_started = False

    def submit(self, step: StepInput) -> int:
        """Start a step, or let it begin when the one under way ends."""
        if not self._is_started:
            self._is_started = True
            Thread(target=self._calls.run, name="steps", daemon=True).start()
            # The thread knows nothing of the runner: it ends with it, and its memory with it.
            weakref.finalize(self, self._calls.steps.put, None)
        handle, self._next_handle = self._next_handle, self._next_handle + 1
        strategies = self._sampling.native_strategies(step.sampling)
        prepared = self.model.prepare(step.batch, self.kv, strategies)
        self._pending.append((handle, step))
        self._calls.steps.put((prepared, step.sampling))
        return handle

    def collect(self, handle: int) -> StepResult:
        """The result of the step that `submit` returned `handle` for; in the order of submission.

        Raises:
            KeyboardInterrupt: Ctrl-C was pressed while it waited; `drop` ends what was submitted.
            StepStoppedError: `stop` was called.
        """
        expected, step = self._pending[0]
        assert handle == expected, "steps are collected in the order of their submission"
        call = self._calls.results.get()
        self._pending.popleft()
        if isinstance(call, BaseException):
            raise call
        start = time.perf_counter()
        native = call.native
        sampled = self._sampling.sampled_tokens(
            native.outcomes, step.sampling, call.logits, self.model.vocab_size
        )
        return StepResult(
            sampled=sampled,
            forward_ms=native.milliseconds - native.sampling_ms,
            sampling_ms=native.sampling_ms + (time.perf_counter() - start) * 1e3,
            native_ms=native.milliseconds,
            gap_ms=call.gap_ms,
        )

    def stop(self) -> None:
        """End the step under way, or else the next one, within 100 ms; any thread may call it."""
        self.model.stop()

    def drop(self) -> None:
        """End all steps that were submitted and not collected, and forget them."""
        while self._pending:
            self.model.stop()
            with suppress(Empty):
                self._calls.results.get(timeout=_STOP_SECONDS)
                self._pending.popleft()
        self.model.clear_stop()  # of a step that had ended before it could be stopped


@dataclass(frozen=True)
class _Call:
    """What a call of the compiled module gave.

    Args:
        native: its result, of which the values are overwritten by the next call.
        logits: per row, its logits if they are wanted back.
        gap_ms: milliseconds since the end of the call before, where this step was waiting for it.
    """

    native: NativeResult
    logits: list[Float32Array | None]
    gap_ms: float | None


class _Calls:
    """The thread of a NativeRunner: makes one call after the other.

    Args:
        model: a planned network of the compiled backend.

    Attributes:
        steps: what to run, and how its tokens are chosen; None ends the thread.
        results: what came of each, in their order.
    """

    def __init__(self, model: NativeModel) -> None:
        from firstword.sampling import native  # only where the module is compiled

        self.steps: SimpleQueue[tuple[PreparedStep, Sequence[SamplingRow]] | None] = SimpleQueue()
        self.results: SimpleQueue[_Call | BaseException] = SimpleQueue()
        self._model, self._wanted_logits = model, native.wanted_logits
        self._last_tokens = np.empty(0, np.int32)

    def run(self) -> None:
        """Make calls until told to end."""
        ended: float | None = None
        while True:
            follows = not self.steps.empty()
            item = self.steps.get()
            if item is None:
                return
            try:
                call = self._call(*item, ended if follows else None)
            except BaseException as error:
                ended = None
                self.results.put(error)
            else:
                ended = call.native.span[1]
                self.results.put(call)

    def _call(
        self, prepared: PreparedStep, sampling: Sequence[SamplingRow], ended: float | None
    ) -> _Call:
        self._fill_in_tokens(prepared.token_ids)
        native = self._model.run_prepared(prepared)
        self._last_tokens = np.array([outcome.token for outcome in native.outcomes], np.int32)
        rows = native.rows[: len(sampling)]
        return _Call(
            native,
            self._wanted_logits(native.values, rows, sampling),
            None if ended is None else (native.span[0] - ended) * 1e3,
        )

    def _fill_in_tokens(self, ids: Int32Array) -> None:
        """Put the tokens just sampled in place of references to them."""
        if ids[0] < 0:  # a step that runs ahead refers to the one before in all its rows
            # A row without a token has ended its request: what is computed for it is dropped.
            np.maximum(self._last_tokens[-ids - 1], 0, out=ids)


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
