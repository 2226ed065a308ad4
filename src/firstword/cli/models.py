"""`firstword models`: the catalogue, and what of it is on this machine.

Not here: the catalogue itself (weights.catalogue) and what is inside a file (inspect).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from firstword.cli.cache import usage_line

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from firstword.weights.catalogue import CatalogueEntry


def models(
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the catalogue as JSON, with paths.")
    ] = False,
) -> None:
    """List the models that have a name: size, license, and whether they are here."""
    from firstword.weights.catalogue import CATALOGUE

    paths = {name: entry.find() for name, entry in CATALOGUE.items()}
    if as_json:
        typer.echo(_as_json(CATALOGUE, paths))
    else:
        typer.echo(_as_table(CATALOGUE, paths))
        typer.echo(usage_line())


def _as_json(catalogue: Mapping[str, CatalogueEntry], paths: Mapping[str, Path | None]) -> str:
    import json

    rows = [
        {
            "name": entry.name,
            "description": entry.description,
            "size_bytes": entry.size,
            "license": entry.license.id,
            "license_url": entry.license.url,
            "needs_acceptance": entry.license.needs_acceptance,
            "chat": entry.chat,
            "tested": entry.tested,
            "path": str(paths[entry.name]) if paths[entry.name] else None,
        }
        for entry in catalogue.values()
    ]
    return json.dumps(rows, indent=2, ensure_ascii=False)


def _as_table(catalogue: Mapping[str, CatalogueEntry], paths: Mapping[str, Path | None]) -> str:
    """Aligned text of at most 60 columns; paths, which nothing may cut, on lines of their own."""
    from firstword.weights.progress import format_bytes

    rows = [("NAME", "SIZE", "LICENSE", "KIND", "TESTED", "HERE")]
    for entry in catalogue.values():
        kind = "chat" if entry.chat else "base"
        tested = "yes" if entry.tested else "no"
        here = "yes" if paths[entry.name] else "no"
        size = format_bytes(entry.size)
        rows.append((entry.name, size, entry.license.id, kind, tested, here))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
    lines += ["", "TESTED: by firstword's own tests. HERE: on this machine."]
    lines += [f"{name}: {path}" for name, path in paths.items() if path]
    lines += ["Fetch one: firstword pull NAME"]
    return "\n".join(lines)
