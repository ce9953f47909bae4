"""Arguments and options that several commands share, and the reading of heads and yaws."""

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
    from earatlas.geometry.spaces import Plane, Space
    from earatlas.hrtf.head import Head

__all__ = [
    "AdaptOption",
    "AtlasAndRecordingsArgument",
    "AtlasArgument",
    "ChannelsOption",
    "Duplicates",
    "DuplicatesOption",
    "FieldOfViewOption",
    "ForceOption",
    "HeadArgument",
    "HeadOptions",
    "HeadsArgument",
    "ImageSizeOption",
    "JobsOption",
    "JsonOption",
    "Kind",
    "KindOption",
    "OutputOption",
    "PictureOption",
    "RecordingsArgument",
    "ResumeOption",
    "SchedulerOption",
    "WrongWay",
    "WrongWayOption",
    "YawOption",
    "check_picture",
    "read_head",
    "read_yaw",
]


class Duplicates(StrEnum):
    """How to treat a direction that a head has more than once."""

    error = "error"
    first = "first"


class Kind(StrEnum):
    """Kinds of calibration recordings."""

    auto = "auto"
    noise = "noise"
    responses = "responses"


class WrongWay(StrEnum):
    """What to correct in a head whose ears and azimuths contradict each other."""

    azimuths = "azimuths"
    ears = "ears"


HeadArgument = Annotated[
    str,
    typer.Argument(metavar="HEAD", help="A .sofa file, a .csv table, 'simulated' or 'kemar'."),
]
HeadsArgument = Annotated[
    list[str],
    typer.Argument(
        metavar="HEAD",
        help="A .sofa file, a .csv table, 'simulated' or 'kemar'. Several heads: files, folders, "
        "patterns, or @LIST (a text file with one name per line).",
    ),
]
AtlasArgument = Annotated[
    Path,
    typer.Argument(
        metavar="ATLAS",
        help="Atlas file written by `earatlas learn`, or 'people' for the built-in one.",
    ),
]
AtlasAndRecordingsArgument = Annotated[
    list[Path],
    typer.Argument(
        metavar="[ATLAS] RECORDING",
        help="Atlas file written by `earatlas learn`, 'people' (the default) for heads that nobody "
        "measured, or 'simulated' for the simulated head; then two-channel recordings: files, "
        "folders, patterns, or @LIST (a text file with one name per line).",
    ),
]
RecordingsArgument = Annotated[
    list[Path],
    typer.Argument(
        metavar="RECORDING",
        help="Two-channel recordings: files, folders, patterns, or @LIST (a text file with one "
        "name per line).",
    ),
]
DuplicatesOption = Annotated[
    Duplicates,
    typer.Option(help="If a direction occurs twice: stop with an error, or keep the first."),
]
KindOption = Annotated[
    Kind,
    typer.Option(help="What the recordings of a .csv table contain; auto detects it."),
]
WrongWayOption = Annotated[
    WrongWay | None,
    typer.Option(help="What to correct if sounds from the left are louder in the right ear."),
]
ChannelsOption = Annotated[
    tuple[int, int],
    typer.Option(metavar="LEFT RIGHT", help="Channels of the left and right ear, counted from 0."),
]
YawOption = Annotated[
    str | None,
    typer.Option(
        metavar="DEGREES|FILE",
        help="Yaw of the head, positive to the left: a number, or a .csv file with the columns "
        "time and yaw. Directions are then relative to the room.",
    ),
]
OutputOption = Annotated[
    Path, typer.Option("--output", "-o", metavar="FOLDER", help="Output folder.")
]
JobsOption = Annotated[int, typer.Option(metavar="N", help="Number of parallel processes.")]
ResumeOption = Annotated[
    bool,
    typer.Option("--resume", help="Skip files that are already done with the same settings."),
]
SchedulerOption = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS", help="Run on the Dask cluster with this scheduler: tcp://HOST:8786."
    ),
]
AdaptOption = Annotated[
    bool,
    typer.Option(
        "--adapt",
        help="First adapt the atlas, which must be of many heads, to the listener who made all of "
        "these recordings.",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
ForceOption = Annotated[
    bool, typer.Option("--force", help="Overwrite files that this command did not create.")
]


ImageSizeOption = Annotated[
    str | None,
    typer.Option(
        metavar="WIDTHxHEIGHT",
        help="Size in pixels of the image in which the positions of a .csv table (x, y) lie. "
        "Default: up to the outermost positions.",
    ),
]
FieldOfViewOption = Annotated[
    float | None,
    typer.Option(
        metavar="DEGREES",
        help="Horizontal field of view of the camera, roughly; with --image-size. Default: 60.",
    ),
]


PictureOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Picture of the camera (.png, .jpg), on which positions in pixels are shown.",
    ),
]


