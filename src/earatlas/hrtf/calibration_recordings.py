"""A head from calibration recordings, listed in a CSV table of files and directions.

Each recording is white noise played from its direction, or an impulse response. Instead of a
direction, a row can have the position of the source in the image of a camera (columns x and y, in
pixels from the upper left corner).
"""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import Literal, get_args

import numpy as np

from earatlas.csv_tables import read_header, read_table
from earatlas.errors import EaratlasWarning, InputError, SettingHint, existing_file
from earatlas.features.audio import Audio
from earatlas.features.audio_files import EXTRA_CHANNELS_WARNING, read_audio
from earatlas.features.cues import mean_cues
from earatlas.features.layout import CueLayout
from earatlas.geometry.spaces import Plane
from earatlas.hrtf.head import (
    Duplicates,
    Head,
    ImpulseResponses,
    MeasuredCues,
    WrongWay,
    correct_mirroring,
    is_mirrored,
    remove_duplicates,
)
from earatlas.types import Array, Progress

__all__ = ["Kind", "read_recordings", "recording_files"]

Kind = Literal["auto", "noise", "responses"]


DIRECTION_COLUMNS = ("azimuth", "elevation")
POSITION_COLUMNS = ("x", "y")  # pixels


def _label_columns(path: Path) -> tuple[str, str]:
    """Return the columns of the labels: azimuth and elevation in degrees, or x and y in pixels."""
    header = read_header(path, "table")
    given = {
        columns: any(name in header for name in columns)
        for columns in (DIRECTION_COLUMNS, POSITION_COLUMNS)
    }
    if all(given.values()):
        raise InputError(
            "The table must have azimuth and elevation in degrees, or x and y in pixels, got both "
            f"in '{path}'. Remove the columns that are not to be learned."
        )
    return POSITION_COLUMNS if given[POSITION_COLUMNS] else DIRECTION_COLUMNS


def _read_rows(path: Path) -> list[tuple[Path, float, float]]:
    """Return the file and both labels of every row; files are relative to the table."""
    rows = []
    columns = _label_columns(path)
    for row in read_table(path, ("file", *columns), "table"):
        first, second = row.numbers(*columns)
        rows.append((path.parent / str(row.cells["file"]).strip(), first, second))
    if not rows:
        raise InputError(f"The table '{path}' lists no recordings. Add one row per recording.")
    # os.path.isfile, unlike Path.is_file, returns False for names that are too long.
    missing = [str(file) for file, _, _ in rows if not os.path.isfile(file)]
    if missing:
        raise InputError(
            f"{len(missing)} of the {len(rows)} recordings listed in '{path}' do not exist, the "
            f"first is '{missing[0]}'. Check the file names, which are relative to the folder of "
            "the table."
        )
    return rows


def recording_files(path: str | Path) -> list[Path]:
    """Return the files that a table lists, in its order."""
    return [file for file, _, _ in _read_rows(existing_file(path, "table"))]


