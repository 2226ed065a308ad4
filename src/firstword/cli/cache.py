"""`firstword cache`: what is kept for faster starts and for prompts that come again.

Not here: the models themselves, which stay where they are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from firstword.weights.panel_cache import Usage

_KINDS = ("prompts", "vocabularies", "weights")
_Removed = TypeVar("_Removed")


def cache(
    action: Annotated[
        str, typer.Argument(help="show, or clear to remove.", metavar="[show|clear]")
    ] = "show",
    kind: Annotated[
        str | None,
        typer.Argument(
            help="With clear: remove only these; otherwise all.",
            metavar="[prompts|vocabularies|weights]",
        ),
    ] = None,
) -> None:
    """Show or clear what is kept on the disk: prepared weights, vocabularies, prompts read."""
    if kind not in (None, *_KINDS):
        raise typer.BadParameter(f"{kind!r} is not known: give {', '.join(_KINDS)}, or nothing")
    if action == "show" and kind is None:
        _show()
    elif action == "clear":
        _clear(_KINDS if kind is None else (kind,))
    elif action == "show":
        raise typer.BadParameter(f"show has no {kind!r}: it shows everything")
    else:
        raise typer.BadParameter(f"{action!r} is not known: give show or clear")


def usage_line() -> str:
    """One line of at most 60 columns: how much is kept."""
    from firstword.weights.panel_cache import PanelCache

    return f"prepared weights: {_counted(PanelCache().usage())}; see firstword cache"


def _show() -> None:
    from firstword.kvcache.disk.listing import list_stores
    from firstword.text.vocabulary_cache import VocabularyCache
    from firstword.weights.panel_cache import PanelCache
    from firstword.weights.progress import format_bytes
    from firstword.weights.store import kv_home

    typer.echo(usage_line())
    typer.echo(PanelCache().folder)
    vocabularies = VocabularyCache()
    typer.echo(f"prepared vocabularies: {_counted(vocabularies.usage())}")
    typer.echo(vocabularies.folder)
    stores = list_stores(kv_home())
    num_tokens = sum(store.num_tokens for store in stores)
    num_bytes = sum(store.num_bytes for store in stores)
    typer.echo(f"prompts: {num_tokens:,} tokens, {format_bytes(num_bytes)}")
    typer.echo(kv_home())
    for store in stores:
        size = f"{store.num_tokens:,} tokens, {format_bytes(store.num_bytes)}"
        typer.echo(f"  {store.name} ({store.settings}): {size}")
        typer.echo(f"  {store.folder}")


def _clear(kinds: tuple[str, ...]) -> None:
    from firstword.text.vocabulary_cache import VocabularyCache
    from firstword.weights.panel_cache import PanelCache

    if "weights" in kinds:
        panels = PanelCache()
        typer.echo(f"removed {_counted(_removed(panels.folder, panels.clear))}")
    if "vocabularies" in kinds:
        vocabularies = VocabularyCache()
        removed = _removed(vocabularies.folder, vocabularies.clear)
        if removed.count or len(kinds) == 1:
            typer.echo(f"removed {_counted(removed)}")
    if "prompts" in kinds:
        _clear_prompts()


def _clear_prompts() -> None:
    from firstword.kvcache.disk.home import KVHome
    from firstword.weights.progress import format_bytes
    from firstword.weights.store import kv_home

    home = KVHome(kv_home())
    typer.echo(f"removed prompts, {format_bytes(_removed(home.path, home.clear))}")


def _removed(folder: Path, clear: Callable[[], _Removed]) -> _Removed:
    """What `clear` returns; where it fails, an error that says what to do."""
    from firstword.errors import ConfigError

    try:
        return clear()
    except OSError as error:
        raise ConfigError(
            f"cannot clear {folder} ({error}): it needs your write permission"
        ) from error


def _counted(usage: Usage) -> str:
    from firstword.weights.progress import format_bytes

    files = "1 file" if usage.count == 1 else f"{usage.count} files"
    return f"{files}, {format_bytes(usage.num_bytes)}"
