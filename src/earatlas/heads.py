"""Heads: what reaches two ears from many directions, measured or simulated.

A `Head` is directions with, for each, either the two impulse responses or the mean cues of a noise
recording. It comes from a SOFA file, a table of calibration recordings, the simulation that is
built in, or the MIT KEMAR that the package `slab` carries; `open_head` takes any of these by name.

    x   (N, 2)         directions, (azimuth, elevation) in degrees
    h   (N, 2, taps)   impulse responses, left and right
    y   (N, D)         mean interaural vectors (paper, section 2)
"""

from __future__ import annotations

import csv
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.spatial import cKDTree

from earatlas.audio import Audio, read_audio, resample
from earatlas.cues import CueLayout, mean_cues, response_cues
from earatlas.directions import Circle, Space, Sphere, to_vectors, wrap_degrees
from earatlas.errors import EaratlasWarning, InputError, existing_file, missing_extra
from earatlas.simulated import simulated_responses
from earatlas.sofa import load_sofa

__all__ = [
    "Head",
    "ImpulseResponses",
    "MeasuredCues",
    "kemar",
    "open_head",
    "read_recordings",
    "read_sofa",
    "simulated_head",
]

Array = NDArray[np.float64]
Duplicates = Literal["error", "first"]
Kind = Literal["auto", "noise", "responses"]
Progress = Callable[[int, int], None]


@dataclass(frozen=True, eq=False, slots=True)
class ImpulseResponses:
    """Both ears' responses of every direction."""

    samples: Array  # (N, 2, taps)
    rate: float  # Hz

    def cues(self, layout: CueLayout) -> Array:
        """Mean interaural vectors (N, D)."""
        return response_cues(self.samples, self.rate, layout)

    def subset(self, indices: NDArray[np.intp]) -> ImpulseResponses:
        """Those of some directions."""
        return ImpulseResponses(self.samples[indices], self.rate)

    def at_rate(self, rate: int) -> Array:
        """The responses (N, 2, taps') resampled, all delayed alike so that no onset is cut."""
        if rate == self.rate:
            return self.samples
        # A resampling filter rings on both sides of an onset; 64 samples hold all that counts.
        room = int(np.ceil(64 * max(self.rate / rate, 1.0)))
        return resample(np.pad(self.samples, ((0, 0), (0, 0), (room, room))), self.rate, rate)

    def __len__(self) -> int:
        return len(self.samples)


@dataclass(frozen=True, eq=False, slots=True)
class MeasuredCues:
    """Mean cues of noise recordings, where no impulse responses are known."""

    values: Array  # (N, D)
    layout: CueLayout

    def cues(self, layout: CueLayout) -> Array:
        """The channels (N, D') of another layout, which must lie within the measured one."""
        return self.values[:, layout.indices_in(self.layout)]

    def subset(self, indices: NDArray[np.intp]) -> MeasuredCues:
        """Those of some directions."""
        return MeasuredCues(self.values[indices], self.layout)

    def __len__(self) -> int:
        return len(self.values)


@dataclass(frozen=True, eq=False)
class Head:
    """Directions, and what the two ears get from each; made by `read_sofa` and its siblings."""

    name: str
    directions: Array  # (N, 2) degrees
    ears: ImpulseResponses | MeasuredCues
    licence: str = "unknown"
    provenance: str = ""

    def __post_init__(self) -> None:
        x = Sphere().check(self.directions).copy()
        if len(x) != len(self.ears):
            raise InputError(
                f"directions must be as many as the ears' measurements, got {len(x)} and "
                f"{len(self.ears)}. Give one of each."
            )
        x[:, 0] = wrap_degrees(x[:, 0])
        object.__setattr__(self, "directions", x)

    def __repr__(self) -> str:
        return f"Head({self.name!r}, {len(self)} directions)"

    def __len__(self) -> int:
        return len(self.directions)

    def cues(self, layout: CueLayout | None = None) -> Array:
        """Mean interaural vectors (N, D): what is learned from."""
        return self.ears.cues(layout or CueLayout())

    def subset(self, indices: ArrayLike) -> Head:
        """The head with some of its directions (indices or a mask), in that order."""
        chosen = np.arange(len(self))[np.asarray(indices)]
        return replace(self, directions=self.directions[chosen], ears=self.ears.subset(chosen))

    def responses(self) -> ImpulseResponses:
        """The impulse responses, or an InputError for a head that is known by noise only."""
        if isinstance(self.ears, MeasuredCues):
            raise InputError(
                f"head must have impulse responses to render sound, got '{self.name}', which was "
                "measured with noise. Use a SOFA file, or recordings of impulse responses."
            )
        return self.ears

    @property
    def space(self) -> Space:
        """Where its directions live: a circle if all have one elevation, else the sphere."""
        return Circle() if np.ptp(self.directions[:, 1]) < 1.0 else Sphere()

    @property
    def spacing_degrees(self) -> float:
        """Median distance from a direction to its nearest neighbour."""
        if len(self) < 2:
            return float("nan")
        v = to_vectors(self.directions)
        chord = cKDTree(v).query(v, k=2)[0][:, 1]
        return float(np.median(np.degrees(2 * np.arcsin(np.minimum(chord / 2, 1.0)))))


