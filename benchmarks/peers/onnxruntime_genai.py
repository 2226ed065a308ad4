"""ONNX Runtime GenAI from its wheel, on an int4 model that its builder makes of our file's values.

It reads no GGUF: weights are requantized, and the output matrix gets 4 bits as well. Sizes are
alike, values are not.
"""

from __future__ import annotations

import sys
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.peers.engine import DRIVERS, run
from benchmarks.peers.environment import Environment, Packaged
from benchmarks.peers.float_checkpoint import write_float_checkpoint
from benchmarks.peers.session import EngineFailedError, Job, Session
from firstword.bench.cases import Case
from firstword.errors import FirstwordError

_RELEASE = "0.18.0"
# The builder needs torch; this release of it without a suffix is one for processors only.
_HOME = Environment(
    "onnxruntime_genai",
    (
        f"onnxruntime-genai=={_RELEASE}",
        "torch==2.13.0",
        "transformers==5.24.0",
        "onnx==1.23.2",
        "onnx-ir==1.1.0",
    ),
)
ACCURACY_LEVEL = "4"
"""Activations as int8."""


@dataclass(frozen=True)
class OnnxRuntimeGenAI(Packaged):
    """ONNX Runtime GenAI in its usual setting.

    Args:
        home: where it is installed.
    """

    release = _RELEASE
    home: Environment = _HOME
    name: str = "ONNX Runtime GenAI"
    setting: str = ""

    def can_run(self, case: Case) -> bool:
        """One sequence, and prompts without a prefix."""
        return case.batch == 1 and (case.kind == "decode" or case.depth == 0)

    def open(self, job: Job) -> Session:
        """Load a model, which is built the first time."""
        folder = self._built(job.model)
        driver = str(DRIVERS / "drive_onnxruntime_genai.py")
        return Session([str(self.home.python), driver, *replace(job, model=folder).arguments])

    def _built(self, model: Path) -> Path:
        """The folder of the model that was made of this file."""
        folder = self.home.folder / "models" / f"{model.stem}-{model.stat().st_size}"
        if (folder / "genai_config.json").is_file():
            return folder
        print(f"building {folder.name} for {self.name}", file=sys.stderr)
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as place:
            floats = Path(place) / "floats"
            try:
                write_float_checkpoint(model, floats)
            except (FirstwordError, KeyError) as error:
                raise EngineFailedError(f"no checkpoint of floats: {error}") from error
            builder = str(DRIVERS / "build_onnx_model.py")
            run([str(self.home.python), builder, str(floats), str(folder), ACCURACY_LEVEL])
        return folder


SETTINGS = (OnnxRuntimeGenAI(),)
