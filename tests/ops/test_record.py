from __future__ import annotations

from collections.abc import Callable

import pytest

from firstword.ops.record import (
    Activate,
    Add,
    Attention,
    Embedding,
    Linear,
    Norm,
    Recorder,
    StoreKV,
    Symbol,
    Take,
    inputs,
    outputs,
    with_inputs,
)
from tests.ops.builders import attention_spec, tokens_batch

SPEC = attention_spec()

REFUSED: dict[str, Callable[[Symbol], object]] = {
    "truth": bool,
    "length": len,
    "iteration": list,
    "indexing": lambda x: x[0],
    "a number": lambda x: float(x),
    "an integer": lambda x: int(x),
    "comparison": lambda x: x == 1,
    "order": lambda x: x < 1,
    "addition": lambda x: x + 1,
    "product from the right": lambda x: 2 * x,
    "matrix product": lambda x: x @ x,
    "an array": lambda x: x.__array__(),
    "a hash": hash,
}


@pytest.mark.parametrize("what", REFUSED)
def test_a_symbol_has_no_values_and_no_rows(what: str) -> None:
    with pytest.raises(TypeError):
        REFUSED[what](Symbol(0, 4))


def test_a_symbol_has_no_batch_dimension() -> None:
    symbol = Symbol(0, 4)
    assert symbol.width == 4
    assert not hasattr(symbol, "shape")
    with pytest.raises(TypeError, match="neither values nor a number of rows"):
        len(symbol)


def test_operations_are_kept_in_order_with_the_widths_of_what_they_make() -> None:
    recorder: Recorder[str] = Recorder()
    x = recorder.embedding("embed", 4, 2.0)
    q = recorder.linear(x, "wq", "bias", 6)
    recorder.store_kv(q, q, SPEC)
    y = recorder.add(recorder.norm(q, "norm", 1e-5), recorder.attention(q, SPEC))
    logits = recorder.take(recorder.activate("silu", y, q), tokens_batch([1]))
    recording = recorder.finish(logits)
    assert recording.ops == (
        Embedding("embed", 2.0, 0),
        Linear(0, ("wq",), ("bias",), (1,)),
        StoreKV(1, 1, SPEC),
        Norm(1, "norm", 1e-5, 2),
        Attention(1, SPEC, 3),
        Add(2, 3, 4),
        Activate("silu", 4, 1, 5),
        Take(5, 6),
    )
    assert recording.widths == (4, 6, 6, 6, 6, 6, 6)
    assert recording.result == 6


def test_inputs_can_be_named_and_replaced() -> None:
    recorder: Recorder[str] = Recorder()
    x = recorder.embedding("embed", 4, 1.0)
    y = recorder.softcap(recorder.linear(x, "w", None, 4), 30.0)
    recorder.store_kv(x, y, SPEC)
    recorder.activate("gelu", x, y)
    recorder.add(x, y)
    recorder.attention(x, SPEC)
    for op in recorder.ops:
        replaced = with_inputs(op, [10 + value for value in inputs(op)])
        assert inputs(replaced) == tuple(10 + value for value in inputs(op))
        assert outputs(replaced) == outputs(op)
