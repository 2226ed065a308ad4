"""The `firstword` command: which commands there are, and how errors end them."""

from __future__ import annotations

import os
import sys
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from firstword import __version__
from firstword.cli.bench import bench
from firstword.cli.bench_serve import bench_serve
from firstword.cli.cache import cache
from firstword.cli.chat import chat
from firstword.cli.doctor import doctor
from firstword.cli.explain import explain
from firstword.cli.inspect import inspect
from firstword.cli.models import models
from firstword.cli.plan import plan
from firstword.cli.pull import pull
from firstword.cli.run import run
from firstword.cli.serve import serve
from firstword.errors import FirstwordError


class _Commands(TyperGroup):
    """Commands of one word or of two: `bench MODEL` stays one although there is `bench serve`."""

    # Any: typer's releases differ in whether these types are click's or a copy of its own.
    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """The command that the first words name, the longer name first."""
        command = self.commands.get(name := " ".join(args[:2]))
        if command is not None:
            return name, command, args[2:]
        return super().resolve_command(ctx, args)


app = typer.Typer(
    name="firstword",
    cls=_Commands,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # plain help: the formatted one costs 100 ms of imports
    context_settings={"help_option_names": ["-h", "--help"]},
    help='Run open models on your own machine. Start here: firstword run "What is gravity?"',
)
for command in (run, chat, serve, explain, plan, pull, models, cache, inspect, doctor, bench):
    app.command()(command)
app.command("bench serve")(bench_serve)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"firstword {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    pass


def main() -> None:
    """Run the command line; errors made on purpose become one line and exit status 1."""
    try:
        app()
    except FirstwordError as error:
        print(f"firstword: error: {error}", file=sys.stderr)
        sys.exit(1)
    except BrokenPipeError:
        # The reader went away (`firstword run ... | head`): nobody is left to tell.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
