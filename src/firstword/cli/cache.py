"""`firstword cache`: the prepared weights and vocabularies that are kept for faster starts.

Not here: the models themselves, which stay where they are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from firstword.weights.panel_cache import Usage


def cache(
    action: Annotated[
        str, typer.Argument(help="show, or clear to remove them all.", metavar="[show|clear]")
    ] = "show",
) -> None:
    """Show or clear the prepared weights and vocabularies kept for faster starts."""
    from firstword.errors import ConfigError
    from firstword.text.vocabulary_cache import VocabularyCache
    from firstword.weights.panel_cache import PanelCache

    if action == "show":
        typer.echo(usage_line())
        typer.echo(PanelCache().folder)
        vocabularies = VocabularyCache()
        typer.echo(f"prepared vocabularies: {_counted(vocabularies.usage())}")
        typer.echo(vocabularies.folder)
    elif action == "clear":
        for kept in (PanelCache(), VocabularyCache()):
            try:
                removed = kept.clear()
            except OSError as error:
                raise ConfigError(
                    f"cannot clear {kept.folder} ({error}): it needs your write permission"
                ) from error
            if isinstance(kept, PanelCache) or removed.count:
                typer.echo(f"removed {_counted(removed)}")
    else:
        raise typer.BadParameter(f"{action!r} is not known: give show or clear")


def usage_line() -> str:
    """One line of at most 60 columns: how much is kept."""
    from firstword.weights.panel_cache import PanelCache

    return f"prepared weights: {_counted(PanelCache().usage())}; see firstword cache"


def _counted(usage: Usage) -> str:
    from firstword.weights.progress import format_bytes

    files = "1 file" if usage.count == 1 else f"{usage.count} files"
    return f"{files}, {format_bytes(usage.num_bytes)}"
