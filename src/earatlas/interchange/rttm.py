"""RTTM files: when each source is active, for programs that score speaker diarization.

    SPEAKER party 1 0.480 1.920 <NA> <NA> source1 <NA> <NA>

The fields are the type, the recording, the channel, start and duration in seconds, and the name of
the source [1]_. Directions have no place in this format.

References
----------
.. [1] NIST, "The 2009 (RT-09) Rich Transcription Meeting Recognition Evaluation Plan", appendix A.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from earatlas.errors import check_path
from earatlas.files import atomic_write
from earatlas.interchange.sinks import GrowingText
from earatlas.separation.result import SceneSummary, SourceTrack
from earatlas.streaming.report import LiveReport, LiveSource
from earatlas.types import Array

__all__ = ["RttmSink", "active_segments", "rttm_line", "write_rttm"]


def rttm_line(recording: str, start: float, end: float, source: str) -> str:
    """Return one line of a file, without the line break; fields must not contain white space.

    Examples
    --------
    >>> rttm_line("a party", 0.48, 2.4, "source1")
    'SPEAKER a_party 1 0.480 1.920 <NA> <NA> source1 <NA> <NA>'
    """
    name, label = ("_".join(text.split()) or "_" for text in (recording, source))
    return f"SPEAKER {name} 1 {start:.3f} {end - start:.3f} <NA> <NA> {label} <NA> <NA>"


def active_segments(track: SourceTrack, seconds: float) -> Array:
    """Return starts and ends (S, 2) in seconds of the runs of rows in which a source is active.

    Examples
    --------
    >>> import numpy as np
    >>> directions = np.array([[30.0, 0], [30, 0], [np.nan, np.nan], [30, 0]])
    >>> track = SourceTrack(np.array([0.1, 0.3, 0.5, 0.7]), directions, np.ones(4), np.zeros(4))
    >>> active_segments(track, 0.75).round(2).tolist()
    [[0.0, 0.4], [0.6, 0.75]]
    """
    centres, active = track.seconds, track.active
    if not active.any():
        return np.zeros((0, 2))
    middles = (centres[1:] + centres[:-1]) / 2
    edges = np.concatenate([[0.0], middles, [seconds]])
    change = np.flatnonzero(np.diff(np.concatenate([[False], active, [False]]).astype(int)))
    return edges[change].reshape(-1, 2)


def write_rttm(scene: SceneSummary, path: str | Path, *, recording: str | None = None) -> Path:
    """Write when each source of a scene is active.

    Parameters
    ----------
    scene : SceneSummary
        A separated scene.
    path : str or Path
        The file, usually with the ending .rttm.
    recording : str, optional
        Name of the recording, by default that of the file without its ending.

    Returns
    -------
    Path
        The path of the file.

    Raises
    ------
    InputError
        If the file cannot be written.

    Examples
    --------
    >>> import tempfile
    >>> import earatlas as ea
    >>> scene = ea.people_atlas().separate(ea.example_recording(), n_sources=2)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     text = ea.write_rttm(scene, f"{folder}/party.rttm").read_text()
    >>> text.split()[:3]
    ['SPEAKER', 'party', '1']
    """
    path = check_path(path)
    name = path.stem if recording is None else recording
    segments = sorted(
        (float(start), float(end), source.name)
        for source in scene.sources
        for start, end in active_segments(source.track, scene.seconds)
    )
    lines = [rttm_line(name, start, end, source) + "\n" for start, end, source in segments]
    with atomic_write(path) as scratch:
        scratch.write_text("".join(lines), encoding="utf-8", errors="backslashreplace")
    return path


class RttmSink:
    """Writes a line for each time that a source of a live stream was active, when that ends."""

    def __init__(self, path: str | Path) -> None:
        self._file = GrowingText(path)
        self._segments: dict[int, tuple[float, float]] = {}  # start and last detection by track
        self._known: set[int] = set()

    def send(self, report: LiveReport) -> None:
        """Extend the segments of active sources; write those that have ended."""
        for source in report.sources:
            if source.confirmed:
                self._take(source, report.time)
        for source in report.ended:
            self._write(source.id)

    def _take(self, source: LiveSource, time: float) -> None:
        """Begin, extend or end the segment of a confirmed source."""
        detected = max(time - source.age, 0.0)
        if not source.active:
            self._write(source.id)
        elif source.id in self._segments:
            self._segments[source.id] = self._segments[source.id][0], detected
        else:
            # A track is confirmed some time after its source began.
            start = detected if source.id in self._known else min(source.since, detected)
            self._segments[source.id] = start, detected
        self._known.add(source.id)

    def _write(self, track: int) -> None:
        """Write the segment of a track, if it has one that is longer than nothing."""
        start, end = self._segments.pop(track, (0.0, 0.0))
        if end > start:
            self._file.write([rttm_line(self._file.path.stem, start, end, f"track{track}")])

    def close(self) -> None:
        """Write the segments that have not ended, and close the file."""
        for track in sorted(self._segments):
            self._write(track)
        self._file.close()
