"""Which setting of each peer is its best, row by row: tried once, then read from a file.

Not here: how a setting is tried (compare).
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.peers.engine import Engine
from benchmarks.peers.results import EngineResult, RowResult
from benchmarks.peers.rows import Row

FORMAT = 1


@dataclass(frozen=True)
class Tried:
    """The best setting of an engine on a row.

    Args:
        setting: as the engine names it.
        speed: tokens per second, the best of the rounds; 0 where the engine does not run the row.
    """

    setting: str
    speed: float


@dataclass
class Choices:
    """Best settings by row id and engine name."""

    tried: defaultdict[str, dict[str, Tried]] = field(default_factory=lambda: defaultdict(dict))

    def add(self, results: Sequence[RowResult]) -> None:
        """Take the best setting of each engine and row; what was tried before gives way."""
        found = defaultdict[tuple[str, str], list[EngineResult]](list)
        for result in results:
            for engine in result.engines:
                found[result.row, engine.name].append(engine)
        for (row, name), settings in found.items():
            best = max(settings, key=lambda engine: max(engine.speeds, default=0.0))
            self.tried[row][name] = Tried(best.setting, max(best.speeds, default=0.0))

    def contenders(self, row: Row, engines: Sequence[Engine], least: float = 0.0) -> list[Engine]:
        """The peers of a row, each in one setting.

        Args:
            row: what they run.
            engines: all settings; where nothing was tried, an engine's first one is taken.
            least: leave out peers that were slower than this share of the best.
        """
        tried = self.tried.get(row.id, {})
        names = list(dict.fromkeys(engine.name for engine in engines))
        counted = [name for name in names if row.is_counted(name)]
        top = max((tried[name].speed for name in counted if name in tried), default=0.0)
        chosen = []
        for name in counted:
            settings = [engine for engine in engines if engine.name == name]
            best = tried.get(name)
            if best is None:
                chosen.append(settings[0])
            elif best.speed > 0 and best.speed >= least * top:
                chosen += [e for e in settings if e.setting == best.setting][:1]
        return chosen

    def save(self, path: Path) -> None:
        """Write the file."""
        path.parent.mkdir(parents=True, exist_ok=True)
        rows = {
            row: {name: {"setting": t.setting, "speed": t.speed} for name, t in named.items()}
            for row, named in self.tried.items()
        }
        path.write_text(json.dumps({"format": FORMAT, "rows": rows}, indent=1) + "\n")

    @classmethod
    def load(cls, path: Path) -> Choices:
        """Read the file; one that is not there, or has another format, is empty."""
        choices = cls()
        report = json.loads(path.read_text()) if path.is_file() else {}
        if report.get("format") == FORMAT:
            for row, named in report["rows"].items():
                choices.tried[row] = {name: Tried(**tried) for name, tried in named.items()}
        return choices
