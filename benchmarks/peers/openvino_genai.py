"""OpenVINO GenAI from its wheel, reading GGUF files itself."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.peers.engine import Measured, run
from benchmarks.peers.environment import Environment
from firstword.bench.cases import Case

_RELEASE = "2026.4.1.0"
_HOME = Environment("openvino_genai", (f"openvino-genai=={_RELEASE}",))
_DRIVER = Path(__file__).parent / "drivers" / "drive_openvino_genai.py"


@dataclass(frozen=True)
class OpenVINOGenAI:
    """OpenVINO GenAI in its usual setting.

    Args:
        name: as reported.
        home: where it is installed.
    """

    name: str = "OpenVINO GenAI"
    home: Environment = _HOME

    @property
    def version(self) -> str:
        """The package's release."""
        return _RELEASE

    def install(self) -> None:
        """Install the package."""
        self.home.install()

    def measure(self, model: Path, cases: Sequence[Case], threads: int) -> Measured:
        """One process for the cases it can run: one sequence, and prompts without a prefix."""
        able = [c for c in cases if c.batch == 1 and (c.kind == "decode" or c.depth == 0)]
        job = {
            "model": str(model),
            "threads": threads,
            "cases": [asdict(case) for case in able],
        }
        output = run([str(self.home.python), "-I", str(_DRIVER), json.dumps(job)])
        speeds = json.loads(output.splitlines()[-1])
        return Measured(dict(zip(able, speeds, strict=True)))


SETTINGS = (OpenVINOGenAI(),)
