"""Compares firstword with other engines, row by row of a table.

    python -m benchmarks.peers --all-settings --rounds 2      # which setting is each peer's best
    python -m benchmarks.peers --rounds 10 --contenders 0.8   # the table, with these settings
    python -m benchmarks.peers --isa avx2                     # as on a machine without AVX-512

The first run installs the peers, which for llama.cpp means building it. Results go to
benchmarks/results as JSON and as a page, after each row.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path

from benchmarks.peers import ik_llama_cpp, llama_cpp, onnxruntime_genai, openvino_genai, tables
from benchmarks.peers.choices import Choices
from benchmarks.peers.compare import Contenders, Plan, compare
from benchmarks.peers.engine import Engine, Firstword
from benchmarks.peers.models import find
from benchmarks.peers.real_text import write_tokens
from benchmarks.peers.results import Results, RowResult
from benchmarks.peers.rows import Row, chosen_rows
from benchmarks.peers.session import EngineFailedError
from firstword.bench.machine import fingerprint
from firstword.plan.hardware import usable_cores
from firstword.text.tokenizer import Tokenizer
from firstword.weights.checkpoint import open_checkpoint
from firstword.weights.store import default_home

RESULTS = Path(__file__).parents[1] / "results"
PEERS: dict[str, dict[str, Sequence[Engine]]] = {
    "native": {
        "llama.cpp": llama_cpp.SETTINGS,
        "ik_llama.cpp": ik_llama_cpp.SETTINGS,
        "openvino_genai": openvino_genai.SETTINGS,
        "onnxruntime_genai": onnxruntime_genai.SETTINGS,
    },
    "avx2": {
        "llama.cpp": llama_cpp.AVX2_SETTINGS,
        "ik_llama.cpp": ik_llama_cpp.SETTINGS,
        "openvino_genai": openvino_genai.AVX2_SETTINGS,
    },
}
"""By instruction set: what the processor has, or AVX2 on whatever processor. The wheel of
ik_llama.cpp has nothing beyond AVX2 anyway; ONNX Runtime cannot be kept from AVX-512."""
_SPARE_TEXT_TOKENS = 4096
"""Each round's text begins a little further on."""


@dataclass(frozen=True)
class Output:
    """Where results go.

    Args:
        folder: of the files.
        day, name: their names' two parts.
        least: peers slower than this share of the best, when settings were tried, are left out.
    """

    folder: Path
    day: str
    name: str
    least: float

    def path(self, suffix: str) -> Path:
        """The file with this suffix."""
        return self.folder / f"{self.day}-{self.name}.{suffix}"


def chosen_engines(names: str | None, isa: str = "native") -> list[Engine]:
    """All settings of the peers named, or of all peers.

    Raises:
        ValueError: there is no such peer.
    """
    peers = PEERS[isa]
    engines: list[Engine] = []
    for name in filter(None, peers if names is None else names.split(",")):
        if name not in peers:
            raise ValueError(f"there is no peer {name!r}: choose from {', '.join(peers)}")
        engines += peers[name]
    return engines


def settings_file(isa: str) -> Path:
    """Where the best settings are kept, beside the peers."""
    return default_home() / "peers" / f"settings{_suffix(isa)}.json"


def _suffix(isa: str) -> str:
    return "" if isa == "native" else f"-{isa}"


def install(engines: Sequence[Engine]) -> list[Engine]:
    """The engines that can be installed; the others' reasons are printed."""
    ready = []
    for engine in engines:
        try:
            engine.install()
            ready.append(engine)
        except EngineFailedError as error:
            progress(f"{engine.name} is left out: {error}")
    return ready


def progress(text: str) -> None:
    """Say what happens now."""
    print(text, file=sys.stderr, flush=True)


def measured(rows: Sequence[Row], contenders: Contenders, plan: Plan) -> Iterator[RowResult]:
    """Measure rows, model by model; each is yielded when it is done."""
    for model, members in groupby(rows, lambda row: row.model):
        group = list(members)
        path = find(model)
        with tempfile.TemporaryDirectory() as folder:
            text = _text(group, path, Path(folder))
            yield from compare(group, path, contenders, plan, text)


