"""`firstword doctor`: what this machine gives, why, and what to do where something is wrong.

Not here: how the facts are found (plan.hardware, ops.self_check, weights.store).
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import textwrap
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from firstword import __version__
from firstword.cli.terminal import StatusLine, format_bytes

if TYPE_CHECKING:
    from firstword.plan.hardware import UsableMemory
    from firstword.weights.catalogue import CatalogueEntry, Target, Verdict
    from firstword.weights.store import Store

_WIDTH, _LABEL_WIDTH = 60, 14
_LITTLE_MEMORY = 512 * 2**20
_LITTLE_DISK = 300 * 10**6  # the smallest models need this much while they are fetched
_REINSTALL = "install firstword again where there is a C++17 compiler; pip says what it misses"


@dataclass(frozen=True)
class Problem:
    """Something wrong, and what to do about it."""

    what: str
    remedy: str


@dataclass
class Report:
    """What was found.

    Args:
        shown: labels and words for people.
        values: the same for JSON.
        problems: in the order found.
    """

    shown: list[tuple[str, str]] = field(default_factory=list)
    values: dict[str, Any] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def add(self, key: str, label: str, text: str, values: Any) -> None:
        """Note a fact."""
        self.show(label, text)
        self.values[key] = values

    def show(self, label: str, text: str) -> None:
        """Note a line about values that are there already."""
        self.shown.append((label, text))

    def problem(self, what: str, remedy: str) -> None:
        """Note a problem."""
        self.problems.append(Problem(what, remedy))

    def lines(self) -> Iterator[str]:
        """The report in 60 columns; only a path may be longer."""
        for label, text in self.shown:
            yield from _wrap(f"{label:<{_LABEL_WIDTH}} ", text)
        yield ""
        if not self.problems:
            yield "no problem found"
        for problem in self.problems:
            yield from _wrap("problem: ", problem.what)
            yield from _wrap("remedy:  ", problem.remedy)

    def to_dict(self) -> dict[str, Any]:
        """The report as plain values, for JSON."""
        return {**self.values, "problems": [asdict(problem) for problem in self.problems]}


def doctor(
    model: Annotated[
        str | None, typer.Argument(help="With --verify: this model only.", metavar="MODEL")
    ] = None,
    verify: Annotated[
        bool, typer.Option("--verify", help="Compare the models here with their checksums instead.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Say what this machine gives and whether firstword works here; status 1 if not."""
    if model is not None and not verify:
        raise typer.BadParameter(f"a model ({model!r}) is for --verify")
    report = verify_models(model) if verify else examine()
    print(json.dumps(report.to_dict(), indent=2) if as_json else "\n".join(report.lines()))
    if report.problems:
        raise typer.Exit(1)


def examine() -> Report:
    """All checks."""
    from firstword.plan.hardware import processor_name, usable_cores, usable_memory

    report = Report()
    python = platform.python_version()
    values: dict[str, Any] = {"firstword": __version__, "python": python}
    report.add("versions", "firstword", f"{__version__}, Python {python}", values)
    name = processor_name()
    report.add("processor", "processor", name, name)
    _examine_kernels(report)
    cores = usable_cores()
    values = {"count": cores.count, "reason": cores.reason}
    report.add("threads", "threads", f"{cores.count}: {cores.reason}", values)
    _examine_memory(report, usable_memory())
    _examine_models(report)
    _examine_blas(report)
    return report


def verify_models(reference: str | None) -> Report:
    """Read model files again, every byte, and compare them with their checksums.

    Args:
        reference: the model; None for all models of the catalogue that are here.

    Raises:
        ModelNotFoundError: the reference names nothing, or nothing that is here.
        ConfigError: there is no folder for models.
    """
    from firstword.errors import ModelNotFoundError
    from firstword.weights.catalogue import CATALOGUE, parse_reference
    from firstword.weights.store import Store

    report, store = Report(), Store()
    report.values["models"] = []
    with StatusLine() as status:
        if reference is not None:
            verdict = _verdict(parse_reference(reference), store, status)
            if verdict is None:
                raise ModelNotFoundError(
                    f"{reference} is not on this machine yet: firstword pull {reference}"
                )
            _add_verdict(report, reference, verdict)
            return report
        for entry in CATALOGUE.values():
            if verdict := _verdict(entry, store, status):
                _add_verdict(report, entry.name, verdict)
    if not report.shown:
        report.show("models", f"none of the catalogue is in {_shown(store.models)}")
    return report


class _ReadBytes:
    """Shows how much of a model file has been read."""

    def __init__(self, entry: CatalogueEntry, status: StatusLine) -> None:
        self._entry, self._status = entry, status
        self._num_read = 0

    def advance(self, num_bytes: int) -> None:
        """Count bytes."""
        self._num_read += num_bytes
        share = 100 * self._num_read // self._entry.size
        self._status.show(
            f"verifying {self._entry.name}: {share}% of {format_bytes(self._entry.size)}"
        )


def _verdict(target: Target, store: Store, status: StatusLine) -> Verdict | None:
    """What is known of a model's file; None when it is not here."""
    from firstword.weights.catalogue import CatalogueEntry, Verdict, find

    if isinstance(target, CatalogueEntry):
        return target.verify(store, _ReadBytes(target, status))
    path = find(target)
    return Verdict(path, is_known=False) if path else None


