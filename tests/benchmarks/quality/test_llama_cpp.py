from __future__ import annotations

import sys
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from benchmarks.quality.llama_cpp import LlamaLogits

PROGRAM = f"""#!{sys.executable}
import struct, sys
if len(sys.argv) != 4 or sys.argv[1] != "model.gguf":
    sys.exit("no model")
while head := sys.stdin.buffer.read(4):
    (count,) = struct.unpack("=i", head)
    ids = struct.unpack(f"={{count}}i", sys.stdin.buffer.read(4 * count))
    for token in ids:
        sys.stdout.buffer.write(struct.pack("=3f", token, 2 * token, 0.5))
    sys.stdout.buffer.flush()
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """One that answers with logits made of the token ids, V = 3."""
    path = tmp_path / "logits"
    path.write_text(PROGRAM)
    path.chmod(0o755)
    return path


def test_windows_go_in_and_rows_come_out(program: Path) -> None:
    with closing(LlamaLogits(Path("model.gguf"), 2, program)) as llama:
        for ids in ([4, 5, 6, 7, 8], [9]):
            chunks = list(llama.logits(ids, 2, 3))
            assert [len(chunk) for chunk in chunks] == [2, 2, 1][-len(chunks) :]
            wanted = [[t, 2 * t, 0.5] for t in ids]
            np.testing.assert_array_equal(np.concatenate(chunks), np.array(wanted, np.float32))


def test_an_early_end_tells_what_the_program_said(program: Path) -> None:
    with (
        closing(LlamaLogits(Path("other.gguf"), 2, program)) as llama,
        pytest.raises((RuntimeError, BrokenPipeError), match=r"no model|Broken pipe"),
    ):
        list(llama.logits([1, 2], 2, 3))


def test_closing_does_not_wait_for_rows_that_nobody_reads(program: Path) -> None:
    llama = LlamaLogits(Path("model.gguf"), 2, program)
    next(llama.logits([1] * 50_000, 1, 3))
    llama.close()
