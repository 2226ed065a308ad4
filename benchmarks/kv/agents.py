"""The trace of agents on our server and on llama-server: figures and goals; not how it is sent."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from benchmarks.kv.completion import Words
from benchmarks.kv.homes import clean_home
from benchmarks.kv.player import Played, Player
from benchmarks.kv.results import Findings, Goal, Table
from benchmarks.kv.sides import SETTINGS, Side, ours, theirs
from benchmarks.kv.trace import Sizes, TraceMaker
from benchmarks.peers.llama_cpp import LlamaCpp
from benchmarks.peers.models import find

_SIZES = Sizes()
_BEST = "a slot each, pinned"
_GIB = 2**30
_EXCESS_LIMIT = 0.02
_SPEED_UP = 2.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The experiment's own options."""
    add = parser.add_argument
    add("--model", default="1b:q4_0", help="of the catalogue, a file, or 1b:q4_0 and so on")
    add("--turns", type=int, default=_SIZES.turns, help="the first so many of the trace")
    add("--seed", type=int, default=0, help="of the trace")
    add("--system", type=int, default=_SIZES.system, help="tokens that all agents' prompts share")
    add("--memory", type=float, default=2.0, help="GiB that each server may take")
    add("--peers", default=_BEST, help=f"settings of llama-server, with ; or all: {list(SETTINGS)}")
    add("--no-peers", action="store_true", help="ours alone")
    add("--no-ours", action="store_true", help="llama-server alone")
    add("--restarts", default="", help="turns before which servers are killed, like 100,150")
    add("--flags", default="", help="further ones of firstword serve, like '--kv-disk 0'")
    add("--quiet", action="store_true", help="say nothing of each turn")


def measure(options: argparse.Namespace) -> Findings:
    """Play the trace on every side, one after the other."""
    model = find(options.model)
    words = Words.of(model)
    sizes = replace(_SIZES, turns=options.turns, system=options.system)
    turns = list(TraceMaker(words.ids, sizes, options.seed, words.begin).turns())
    restarts = [int(turn) for turn in options.restarts.split(",") if turn]
    memory = round(options.memory * _GIB)
    played = []
    with clean_home() as home:
        sides: list[Side] = []
        if not options.no_ours:
            sides.append(ours(memory, home, tuple(options.flags.split())))
        for name in peers(options):
            LlamaCpp().install()
            sides.append(theirs(name, model, _SIZES.context, _SIZES.agents, memory))
        for side in sides:
            player = Player(side, model, options.threads, words, progress(options.quiet))
            played.append(asyncio.run(player.play(turns, restarts)))
            print(summary(played[-1]), file=sys.stderr, flush=True)
    return findings(played, options.memory, restarts, sizes.system)


def peers(options: argparse.Namespace) -> Sequence[str]:
    """The settings of llama-server that are asked for.

    Raises:
        ValueError: there is no such setting.
    """
    if options.no_peers:
        return []
    names = list(SETTINGS) if options.peers == "all" else options.peers.split(";")
    for name in names:
        if name not in SETTINGS:
            raise ValueError(f"there is no {name!r}: choose from {'; '.join(SETTINGS)}")
    return names


def progress(is_quiet: bool) -> Player.Progress:
    """What tells of each turn."""
    return lambda text: None if is_quiet else print(text, file=sys.stderr, flush=True)


def summary(played: Played) -> str:
    """A side in one line."""
    return (
        f"{played.name}: {len(played.records)} turns in {played.seconds:.1f} s, "
        f"{played.computed} computed of at least {played.least} ({played.excess:+.2%})"
    )


def findings(
    played: Sequence[Played], memory: float, restarts: Sequence[int], system: int
) -> Findings:
    """Goals and tables of what was played."""
    mine = next((p for p in played if p.name == "firstword"), None)
    others = [p for p in played if p is not mine]
    best = min(others, key=lambda p: p.seconds, default=None)
    ratio = best.seconds / mine.seconds if best and mine else None
    counted = [r for r in mine.records if r.adds_up is not None] if mine else []
    wrong = float(sum(not r.adds_up for r in counted)) if counted else None
    goals = [
        Goal("computed beyond the least", mine.excess if mine else None, _EXCESS_LIMIT),
        Goal("llama-server's time over ours", ratio, _SPEED_UP, at_least=True),
        Goal("turns whose sources do not add up", wrong, 0),
    ]
    count = len(played[0].records)
    title = f"{count} turns of three agents, {system:,} tokens shared, {memory:g} GiB"
    if restarts:
        title += f", restarts before turns {', '.join(map(str, restarts))}"
    tables = [_sides(played), _kinds(played)]
    details = {"memory_gib": memory, "restarts": list(restarts), "system": system}
    sides = [p.to_dict() for p in played]
    return Findings("agents", title, goals, tables, {**details, "sides": sides})


def _sides(played: Sequence[Played]) -> Table:
    columns = ["server", "seconds", "computed", "least", "beyond", "sources", "own GB", "GB in all"]
    rows = [
        (
            p.name,
            p.seconds,
            p.computed,
            p.least,
            f"{p.excess:.2%}",
            _sources(p),
            p.anonymous / 1e9,
            p.resident / 1e9,
        )
        for p in played
    ]
    note = (
        "The least is what an exact reuse of all that was ever computed leaves, token by token; it "
        "knows nothing of blocks and of memory. Tokens computed are those of `usage`; each answer "
        "is one less than its tokens. Own: memory that is of no file."
    )
    return Table("Servers", columns, rows, [note])


def _sources(played: Played) -> str:
    total: Counter[str] = Counter()
    for record in played.records:
        total.update(record.sources)
    return ", ".join(f"{name} {count:,}" for name, count in total.items()) or "not told"


def _kinds(played: Sequence[Played]) -> Table:
    kinds = list(dict.fromkeys(r.kind for r in played[0].records))
    rows: list[list[object]] = []
    for kind in kinds:
        row: list[object] = [kind, sum(r.kind == kind for r in played[0].records)]
        for p in played:
            mine = [r for r in p.records if r.kind == kind]
            row += [sum(r.computed - r.least for r in mine), sum(r.seconds for r in mine)]
        rows.append(row)
    columns = ["turn", "count"]
    for p in played:
        columns += [f"{p.name}: computed beyond the least", "seconds"]
    return Table("Kinds of turns", columns, rows)
