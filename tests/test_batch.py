from __future__ import annotations

from dataclasses import FrozenInstanceError

import numpy as np
import pytest

from firstword.batch import Candidate, CopySpan, SampledToken, StepResult
from firstword.errors import SamplingError
from tests.ops.builders import Chunk, make_batch


def test_a_flat_batch_knows_its_sizes_and_rows() -> None:
    batch = make_batch(Chunk((4, 2), 30, 35), Chunk((7,), 3, 4), Chunk((1,), 0, 2))
    assert (batch.num_tokens, batch.num_seqs) == (8, 3)
    assert [batch.rows_of(i) for i in range(3)] == [slice(0, 5), slice(5, 6), slice(6, 8)]
    assert batch.positions[batch.rows_of(0)].tolist() == [30, 31, 32, 33, 34]
    assert isinstance(batch.rows_of(0).start, int)  # not a NumPy scalar of 32 bits
    with pytest.raises(FrozenInstanceError):
        batch.token_ids = np.zeros(1, np.int32)  # type: ignore[misc]


def test_a_copy_is_source_destination_count() -> None:
    assert CopySpan(3, 5, 7) == (3, 5, 7)
    assert CopySpan(source=3, destination=5, num_tokens=7).destination == 5


def test_sampled_tokens_compare_without_their_logits() -> None:
    """Equality of results must not stumble over arrays."""
    plain = SampledToken(3, -1.0, 1.0, 1, None, (Candidate(3, -1.0, 1.0),))
    full = SampledToken(3, -1.0, 1.0, 1, None, (Candidate(3, -1.0, 1.0),), np.zeros(5, np.float32))
    assert plain == full
    assert "logits" not in repr(full)


def test_a_result_holds_tokens_and_failures_side_by_side() -> None:
    failure = SamplingError("no finite logit")
    result = StepResult((SampledToken(1, 0.0, 1.0, 1), failure))
    assert result.sampled[1] is failure
    assert (result.forward_ms, result.sampling_ms) == (0.0, 0.0)
