"""Results for people, on 80 columns, and for programs, as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import median

from firstword.bench.cases import Case
from firstword.bench.limits import Work, WorkCounter
from firstword.bench.machine import Fingerprint
from firstword.bench.measure import Measurement, Phase
from firstword.bench.split import Split, Timed, fit_split
from firstword.ops.native_peak import MacRates

FORMAT = 1
"""Version of the JSON's form."""

_HEADER = (
    f"{'':<28}{'tokens/s':>8}{'min':>8}{'max':>8}{'limit':>6}{'peak':>6}{'GMAC/s':>8}{'outside':>8}"
)


@dataclass(frozen=True)
class Row:
    """One phase of one case, evaluated.

    Args:
        case: what was timed.
        phase: which part of it.
        speeds: tokens per second of each repeat.
        seconds: of each repeat.
        step_bytes: of a decode step, weights, keys and values read; 0 for prefill.
        share_of_limit: decode: the time that reading those bytes takes at the machine's read
            bandwidth, over the time of a step (medians); None for prefill.
        share_of_peak: the time that the linear layers' multiply-adds take at the processor's
            highest rate, over the time that they took with all the rest (medians); None where
            that rate is not known.
        gmacs: billions of multiply-adds per second (median).
        linear_macs, attention_macs: multiply-adds of a decode step or of a whole prefill.
        outside_share: share of the time outside compiled code, or the backend (median).
    """

    case: Case
    phase: Phase
    speeds: tuple[float, ...]
    seconds: tuple[float, ...]
    step_bytes: int
    share_of_limit: float | None
    share_of_peak: float | None
    gmacs: float
    linear_macs: float
    attention_macs: float
    outside_share: float

    @property
    def speed(self) -> float:
        """Tokens per second, the median."""
        return median(self.speeds)

    @property
    def label(self) -> str:
        """The case, and the phase where a case has two."""
        return f"{self.case.label}: {self.phase}" if self.case.kind == "chat" else self.case.label


@dataclass(frozen=True)
class Setting:
    """What all rows have in common.

    Args:
        model: as the user named it.
        file_name, file_bytes: the model's file.
        backend: name of the backend, instruction set included.
        threads: it computes with.
        repeat: rounds.
        machine: what it ran on.
        read_bandwidth: bytes per second, the best measured before and after.
        mac_rates: the highest rates of multiply-adds with int8, before and after; None where the
            backend has none.
        load_average: before and after; the measurement itself is part of the second.
        time: when it began, in UTC.
    """

    model: str
    file_name: str
    file_bytes: int
    backend: str
    threads: int
    repeat: int
    machine: Fingerprint
    read_bandwidth: float
    mac_rates: MacRates | None
    load_average: tuple[float | None, float | None]
    time: str


def evaluate(
    measurements: Sequence[Measurement],
    counter: WorkCounter,
    bandwidth: float,
    rates: MacRates | None,
) -> list[Row]:
    """Set measurements against the work of their cases and the limits of the machine."""
    return [_row(measured, counter, bandwidth, rates) for measured in measurements]


def _row(
    measured: Measurement, counter: WorkCounter, bandwidth: float, rates: MacRates | None
) -> Row:
    decodes = measured.phase == "decode"
    work = _work(measured, counter)
    # Of a decode, `work` is one step; of a prefill, the whole.
    each = [s.seconds / s.num_steps if decodes else s.seconds for s in measured.spans]
    seconds = median(each)
    return Row(
        case=measured.case,
        phase=measured.phase,
        speeds=tuple(measured.speeds),
        seconds=tuple(span.seconds for span in measured.spans),
        step_bytes=work.num_bytes if decodes else 0,
        share_of_limit=work.num_bytes / bandwidth / seconds if decodes else None,
        share_of_peak=_share_of_peak(work, rates, seconds),
        gmacs=work.macs / seconds / 1e9,
        linear_macs=work.linear_macs,
        attention_macs=work.attention_macs,
        outside_share=median(span.outside_share for span in measured.spans),
    )


def _share_of_peak(work: Work, rates: MacRates | None, seconds: float) -> float | None:
    if rates is None:
        return None
    return rates.seconds(work.linear_macs, work.narrow_macs) / seconds


