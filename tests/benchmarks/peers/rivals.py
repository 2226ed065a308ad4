"""Engines that measure nothing."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field

from benchmarks.peers.session import EngineFailedError, Job, Session
from firstword.bench.cases import Case

_DRIVER = """
import json, sys
print("READY")
for speed in [float(word) for word in sys.argv[1].split()]:
    sys.stdout.flush()
    kind, tokens, depth, batch = input().split()
    print("a library's words")
    tokens = int(tokens) * int(batch)
    print("RESULT", json.dumps({"tokens": tokens, "seconds": tokens / speed, "steps": 1,
        "num_bytes": 2, "linear_macs": 30.0, "narrow_macs": 10.0, "weight_bytes": 10**9,
        "kv_bytes": 10**8, "backend": "native (avx2)"}))
print("FAILED there is no more", flush=True)
"""


@dataclass
class Rival:
    """Gives speeds in turn, from a process of its own, and fails where there is none.

    Args:
        name, speeds, setting, version: what it says of itself.
        calls: gets its name when it is opened.
        jobs: it was opened for.
        loads: whether it can be opened.
        installs: whether it can be installed.
        most: sequences at once.
    """

    name: str
    speeds: list[float] = field(default_factory=list)
    setting: str = ""
    version: str = "1"
    calls: list[str] = field(default_factory=list)
    jobs: list[Job] = field(default_factory=list)
    loads: bool = True
    installs: bool = True
    most: int = 99

    def install(self) -> None:
        if not self.installs:
            raise EngineFailedError("no compiler")

    def can_run(self, case: Case) -> bool:
        return case.batch <= self.most

    def open(self, job: Job) -> Session:
        self.calls.append(self.name)
        self.jobs.append(job)
        if not self.loads:
            raise EngineFailedError("many words\nit does not load this file")
        words = " ".join(map(str, self.speeds))
        return Session([sys.executable, "-c", _DRIVER, words])