def _add_verdict(report: Report, name: str, verdict: Verdict) -> None:
    values = {"name": name, "path": str(verdict.path), "damage": verdict.damage}
    if not verdict.is_known:
        state = "unknown"
        report.show(state, f"{name}: nothing here knows its checksum")
    elif verdict.damage is None:
        state = "ok"
        report.show(state, name)
    else:
        state = "damaged"
        report.show(state, name)
        report.problem(
            f"{name} is damaged: {verdict.damage}",
            f"remove {_shown(verdict.path)} and fetch it again: firstword pull {name}",
        )
    report.values["models"].append({**values, "state": state})


def _examine_kernels(report: Report) -> None:
    """The compiled module: what it has, what of it is used, and whether that is right."""
    from importlib.util import find_spec

    asked = os.environ.get("FIRSTWORD_ISA") or None
    values: dict[str, Any] = {"built": [], "FIRSTWORD_ISA": asked, "self_check": None}
    if find_spec("firstword._native") is None:
        report.add("kernels", "kernels", "none compiled: answers are slow", values)
        report.problem("this installation has no compiled kernels", _REINSTALL)
        return
    try:
        from firstword.ops.native import built_isas, usable_isas
    except ImportError as error:
        report.add("kernels", "kernels", "compiled, but they do not load", values)
        report.problem(f"the compiled module does not load: {error}", _REINSTALL)
        return
    values |= {"built": built_isas(), "usable": usable_isas(), "in_use": None}
    _check_isa(report, asked, values)
    why = "as FIRSTWORD_ISA says" if asked else "the best that is usable"
    in_use = values["in_use"]
    report.add("kernels", "kernels", ", ".join(values["built"]), values)
    report.show("  usable here", ", ".join(values["usable"]))
    report.show("  in use", f"{in_use}, {why}" if in_use else "none")
    results = {True: "same bits as the scalar kernels", False: "wrong bits", None: "not run"}
    report.show("  self-check", results[values["self_check"]])


def _check_isa(report: Report, asked: str | None, values: dict[str, Any]) -> None:
    """Compute with the instruction set that would be used."""
    from firstword.errors import ConfigError
    from firstword.ops.native import NativeOps
    from firstword.ops.self_check import same_as_generic

    try:
        values["in_use"] = NativeOps().isa
    except ConfigError as error:
        usable = ", ".join(values["usable"])
        report.problem(str(error), f"unset FIRSTWORD_ISA, or set it to one of: {usable}")
        return
    values["self_check"] = same_as_generic()
    if values["self_check"] is False:
        report.problem(
            f"the {values['in_use']} kernels compute something else than the scalar ones",
            "set FIRSTWORD_ISA=generic, and report the processor shown here",
        )
    if asked is None and values["in_use"] == "generic" and len(values["built"]) > 1:
        report.problem(
            "this processor has no AVX2 with FMA and F16C: answers are slow",
            "if this is a virtual machine, let it see the processor of its host",
        )


def _examine_memory(report: Report, memory: UsableMemory) -> None:
    size = format_bytes(memory.num_bytes)
    values = {"bytes": memory.num_bytes, "reason": memory.reason}
    report.add("memory", "memory", f"{size}: {memory.reason}", values)
    if memory.num_bytes < _LITTLE_MEMORY:
        report.problem(
            f"{size} of memory can be used: even small models need {format_bytes(_LITTLE_MEMORY)}",
            "close other programs, or raise the container's limit",
        )


def _examine_models(report: Report) -> None:
    """Where models live, and whether more can be put there."""
    from firstword.errors import ConfigError
    from firstword.weights.store import Store

    try:
        folder = Store().models
    except ConfigError as error:
        report.add("models", "models", "no folder", None)
        report.problem(str(error), "set FIRSTWORD_HOME to a folder that you can write to")
        return
    existing = folder
    while not existing.exists():
        existing = existing.parent
    free = shutil.disk_usage(existing).free
    values = {"folder": str(folder), "free_bytes": free}
    report.add("models", "models", f"{format_bytes(free)} free in {_shown(folder)}", values)
    if not (existing.is_dir() and os.access(existing, os.W_OK | os.X_OK)):
        report.problem(
            f"no model can be fetched: {_shown(existing)} is no folder that you can write to",
            "set FIRSTWORD_HOME to one that you can write to",
        )
    elif free < _LITTLE_DISK:
        report.problem(
            f"{format_bytes(free)} are free for models: fetching a small one takes "
            f"{format_bytes(_LITTLE_DISK)}",
            "free some space, or set FIRSTWORD_HOME to a folder on a larger disk",
        )


def _examine_blas(report: Report) -> None:
    """The library that numpy multiplies matrices with; the NumPy backend depends on it."""
    import numpy
    from threadpoolctl import threadpool_info

    libraries = [info for info in threadpool_info() if info["user_api"] == "blas"]
    keys = ("internal_api", "version", "architecture", "num_threads")
    values = [{key: info.get(key) for key in keys} for info in libraries]
    names = [f"{v['internal_api']} {v['version']}, {v['architecture']}" for v in values]
    text = f"numpy {numpy.__version__} with " + (" and ".join(names) or "an unknown BLAS")
    report.add("blas", "BLAS", text, {"numpy": numpy.__version__, "libraries": values})


def _shown(path: Path) -> str:
    """A path with the home folder as ~."""
    home = os.environ.get("HOME", "")
    if os.path.isabs(home) and path.is_relative_to(home):
        return str("~" / path.relative_to(home))
    return str(path)


def _wrap(label: str, text: str) -> list[str]:
    indent = " " * len(label)
    return textwrap.wrap(
        text,
        _WIDTH,
        initial_indent=label,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
