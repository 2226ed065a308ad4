"""llama.cpp's logits of the same token ids, by a small program linked with its library.

Its own `llama-perplexity` would not do: it tokenizes by itself, scores half of each window, and
keeps the other side's probabilities in 16 bits.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

import numpy as np

from benchmarks.peers.engine import run
from benchmarks.peers.llama_cpp import LlamaCpp
from firstword.batch import Float32Array, Int32Array

SOURCE = Path(__file__).with_name("llama_logits.cpp")
CHUNK = 512
"""llama.cpp's own default."""


class LlamaLogits:
    """A process that computes logits.

    Args:
        model: the file.
        threads: to compute with.
        program: what `build` made.
    """

    def __init__(self, model: Path, threads: int, program: Path) -> None:
        self._log = tempfile.TemporaryFile()  # a pipe that nobody reads would fill up
        self._process = subprocess.Popen(
            [program, model, str(threads), str(CHUNK)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
        )

    def logits(self, ids: Sequence[int], rows: int, vocab_size: int) -> Iterator[Float32Array]:
        """Logits after every position of a window, `rows` at a time -> [<= rows, V] each."""
        window: Int32Array = np.array([len(ids), *ids], dtype=np.int32)
        stdin = self._pipe(self._process.stdin)
        stdin.write(window.tobytes())
        stdin.flush()
        for start in range(0, len(ids), rows):
            shape = (min(rows, len(ids) - start), vocab_size)
            yield self._read(shape)

    def _read(self, shape: tuple[int, int]) -> Float32Array:
        out: Float32Array = np.empty(shape, dtype=np.float32)
        rest = out.data.cast("B")
        while rest:
            count = self._pipe(self._process.stdout).readinto(rest)  # type: ignore[attr-defined]
            if not count:
                raise RuntimeError(f"llama.cpp ended early:\n{self._said()}")
            rest = rest[count:]
        return out

    def _said(self) -> str:
        self._log.seek(0)
        return self._log.read().decode(errors="replace")[-2000:]

    @staticmethod
    def _pipe(pipe: IO[bytes] | None) -> IO[bytes]:
        assert pipe is not None
        return pipe

    def close(self) -> None:
        """End the process, even if it is about to write what nobody will read."""
        self._process.kill()
        self._process.communicate()
        self._log.close()


def build(peer: LlamaCpp) -> Path:
    """Install llama.cpp unless it is there, and link the program with it.

    Raises:
        EngineFailedError: there is no compiler, or it failed.
    """
    peer.install()
    source, libraries = peer.source(), peer.libraries
    program = libraries / "firstword-llama-logits"
    if not program.is_file() or program.stat().st_mtime < SOURCE.stat().st_mtime:
        run(
            [
                os.environ.get("CXX", "c++"), "-std=c++17", "-O2", str(SOURCE), "-o", str(program),
                f"-I{source / 'include'}", f"-I{source / 'ggml' / 'include'}", f"-L{libraries}",
                "-lllama", "-lggml", "-lggml-base", f"-Wl,-rpath,{libraries}",
            ]
        )  # fmt: skip
    return program
