"""Model files on the Hugging Face hub: which file of a repository, fetched by huggingface_hub.

They stay in huggingface_hub's own cache (HF_HOME), shared with other programs; HF_ENDPOINT,
HF_TOKEN and HF_HUB_OFFLINE hold. Not here: the models that firstword knows by name (catalogue).
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from firstword.errors import DownloadError, ModelNotFoundError

PREFERRED_QUANTIZATIONS = (
    *("Q4_K_M", "Q4_0", "Q8_0", "Q4_K_S", "Q5_K_M", "Q6_K", "Q5_K_S", "Q4_1", "Q5_0", "Q5_1"),
    *("Q3_K_M", "Q3_K_L", "Q3_K_S", "Q2_K", "BF16", "F16", "F32"),
)
"""Which file of a repository is meant when none is named, first choice first."""

_REFERENCE = re.compile(r"hf:(?P<repo>[\w.-]+/[\w.-]+)(?::(?P<file>[^:]+))?")
_SPLIT = re.compile(r"(?P<stem>.+)-(?P<index>\d{5})-of-(?P<count>\d{5})\.gguf", re.IGNORECASE)
_NO_MODEL = re.compile(r"(^|/)(mmproj|imatrix)|[-._](mmproj|imatrix)[-._]", re.IGNORECASE)


@dataclass(frozen=True)
class HubSource:
    """A model file in a repository of the hub.

    Args:
        repo: "ORG/REPO".
        file: path of a .gguf file in it, or a quantization like "Q8_0", or None for the one file,
            else the first of `PREFERRED_QUANTIZATIONS`.
    """

    repo: str
    file: str | None = None

    def __str__(self) -> str:
        return f"hf:{self.repo}" + (f":{self.file}" if self.file else "")


def parse_hub_reference(reference: str) -> HubSource:
    """Read hf:ORG/REPO or hf:ORG/REPO:FILE.

    Raises:
        ModelNotFoundError: it has another form.
    """
    match = _REFERENCE.fullmatch(reference)
    if match is None:
        raise ModelNotFoundError(
            f"{reference!r} is no hub reference: write hf:ORG/REPO or hf:ORG/REPO:FILE.gguf"
        )
    return HubSource(match["repo"], match["file"])


def choose_files(files: Sequence[str], source: HubSource) -> list[str]:
    """The file that a source means among those of its repository; all parts when it is split.

    Args:
        files: paths in the repository.
        source: what is asked for.

    Returns:
        Paths in order; the first is the one to open.

    Raises:
        ModelNotFoundError: there is none, or several fit; the message lists them.
    """
    models: dict[str, list[str]] = defaultdict(list)
    for file in sorted(files):
        if file.lower().endswith(".gguf") and not _NO_MODEL.search(file):
            models[_stem(file)].append(file)
    if source.file and source.file.lower().endswith(".gguf"):
        if source.file in files:
            return split_parts(source.file)
        fitting: list[str] = []
    elif source.file:
        fitting = [stem for stem in models if _is_quantized_as(stem, source.file)]
    else:
        fitting = list(models) if len(models) == 1 else _first_preferred(models)
    if len(fitting) == 1:
        return split_parts(models[fitting[0]][0])
    what = "has no such model file" if not fitting else "has several that fit"
    listing = "".join(f"\n  hf:{source.repo}:{parts[0]}" for parts in models.values())
    raise ModelNotFoundError(
        f"{source}: the repository {what}"
        + (f"; name one of:{listing}" if models else ", nor any other .gguf file")
    )


def split_parts(file: str) -> list[str]:
    """All parts of a split file, from the name of any; a whole file is its only part.

    >>> split_parts("m-00002-of-00002.gguf")
    ['m-00001-of-00002.gguf', 'm-00002-of-00002.gguf']
    """
    match = _SPLIT.fullmatch(file)
    if match is None:
        return [file]
    count = int(match["count"])
    return [f"{match['stem']}-{i:05}-of-{match['count']}.gguf" for i in range(1, count + 1)]


def _stem(file: str) -> str:
    match = _SPLIT.fullmatch(file)
    return match["stem"] if match else file[: -len(".gguf")]


def _is_quantized_as(stem: str, quantization: str) -> bool:
    pattern = rf"(?<![A-Za-z0-9]){re.escape(quantization)}(?!\w)"
    return re.search(pattern, stem.rsplit("/", 1)[-1], re.IGNORECASE) is not None


def _first_preferred(stems: dict[str, list[str]]) -> list[str]:
    for quantization in PREFERRED_QUANTIZATIONS:
        if fitting := [stem for stem in stems if _is_quantized_as(stem, quantization)]:
            return fitting
    return list(stems)


def find_cached(source: HubSource) -> Path | None:
    """The file in huggingface_hub's cache, all its parts there; None else. Asks no network.

    The layout (refs/main names the commit, snapshots/COMMIT holds the files) is the documented one.
    """
    from huggingface_hub import constants

    repo = Path(constants.HF_HUB_CACHE) / f"models--{source.repo.replace('/', '--')}"
    try:
        commit = (repo / "refs" / "main").read_text(encoding="utf-8").strip()
        snapshot = repo / "snapshots" / commit
        files = [path.relative_to(snapshot).as_posix() for path in snapshot.rglob("*.gguf")]
        parts = choose_files(files, source)
    except (OSError, ModelNotFoundError):
        return None
    paths = [snapshot / part for part in parts]
    return paths[0] if all(path.is_file() for path in paths) else None


def fetch_hub(source: HubSource) -> Path:
    """Download what the source means, as far as it is not in the cache yet.

    huggingface_hub draws its own progress while stderr is a terminal, and locks and verifies.

    Returns:
        The file, or the first part of a split one.

    Raises:
        ModelNotFoundError: there is no such repository or file, or several files fit.
        DownloadError: the hub cannot be reached, or refuses.
    """
    from huggingface_hub import HfApi, hf_hub_download

    with _hub_errors(source):
        if source.file and source.file.lower().endswith(".gguf"):
            parts = split_parts(source.file)
        else:
            parts = choose_files(HfApi().list_repo_files(source.repo), source)
        paths = [Path(hf_hub_download(source.repo, part)) for part in parts]
        return paths[0]


@contextmanager
def _hub_errors(source: HubSource) -> Iterator[None]:
    """Translate what huggingface_hub raises into what the user can do about it."""
    from huggingface_hub import constants, errors

    page = f"{constants.ENDPOINT}/{source.repo}"
    try:
        yield
    except (ModelNotFoundError, DownloadError):
        raise
    except errors.GatedRepoError as error:
        raise DownloadError(
            f"{source}: the repository is gated. Accept its terms at {page}, then set HF_TOKEN to "
            "an access token of that account"
        ) from error
    except errors.RepositoryNotFoundError as error:
        raise ModelNotFoundError(
            f"{source}: there is no repository {page}, or it is private. Check the spelling; for a "
            "private one set HF_TOKEN to an access token"
        ) from error
    except errors.OfflineModeIsEnabled as error:
        raise DownloadError(
            f"{source} is not in the cache and HF_HUB_OFFLINE is set: unset it to download"
        ) from error
    except errors.RemoteEntryNotFoundError as error:
        raise ModelNotFoundError(
            f"{source}: the repository has no such file; see {page}/tree/main"
        ) from error
    except errors.HFValidationError as error:
        raise ModelNotFoundError(f"{source} is no hub reference: {error}") from error
    except Exception as error:  # httpx in one major version of the library, httpx2 in the next
        offline = " (HF_HUB_OFFLINE is set)" if constants.HF_HUB_OFFLINE else ""
        raise DownloadError(
            f"{source}: cannot fetch from {constants.ENDPOINT}{offline}: {error}. Check the "
            "network, HTTPS_PROXY, HF_ENDPOINT and the free disk space, then pull again"
        ) from error
