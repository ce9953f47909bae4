"""A head from own calibration recordings: a table (CSV) of files and directions.

Each recording is white noise played from its direction, or an impulse response.
"""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import Literal, get_args

import numpy as np

from earatlas.csv_tables import table_rows
from earatlas.errors import EaratlasWarning, InputError, existing_file
from earatlas.features.audio import Audio
from earatlas.features.audio_files import MORE_CHANNELS, read_audio
from earatlas.features.cues import mean_cues
from earatlas.features.layout import CueLayout
from earatlas.hrtf.head import (
    Duplicates,
    Head,
    ImpulseResponses,
    MeasuredCues,
    WrongWay,
    distinct,
    is_wrong_way_round,
    left_first,
)
from earatlas.types import Array, Progress

__all__ = ["read_recordings", "recordings_of"]

Kind = Literal["auto", "noise", "responses"]


def _rows(path: Path) -> list[tuple[Path, float, float]]:
    """(file, azimuth, elevation) of every row; files are relative to the table's folder."""
    rows = []
    for row in table_rows(path, ("file", "azimuth", "elevation"), "table"):
        azimuth, elevation = row.numbers("azimuth", "elevation")
        rows.append((path.parent / str(row.cells["file"]).strip(), azimuth, elevation))
    if not rows:
        raise InputError(f"table must have at least one recording, got none in '{path}'. Add rows.")
    # os.path, unlike Path, says of a name that is too long that there is no such file.
    absent = [str(file) for file, _, _ in rows if not os.path.isfile(file)]
    if absent:
        raise InputError(
            f"recordings must exist, got {len(absent)} of {len(rows)} missing that '{path}' names, "
            f"first '{absent[0]}'. File names are relative to the table's folder."
        )
    return rows


def recordings_of(path: str | Path) -> list[Path]:
    """The files that a table names, in its order."""
    return [file for file, _, _ in _rows(existing_file(path, "table"))]


def _is_response(audio: Audio, window_seconds: float) -> bool:
    """Whether a recording is an impulse response: over within a window, or dying away.

    Of the stretch within 15 dB of the loudest 10 ms, the first half holds 85 % of the energy of an
    exponential decay, whatever its rate, more if there is a direct sound, and 50 % of that of
    noise (63 % if a room with a T60 of 2 s draws it out). Silence around it, and what hisses there,
    are not in the stretch.
    """
    step = max(audio.rate // 100, 1)
    power = (audio.samples**2).sum(axis=0)
    energy = np.add.reduceat(power, np.arange(0, len(power), step))
    on = np.flatnonzero(energy > 10**-1.5 * energy.max())
    stretch = energy[on[0] : on[-1] + 1]
    if min(len(stretch) * step, len(power)) <= window_seconds * audio.rate:
        return True
    return bool(stretch[: len(stretch) // 2].sum() > 0.7 * stretch.sum())


def _joined(responses: list[Audio], path: Path) -> ImpulseResponses:
    """Recorded responses in one array, the shorter ones padded with silence."""
    rates = sorted({audio.rate for audio in responses})
    if len(rates) > 1:
        raise InputError(
            f"recordings must have one sampling rate, got {', '.join(map(str, rates))} Hz in the "
            f"files that '{path}' names. Resample them to one rate."
        )
    taps = max(audio.samples.shape[1] for audio in responses)
    padded = [np.pad(a.samples, ((0, 0), (0, taps - a.samples.shape[1]))) for a in responses]
    return ImpulseResponses(np.stack(padded), float(rates[0]))


def read_recordings(
    path: str | Path,
    *,
    kind: Kind = "auto",
    channels: tuple[int, int] = (0, 1),
    layout: CueLayout | None = None,
    duplicates: Duplicates = "error",
    wrong_way: WrongWay | None = None,
    progress: Progress | None = None,
) -> Head:
    """A head from a CSV (file, azimuth, elevation) of two-channel calibration recordings.

    Each is white noise played from that direction, or an impulse response; "auto" listens to find
    out which. `channels` are those of the left and the right ear. Where sounds from the left are
    louder in the right ear, `wrong_way` says what is wrong, "ears" or "azimuths"; without it that
    is an InputError. `progress(done, total)` is called after each file.
    """
    if kind not in get_args(Kind):
        raise InputError(
            f"kind must be one of {', '.join(get_args(Kind))}, got '{kind}'. Choose one."
        )
    path, layout = existing_file(path, "head"), layout or CueLayout()
    rows = _rows(path)
    reading = _Reading(kind, channels, layout)
    for done, (file, _, _) in enumerate(rows, start=1):
        reading.add(file)
        if progress is not None:
            progress(done, len(rows))
    head = Head(
        name=path.parent.name if path.stem == "positions" else path.stem,
        directions=np.array([row[1:] for row in rows]),
        ears=reading.ears(path),
        provenance=f"{len(rows)} recordings ({reading.kind}) named in {path.name}",
    )
    if wrong_way is None and is_wrong_way_round(head):
        raise InputError(
            f"table must have azimuths that grow to the left, and the left ear first, got sounds "
            f"from the left that are louder in the right ear in '{path}'. Azimuths or channels are "
            "the wrong way round: negate the azimuth column, or pass channels=(1, 0), or say which "
            "is wrong, wrong_way='azimuths' or 'ears' (command line: --wrong-way)."
        )
    return distinct(left_first(head, str(path), wrong_way), duplicates, str(path))


class _Reading:
    """The recordings of a table, one after the other: all noise, or all impulse responses."""

    def __init__(self, kind: Kind, channels: tuple[int, int], layout: CueLayout) -> None:
        self.kind, self.channels, self.layout = kind, channels, layout
        self._listens = kind == "auto"
        self._responses: list[Audio] = []
        self._cues: list[Array] = []

    def add(self, file: Path) -> None:
        """Read the next one."""
        audio = self._read(file)
        if self._listens:
            self._hear_kind(audio, file)
        if self.kind == "responses":
            self._responses.append(audio)
            return
        try:
            self._cues.append(mean_cues(audio, self.layout))
        except InputError as error:
            raise InputError(f"'{file}': {error}") from error

    def _read(self, file: Path) -> Audio:
        with warnings.catch_warnings():
            if self._responses or self._cues:  # said of the first: all come from one recorder
                warnings.filterwarnings("ignore", MORE_CHANNELS, EaratlasWarning)
            return read_audio(file, channels=self.channels)

    def _hear_kind(self, audio: Audio, file: Path) -> None:
        window_seconds = self.layout.window / self.layout.rate
        heard: Kind = "responses" if _is_response(audio, window_seconds) else "noise"
        if self.kind not in ("auto", heard):
            raise InputError(
                f"kind must be given where recordings differ, got {heard} in '{file}' and "
                f"{self.kind} in those before it. Pass kind='{self.kind}' or kind='{heard}', or "
                "correct the table."
            )
        self.kind = heard

    def ears(self, path: Path) -> ImpulseResponses | MeasuredCues:
        """All of them, as the ears of a head."""
        if self.kind == "noise":
            return MeasuredCues(np.stack(self._cues), self.layout)
        return _joined(self._responses, path)
