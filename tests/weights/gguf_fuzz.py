"""Hostile GGUF files in a process of its own: mutations, truncations, and what became of them.

Run as a program it takes a sound file, a kind of damage and a number, tries them all under a limit
on its address space, and prints a report as JSON.
"""

from __future__ import annotations

import json
import random
import resource
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import FrameType

import numpy as np

from firstword.errors import CheckpointError
from firstword.models.registry import build_model, model_kv_spec
from firstword.ops.cost import planned_batch
from firstword.ops.reference import ReferenceOps
from firstword.quant import DEQUANTIZABLE, dequantize
from firstword.text.tokenizer import Tokenizer
from firstword.weights.checkpoint import Checkpoint, open_checkpoint
from tests.weights.gguf_fields import Field, Fields, number_bytes

SECONDS = 2.0
SPARE_BYTES = 64 << 20
_EDGES = [0, 1, 2, 3, 5, 7, 31, 32, 33, 255, 256, 65_535, 65_536, 2**31 - 1, 2**31, 2**32 - 1]
_EDGES += [2**32, 2**33, 2**56, 2**61, 2**62, 2**63 - 1, 2**63, 2**64 - 32, 2**64 - 8, 2**64 - 1]
_NAMES = ("key", "name")


def exercise(checkpoint: Checkpoint) -> None:
    """What has to work on every file that opens: its tensors, its tokenizer, and one step."""
    for tensor in checkpoint.tensors.values():
        if tensor.type in DEQUANTIZABLE:
            dequantize(tensor)
    for value in checkpoint.tokenizer_metadata.values():
        if not isinstance(value, bool | int | float | str):
            value.to_list()
    assert len(checkpoint.fingerprint) == 32
    Tokenizer.from_gguf(checkpoint.tokenizer_metadata, str(checkpoint.path)).encode("Hi 中")
    run_one_step(checkpoint)


def run_one_step(checkpoint: Checkpoint) -> None:
    """One forward pass over three positions of one sequence; logits may be anything."""
    spec = model_kv_spec(checkpoint.config)
    ops = ReferenceOps("blas")
    model = build_model(checkpoint, ops, spec)
    num_groups = len(spec.groups)
    tables = tuple(np.full((1, 1), group, np.int32) for group in range(num_groups))
    slots = tuple(np.arange(3, dtype=np.int32) + 32 * group for group in range(num_groups))
    batch = replace(planned_batch([(0, 3)], num_groups), block_tables=tables, slot_mapping=slots)
    logits = model(batch, ops.new_kv_pool(spec, num_groups))
    assert logits.shape == (1, checkpoint.config.vocab_size)


def truncations(content: bytes) -> Iterator[bytes]:
    """The file cut at the start of every field, and one byte later."""
    cuts = {start for f in Fields.of(content) for start in (f.start, f.start + 1)}
    for cut in sorted(cuts):
        yield content[:cut]


def mutations(content: bytes, seed: int, count: int) -> Iterator[bytes]:
    """The file with one field changed, one time in four with two."""
    rng = random.Random(seed)
    by_kind: dict[str, list[Field]] = {}
    for f in Fields.of(content):
        by_kind.setdefault(f.kind, []).append(f)
    for _ in range(count):
        mutant = bytearray(content)
        fields = [_pick(rng, by_kind) for _ in range(rng.choice((1, 1, 1, 2)))]
        # From the back, so that a replacement of another length moves nothing still to change.
        for f in sorted(fields, key=lambda f: -f.start):
            mutant[f.start : f.start + f.size] = _replacement(rng, content, f, by_kind)
        yield bytes(mutant)


def _pick(rng: random.Random, by_kind: dict[str, list[Field]]) -> Field:
    """Any kind of field as often as any other, however many there are of each."""
    return rng.choice(by_kind[rng.choice(sorted(by_kind))])


