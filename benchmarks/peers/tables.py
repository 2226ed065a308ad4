"""Results as a Markdown page. Not here: the numbers themselves (results)."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from benchmarks.peers.results import EngineResult, Results, RowResult
from benchmarks.peers.rows import BY_ID, Row, parse_row

_EXPLANATION = (
    "Tokens per second, all sequences together: the median of interleaved rounds, with the least "
    "and the most. The ratio is ours over the best peer's median, and in brackets that of the "
    "fastest rounds. The limit of one sequence that decodes is what reading its bytes at the read "
    "bandwidth of the same minutes allows; that of all else is what the processor's int8 "
    "multiply-adds allow the linear layers. Our times hold scheduling, sampling and text; the "
    "peers' hold little but the computation."
)
_BUSY = (
    "**Other programs kept the machine busy.** Engines whose threads wait for each other without "
    "giving way lose most from that, so the medians' ratios flatter ours, and neither those nor "
    "the ones of the fastest rounds are results to rely on. It concerns:"
)


def markdown(results: Results, day: str) -> str:
    """The page.

    Args:
        results: what was measured.
        day: for the title.
    """
    machine, rows = results.machine, list(results.rows.values())
    memory = f"{machine.get('memory_bytes', 0) / 2**30:.0f} GiB"
    lines = [
        f"# Engines side by side, {day}",
        "",
        f"{machine.get('cpu')} ({', '.join(machine.get('features', ()))}), "
        f"{machine.get('cores')} cores, {memory}, {machine.get('system')}; "
        f"firstword {machine.get('firstword')}, {_backends(rows)}.",
        "",
        _EXPLANATION,
        "",
        "| row | rounds | firstword | best peer | its speed | ratio | limit | of it | goal | met |",
        "|---" * 10 + "|",
        *(_summary(result) for result in rows),
        "",
        *_warning(rows),
        "## All engines",
        "",
        "| row | engine | setting | tokens/s | resident | |",
        "|---" * 6 + "|",
        *(_line(result, engine) for result in rows for engine in result.engines),
        "",
        "## Memory of our process",
        "",
        "| row | resident | peak | weights | KV pool | allowed | met |",
        "|---" * 7 + "|",
        *(_memory(result) for result in rows if result.ours.memory and result.memory_allowed),
        "",
        "## The machine meanwhile",
        "",
        "| row | time | threads | reads GB/s | GMAC/s, 4 and 8 bits | load average |",
        "|---" * 6 + "|",
        *(_conditions(result) for result in rows),
    ]
    return "\n".join(lines) + "\n"


def row_of(result: RowResult) -> Row:
    """The row of the table, or one without a goal."""
    return BY_ID.get(result.row) or parse_row(result.row)


def _backends(rows: Sequence[RowResult]) -> str:
    """What our engine said that it computes with."""
    found = (row.ours.details.get("backend") for row in rows if row.engines)
    return ", ".join(dict.fromkeys(str(backend) for backend in found if backend))


def _summary(result: RowResult) -> str:
    row = row_of(result)
    best, ratio, share = result.best_peer(row.goal), result.ratio(row.goal), result.share(row)
    limit = result.limit(row.limit)
    fastest = result.ratio(row.goal, max)
    met = row.goal.is_met(ratio, share)
    cells = (
        result.row,
        str(max((len(engine.speeds) for engine in result.engines), default=0)),
        _speeds(result.ours.speeds),
        "" if best is None else f"{best.name} {best.setting}".strip(),
        "" if best is None else _speeds(best.speeds),
        "" if ratio is None else f"{ratio:.2f}x ({fastest:.2f}x)",
        "" if limit is None else f"{limit:,.1f} ({row.limit})",
        "" if share is None else f"{share:.0%}",
        str(row.goal),
        "" if met is None else "yes" if met else "no",
    )
    return "| " + " | ".join(cells) + " |"


def _line(result: RowResult, engine: EngineResult) -> str:
    name = f"{engine.name} ({engine.version})"
    error = "" if engine.error is None else f"did not run: {_reason(engine.error)}"
    size = "" if engine.memory is None else _megabytes(engine.memory.resident)
    cells = (result.row, name, engine.setting, _speeds(engine.speeds), size, error)
    return "| " + " | ".join(cells) + " |"


def _memory(result: RowResult) -> str:
    memory, allowed = result.ours.memory, result.memory_allowed
    assert memory is not None and allowed is not None
    planned = (result.ours.details["weight_bytes"], result.ours.details["kv_bytes"])
    sizes = (memory.resident, memory.peak, *planned, allowed)
    met = "yes" if memory.resident <= allowed else "no"
    return "| " + " | ".join([result.row, *map(_megabytes, sizes), met]) + " |"


def _conditions(result: RowResult) -> str:
    loads = [load for load in result.load_averages if load is not None]
    cells = (
        result.row,
        result.time,
        str(result.threads),
        f"{result.read_bandwidth / 1e9:.1f}",
        f"{result.narrow_rate / 1e9:.0f}, {result.wide_rate / 1e9:.0f}",
        f"{min(loads):.1f} to {max(loads):.1f}" if loads else "",
    )
    return "| " + " | ".join(cells) + " |"


def _warning(rows: Sequence[RowResult]) -> list[str]:
    busy = [result.row for result in rows if result.is_busy]
    return [f"{_BUSY} {', '.join(busy)}.", ""] if busy else []


def _speeds(speeds: Sequence[float]) -> str:
    if not speeds:
        return ""
    return f"{median(speeds):,.1f} ({min(speeds):,.1f}-{max(speeds):,.1f})"


def _megabytes(size: float) -> str:
    return f"{size / 1e6:,.0f} MB"


def _reason(text: str) -> str:
    """The last line of a message that says something."""
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1].strip().replace("|", "/")[:200] if lines else "it gave no reason"
