"""ik_llama.cpp from its wheel, driven through the C interface that the package binds."""

from __future__ import annotations

from dataclasses import dataclass, field

from benchmarks.peers.engine import DRIVERS
from benchmarks.peers.environment import Environment, Packaged
from benchmarks.peers.session import Job, Session
from firstword.bench.cases import Case

_RELEASE = "0.1.5"
_HOME = Environment("ik_llama.cpp", (f"ik-llama-cpp-python=={_RELEASE}",))


@dataclass(frozen=True)
class IkLlamaCpp(Packaged):
    """ik_llama.cpp in one setting.

    Args:
        flags: "repack" interleaves rows of the weights when they are loaded (its -rtr),
            "flash-attention" turns that on, which its wheel refuses on processors without VNNI.
        home: where it is installed.
    """

    flags: tuple[str, ...] = ()
    release = _RELEASE
    home: Environment = field(default=_HOME, kw_only=True)
    name: str = "ik_llama.cpp"

    @property
    def setting(self) -> str:
        """The flags."""
        return " ".join(self.flags)

    def can_run(self, case: Case) -> bool:
        """Prompts one at a time, answers together."""
        return case.kind == "decode" or case.batch == 1

    def open(self, job: Job) -> Session:
        """Load a model."""
        driver = str(DRIVERS / "drive_ik_llama_cpp.py")
        return Session([str(self.home.python), driver, *job.arguments, *self.flags])


SETTINGS = (
    IkLlamaCpp(),
    IkLlamaCpp(("repack",)),
    IkLlamaCpp(("flash-attention",)),
    IkLlamaCpp(("repack", "flash-attention")),
)
"""The usual setting first, then those that are faster on some files and machines."""
