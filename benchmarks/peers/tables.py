"""Comparisons as a Markdown page and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import median

from benchmarks.peers.compare import Comparison, EngineResult
from firstword.bench.cases import Case
from firstword.bench.machine import Fingerprint

FORMAT = 1


def markdown(comparisons: Sequence[Comparison], machine: Fingerprint, day: str) -> str:
    """A page with one table per model."""
    lines = [
        f"# Engines side by side, {day}",
        "",
        f"{machine.cpu} ({', '.join(machine.features)}), {machine.cores} cores, "
        f"{machine.memory_bytes / 2**30:.0f} GiB, {machine.system}; "
        f"firstword {machine.firstword}, {_backend(comparisons)}.",
        "",
        "Tokens per second: the median of interleaved rounds, with the least and the most. The "
        "ratio is ours over the best peer's median, whatever its setting, and in brackets that of "
        "the fastest rounds. firstword's times hold scheduling, sampling and text; the peers' hold "
        "the computation alone.",
    ]
    for comparison in comparisons:
        lines += ["", *_table(comparison)]
    return "\n".join(lines) + "\n"


def _backend(comparisons: Sequence[Comparison]) -> str:
    """What our engine said that it computes with."""
    found = (d.get("backend") for c in comparisons for d in c.engines[0].details)
    return ", ".join(dict.fromkeys(str(backend) for backend in found if backend))


def _table(comparison: Comparison) -> list[str]:
    engines = [e for e in comparison.engines if e.error is None]
    loads = [load for load in comparison.load_averages if load is not None]
    busy = f", load average {min(loads):.1f} to {max(loads):.1f}" if loads else ""
    lines = [
        f"## {comparison.model.name}",
        "",
        f"{comparison.threads} threads, {len(comparison.load_averages)} rounds{busy}.",
        *_warning(comparison),
        "",
        "| | " + " | ".join(f"{e.name} ({e.version})" for e in engines) + " | ratio | limit |",
        "|---" * (len(engines) + 3) + "|",
    ]
    lines += [_row(comparison, case, engines) for case in comparison.cases]
    failed = [e for e in comparison.engines if e.error is not None]
    lines += [f"\n{e.name} did not run: {_reason(e.error)}" for e in failed]
    return lines


def _warning(comparison: Comparison) -> list[str]:
    if not comparison.is_busy:
        return []
    return [
        "",
        "**Other programs kept the machine busy.** Engines whose threads wait for each other "
        "without giving way lose most from that, so the medians' ratios flatter ours; those of "
        "the fastest rounds are nearer the truth, and neither is a result to rely on.",
    ]


def _row(comparison: Comparison, case: Case, engines: Sequence[EngineResult]) -> str:
    ratio = comparison.ratio(case)
    cells = [case.label, *(_cell(e.speeds.get(case, [])) for e in engines)]
    fastest = comparison.ratio(case, max)
    cells.append("" if ratio is None else f"{ratio:.2f}x ({fastest:.2f}x)")
    share = _share_of_limit(comparison.engines[0], case)
    cells.append("" if share is None else f"{share:.0%}")
    return "| " + " | ".join(cells) + " |"


def _cell(speeds: Sequence[float]) -> str:
    if not speeds:
        return ""
    return f"{median(speeds):.1f} ({min(speeds):.1f}-{max(speeds):.1f})"


def _share_of_limit(ours: EngineResult, case: Case) -> float | None:
    """Of the time of our decode step, what reading its bytes takes; the median of the rounds."""
    shares = []
    for details in ours.details:
        entry = details.get(case.label)
        share = entry.get("share_of_limit") if isinstance(entry, dict) else None
        if isinstance(share, float):
            shares.append(share)
    return median(shares) if shares else None


def _reason(text: str | None) -> str:
    """The last line of a message that says something."""
    lines = [line for line in (text or "").splitlines() if line.strip()]
    return lines[-1].strip()[:200] if lines else "it gave no reason"


def to_dict(
    comparisons: Sequence[Comparison], machine: Fingerprint, time: str
) -> dict[str, object]:
    """All numbers as plain values."""
    return {
        "format": FORMAT,
        "time": time,
        "machine": asdict(machine),
        "models": [_comparison(comparison) for comparison in comparisons],
    }


def _comparison(comparison: Comparison) -> dict[str, object]:
    return {
        "file": comparison.model.name,
        "file_bytes": _size(comparison.model),
        "threads": comparison.threads,
        "load_averages": comparison.load_averages,
        "ratios": {case.label: comparison.ratio(case) for case in comparison.cases},
        "engines": [
            {
                "name": engine.name,
                "version": engine.version,
                "error": engine.error,
                "speeds": {case.label: speeds for case, speeds in engine.speeds.items()},
                "details": engine.details,
            }
            for engine in comparison.engines
        ],
    }


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
