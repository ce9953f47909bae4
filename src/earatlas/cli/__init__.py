"""The command line: every command reads files and says what it found.

Answers go to standard output (with `--json` as JSON), progress and warnings to standard error. Bad
input gets one sentence and exit code 2; a bug of ours keeps its traceback (see `earatlas.errors`).

A module of commands has a `commands = typer.Typer()` and one line here. What is slow to import
(pictures, rooms, filters) is imported by the command that needs it.
"""

from __future__ import annotations

import errno
import io
import sys
import warnings
from typing import Annotated

import typer

import earatlas
from earatlas.cli import atlas, demo, heads, manifold, reproduce, scenes, separation
from earatlas.cli.console import note, say, show_warning
from earatlas.errors import EaratlasWarning, InputError

__all__ = ["app", "main"]

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    rich_markup_mode="rich",
    help="Learn how a head hears directions; localize and separate sounds with two microphones.",
    epilog="A head is a .sofa file, a .csv table of recordings, 'simulated' or 'kemar'.",
)
app.add_typer(heads.commands)
app.add_typer(atlas.commands)
app.add_typer(separation.commands)
app.add_typer(manifold.commands)
app.add_typer(scenes.commands)
app.add_typer(demo.commands)
app.add_typer(reproduce.commands)


@app.callback(invoke_without_command=True)
def _root(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if version:
        say(f"earatlas {earatlas.__version__}")
        raise typer.Exit


def main() -> None:
    """Run the command line; the entry point of the package."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a degree sign on a terminal that has none
    warnings.showwarning = show_warning
    warnings.simplefilter("always", EaratlasWarning)
    try:
        app()
    except InputError as error:
        note("[bold red]error:[/]", str(error))
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:  # the reader, such as head(1), has had enough
        sys.stderr.close()
        sys.exit(0)
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        note("[bold red]error:[/]", "output must have room, got a full disk. Free some space.")
        sys.exit(2)
