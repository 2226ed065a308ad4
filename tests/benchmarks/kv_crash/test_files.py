"""A store that gives wrong bytes fails the checks."""

from __future__ import annotations

import pytest

from benchmarks.endurance.report import Report
from benchmarks.kv_crash.files import StoreChecks


def test_an_unverified_store_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    report = Report()
    checks = StoreChecks(report, 1)
    checks.cuts(2)
    assert report.num_missed == 0
    monkeypatch.setattr(checks, "_flip", lambda home: _spoil(checks))
    monkeypatch.setattr("firstword.kvcache.disk.store.page_digest", Agreeable())
    checks.flips(2)
    assert report.num_missed == 1


class Agreeable:
    """A digest that agrees with everything, and pages that are none."""

    def __call__(self, page: bytes) -> Agreeable:
        return self

    def __eq__(self, other: object) -> bool:
        return True

    def __ne__(self, other: object) -> bool:
        return False

    __hash__ = None  # type: ignore[assignment]


def _spoil(checks: StoreChecks) -> None:
    checks._blocks = [type(b)(b.key, b.parent, b.token_ids, (b"", b"")) for b in checks._blocks]
