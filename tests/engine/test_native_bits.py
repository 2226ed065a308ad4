"""Promise 3 to the bit: all logits and tokens of one request under a covering array of conditions.

Both real models with a prompt of 572 tokens, and tiny ones. The instruction set is the one in use;
FIRSTWORD_ISA=avx2 scripts/test --deep tests/engine/test_native_bits.py runs all rows on another.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, fields
from pathlib import Path

import pytest

from firstword.quant import GGMLType
from tests.covering import all_pairs, covering_array, pairs_of
from tests.engine.bits import INSIDE, NUM_PROMPT, WHOLE_BLOCKS, Observation, Row, observe
from tests.harness import Model
from tests.weights.tiny_gguf import write_tiny_gemma3, write_tiny_llama

FACTORS: dict[str, Sequence[object]] = {
    "batch": (1, 2, 3, 7, 8, 32),
    "threads": (1, 2, 3),
    "chunk": (512, 16, 1),
    "prefix": ("miss", "hit", "inside"),
    "preempted": (False, True),
    "fused": (True, False),
    "flush": (False, True),
}


def is_affordable(row: dict[str, object]) -> bool:
    """Not a whole prompt one token at a time beside 31 others: minutes for one row."""
    return (row.get("batch"), row.get("chunk"), row.get("prefix")) != (32, 1, "miss")


ROWS = [
    Row(**row)  # type: ignore[arg-type]
    for row in covering_array(FACTORS, times=2, is_wanted=is_affordable)
]
BASELINE = Row()


def in_the_suite(rows: Sequence[Row], count: int) -> list[Row]:
    """Rows that meet most pairs for the time they take; the longest ones are left out."""
    left = [row for row in rows if row.work < 3000]
    chosen: list[Row] = []
    seen: set[object] = set()
    while len(chosen) < count:
        best = max(left, key=lambda row: len(set(pairs_of(named(row))) - seen) / (row.work + 1000))
        left.remove(best)
        chosen.append(best)
        seen |= set(pairs_of(named(best)))
    return chosen


def named(row: Row) -> dict[str, object]:
    return {field.name: getattr(row, field.name) for field in fields(row)}


SUITE = in_the_suite(ROWS, 12)
GEMMA_SUITE = SUITE[:3]


def label(row: Row) -> str:
    words = [f"{row.batch} seqs", f"{row.threads} threads", f"chunk {row.chunk}", row.prefix]
    extra = {"preempted": row.preempted, "op by op": not row.fused, "flush": row.flush}
    return "-".join([*words, *(word for word, holds in extra.items() if holds)])


def in_order(rows: Sequence[Row]) -> list[Row]:
    """Rows of the same threads and plan one after the other: they share a model."""
    return sorted(rows, key=lambda row: (row.threads, not row.fused, astuple(row)))


class Subject:
    """A model file and what its request gives under the usual conditions.

    One model at a time is kept: rows come sorted.
    """

    def __init__(self, path: Path, prompt: Sequence[int], kv_dtype: str = "float16") -> None:
        self._path, self._prompt, self.kv_dtype = path, prompt, kv_dtype
        self._model: Model | None = None
        self.expected = self.observe(BASELINE)

    def observe(self, row: Row) -> Observation:
        if self._model is None or (self._model.threads, self._model.fused) != (
            row.threads,
            row.fused,
        ):
            self._model = Model(
                self._path, "native", self.kv_dtype, threads=row.threads, fused=row.fused
            )
        return observe(self._model, self._prompt, row)

    def check(self, row: Row) -> None:
        """The bits are those of the baseline, and the row was what it says."""
        seen = self.observe(row)
        assert seen.bits == self.expected.bits
        assert seen.largest_batch == row.batch
        assert seen.largest_chunk <= row.chunk
        assert (seen.num_preemptions > 0) == row.preempted
        cached = {"miss": 0, "hit": WHOLE_BLOCKS, "inside": INSIDE}
        assert seen.num_cached_tokens == cached[row.prefix]


def real(path: Path, kv_dtype: str = "float16") -> Subject:
    """The beginning of the licence: text that stays as it is."""
    from firstword.text.tokenizer import Tokenizer
    from firstword.weights.checkpoint import open_checkpoint

    tokenizer = Tokenizer.from_gguf(open_checkpoint(path).tokenizer_metadata, str(path))
    text = (Path(__file__).parents[2] / "LICENSE").read_text(encoding="utf-8")
    ids = [*tokenizer.bos_ids, *tokenizer.encode(text)][:NUM_PROMPT]
    return Subject(path, ids, kv_dtype)


@pytest.fixture(scope="module")
def smollm2(smollm2_path: Path) -> Subject:
    return real(smollm2_path)


@pytest.fixture(scope="module")
def gemma3(gemma3_path: Path) -> Subject:
    return real(gemma3_path)


@pytest.fixture(scope="module")
def smollm2_q8(smollm2_path: Path) -> Subject:
    return real(smollm2_path, "q8")


@pytest.fixture(scope="module")
def gemma3_q8(gemma3_path: Path) -> Subject:
    return real(gemma3_path, "q8")


@pytest.fixture(scope="module", params=["llama", "gemma3", "llama q8", "gemma3 q8"])
def tiny(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Subject:
    path = tmp_path_factory.mktemp("bits") / "model.gguf"
    family, _, kv_type = request.param.partition(" ")
    if family == "llama":
        write_tiny_llama(path, dtype=GGMLType.Q4_1)
    else:
        write_tiny_gemma3(path, dtype=GGMLType.Q5_0, window=48)
    ids = [(7 * i * i + 3 * i + 11) % 250 for i in range(NUM_PROMPT)]
    return Subject(path, ids, kv_type or "float16")


def test_every_two_conditions_meet_at_least_twice() -> None:
    met = [pair for row in ROWS for pair in pairs_of(named(row))]
    assert min(met.count(pair) for pair in all_pairs(FACTORS)) == 2
    assert 30 <= len(ROWS) <= 45
    for name, values in FACTORS.items():
        assert {named(row)[name] for row in SUITE} == set(values), name


def test_p23_no_row_changes_a_bit_of_tiny_models(tiny: Subject) -> None:
    for row in in_order(ROWS):
        tiny.check(row)


@pytest.mark.real_model
@pytest.mark.parametrize("row", in_order(SUITE), ids=label)
def test_no_row_changes_a_bit_of_smollm2(smollm2: Subject, row: Row) -> None:
    smollm2.check(row)


@pytest.mark.real_model
@pytest.mark.parametrize("row", in_order(GEMMA_SUITE), ids=label)
def test_no_row_changes_a_bit_of_gemma3(gemma3: Subject, row: Row) -> None:
    gemma3.check(row)


@pytest.mark.real_model
@pytest.mark.parametrize("row", in_order(GEMMA_SUITE), ids=label)
@pytest.mark.parametrize("name", ["smollm2_q8", "gemma3_q8"])
def test_no_row_changes_a_bit_of_8_bit_keys_and_values(
    name: str, row: Row, request: pytest.FixtureRequest
) -> None:
    subject: Subject = request.getfixturevalue(name)
    subject.check(row)


@pytest.mark.deep
@pytest.mark.real_model
@pytest.mark.parametrize("row", in_order(ROWS), ids=label)
@pytest.mark.parametrize("name", ["smollm2", "gemma3", "smollm2_q8", "gemma3_q8"])
def test_no_row_of_all_changes_a_bit(name: str, row: Row, request: pytest.FixtureRequest) -> None:
    subject: Subject = request.getfixturevalue(name)
    subject.check(row)


def test_another_seed_or_prompt_changes_the_bits(tiny: Subject) -> None:
    """The comparison can fail."""
    model = Model(tiny._path, "native", tiny.kv_dtype, threads=1)
    other = observe(model, [t + 1 for t in tiny._prompt], BASELINE)
    assert other.bits != tiny.expected.bits
    assert len(other.logits) == len(other.tokens) == 8