def try_settings(rows: Sequence[Row], engines: Sequence[Engine], plan: Plan, file: Path) -> Choices:
    """Run every setting by itself, and keep each engine's best for each row in the file."""
    choices, found = Choices.load(file), list[RowResult]()
    for engine in engines:
        compared = [row for row in rows if row.is_counted(engine.name)]
        contenders = {row.id: [engine] for row in compared}
        for result in measured(compared, contenders, plan):
            found.append(result)
            choices.add(found)
            choices.save(file)
    return choices


def fill_table(
    rows: Sequence[Row], engines: Sequence[Engine], plan: Plan, choices: Choices, out: Output
) -> str:
    """Run ours and the best settings in turn; returns the page, which is written row by row."""
    results = Results.load(out.path("json"))
    results.machine = asdict(fingerprint())
    contenders = {
        row.id: [Firstword(), *choices.contenders(row, engines, out.least)] for row in rows
    }
    page = ""
    for result in measured(rows, contenders, plan):
        results.add(result)
        results.save(out.path("json"))
        page = tables.markdown(results, out.day)
        out.path("md").write_text(page)
    return page


def _text(rows: Sequence[Row], model: Path, folder: Path) -> Path | None:
    """The token ids of a text long enough for the rows that want one."""
    longest = max((row.case.context for row in rows if row.text), default=0)
    if not longest:
        return None
    checkpoint = open_checkpoint(model)
    tokenizer = Tokenizer.from_gguf(checkpoint.tokenizer_metadata, str(model))
    write_tokens(folder / "text.bin", longest + _SPARE_TEXT_TOKENS, tokenizer.encode)
    return folder / "text.bin"


def main() -> None:
    """Run the comparison that the command line describes."""
    arguments = parse_arguments()
    words = filter(None, arguments.rows.split(","))
    rows = chosen_rows(list(words), list(filter(None, arguments.models.split(","))))
    if arguments.list:
        print("\n".join(f"{row.id:<32}{row.goal}" for row in rows))
        return
    if arguments.isa != "native":
        os.environ["FIRSTWORD_ISA"] = arguments.isa  # of the limits measured here, and of drivers
    engines = install(chosen_engines(arguments.engines, arguments.isa))
    file = arguments.settings or settings_file(arguments.isa)
    plan = Plan(arguments.threads, arguments.rounds, progress)
    if arguments.all_settings:
        try_settings(rows, engines, plan.without_limits(), file)
        print(file.read_text(), end="")
        return
    day = arguments.day or f"{datetime.now(UTC):%Y-%m-%d}"
    name = arguments.name or f"peers{_suffix(arguments.isa)}"
    out = Output(arguments.out, day, name, arguments.contenders)
    out.folder.mkdir(parents=True, exist_ok=True)
    print(fill_table(rows, engines, plan, Choices.load(file), out))


def parse_arguments() -> argparse.Namespace:
    """The command line's words."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    add = parser.add_argument
    add("--rows", default="", help='with commas, as in "1b:*/decode:*,FILE.gguf/prefill:512"')
    add("--models", default="", help="only their rows; of 1b:q4_0 and so on, or the catalogue")
    add("--isa", default="native", choices=PEERS, help="hold all engines to an instruction set")
    add("--engines", help=f"peers, all unless named: {', '.join(PEERS['native'])}")
    add("--rounds", type=int, default=10)
    add("--threads", type=int, default=usable_cores().count)
    add("--all-settings", action="store_true", help="try them, and keep which are the best")
    add("--settings", type=Path, help="file of the best settings; otherwise beside the peers")
    add("--contenders", type=float, default=0.0, help="leave out peers below this share, 0 to 1")
    add("--out", type=Path, default=RESULTS, help="folder of the results")
    add("--name", help="of the results' files, after the day (peers, or peers-ISA)")
    add("--day", help="in their names; rows of the same day and name come together (today)")
    add("--list", action="store_true", help="print the rows and do nothing")
    return parser.parse_args()


if __name__ == "__main__":
    main()
