"""Opening a head by its name: a SOFA file, a table of recordings, or a built-in head."""

from __future__ import annotations

import os
from pathlib import Path

from earatlas.errors import InputError, check_path
from earatlas.geometry.spaces import Plane
from earatlas.hrtf.calibration_recordings import Kind, read_recordings, recording_files
from earatlas.hrtf.head import BUILT_IN_HEADS, Duplicates, Head, WrongWay
from earatlas.hrtf.kemar import kemar
from earatlas.hrtf.simulated import simulated_head
from earatlas.hrtf.sofa import read_sofa
from earatlas.types import Progress

__all__ = ["head_files", "open_head"]


def head_files(source: str | Path) -> list[Path]:
    """Return the files that `open_head` reads for a head; none for built-in heads."""
    path = Path(source)
    if str(source) in BUILT_IN_HEADS:
        return []
    return [path, *(recording_files(path) if path.suffix.lower() == ".csv" else [])]


def open_head(
    source: str | Path,
    *,
    kind: Kind = "auto",
    channels: tuple[int, int] = (0, 1),
    duplicates: Duplicates = "error",
    wrong_way: WrongWay | None = None,
    image: Plane | None = None,
    progress: Progress | None = None,
) -> Head:
    """Open a head by its name.

    Parameters
    ----------
    source : str or Path
        A .sofa file, a .csv table of recordings, "simulated", or "kemar".
    kind : {"auto", "noise", "responses"}, default "auto"
        What the recordings of a table contain; see `read_recordings`.
    channels : (int, int), default (0, 1)
        Channels of the left and the right ear in the recordings of a table, or receivers of a SOFA
        file, counted from 0.
    duplicates : {"error", "first"}, default "error"
        Whether directions that occur several times are refused, or the first one is kept.
    wrong_way : {"ears", "azimuths"}, optional
        What to correct if sounds from the left are louder in the right ear; see `read_sofa` and
        `read_recordings`.
    image : Plane, optional
        The image of a table with positions in pixels; see `read_recordings`.
    progress : callable, optional
        Called as `progress(done, total)` after each recording of a table.

    Returns
    -------
    Head
        The head.

    Raises
    ------
    InputError
        If there is no such head, or it cannot be used.

    Examples
    --------
    >>> import earatlas as ea
    >>> ea.open_head("simulated")
    Head('simulated', 2578 directions)
    """
    if image is not None and not str(source).lower().endswith(".csv"):
        raise InputError(
            f"image must be used with a .csv table of positions, got the head '{source}'. Omit it."
        )
    match str(source):
        case "simulated":
            return simulated_head()
        case "kemar":
            return kemar()
    match check_path(source).suffix.lower():
        case ".sofa":
            return read_sofa(source, duplicates=duplicates, wrong_way=wrong_way, receivers=channels)
        case ".csv":
            return read_recordings(
                source, kind=kind, channels=channels, duplicates=duplicates, wrong_way=wrong_way,
                image=image, progress=progress,
            )  # fmt: skip
    found, remedy = "the name", "Check the name."
    if os.path.isdir(source):
        found, remedy = "the folder", "Name a file in it."
    elif os.path.exists(source):
        found, remedy = "the file", "Name the measurement of the head."
    if str(source).lower().endswith(".atlas") or str(source) == "people":
        found, remedy = "the atlas", "Name the measured head from which it was learned."
    raise InputError(
        f"The head must be a .sofa file, a .csv table (file, azimuth, elevation), 'simulated' or "
        f"'kemar', got {found} '{source}'. {remedy}"
    )
