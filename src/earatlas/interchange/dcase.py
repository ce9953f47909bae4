"""DCASE files: the direction of each source in frames of 100 ms, as in STARSS22 and STARSS23.

    12,0,1,-50,30        frame, class, source, azimuth, elevation

This is the output format of the DCASE task on sound event localization and detection [1]_: frames
count from 0, angles are whole degrees, azimuth is positive to the left. earatlas does not recognize
classes, so all sources have the same. A source without a known direction has no row.

References
----------
.. [1] A. Politis et al., "STARSS22: A dataset of spatial recordings of real scenes with
   spatiotemporal annotations of sound events", Proc. DCASE Workshop, 2022.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from earatlas.errors import InputError, check_path
from earatlas.files import atomic_write
from earatlas.geometry.angles import wrap_degrees
from earatlas.interchange.sinks import GrowingText
from earatlas.separation.result import SceneSummary, SourceSummary
from earatlas.streaming.report import LiveReport
from earatlas.wording import is_unknown

__all__ = ["FRAME_SECONDS", "DcaseSink", "dcase_row", "write_dcase"]

FRAME_SECONDS = 0.1  # of the format


def dcase_row(frame: int, source: int, direction: ArrayLike, class_index: int = 0) -> str:
    """Return one row of a file, without the line break.

    Examples
    --------
    >>> dcase_row(12, 1, [-49.6, 30.2])
    '12,0,1,-50,30'
    """
    angles = [*np.asarray(direction, dtype=np.float64), 0.0][:2]
    azimuth, elevation = round(float(wrap_degrees(angles[0]))), round(float(angles[1]))
    return f"{frame},{class_index},{source},{azimuth},{elevation}"


def write_dcase(scene: SceneSummary, path: str | Path, *, class_index: int = 0) -> Path:
    """Write the direction of each active source of a scene in frames of 100 ms.

    Parameters
    ----------
    scene : SceneSummary
        A separated scene of a head, whose places are directions.
    path : str or Path
        The file, usually with the ending .csv.
    class_index : int, default 0
        Class of all sources; 0 is female speech and 1 male speech in STARSS.

    Returns
    -------
    Path
        The path of the file.

    Raises
    ------
    InputError
        If the places of the scene are not directions, or if the file cannot be written.

    Examples
    --------
    >>> import tempfile
    >>> import earatlas as ea
    >>> scene = ea.people_atlas().separate(ea.example_recording(), n_sources=2)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     rows = ea.write_dcase(scene, f"{folder}/party.csv").read_text().splitlines()
    >>> len(rows[0].split(","))
    5
    """
    path = check_path(path)
    if scene.sources and not scene.sources[0].posterior.space.holds_directions:
        raise InputError(
            "scene must have directions in degrees for the DCASE format, got one of other "
            "coordinates. Use to_pandas or to_dict instead."
        )
    rows = [
        dcase_row(frame, m, direction, class_index) + "\n"
        for frame in range(int(np.ceil(scene.seconds / FRAME_SECONDS)))
        for m, direction in _active_sources(scene.sources, (frame + 0.5) * FRAME_SECONDS)
    ]
    with atomic_write(path) as scratch:
        scratch.write_text("".join(rows), encoding="utf-8")
    return path


def _active_sources(
    sources: Sequence[SourceSummary], seconds: float
) -> list[tuple[int, np.ndarray]]:
    """Return number and direction of the sources that are active at this time."""
    found = []
    for m, source in enumerate(sources):
        track = source.track
        row = int(np.argmin(np.abs(track.seconds - seconds)))
        if track.active[row] and not is_unknown(float(track.radius_90[row])):
            found.append((m, track.directions[row]))
    return found


class DcaseSink:
    """Writes a row per active source of a live stream and frame of 100 ms."""

    def __init__(self, path: str | Path, *, class_index: int = 0) -> None:
        self._class_index, self._frame = class_index, 0
        self._file = GrowingText(path)

    def send(self, report: LiveReport) -> None:
        """Write the frames that ended since the last report."""
        active = [
            source
            for source in report.sources
            if source.confirmed and source.active and not is_unknown(source.radius_90)
        ]
        while (self._frame + 1) * FRAME_SECONDS <= report.time + 1e-9:
            self._file.write(
                [dcase_row(self._frame, s.id, s.direction, self._class_index) for s in active]
            )
            self._frame += 1

    def close(self) -> None:
        """Close the file."""
        self._file.close()