@dataclass(frozen=True)
class HeadOptions:
    """Options for reading a head."""

    kind: Kind = Kind.auto
    channels: tuple[int, int] = (0, 1)
    duplicates: Duplicates = Duplicates.error
    wrong_way: WrongWay | None = None
    image_size: str | None = None
    field_of_view: float | None = None

    @property
    def image(self) -> Plane | None:
        """The image of positions in pixels, or None if no size is given."""
        from earatlas.geometry.spaces import Plane

        if self.image_size is None:
            if self.field_of_view is not None:
                raise InputError(
                    "--field-of-view must be used with --image-size, got it alone. Add the size "
                    "of the image, such as --image-size 640x480."
                )
            return None
        width, _, height = self.image_size.lower().partition("x")
        if not (width.isdigit() and height.isdigit()):
            raise InputError(
                f"image size must be WIDTHxHEIGHT in pixels, got '{self.image_size}'. For example: "
                "--image-size 640x480."
            )
        angle = {} if self.field_of_view is None else {"field_of_view_degrees": self.field_of_view}
        return Plane.image(int(width), int(height), **angle)


def check_picture(picture: Path | None, space: Space, *, needed: str | None) -> None:
    """Refuse a picture that does not fit an atlas, or without the option that shows it."""
    if picture is None:
        return
    if needed is not None:
        raise InputError(f"--picture must be used with {needed}, got it alone. Add {needed}.")
    from earatlas.plotting.pictures import read_picture

    read_picture(picture, space)


def read_yaw(text: str | None) -> Yaw | None:
    """Return the yaw given as a number of degrees or as a .csv file; None if it is not given."""
    from earatlas.geometry.head_yaw import Yaw

    if text is None:
        return None
    try:
        degrees = float(text)
    except ValueError:
        if not text.lower().endswith(".csv"):
            raise InputError(
                f"yaw must be degrees or a .csv file with the columns time and yaw, got '{text}'. "
                "For example: --yaw 20 or --yaw yaw.csv."
            ) from None
        return Yaw.read(text)
    if abs(degrees) > 360:
        raise InputError(
            f"yaw must be from -360 to 360 degrees, got {text}. A yaw that changes is read from a "
            ".csv file."
        )
    return Yaw.constant(degrees)


def read_head(
    head: str, options: HeadOptions, *, diagnosed: bool = False, verbose: bool = True
) -> Head:
    """Read a head with `open_head` and a progress bar.

    `diagnosed` suppresses the warning about mirrored ears, which a diagnosis repeats. `verbose` is
    False in a batch, which has its own progress bar.
    """
    from earatlas.hrtf.kemar import MIRRORED_EAR_WARNING
    from earatlas.hrtf.loading import open_head

    bar = progress(f"reading {head}") if verbose else nullcontext(None)
    with bar as update, warnings.catch_warnings():
        if diagnosed:
            warnings.filterwarnings("ignore", MIRRORED_EAR_WARNING, EaratlasWarning)
        return open_head(
            head,
            kind=options.kind.value,
            channels=options.channels,
            duplicates=options.duplicates.value,
            wrong_way=None if options.wrong_way is None else options.wrong_way.value,
            image=options.image,
            progress=update,
        )
