"""`firstword pull`: fetch models before they are needed.

Not here: what a reference means and how files arrive (weights.catalogue).
"""

from __future__ import annotations

from typing import Annotated

import typer


def pull(
    names: Annotated[
        list[str],
        typer.Argument(metavar="MODEL...", help="A catalogue name or hf:ORG/REPO[:FILE]."),
    ],
    accept_license: Annotated[
        bool, typer.Option("--accept-license", help="Accept the terms of the named models.")
    ] = False,
) -> None:
    """Fetch models; those that are here already are left alone."""
    from firstword.weights.catalogue import find, parse_reference, resolve
    from firstword.weights.progress import format_bytes

    targets = [parse_reference(name) for name in names]  # a typo is told before anything is fetched
    for name, target in zip(names, targets, strict=True):
        if path := find(target):
            typer.echo(f"{name}: is here: {path}")
            continue
        path = resolve(name, accept_license=accept_license)
        typer.echo(f"{name}: pulled: {path} ({format_bytes(path.stat().st_size)})")