def _distinct(head: Head, duplicates: Duplicates, where: str) -> Head:
    """The head with one measurement a direction, or an InputError if that is not allowed."""
    _, first, counts = np.unique(
        np.round(to_vectors(head.directions), 5), axis=0, return_index=True, return_counts=True
    )
    if not (counts > 1).any():
        return head
    if duplicates == "error":
        example = head.directions[first[np.argmax(counts > 1)]]
        raise InputError(
            f"head must have each direction once, got {(counts > 1).sum()} directions more than "
            f"once in '{where}', such as azimuth {example[0]:g}, elevation {example[1]:g}. Pass "
            "duplicates='first' (command line: --duplicates first) to keep the first of each."
        )
    return head.subset(np.sort(first))


def _is_wrong_way_round(head: Head) -> bool:
    """Whether sounds from the left are louder in channel 1, as far as levels are known."""
    azimuth, elevation = head.directions.T
    lateral = (np.abs(np.abs(azimuth) - 90) < 50) & (np.abs(elevation) <= 45)
    left, right = lateral & (azimuth > 0), lateral & (azimuth < 0)
    if isinstance(head.ears, ImpulseResponses):
        energy = (head.ears.samples**2).sum(axis=2) + 1e-300
        level_db = 10 * np.log10(energy[:, 1:] / energy[:, :1])  # (N, 1)
    else:
        level_db = head.ears.values[:, head.ears.layout.channel_kinds == "ild"]
    if not (left.any() and right.any() and level_db.size):
        return False
    return bool(level_db[left].mean() > level_db[right].mean() + 3.0)


def _left_first(head: Head, where: str) -> Head:
    """A head of impulse responses, its ears swapped with a warning if the right one comes first.

    What is heard decides, not the file's receiver positions: some files have their signs wrong
    (the KU100 of TH Köln is one) and would be swapped for nothing.
    """
    ears = head.responses()
    if not _is_wrong_way_round(head):
        return head
    warnings.warn(
        f"'{where}' has its ears or azimuths the wrong way round: sounds from the left are louder "
        "in channel 1. The azimuths are taken as right and the ears are swapped.",
        EaratlasWarning,
        stacklevel=3,
    )
    return replace(head, ears=ImpulseResponses(ears.samples[:, ::-1], ears.rate))


def read_sofa(path: str | Path, *, duplicates: Duplicates = "error") -> Head:
    """A head from a SOFA file of impulse responses, free-field or in a room."""
    data = load_sofa(path)
    silent = (np.abs(data.responses).max(axis=2) == 0).any(axis=1)
    if silent.any():
        raise InputError(
            f"head must have sound in both ears, got silence in {silent.sum()} of {len(silent)} "
            f"responses of '{path}' (first: number {np.argmax(silent)}). Remove them."
        )
    words = ("Title", "DatabaseName", "ListenerShortName", "Organization")
    head = Head(
        name=Path(path).stem,
        directions=data.directions,
        ears=ImpulseResponses(data.responses, data.rate),
        licence=data.about.get("License") or "unknown",
        provenance="; ".join(dict.fromkeys(filter(None, map(data.about.get, words)))),
    )
    return _left_first(_distinct(head, duplicates, str(path)), str(path))


