"""Results as a Markdown page. Not here: the numbers themselves (compare) and the goals (checks)."""

from __future__ import annotations

from benchmarks.serving.checks import CHECKS, Check
from benchmarks.serving.compare import Results
from benchmarks.serving.experiments import EXPERIMENTS, Experiment

_EXPLANATION = (
    "Medians of interleaved rounds; every round has prompts that no server has read. Tokens are "
    "those of `usage`. TTFT counts from the moment a request was due, with all its waiting."
)


def markdown(results: Results, day: str) -> str:
    """The page.

    Args:
        results: what was measured.
        day: for the title.
    """
    machine = results.machine
    versions = ", ".join(f"{name} {version}" for name, version in results.versions.items())
    lines = [
        f"# Servers side by side, {day}",
        "",
        f"{machine.get('cpu')} ({', '.join(machine.get('features', ()))}), "
        f"{machine.get('cores')} cores, {machine.get('system')}. {versions}.",
        "",
        _EXPLANATION,
        "",
        "| goal | measured | bound | met |",
        "|---|---|---|---|",
        *(_check_line(check, results) for check in CHECKS),
        "",
    ]
    for experiment in EXPERIMENTS:
        if experiment.name in results.rounds:
            lines += _experiment_lines(experiment, results)
    if results.problems:
        lines += ["## What did not work", "", *(f"- {text}" for text in results.problems), ""]
    return "\n".join(lines)


def _check_line(check: Check, results: Results) -> str:
    value = check.value(results)
    bound = f"{'≥' if check.at_least else '≤'} {check.goal:.3g}"
    if value is None:
        return f"| {check.text} | not measured | {bound} | |"
    return f"| {check.text} | {value:.3g} | {bound} | {'yes' if check.is_met(value) else 'no'} |"


def _experiment_lines(experiment: Experiment, results: Results) -> list[str]:
    servers = results.rounds[experiment.name]
    medians = {server: results.medians(experiment.name, server) for server in servers}
    names = list(dict.fromkeys(name for figures in medians.values() for name in figures))
    return [
        f"## {experiment.name}: {experiment.title}",
        "",
        "| server | rounds | " + " | ".join(names) + " |",
        "|---" * (len(names) + 2) + "|",
        *(
            f"| {server} | {len(servers[server])} | "
            + " | ".join(_cell(figures.get(name)) for name in names)
            + " |"
            for server, figures in medians.items()
        ),
        "",
    ]


def _cell(value: float | None) -> str:
    return "" if value is None else f"{value:,.3g}" if abs(value) < 100 else f"{value:,.0f}"
