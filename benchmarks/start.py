"""Time from starting a process to the first byte of its answer: `firstword run` and llama.cpp.

    .venv/bin/python -m benchmarks.start

Runs take turns, on the same file and prompt, with warm caches; medians and quartiles are printed.
Also how long a model takes to be ready, with and without its panels made, per GB of the file. Not
here: how fast tokens come after that (peers).
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles

from benchmarks.peers.llama_cpp import LlamaCpp
from firstword.weights.catalogue import resolve
from firstword.weights.store import default_home

PROMPT = "What is gravity?"
MODELS = ("smollm2:135m", "gemma3:270m")
_READY = """
import sys, time
start = time.perf_counter()
from firstword import LLM
from firstword.ops import native_plan
imported = time.perf_counter()
LLM(sys.argv[1], threads=int(sys.argv[2]))
print(time.perf_counter() - imported)
"""


@dataclass(frozen=True)
class Times:
    """Seconds of one kind of run.

    Args:
        name: what was run.
        seconds: of each run.
    """

    name: str
    seconds: Sequence[float]

    @property
    def median(self) -> float:
        """The middle one."""
        return median(self.seconds)

    def __str__(self) -> str:
        low, _, high = quantiles(self.seconds, n=4)
        return f"{self.name:24} {self.median * 1e3:7.0f} ms  ({low * 1e3:.0f} to {high * 1e3:.0f})"


def first_byte(command: Sequence[str], environment: Mapping[str, str] | None = None) -> float:
    """Seconds until a command writes its first byte to standard output.

    Raises:
        RuntimeError: it ended without one.
    """
    start = time.perf_counter()
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, **(environment or {})},
    ) as process:
        assert process.stdout is not None
        byte = os.read(process.stdout.fileno(), 1)
        seconds = time.perf_counter() - start
        process.stdout.read()
    if not byte:
        raise RuntimeError(f"{command[0]} wrote nothing: run it by hand to see why")
    return seconds


def wall(command: Sequence[str]) -> float:
    """Seconds that a command takes in all.

    Raises:
        CalledProcessError: it failed.
    """
    start = time.perf_counter()
    subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=True)
    return time.perf_counter() - start


def interleaved(kinds: Mapping[str, Callable[[], float]], num_runs: int) -> list[Times]:
    """Run each kind in turn, once to warm up and then `num_runs` times."""
    seconds: dict[str, list[float]] = {name: [] for name in kinds}
    for i in range(num_runs + 1):
        for name, run in kinds.items():
            taken = run()
            if i:
                seconds[name].append(taken)
    return [Times(name, values) for name, values in seconds.items()]


def compare(model: str, threads: int, num_runs: int) -> None:
    """Print the times of both engines for one model, and their ratio."""
    path = resolve(model)
    firstword = str(Path(sys.executable).with_name("firstword"))
    ours = [
        firstword, "run", "-m", model, "--raw", "--max-tokens", "1", "--temperature", "0",
        "--threads", str(threads), PROMPT,
    ]  # fmt: skip
    peer = LlamaCpp()
    peer.install()
    theirs = [
        str(peer.home.folder / "build" / "bin" / "llama-completion"),
        "-m", str(path), "-n", "1", "--no-warmup",
        "-no-cnv", "--temp", "0", "-t", str(threads), "-p", PROMPT,
    ]  # fmt: skip
    kinds = {"firstword, first byte": lambda: first_byte(ours), "llama.cpp": lambda: wall(theirs)}
    first, other = interleaved(kinds, num_runs)
    print(f"{model}\n  {first}\n  {other}\n  ratio {first.median / other.median:.2f}", flush=True)


def ready(model: str, threads: int, num_runs: int) -> None:
    """Print how long a model takes to load, imports left out: first and later starts."""
    size = resolve(model).stat().st_size / 1e9
    command = [sys.executable, "-c", _READY, str(resolve(model)), str(threads)]

    def load(home: str) -> float:
        environment = {**os.environ, "FIRSTWORD_HOME": home}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        return float(done.stdout)

    def first() -> float:
        # On the disk of the usual cache, not in a folder that may lie in memory.
        with tempfile.TemporaryDirectory(dir=default_home()) as home:
            return load(home)

    with tempfile.TemporaryDirectory(dir=default_home()) as home:
        load(home)
        kinds = {"ready, first": first, "ready, later": lambda: load(home)}
        for times in interleaved(kinds, num_runs):
            print(f"  {times}  {times.median / size:.2f} s per GB", flush=True)


def main() -> None:
    """Compare all models asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("models", nargs="*", default=MODELS, help="catalogue names or paths")
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    for model in options.models:
        compare(model, options.threads, options.runs)
        ready(model, options.threads, max(options.runs // 2, 2))


if __name__ == "__main__":
    main()
