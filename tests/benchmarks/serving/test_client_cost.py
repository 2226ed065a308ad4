from __future__ import annotations

import pytest

from benchmarks.serving import client_cost


def test_both_clients_read_every_event(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(client_cost, "STREAMS", 2)
    monkeypatch.setattr(client_cost, "ROUNDS", 1)
    client_cost.main()
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["firstword", "httpx"]
    assert all(float(line.split()[1]) > 0 for line in lines)