def _rows(path: Path) -> list[tuple[Path, float, float]]:
    """(file, azimuth, elevation) of every row; files are relative to the table's folder."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as handle:
            reader = csv.DictReader(handle)
            reader.fieldnames = _columns(reader.fieldnames or [], path)
            rows = [
                (path.parent / str(row["file"]).strip(), *_place(row, reader.line_num, path))
                for row in reader
            ]
    except (csv.Error, OSError, UnicodeDecodeError) as error:
        raise InputError(
            f"table must be a readable text file, got '{path}' ({error}). Save it as CSV."
        ) from error
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


def _columns(header: Sequence[str], path: Path) -> list[str]:
    columns = [name.strip().lower() for name in header]
    missing = [name for name in ("file", "azimuth", "elevation") if name not in columns]
    if missing:
        apart = len(columns) == 1 and any(mark in columns[0] for mark in ";\t")
        remedy = "Columns must be separated by commas" if apart else f"Add: {', '.join(missing)}"
        raise InputError(
            f"table must have the columns file, azimuth, elevation, got "
            f"{', '.join(columns) or 'none'} in '{path}'. {remedy}."
        )
    return columns


def _place(row: dict[str, str], line: int, path: Path) -> tuple[float, float]:
    try:
        return float(row["azimuth"]), float(row["elevation"])
    except (TypeError, ValueError):
        raise InputError(
            f"table must have numbers for azimuth and elevation, got {row['azimuth']!r} and "
            f"{row['elevation']!r} in line {line} of '{path}'. Correct that line."
        ) from None


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
    progress: Progress | None = None,
) -> Head:
    """A head from a CSV (file, azimuth, elevation) of two-channel calibration recordings.

    Each is white noise played from that direction, or an impulse response; "auto" listens to find
    out which. `channels` are those of the left and the right ear. `progress(done, total)` is called
    after each file.
    """
    if kind not in get_args(Kind):
        raise InputError(
            f"kind must be one of {', '.join(get_args(Kind))}, got '{kind}'. Choose one."
        )
    path, layout = existing_file(path, "head"), layout or CueLayout()
    rows = _rows(path)
    found: Kind = kind
    responses: list[Audio] = []
    measured: list[Array] = []
    for done, (file, _, _) in enumerate(rows, start=1):
        audio = read_audio(file, channels=channels)
        if kind == "auto":
            short = layout.window / layout.rate
            heard: Kind = "responses" if _is_response(audio, short) else "noise"
            if found not in ("auto", heard):
                raise InputError(
                    f"kind must be given where recordings differ, got {heard} in '{file}' and "
                    f"{found} in those before it. Pass kind='{found}' or kind='{heard}', or "
                    "correct the table."
                )
            found = heard
        if found == "noise":
            try:
                measured.append(mean_cues(audio, layout))
            except InputError as error:
                raise InputError(f"'{file}': {error}") from error
        else:
            responses.append(audio)
        if progress is not None:
            progress(done, len(rows))
    head = Head(
        name=path.parent.name if path.stem == "positions" else path.stem,
        directions=np.array([row[1:] for row in rows]),
        ears=MeasuredCues(np.stack(measured), layout) if measured else _joined(responses, path),
        provenance=f"{len(rows)} recordings ({found}) named in {path.name}",
    )
    if _is_wrong_way_round(head):
        raise InputError(
            f"table must have azimuths that grow to the left, and the left ear first, got sounds "
            f"from the left that are louder in the right ear in '{path}'. Azimuths or channels are "
            "the wrong way round: negate the azimuth column, or pass channels=(1, 0)."
        )
    return _distinct(head, duplicates, str(path))


def simulated_head(directions: ArrayLike | None = None) -> Head:
    """A simulated head, no data file needed: a rigid sphere with pinnae and shoulders.

    Without `directions`, a lattice over the whole sphere, about 4 degrees apart.
    """
    x = Sphere().grid(4.0) if directions is None else Sphere().check(directions)
    return Head(
        name="simulated",
        directions=x,
        ears=ImpulseResponses(simulated_responses(x), 48_000.0),
        licence="MIT, as this package",
        provenance="simulated: rigid sphere, asymmetric ears, pinna and shoulder scatterers",
    )


def kemar() -> Head:
    """MIT KEMAR (Gardner and Martin 1994) from the package `slab`: one ear, mirrored.

    Its median plane has no level difference at all, so it warns.
    """
    hrtf = _slab_kemar()
    samples = np.stack([np.asarray(f.data, dtype=np.float64).T for f in hrtf.data])
    polar = np.asarray(hrtf.sources.vertical_polar, dtype=np.float64)
    head = Head(
        name="kemar",
        directions=polar[:, :2],
        ears=ImpulseResponses(samples, float(hrtf.samplerate)),
        licence="Gardner and Martin 1994: free to use, cite the authors",
        provenance="MIT KEMAR, normal pinna, left ear mirrored to the right; from slab",
    )
    warnings.warn(
        "The KEMAR of slab is one ear mirrored to both sides: on the median plane both ears hear "
        "the same, so elevation and front/back cannot be learned there. Use a head that was "
        "measured at both ears where that matters.",
        EaratlasWarning,
        stacklevel=2,
    )
    return _left_first(_distinct(head, "first", "slab's KEMAR"), "slab's KEMAR")


def _slab_kemar() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # slab's own, about its plotting and its old pickle
        try:
            import slab
        except ImportError as error:
            raise missing_extra("kemar", "slab") from error
        except OSError:
            # slab imports sounddevice, which fails where PortAudio is not installed. None makes
            # that an ImportError, which slab knows how to live with.
            sys.modules["sounddevice"] = None  # type: ignore[assignment]
            try:
                import slab
            finally:
                del sys.modules["sounddevice"]
        return slab.HRTF.kemar()


def open_head(
    source: str | Path,
    *,
    kind: Kind = "auto",
    channels: tuple[int, int] = (0, 1),
    duplicates: Duplicates = "error",
    progress: Progress | None = None,
) -> Head:
    """A head by name: a .sofa file, a .csv table of recordings, `simulated` or `kemar`.

    `kind`, `channels` and `progress` are for recordings: see `read_recordings`.
    """
    match str(source):
        case "simulated":
            return simulated_head()
        case "kemar":
            return kemar()
    match Path(source).suffix.lower():
        case ".sofa":
            return read_sofa(source, duplicates=duplicates)
        case ".csv":
            return read_recordings(
                source, kind=kind, channels=channels, duplicates=duplicates, progress=progress
            )
    what = "the folder" if os.path.isdir(source) else "the name"
    raise InputError(
        f"head must be a .sofa file, a .csv table (file, azimuth, elevation), 'simulated' or "
        f"'kemar', got {what} '{source}'. Check the ending."
    )
