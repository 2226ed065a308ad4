"""ik_llama.cpp from its wheel, driven through the C interface that the package binds."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.peers.engine import Measured, run
from benchmarks.peers.environment import Environment
from firstword.bench.cases import Case

_RELEASE = "0.1.5"
_DRIVER = Path(__file__).parent / "drivers" / "drive_ik_llama_cpp.py"
_HOME = Environment("ik_llama.cpp", (f"ik-llama-cpp-python=={_RELEASE}",))


@dataclass(frozen=True)
class IkLlamaCpp:
    """ik_llama.cpp in one setting; flash attention is off, as its package wants it without VNNI.

    Args:
        name: as reported.
        repack: interleave rows of the weights when they are loaded.
        home: where it is installed.
    """

    name: str = "ik_llama.cpp"
    repack: bool = False
    home: Environment = _HOME

    @property
    def version(self) -> str:
        """The package's release."""
        return _RELEASE

    def install(self) -> None:
        """Install the package."""
        self.home.install()

    def measure(self, model: Path, cases: Sequence[Case], threads: int) -> Measured:
        """One process for all cases of single sequences."""
        single = [case for case in cases if case.batch == 1]
        job = {
            "model": str(model),
            "threads": threads,
            "repack": self.repack,
            "cases": [asdict(case) for case in single],
        }
        output = run([str(self.home.python), "-I", str(_DRIVER), json.dumps(job)])
        speeds = json.loads(output.splitlines()[-1])
        return Measured(dict(zip(single, speeds, strict=True)))


SETTINGS = (IkLlamaCpp(), IkLlamaCpp("ik_llama.cpp, repacked", repack=True))
"""The usual setting, and the one that its authors advise for processors."""
