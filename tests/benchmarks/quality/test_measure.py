from __future__ import annotations

from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from benchmarks.quality.divergence import Predictions, compare
from benchmarks.quality.measure import FIRSTWORD, Subjects, measure_windows
from firstword.quant import GGMLType
from tests.logits import chunks_of_logits
from tests.weights.tiny_gguf import write_tiny_llama

WINDOW = [(7 * i * i + 3 * i + 11) % 250 for i in range(300)]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_llama(tmp_path_factory.mktemp("quality") / "m.gguf", dtype=GGMLType.Q8_0)


def same(a: Predictions, b: Predictions) -> bool:
    return bool((a.kl == b.kl).all() and (a.logprob == b.logprob).all())


def test_chunks_of_a_window_are_compared_in_their_order(path: Path) -> None:
    with closing(Subjects(path, 1, None)) as subjects:
        found = subjects.measure(WINDOW)
        reference, native = (
            np.concatenate(list(chunks_of_logits(model, WINDOW)))[:-1]
            for model in (subjects.reference, subjects.native)
        )
    assert list(found) == [FIRSTWORD]
    assert same(found[FIRSTWORD], compare(reference, native, WINDOW[1:]))
    assert 0 < found[FIRSTWORD].kl.mean() < 0.01


def test_windows_that_are_done_are_read_and_those_of_other_text_refused(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(Subjects(path, 1, None)) as subjects:
        (first,) = measure_windows(subjects, [WINDOW], tmp_path)
        monkeypatch.setattr(subjects, "measure", lambda window: pytest.fail("computed again"))
        (again,) = measure_windows(subjects, [WINDOW], tmp_path)
        assert same(first[FIRSTWORD], again[FIRSTWORD])
        with pytest.raises(ValueError, match="is of another text"):
            list(measure_windows(subjects, [WINDOW[::-1]], tmp_path))
