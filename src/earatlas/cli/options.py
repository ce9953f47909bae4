"""The arguments and options that several commands have, and the head that they describe."""

from __future__ import annotations

import warnings
from contextlib import nullcontext
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from earatlas.cli.console import progress
from earatlas.errors import EaratlasWarning, InputError

if TYPE_CHECKING:
    from earatlas.geometry.head_yaw import Yaw
    from earatlas.hrtf.head import Head

__all__ = [
    "AtlasArgument",
    "ChannelsOption",
    "Duplicates",
    "DuplicatesOption",
    "ForceOption",
    "HeadArgument",
    "HeadOptions",
    "HeadsArgument",
    "JobsOption",
    "JsonOption",
    "Kind",
    "KindOption",
    "OutputOption",
    "RecordingsArgument",
    "ResumeOption",
    "SchedulerOption",
    "WrongWay",
    "WrongWayOption",
    "YawOption",
    "opened_head",
    "opened_yaw",
]


class Duplicates(StrEnum):
    """What to do with a direction that a file has more than once."""

    error = "error"
    first = "first"


class Kind(StrEnum):
    """What calibration recordings are."""

    auto = "auto"
    noise = "noise"
    responses = "responses"


class WrongWay(StrEnum):
    """What is wrong in a file whose ears and azimuths contradict."""

    azimuths = "azimuths"
    ears = "ears"


HeadArgument = Annotated[
    str, typer.Argument(metavar="HEAD", help="A .sofa file, a .csv table, 'simulated' or 'kemar'.")
]
HeadsArgument = Annotated[
    list[str],
    typer.Argument(
        metavar="HEAD",
        help="A .sofa file, a .csv table, 'simulated' or 'kemar'; or several, as files, folders, "
        "patterns, or @LIST with a name a line.",
    ),
]
AtlasArgument = Annotated[
    Path, typer.Argument(metavar="ATLAS", help="What `earatlas learn` wrote, such as ku100.atlas.")
]
RecordingsArgument = Annotated[
    list[Path],
    typer.Argument(
        metavar="RECORDING",
        help="Two-channel recordings: files, folders, patterns, or @LIST with a name a line.",
    ),
]
DuplicatesOption = Annotated[
    Duplicates, typer.Option(help="Directions given twice: refuse, or keep the first.")
]
KindOption = Annotated[
    Kind, typer.Option(help="What the recordings of a .csv are; auto listens to find out.")
]
WrongWayOption = Annotated[
    WrongWay | None,
    typer.Option(help="What is wrong where sounds from the left are louder in the right ear."),
]
ChannelsOption = Annotated[
    tuple[int, int],
    typer.Option(metavar="LEFT RIGHT", help="Which channels of recordings are the ears."),
]
YawOption = Annotated[
    str | None,
    typer.Option(
        metavar="DEGREES|FILE",
        help="Of the head, to its left: a number, or a .csv of time and yaw. "
        "Directions are then the room's.",
    ),
]
OutputOption = Annotated[
    Path, typer.Option("--output", "-o", metavar="FOLDER", help="Folder for the results.")
]
JobsOption = Annotated[int, typer.Option(metavar="N", help="How many at the same time.")]
ResumeOption = Annotated[
    bool,
    typer.Option("--resume", help="Skip what is done with the same settings, and do the rest."),
]
SchedulerOption = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS", help="Of a Dask scheduler, whose workers do it: tcp://HOST:8786."
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Answer in JSON.")]
ForceOption = Annotated[
    bool, typer.Option("--force", help="Replace files that this command did not make, too.")
]


@dataclass(frozen=True)
class HeadOptions:
    """How a head is to be read."""

    kind: Kind = Kind.auto
    channels: tuple[int, int] = (0, 1)
    duplicates: Duplicates = Duplicates.error
    wrong_way: WrongWay | None = None


def opened_yaw(wish: str | None) -> Yaw | None:
    """The yaw of a number or a file; None: none was given."""
    from earatlas.geometry.head_yaw import Yaw

    if wish is None:
        return None
    try:
        return Yaw.still(float(wish))
    except InputError:
        raise
    except ValueError:
        if not wish.lower().endswith(".csv"):
            raise InputError(
                f"yaw must be degrees or a .csv file with the columns time and yaw, got '{wish}'. "
                "Such as --yaw 20 or --yaw yaw.csv."
            ) from None
        return Yaw.read(wish)


def opened_head(
    head: str, how: HeadOptions, *, diagnosed: bool = False, shown: bool = True
) -> Head:
    """`open_head` with a progress bar; `diagnosed`: whether ears are mirrored is told anyway.

    Not `shown`: a batch has a bar of its own.
    """
    from earatlas.hrtf.kemar import MIRRORED
    from earatlas.hrtf.loading import open_head

    bar = progress(f"reading {head}") if shown else nullcontext(None)
    with bar as update, warnings.catch_warnings():
        if diagnosed:
            warnings.filterwarnings("ignore", MIRRORED, EaratlasWarning)
        return open_head(
            head,
            kind=how.kind.value,
            channels=how.channels,
            duplicates=how.duplicates.value,
            wrong_way=None if how.wrong_way is None else how.wrong_way.value,
            progress=update,
        )