def _replacement(
    rng: random.Random, content: bytes, f: Field, by_kind: dict[str, list[Field]]
) -> bytes:
    old = content[f.start : f.start + f.size]
    if f.kind in _NAMES and rng.random() < 0.5:
        return _another_name(rng, content, f, by_kind)
    if f.kind in ("magic", "string", "numbers", "data", *_NAMES):
        return _noise(rng, old)
    number = int.from_bytes(old, "little")
    choice = rng.randrange(4)
    if choice == 0:
        number += rng.choice((-32, -2, -1, 1, 2, 32, 64, 4096))
    elif choice == 1:
        other = rng.choice(by_kind[f.kind])  # such as the offset of another tensor
        number = int.from_bytes(content[other.start : other.start + other.size], "little")
    elif choice == 2:
        number = rng.choice((len(content), len(content) - f.start, number * 2, rng.randrange(45)))
    else:
        number = rng.choice(_EDGES)
    return number_bytes(number, f.size)


def _another_name(
    rng: random.Random, content: bytes, f: Field, by_kind: dict[str, list[Field]]
) -> bytes:
    """The name of another entry, so that it appears twice where the lengths are equal."""
    same = [o for o in by_kind[f.kind] if o.size == f.size and o.start != f.start]
    other = rng.choice(same or by_kind[f.kind])
    return content[other.start : other.start + other.size]


def _noise(rng: random.Random, old: bytes) -> bytes:
    changed = bytearray(old)
    for _ in range(rng.choice((1, 4, 64))):
        if changed:
            changed[rng.randrange(len(changed))] = rng.choice(
                (0, 1, 0x7F, 0xFF, rng.randrange(256))
            )
    return bytes(changed)


class TooSlow(Exception):
    """A file took longer than its time."""


def _alarm(number: int, frame: FrameType | None) -> None:
    raise TooSlow


def attempt(path: Path) -> tuple[str, str]:
    """Open a file and use it: ("loaded" | "refused" | "violation", what was said)."""
    try:
        exercise(open_checkpoint(path))
    except CheckpointError as error:
        if error.path != str(path) or not error.where or not error.problem:
            return "violation", f"an error that names no file or field: {error}"
        return "refused", str(error)
    except (Exception, MemoryError) as error:
        return "violation", f"{type(error).__name__}: {error}"
    return "loaded", ""


def limit_address_space(file_bytes: int) -> None:
    """Allow what this process takes now, the file, and SPARE_BYTES."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + file_bytes + SPARE_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def main(arguments: list[str]) -> None:
    """Try a batch: FILE truncations | FILE mutations SEED COUNT."""
    sound = Path(arguments[0])
    content = sound.read_bytes()
    kinds: dict[str, Callable[[], Iterator[bytes]]] = {
        "truncations": lambda: truncations(content),
        "mutations": lambda: mutations(content, int(arguments[2]), int(arguments[3])),
    }
    attempt(sound)  # so that what is imported late is there before the limit
    limit_address_space(len(content))
    signal.signal(signal.SIGALRM, _alarm)
    outcomes: Counter[str] = Counter()
    violations: list[str] = []
    slowest = 0.0
    victim = sound.with_suffix(".mutant.gguf")
    for number, mutant in enumerate(kinds[arguments[1]]()):
        # A new file each time: cutting one that is mapped would pull it from under its views.
        victim.unlink(missing_ok=True)
        victim.write_bytes(mutant)
        signal.setitimer(signal.ITIMER_REAL, SECONDS)
        start = time.perf_counter()
        outcome, said = attempt(victim)
        signal.setitimer(signal.ITIMER_REAL, 0)
        slowest = max(slowest, time.perf_counter() - start)
        outcomes[outcome] += 1
        if outcome == "violation":
            violations.append(f"{arguments[1]} {number}: {said}")
    print(json.dumps({"outcomes": outcomes, "violations": violations, "slowest": slowest}))


if __name__ == "__main__":
    main(sys.argv[1:])