def _is_response(
    audio: Audio,
    window_seconds: float,
    *,
    active_db: float = 15.0,
    min_first_half_energy: float = 0.7,
) -> bool:
    """Return whether a recording is an impulse response: shorter than a window, or decaying.

    Only the part within `active_db` of the loudest 10 ms is analysed, which excludes silence and
    noise around it. The first half of an exponential decay contains 85 % of its energy at any decay
    rate. Evidence: docs/figures/settings/hrtf.md, "calibration_recordings".
    """
    step = max(audio.rate // 100, 1)
    power = (audio.samples**2).sum(axis=0)
    energy = np.add.reduceat(power, np.arange(0, len(power), step))
    active = np.flatnonzero(energy > 10 ** (-active_db / 10) * energy.max())
    segment = energy[active[0] : active[-1] + 1]
    if min(len(segment) * step, len(power)) <= window_seconds * audio.rate:
        return True
    return bool(segment[: len(segment) // 2].sum() > min_first_half_energy * segment.sum())


def _stack_responses(responses: list[Audio], path: Path) -> ImpulseResponses:
    """Stack recorded responses into one array, padding the shorter ones with zeros."""
    rates = sorted({audio.rate for audio in responses})
    if len(rates) > 1:
        raise InputError(
            f"The recordings listed in '{path}' have different sampling rates "
            f"({', '.join(map(str, rates))} Hz), but they must have the same. Resample them to one "
            "rate."
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
    image: Plane | None = None,
    progress: Progress | None = None,
) -> Head:
    """Create a head from a table of calibration recordings.

    Parameters
    ----------
    path : str or Path
        CSV file with the columns file, azimuth and elevation. File names are relative to its
        folder, directions in degrees. Each file is a two-channel recording of white noise played
        from that direction, or an impulse response. With the columns x and y instead, sources are
        labelled with their positions in the image of a camera, in pixels.
    kind : {"auto", "noise", "responses"}, default "auto"
        What the recordings contain; "auto" recognizes it from the first recordings.
    channels : (int, int), default (0, 1)
        Channels of the left and the right ear, counted from 0.
    layout : CueLayout, optional
        Cues that are measured from noise recordings. By default, `CueLayout()`.
    duplicates : {"error", "first"}, default "error"
        Whether directions that occur several times are refused, or the first one is kept.
    wrong_way : {"ears", "azimuths"}, optional
        What to correct if sounds from the left are louder in the right ear. By default, that is an
        error.
    image : Plane, optional
        The image of a table with positions, made by `Plane.image`. By default it extends to the
        outermost positions.
    progress : callable, optional
        Called as `progress(done, total)` after each file.

    Returns
    -------
    Head
        A head with impulse responses, or with mean cues if the recordings are noise.

    Raises
    ------
    InputError
        If the table or a recording cannot be used.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> import earatlas as ea
    >>> measured = ea.simulated_head([[30.0, 0.0], [-30.0, 0.0]])
    >>> with tempfile.TemporaryDirectory() as name:
    ...     folder = pathlib.Path(name)
    ...     for file, response in zip(("l.wav", "r.wav"), measured.responses().samples):
    ...         _ = ea.Audio(response, 48000).write(folder / file)
    ...     table = folder / "lab.csv"
    ...     rows = ("file,azimuth,elevation", "l.wav,30,0", "r.wav,-30,0")
    ...     with table.open("w") as out:
    ...         print(*rows, sep=chr(10), file=out)
    ...     ea.read_recordings(table, kind="responses")
    Head('lab', 2 directions)
    """
    if kind not in get_args(Kind):
        raise InputError(
            f"kind must be one of {', '.join(get_args(Kind))}, got '{kind}'. Choose one."
        )
    path, layout = existing_file(path, "head"), layout or CueLayout()
    rows = _read_rows(path)
    labels = np.array([row[1:] for row in rows])
    plane = _image_plane(path, labels, image)
    reader = _RecordingsReader(kind, channels, layout)
    for done, (file, _, _) in enumerate(rows, start=1):
        reader.add(file)
        if progress is not None:
            progress(done, len(rows))
    head = Head(
        name=path.parent.name if path.stem == "positions" else path.stem,
        directions=labels,
        ears=reader.ears(path),
        provenance=f"{len(rows)} recordings ({reader.kind}) named in {path.name}",
        plane=plane,
    )
    if wrong_way is None and is_mirrored(head):
        raise InputError(
            f"In '{path}', sounds from the left are louder in the right ear, so either the "
            "azimuths or the channels are the wrong way round. Azimuths must increase to the left, "
            "and the left ear comes first. Negate the azimuth column, exchange the two channels, "
            "or state which of them is the wrong way round.",
            hint=SettingHint("wrong_way='azimuths' or 'ears'", "--wrong-way azimuths or ears"),
        )
    return remove_duplicates(correct_mirroring(head, str(path), wrong_way), duplicates, str(path))


def _image_plane(path: Path, labels: Array, image: Plane | None) -> Plane | None:
    """Return the plane of labels (N, 2) in pixels, or None if they are directions."""
    if _label_columns(path) == DIRECTION_COLUMNS:
        if image is not None:
            raise InputError(
                "image must be used with a table of positions (columns x and y), got the "
                f"directions in '{path}'. Omit the image, or label the recordings with pixels."
            )
        return None
    if image is not None:
        return image
    width, height = np.maximum(np.ceil(labels.max(axis=0)), 1.0)
    return Plane.image(width, height)


class _RecordingsReader:
    """Reads the recordings of a table, which are all noise or all impulse responses."""

    def __init__(self, kind: Kind, channels: tuple[int, int], layout: CueLayout) -> None:
        self.kind, self.channels, self.layout = kind, channels, layout
        self._detect = kind == "auto"
        self._responses: list[Audio] = []
        self._cues: list[Array] = []

    def add(self, file: Path) -> None:
        """Read the next recording."""
        audio = self._read(file)
        if self._detect:
            self._detect_kind(audio, file)
        if self.kind == "responses":
            self._responses.append(audio)
            return
        try:
            self._cues.append(mean_cues(audio, self.layout))
        except InputError as error:
            raise InputError(f"'{file}': {error}") from error

    def _read(self, file: Path) -> Audio:
        with warnings.catch_warnings():
            if self._responses or self._cues:  # warn only once per table
                warnings.filterwarnings("ignore", EXTRA_CHANNELS_WARNING, EaratlasWarning)
            return read_audio(file, channels=self.channels)

    def _detect_kind(self, audio: Audio, file: Path) -> None:
        window_seconds = self.layout.window / self.layout.rate
        detected: Kind = "responses" if _is_response(audio, window_seconds) else "noise"
        if self.kind not in ("auto", detected):
            raise InputError(
                f"The recording '{file}' seems to be of the kind '{detected}', but those before it "
                f"are of the kind '{self.kind}'. All recordings must be noise without pauses, or "
                "all impulse responses; speech is neither. State the kind, or correct the table."
            )
        self.kind = detected

    def ears(self, path: Path) -> ImpulseResponses | MeasuredCues:
        """Return the measurements of all recordings."""
        if self.kind == "noise":
            return MeasuredCues(np.stack(self._cues), self.layout)
        return _stack_responses(self._responses, path)
