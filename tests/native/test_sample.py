"""The native sampler against the Python one: equal tokens, numbers and errors."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np
import pytest

from firstword.batch import Candidate, Float32Array, PenaltyTable, SampledToken, SamplingRow
from firstword.errors import SamplingError
from firstword.sampling.rng import uniform
from firstword.sampling.sampler import sample_row
from firstword.sampling.softmax import chunk_sums
from tests.native.abi import (
    Isa,
    Kernels,
    SampleCandidates,
    SampleResult,
    SampleRow,
    pointer,
    same_bits,
)


class Status(IntEnum):
    """fw::SampleStatus."""

    OK = 0
    NO_FINITE_LOGIT = 1
    NOTHING_ALLOWED = 2
    UNKNOWN_TOKEN = 3
    MASK_SIZE = 4


@dataclass(frozen=True)
class Failure:
    """A row that cannot be sampled."""

    status: Status
    token: int


def native_row(row: SamplingRow) -> tuple[SampleRow, list[np.ndarray[Any, Any]]]:
    """The C structure, and the arrays it points to."""
    banned = np.array(row.banned_token_ids, np.int32)
    ids = np.array([i for i, _ in row.logit_bias], np.int32)
    bias = np.array([value for _, value in row.logit_bias], np.float32)
    mask = row.allowed_tokens
    allowed = None if mask is None else np.ascontiguousarray(mask, np.uint32)
    none = np.zeros(0, np.int32)
    penalties = row.penalties or PenaltyTable(none, none)
    words = 0 if allowed is None else len(allowed)
    native = SampleRow(
        row.temperature, row.top_p, row.top_k, row.seed, row.position, row.sample_index,
        pointer(banned), len(banned), pointer(ids), pointer(bias), len(ids),
        None if allowed is None else pointer(allowed), words, row.num_top_logprobs,
        pointer(penalties.token_ids), pointer(penalties.counts), len(penalties.counts),
        penalties.repetition, penalties.frequency, penalties.presence,
    )  # fmt: skip
    kept = [banned, ids, bias, penalties.token_ids, penalties.counts]
    return native, [*kept, *([] if allowed is None else [allowed])]


def sample(
    kernels: Kernels, isa: Isa, logits: Float32Array, row: SamplingRow
) -> SampledToken | Failure:
    native, _arrays = native_row(row)
    count = row.num_top_logprobs
    ids, values = np.full(count, -7, np.int32), np.full((2, count), np.nan)
    candidates = SampleCandidates(pointer(ids), pointer(values[0]), pointer(values[1]))
    scratch = np.full(kernels.call(isa, "sample_bytes", len(logits)), 0xFF, np.uint8)
    result = SampleResult()
    before = logits.copy()
    kernels.call(isa, "sample", logits, len(logits), native, scratch, result, candidates)
    assert same_bits(logits, before), "the logits were changed"
    if result.status != Status.OK:
        return Failure(Status(result.status), result.token)
    found = result.num_candidates
    assert (ids[found:] == -7).all()
    return SampledToken(
        token_id=result.token,
        logprob=result.logprob,
        probability=result.probability,
        num_survivors=result.num_survivors,
        uniform=None if result.uniform < 0 else result.uniform,
        candidates=tuple(
            Candidate(int(i), float(logprob), float(probability))
            for i, logprob, probability in zip(
                ids[:found], values[0, :found], values[1, :found], strict=True
            )
        ),
    )


def python(logits: Float32Array, row: SamplingRow) -> SampledToken | None:
    try:
        return sample_row(logits, row)
    except SamplingError:
        return None


def assert_twins(kernels: Kernels, logits: Float32Array, row: SamplingRow) -> SampledToken | None:
    """Both bodies give exactly what Python gives: doubles are compared with ==."""
    expected = python(logits, row)
    for isa in kernels.isas:
        got = sample(kernels, isa, logits, row)
        if expected is None:
            assert isinstance(got, Failure), f"{isa}: {got}"
        else:
            assert got == expected, isa
    return expected


class Rows:
    """Random logits and strategies of all kinds."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def logits(self, vocab_size: int) -> Float32Array:
        rng = self.rng
        spread = float(rng.choice([0.0, 0.01, 1.0, 4.0, 20.0, 1e30]))
        logits = (spread * rng.standard_normal(vocab_size)).astype(np.float32)
        if rng.random() < 0.3:  # ties
            logits = np.round(logits)
        for value in (-np.inf, np.nan, np.inf, -0.0, 0.0):
            if rng.random() < 0.2:
                logits[rng.random(vocab_size) < rng.choice([0.001, 0.5, 0.999])] = value
        return logits

    def row(self, vocab_size: int) -> SamplingRow:
        rng = self.rng
        mask = None
        if rng.random() < 0.2:
            dense = rng.random(vocab_size + 31) < rng.choice([0.01, 0.5, 0.99])
            bits = np.packbits(dense[: -(-vocab_size // 32) * 32], bitorder="little")
            padded = np.zeros(-(-vocab_size // 32) * 4, np.uint8)
            padded[: len(bits)] = bits
            mask = padded.view(np.uint32)
        ids = rng.integers(0, vocab_size, 6)
        return SamplingRow(
            temperature=float(rng.choice([0, 1, 1, 0.7, 0.1, 3.7, 1e-42, 100])),
            top_k=int(rng.choice([0, 1, 2, 40, vocab_size, int(rng.integers(1, vocab_size + 9))])),
            top_p=float(rng.choice([1, 1, 0.95, 0.5, 1e-9, 0.999999, 1 - 1e-12, rng.random()])),
            seed=int(rng.integers(0, 2**64, dtype=np.uint64)),
            position=int(rng.integers(0, 2**32)),
            sample_index=int(rng.choice([0, 0, 1, 2**32 - 1])),
            banned_token_ids=tuple(map(int, ids[:3])) if rng.random() < 0.2 else (),
            logit_bias=(
                tuple((int(i), float(rng.choice([-np.inf, 100, -3.3, 1e-3]))) for i in ids[2:])
                if rng.random() < 0.2
                else ()
            ),
            penalties=self.penalties(vocab_size) if rng.random() < 0.3 else None,
            allowed_tokens=mask,
            num_top_logprobs=int(rng.choice([0, 1, 5, 50])),
        )

    def penalties(self, vocab_size: int) -> PenaltyTable:
        rng = self.rng
        size = int(rng.integers(0, min(vocab_size, 2000) + 1))
        return PenaltyTable(
            token_ids=rng.choice(vocab_size, size, replace=False).astype(np.int32),
            counts=rng.integers(1, 2**24 + 9, size, dtype=np.int32),
            repetition=float(rng.choice([1, 1.3, 0.5, 1e-300, 10])),
            frequency=float(rng.choice([0, 0.1, -2])),
            presence=float(rng.choice([0, 0.7, -1.9])),
        )


@pytest.mark.parametrize("seed", range(4))
def test_thousands_of_random_rows(kernels: Kernels, seed: int) -> None:
    rows, outcomes = Rows(seed), []
    for _ in range(750):
        size = int(rows.rng.choice([1, 2, 31, 64, 65, 300, 4095, 4096, 4097, 9000]))
        outcomes.append(assert_twins(kernels, rows.logits(size), rows.row(size)))
    refused = sum(outcome is None for outcome in outcomes)
    assert 5 < refused < 250, "the cases must hold both kinds"


def test_large_vocabularies(kernels: Kernels) -> None:
    rows = Rows(100)
    for size in (49_152, 128_256, 262_144):
        for _ in range(12):
            assert_twins(kernels, rows.logits(size), rows.row(size))


@pytest.mark.parametrize("top_p", [0.3, 0.95, 0.9999999])
@pytest.mark.parametrize("spread", [0.0, 0.3, 2.0])
def test_wide_nucleus(kernels: Kernels, spread: float, top_p: float) -> None:
    """More survivors than any first guess, sorted by radix."""
    logits = np.random.default_rng(5).standard_normal(60_000).astype(np.float32)
    row = SamplingRow(top_p=top_p, seed=3, position=9, num_top_logprobs=3)
    token = assert_twins(kernels, logits * np.float32(spread), row)
    assert token is not None and token.num_survivors > 256


@pytest.mark.parametrize("vocab_size", [1, 5, 4096, 10_000])
def test_every_draw_of_a_seed_range(kernels: Kernels, vocab_size: int) -> None:
    logits = np.random.default_rng(6).standard_normal(vocab_size).astype(np.float32)
    tokens = set()
    for position in range(200):
        token = assert_twins(kernels, logits, SamplingRow(seed=2**63 + 5, position=position))
        assert token is not None
        tokens.add(token.token_id)
    assert len(tokens) > min(vocab_size, 100) // 2


def test_draw_that_falls_on_a_border_takes_the_next_token(kernels: Kernels) -> None:
    """With 2**18 equal weights the sums are whole numbers, and so is every 64th target."""
    logits = np.zeros(2**18, np.float32)
    on_border = [n for n in range(600) if (uniform(11, n, 0) * 2**18).is_integer()]
    assert len(on_border) > 3
    for position in on_border:
        token = assert_twins(kernels, logits, SamplingRow(seed=11, position=position))
        assert token is not None and token.token_id == uniform(11, position, 0) * 2**18


def test_rows_that_cannot_be_sampled_say_why(kernels: Kernels, isa: Isa) -> None:
    finite = np.zeros(70, np.float32)
    nothing = np.array([np.nan, np.inf, -np.inf] * 20, np.float32)
    cases = [
        (nothing, SamplingRow(), Failure(Status.NO_FINITE_LOGIT, 0)),
        (finite, SamplingRow(banned_token_ids=(70,)), Failure(Status.UNKNOWN_TOKEN, 70)),
        (finite, SamplingRow(banned_token_ids=(-1,)), Failure(Status.UNKNOWN_TOKEN, -1)),
        (finite, SamplingRow(logit_bias=((2**30, 1.0),)), Failure(Status.UNKNOWN_TOKEN, 2**30)),
        (
            finite,
            SamplingRow(penalties=PenaltyTable(np.array([3, 71], np.int32), np.ones(2, np.int32))),
            Failure(Status.UNKNOWN_TOKEN, 71),
        ),
        (
            finite,
            SamplingRow(allowed_tokens=np.ones(2, np.uint32)),
            Failure(Status.MASK_SIZE, 0),
        ),
        (
            finite,
            SamplingRow(allowed_tokens=np.zeros(3, np.uint32), temperature=0.0),
            Failure(Status.NOTHING_ALLOWED, 0),
        ),
        (
            finite,
            SamplingRow(banned_token_ids=tuple(range(70)), top_k=3),
            Failure(Status.NOTHING_ALLOWED, 0),
        ),
    ]
    for logits, row, expected in cases:
        assert python(logits, row) is None
        assert sample(kernels, isa, logits, row) == expected


def test_chunk_sums_have_the_bits_of_the_python_ones(kernels: Kernels, isa: Isa) -> None:
    for n in (1, 4095, 4096, 4097, 20_000):
        weights = np.random.default_rng(n).random(n, dtype=np.float32)
        sums = np.empty(-(-n // 4096))
        kernels.call(isa, "chunk_sums", weights, n, sums)
        assert same_bits(sums, chunk_sums(weights))


def test_uniform_is_the_python_one(kernels: Kernels) -> None:
    rng = np.random.default_rng(7)
    cases = [(0, 0, 0, 0), (2**64 - 1, 2**32 - 1, 2**32 - 1, 2**32 - 1)]
    for _ in range(500):
        position, index, draw = map(int, rng.integers(0, 2**32, 3))
        cases.append((int(rng.integers(2**63)), position, index, draw))
    for case in cases:
        assert kernels.call("generic", "philox_uniform", *case) == uniform(*case)
