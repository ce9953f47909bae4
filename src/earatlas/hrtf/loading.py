"""Any head by its name: a file, a table, or one that is built in."""

from __future__ import annotations

import os
from pathlib import Path

from earatlas.errors import InputError
from earatlas.hrtf.calibration_recordings import Kind, read_recordings, recordings_of
from earatlas.hrtf.head import Duplicates, Head, WrongWay
from earatlas.hrtf.kemar import kemar
from earatlas.hrtf.simulated import simulated_head
from earatlas.hrtf.sofa import read_sofa
from earatlas.types import Progress

__all__ = ["files_of_head", "open_head"]

_BUILT_IN = ("simulated", "kemar")


def files_of_head(source: str | Path) -> list[Path]:
    """The files that `open_head` reads of a head by that name; none of one that is built in."""
    path = Path(source)
    if str(source) in _BUILT_IN:
        return []
    return [path, *(recordings_of(path) if path.suffix.lower() == ".csv" else [])]


def open_head(
    source: str | Path,
    *,
    kind: Kind = "auto",
    channels: tuple[int, int] = (0, 1),
    duplicates: Duplicates = "error",
    wrong_way: WrongWay | None = None,
    progress: Progress | None = None,
) -> Head:
    """A head by name: a .sofa file, a .csv table of recordings, `simulated` or `kemar`.

    `kind`, `channels` and `progress` are for recordings: see `read_recordings`. `wrong_way` says
    what is wrong in a file whose ears and azimuths contradict: see `read_sofa`.
    """
    match str(source):
        case "simulated":
            return simulated_head()
        case "kemar":
            return kemar()
    match Path(source).suffix.lower():
        case ".sofa":
            return read_sofa(source, duplicates=duplicates, wrong_way=wrong_way)
        case ".csv":
            return read_recordings(
                source, kind=kind, channels=channels, duplicates=duplicates, wrong_way=wrong_way,
                progress=progress,
            )  # fmt: skip
    what = "the folder" if os.path.isdir(source) else "the name"
    remedy = "Check the ending."
    if str(source).lower().endswith(".atlas"):
        what, remedy = "the atlas", "Name the measured head that it was learned from."
    raise InputError(
        f"head must be a .sofa file, a .csv table (file, azimuth, elevation), 'simulated' or "
        f"'kemar', got {what} '{source}'. {remedy}"
    )
