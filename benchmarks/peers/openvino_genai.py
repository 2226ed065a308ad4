"""OpenVINO GenAI from its wheel, reading GGUF files itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from benchmarks.peers.engine import DRIVERS
from benchmarks.peers.environment import Environment, Packaged
from benchmarks.peers.session import Job, Session
from firstword.bench.cases import Case

_RELEASE = "2026.4.1.0"
_HOME = Environment("openvino_genai", (f"openvino-genai=={_RELEASE}",))


@dataclass(frozen=True)
class OpenVINOGenAI(Packaged):
    """OpenVINO GenAI in one setting.

    Args:
        properties: of its pipeline, as NAME=VALUE.
        environment: variables of its process.
        home: where it is installed.
    """

    properties: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    release = _RELEASE
    home: Environment = field(default=_HOME, kw_only=True)
    name: str = "OpenVINO GenAI"

    @property
    def setting(self) -> str:
        """The properties."""
        return " ".join(self.properties)

    def can_run(self, case: Case) -> bool:
        """One sequence, and prompts without a prefix."""
        return case.batch == 1 and (case.kind == "decode" or case.depth == 0)

    def open(self, job: Job) -> Session:
        """Load a model."""
        driver = str(DRIVERS / "drive_openvino_genai.py")
        command = [str(self.home.python), driver, *job.arguments, *self.properties]
        return Session(command, self.environment)


SETTINGS = (
    OpenVINOGenAI(),
    OpenVINOGenAI(("KV_CACHE_PRECISION=f16",)),
    OpenVINOGenAI(("KV_CACHE_PRECISION=f32",)),
    OpenVINOGenAI(("INFERENCE_PRECISION_HINT=f32",)),
    OpenVINOGenAI(("DYNAMIC_QUANTIZATION_GROUP_SIZE=64",)),
)
"""The usual setting first (keys and values as int8), then those that are faster at times."""

_AVX2 = {"ONEDNN_MAX_CPU_ISA": "AVX2", "OV_CPU_MAX_ISA": "AVX2"}
"""The first one bounds the kernels of oneDNN, which do the linear layers, the second OpenVINO's."""

AVX2_SETTINGS = tuple(replace(setting, environment=_AVX2) for setting in SETTINGS)