def _work(measured: Measurement, counter: WorkCounter) -> Work:
    case = measured.case
    if measured.phase == "decode":
        return counter.decode_step(case)
    if case.kind == "chat":
        return counter.prefill(Case("prefill", case.depth))
    return counter.prefill(case)


def render(rows: Sequence[Row], setting: Setting) -> str:
    """The report as text of at most 80 columns."""
    machine = setting.machine
    lines = [
        f"{setting.model} ({setting.file_name}, {setting.file_bytes / 1e6:,.1f} MB)"[:80],
        f"{setting.backend}, {_plural(setting.threads, 'thread')} of {machine.cpu}"[:80],
        f"reads {setting.read_bandwidth / 1e9:.1f} GB/s{_peaks(setting.mac_rates)}; "
        f"load average {_loads(setting)}; {_plural(setting.repeat, 'round')}",
        "",
        _HEADER,
        *(_line(row) for row in rows),
        "",
        "tokens/s: all sequences together, the median of the rounds, with least and most.",
        "limit: time to read the weights, keys and values of a step once, of its time.",
        "peak: time of the linear layers' multiply-adds at the highest rate, of its time.",
        "outside: share of the time between the calls of compiled code, in Python.",
        *_split_lines(rows),
        *_chat_lines(rows),
    ]
    return "\n".join(lines)


def _line(row: Row) -> str:
    low, high = min(row.speeds), max(row.speeds)
    limit, peak = (
        "" if share is None else f"{share:.0%}" for share in (row.share_of_limit, row.share_of_peak)
    )
    return (
        f"{row.label:<28}{_speed(row.speed):>8}{_speed(low):>8}{_speed(high):>8}"
        f"{limit:>6}{peak:>6}{row.gmacs:>8,.1f}{row.outside_share:>8.1%}"
    )


def _speed(value: float) -> str:
    return f"{value:,.1f}" if value < 10_000 else f"{value:,.0f}"


def _peaks(rates: MacRates | None) -> str:
    return f", {rates.narrow / 1e9:.0f}/{rates.wide / 1e9:.0f} GMAC/s" if rates else ""


def _chat_lines(rows: Sequence[Row]) -> list[str]:
    """The chat in seconds, as a person waits for it."""
    parts = {row.phase: row for row in rows if row.case.kind == "chat"}
    if len(parts) < 2:
        return []
    case = parts["prefill"].case
    first, rest = (median(parts[phase].seconds) for phase in ("prefill", "decode"))
    return [
        "",
        f"A chat of {case.depth} tokens in and {case.num_tokens} out takes {first + rest:.2f} s: "
        f"{first:.2f} s to the first word,",
        f"then {rest:.2f} s for the others.",
    ]


def split_of(rows: Sequence[Row]) -> Split | None:
    """How prompts' times divide into linear layers and attention, where the rows tell it."""
    return fit_split([_timed(row) for row in rows if row.phase == "prefill"])


def _timed(row: Row) -> Timed:
    return Timed(row.linear_macs, row.attention_macs, median(row.seconds))


def _split_lines(rows: Sequence[Row]) -> list[str]:
    split = split_of(rows)
    if split is None:
        return []
    prompts = [row for row in rows if row.phase == "prefill"]
    most = max(prompts, key=lambda row: split.attention_share(_timed(row)))
    return [
        "",
        f"Fitted to the prompts' times: linear layers {1e-9 / split.linear:,.0f} GMAC/s, attention "
        f"{1e-9 / split.attention:,.0f};",
        f"attention takes {split.attention_share(_timed(most)):.0%} of {most.label}.",
    ]


def to_dict(rows: Sequence[Row], setting: Setting) -> dict[str, object]:
    """The report as plain values: the settings, and each row with all of its repeats."""
    results = []
    for row in rows:
        entry = asdict(row)
        entry["label"], entry["speed"] = row.label, row.speed
        results.append(entry)
    split = split_of(rows)
    return {
        "format": FORMAT,
        "setting": asdict(setting),
        "results": results,
        "seconds_per_mac": None if split is None else asdict(split),
    }


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _loads(setting: Setting) -> str:
    before, after = ("?" if load is None else f"{load:.1f}" for load in setting.load_average)
    return f"{before} before, {after} after"
