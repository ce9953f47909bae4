"""What commands share: where they write, their progress bar, and the options of a head."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from earatlas.errors import EaratlasWarning
from earatlas.heads.by_name import open_head
from earatlas.heads.head import Head

__all__ = [
    "ChannelsOption",
    "Duplicates",
    "DuplicatesOption",
    "HeadArgument",
    "JsonOption",
    "Kind",
    "KindOption",
    "OutputOption",
    "err",
    "note",
    "opened_head",
    "out",
    "print_json",
    "progress",
    "say",
    "show_warning",
]

# No emoji: a path such as a:b:c would come out as pictures.
out = Console(emoji=False)
err = Console(stderr=True, emoji=False)


class Duplicates(StrEnum):
    """What to do with a direction that a file has more than once."""

    error = "error"
    first = "first"


class Kind(StrEnum):
    """What calibration recordings are."""

    auto = "auto"
    noise = "noise"
    responses = "responses"


HeadArgument = Annotated[
    str, typer.Argument(metavar="HEAD", help="A .sofa file, a .csv table, 'simulated' or 'kemar'.")
]
DuplicatesOption = Annotated[
    Duplicates, typer.Option(help="Directions given twice: refuse, or keep the first.")
]
KindOption = Annotated[
    Kind, typer.Option(help="What the recordings of a .csv are; auto listens to find out.")
]
ChannelsOption = Annotated[
    tuple[int, int], typer.Option(help="Which channels of recordings are left and right.")
]
OutputOption = Annotated[Path, typer.Option("--output", "-o", help="Folder for the results.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Answer in JSON.")]


def say(text: str) -> None:
    """A line of the answer, as it is: neither wrapped nor coloured."""
    out.print(text, markup=False, highlight=False, soft_wrap=True)


def note(label: str, text: str) -> None:
    """A line on standard error; the label has markup, the text is shown as it is."""
    err.print(f"{label} {escape(text)}", highlight=False, soft_wrap=True)


def print_json(answer: dict[str, Any]) -> None:
    """The answer on one line of JSON."""
    sys.stdout.write(json.dumps(answer) + "\n")


def show_warning(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
    """In the place of `warnings.showwarning`: ours in a line, other packages' not at all."""
    if issubclass(category, EaratlasWarning):
        note("[yellow]warning:[/]", str(message))


@contextmanager
def progress(label: str) -> Iterator[Callable[[float, float], None]]:
    """A progress bar on standard error, gone when done; yields `update(done, total)`."""
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    quiet = not err.is_terminal  # a log file needs no bars
    with Progress(*columns, console=err, transient=True, disable=quiet) as bar:
        task = bar.add_task(escape(label), total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def opened_head(
    head: str,
    *,
    kind: Kind = Kind.auto,
    channels: tuple[int, int] = (0, 1),
    duplicates: Duplicates = Duplicates.error,
) -> Head:
    """`open_head` with a progress bar."""
    with progress(f"reading {head}") as update:
        return open_head(
            head,
            kind=kind.value,
            channels=channels,
            duplicates=duplicates.value,
            progress=update,
        )
