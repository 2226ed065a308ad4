"""Logits of the catalogue models against those of transformers 5.24 and torch 2.13 in float32.

The golden files are made by scripts/make_golden_logits.py; `make conformance` compares all
logits, not only those kept there.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from firstword.batch import Float32Array
from firstword.text.tokenizer import Tokenizer
from tests.harness import Model
from tests.logits import chunks_of_logits

GOLDEN = Path(__file__).parents[1] / "golden"
PROMPTS: dict[str, dict[str, Any]] = {
    prompt["name"]: prompt
    for prompt in json.loads((GOLDEN / "prompts.json").read_text(encoding="utf-8"))["prompts"]
}
MAX_DIFFERENCE = 1e-3
MIN_MARGIN = 2e-3
"""The reference's lead below which rounding may choose another token."""
PER_POSITION = ("argmax", "top_ids", "top_logits", "logsumexp", "column_logits")

pytestmark = pytest.mark.real_model


@pytest.fixture(scope="module", params=["smollm2:135m", "gemma3:270m"])
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def model(name: str, smollm2_path: Path, gemma3_path: Path) -> Model:
    path = smollm2_path if name == "smollm2:135m" else gemma3_path
    return Model(path, numerics="blas", kv_dtype="float32")


@pytest.fixture(scope="module")
def golden(name: str) -> dict[str, NDArray[Any]]:
    with np.load(GOLDEN / f"logits_{name.partition(':')[0]}.npz") as arrays:
        return dict(arrays)


def test_prompts_are_tokenized_as_the_golden_ids(name: str, model: Model) -> None:
    tokenizer = Tokenizer.from_gguf(model.checkpoint.tokenizer_metadata, str(model.path))
    for prompt in PROMPTS.values():
        ids = tokenizer.bos_ids + tokenizer.encode(prompt["text"])
        assert ids[: prompt["max_tokens"]] == prompt["ids"][name]
    assert len(PROMPTS["long"]["ids"][name]) == 1500


@pytest.mark.parametrize("prompt", ["english", "chinese", "code", "emoji", "long"])
def test_logits_are_those_of_transformers(
    name: str, model: Model, golden: dict[str, NDArray[Any]], prompt: str
) -> None:
    ids = PROMPTS[prompt]["ids"][name]
    want = {k.split(".")[1]: v for k, v in golden.items() if k.startswith(prompt + ".")}
    # The greedy tokens are fed after the prompt: if each is the most probable after those before
    # it, then greedy decoding gives exactly them.
    fed = [*ids, *want["greedy_ids"][:-1].tolist()]
    argmax: list[int] = []
    for logits in chunks_of_logits(model, fed):
        rows = slice(len(argmax), len(argmax) + len(logits))
        _assert_close(logits, {k: want[k][rows] for k in PER_POSITION}, want["column_ids"])
        argmax += logits.argmax(axis=1).tolist()
    assert len(want["argmax"]) == len(ids)
    clear = want["top_logits"][:, 0] - want["top_logits"][:, 1] > MIN_MARGIN
    np.testing.assert_array_equal(np.array(argmax[: len(ids)])[clear], want["argmax"][clear])
    assert argmax[len(ids) - 1 :] == want["greedy_ids"].tolist()


def _assert_close(
    logits: Float32Array, want: dict[str, NDArray[Any]], column_ids: NDArray[np.int32]
) -> None:
    """Compare logits [>= T, V] with the golden values of their first T rows."""
    logits = logits[: len(want["argmax"])]
    top = np.take_along_axis(logits, want["top_ids"].astype(np.int64), axis=1)
    for ours, theirs in (
        (top, want["top_logits"]),
        (logits[:, column_ids], want["column_logits"]),
        (_logsumexp(logits), want["logsumexp"]),
    ):
        assert np.abs(ours - theirs).max(initial=0) <= MAX_DIFFERENCE


def _logsumexp(logits: Float32Array) -> NDArray[np.float64]:
    largest = logits.max(axis=1, keepdims=True, initial=-np.inf)
    sums = np.exp(logits - largest).sum(axis=1, dtype=np.float64)
    result: NDArray[np.float64] = largest[:, 0] + np.log(sums)
    return result
