"""Compares firstword with other engines.

    python -m benchmarks.peers MODEL.gguf [MODEL.gguf ...] --peers llama.cpp,ik_llama.cpp

The first run installs the peers, which for llama.cpp means building it. Results go to
benchmarks/results as Markdown and JSON.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.peers import ik_llama_cpp, llama_cpp, openvino_genai, tables
from benchmarks.peers.compare import Comparison, compare, install
from benchmarks.peers.engine import Engine, Firstword
from firstword.bench.cases import Case, CaseKind
from firstword.bench.machine import fingerprint
from firstword.plan.hardware import usable_cores
from firstword.weights.catalogue import resolve

RESULTS = Path(__file__).parents[1] / "results"
PEERS: dict[str, Sequence[Engine]] = {
    "llama.cpp": llama_cpp.SETTINGS,
    "ik_llama.cpp": ik_llama_cpp.SETTINGS,
    "openvino_genai": openvino_genai.SETTINGS,
}
CASES = "prefill:512,decode:64@128"


def parse_cases(text: str) -> tuple[Case, ...]:
    """Cases from words like "prefill:512", "decode:64@128" (depth), "decode:64@128x16" (batch).

    Raises:
        ValueError: a word has another form.
    """
    cases = []
    for word in text.split(","):
        kind, _, sizes = word.strip().partition(":")
        sizes, _, batch = sizes.partition("x")
        tokens, _, depth = sizes.partition("@")
        if kind not in ("prefill", "decode"):
            raise ValueError(f"{word!r} is no case: write prefill:512 or decode:64@128x16")
        phase: CaseKind = "prefill" if kind == "prefill" else "decode"
        cases.append(Case(phase, int(tokens), int(depth or 0), int(batch or 1)))
    return tuple(cases)


def chosen_engines(names: str, all_settings: bool) -> list[Engine]:
    """Ours, then the peers named, each in its usual setting or in all of them.

    Raises:
        ValueError: there is no such peer.
    """
    engines: list[Engine] = [Firstword()]
    for name in filter(None, names.split(",")):
        if name not in PEERS:
            raise ValueError(f"there is no peer {name!r}: choose from {', '.join(PEERS)}")
        engines += PEERS[name] if all_settings else PEERS[name][:1]
    return engines


def main() -> None:
    """Run the comparison that the command line describes."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("models", nargs="+", help="a catalogue name or a GGUF file")
    parser.add_argument("--peers", default=",".join(PEERS), help=f"of {', '.join(PEERS)}")
    parser.add_argument("--all-settings", action="store_true", help="of each peer")
    parser.add_argument("--cases", default=CASES, help=f"kind:tokens@depth x batch ({CASES})")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=usable_cores().count)
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the results")
    parser.add_argument("--name", default="peers", help="of the results' files, after the date")
    arguments = parser.parse_args()
    began = datetime.now(UTC)
    engines = install(chosen_engines(arguments.peers, arguments.all_settings))
    comparisons: list[Comparison] = []
    for model in arguments.models:
        compared = compare(
            engines,
            resolve(model),
            parse_cases(arguments.cases),
            threads=arguments.threads,
            rounds=arguments.rounds,
            progress=lambda text: print(text, file=sys.stderr, flush=True),
        )
        comparisons.append(compared)
        page = write_results(comparisons, arguments.out, arguments.name, began)
    print(page)


def write_results(
    comparisons: Sequence[Comparison], folder: Path, name: str, began: datetime
) -> str:
    """Write what there is so far as a page and as JSON; returns the page."""
    machine, day = fingerprint(), f"{began:%Y-%m-%d}"
    page = tables.markdown(comparisons, machine, day)
    report = tables.to_dict(comparisons, machine, began.isoformat(timespec="seconds"))
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{day}-{name}.md").write_text(page)
    (folder / f"{day}-{name}.json").write_text(json.dumps(report, indent=2) + "\n")
    return page


if __name__ == "__main__":
    main()
