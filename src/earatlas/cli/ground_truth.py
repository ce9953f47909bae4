"""A scene whose truth is known: what `earatlas simulate` wrote, and how near the answer comes."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from earatlas.cli.console import degrees
from earatlas.errors import EaratlasWarning, InputError, existing_file
from earatlas.evaluation.assignment import Assignment
from earatlas.evaluation.ground_truth import Truth, pair_places
from earatlas.features.audio import Audio
from earatlas.features.audio_files import audio_seconds, read_all_channels, read_audio
from earatlas.geometry.spaces import Sphere
from earatlas.separation.result import FoundScene
from earatlas.simulation.scene import read_scene_file
from earatlas.simulation.trajectories import Trajectory
from earatlas.types import Array

__all__ = [
    "check_truth",
    "comparison",
    "comparison_lines",
    "hearing_lines",
    "read_truth",
    "written_sounds",
]

_SECONDS = 0.1  # by which a recording and its truth may differ, for resampling and padding
# Two talkers of LibriSpeech at the same places: at most 0.07 with others (190 pairs of scenes), at
# most 0.67 with one of the two in common. The same voices at places near by reach 0.978: what the
# demo and `simulate` say by default.
_SAME_SCENE = 0.985
_COMPARED_SECONDS = 60.0  # enough to tell two scenes apart
_MOST_SOURCES = 100  # each names a file that is read; nobody tells ten apart
_NAME = 11  # letters of a name: so a row has the 80 columns of a terminal


def read_truth(path: Path, seconds: float) -> Truth:
    """What `earatlas simulate` wrote of a mixture of that length."""
    file = _scene_file(path)
    try:
        sources = read_scene_file(file)["sources"]
        if len(sources) > _MOST_SOURCES:
            raise ValueError
        names = tuple(str(source["name"]) for source in sources)
        places = np.array([source["direction"] for source in sources], dtype=np.float64)
        directions = Sphere().check(places, "directions")
        images = [file.parent / str(source["file"]) for source in sources]
        early = [file.parent / str(s["early_file"]) for s in sources if "early_file" in s]
        trajectories = tuple(
            _route(source["path"]) if "path" in source else None for source in sources
        )
    except (ArithmeticError, OSError, ValueError, LookupError, TypeError) as error:
        raise InputError(
            f"truth must be a scene.json that `earatlas simulate` wrote, or its folder, got "
            f"'{path}', which cannot be used. Name another."
        ) from error
    sounds, first = (tuple(map(read_audio, files)) for files in (images, early))
    known = Truth(directions, sounds, names, first, trajectories)
    for image in known.images:
        if abs(image.seconds - seconds) > _SECONDS:
            raise InputError(
                f"truth must be of this recording, got '{path}' of {image.seconds:.1f} s for "
                f"{seconds:.1f} s. Name the folder of the same scene."
            )
    return known


def _route(rows: Any) -> Trajectory:
    """From rows of seconds, azimuth and elevation."""
    table = np.array(rows, dtype=np.float64)
    return Trajectory(table[:, 0], table[:, 1:])


def _scene_file(path: Path) -> Path:
    return existing_file(path / "scene.json" if path.is_dir() else path, "truth")


def check_truth(path: Path, recording: Path, channels: tuple[int, int]) -> None:
    """Refuse the truth of another scene: its images and its noise add up to the recording.

    Where the noise is not beside the scene they do not, and only the length can be compared.
    """
    known = read_truth(path, audio_seconds(recording))
    noise = _scene_file(path).parent / "noise.wav"
    if not noise.is_file():
        return
    rate = known.images[0].rate
    parts = [image.samples for image in known.images]
    parts.append(_written(noise).at_rate(rate).samples)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EaratlasWarning)  # they are shown when it is separated
        heard = read_audio(recording, channels=channels, rate=rate).samples
    n = min(int(_COMPARED_SECONDS * rate), *(part.shape[1] for part in (*parts, heard)))
    mixture = sum(part[:, :n] for part in parts)
    likeness = _likeness(heard[:, :n], np.asarray(mixture), int(_SECONDS * rate))
    if likeness < _SAME_SCENE:
        raise InputError(
            f"truth must be of this recording, got '{path}', whose sounds add up to another one "
            f"(correlation {likeness:.2f}). Name the folder of the same scene."
        )


def _likeness(a: Array, b: Array, most_lag: int) -> float:
    """Correlation of two sounds (2, n) at the lag, within `most_lag` samples, where it is best."""
    n = a.shape[1]
    size = 1 << (2 * n - 1).bit_length()
    spectra = np.fft.rfft(a, size) * np.fft.rfft(b, size).conj()
    products = np.fft.irfft(spectra.sum(axis=0), size)
    near = np.concatenate([products[: most_lag + 1], products[-most_lag:]])
    energy = np.sqrt((a**2).sum() * (b**2).sum())
    return float(near.max() / max(energy, 1e-300))


def written_sounds(
    recording: Path, files: Sequence[Path], channels: tuple[int, int] = (0, 1)
) -> tuple[Audio, list[Audio]]:
    """The recording, and the sounds that were written to files, so that they can be judged."""
    sounds = [_written(file) for file in files]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EaratlasWarning)  # they were shown at the first reading
        return read_audio(recording, channels=channels, rate=sounds[0].rate), sounds


def _written(file: Path) -> Audio:
    """A sound of ours: silence is an answer too."""
    return read_all_channels(file)


def comparison(
    scene: FoundScene, truth: Truth, mixture: Audio, sounds: Sequence[Audio]
) -> list[dict[str, Any]]:
    """What became of each true source: its error, and decibels before and after."""
    from earatlas.evaluation.score import score

    true, early, found, mixed = _as_long(truth, mixture, sounds)
    judged = score(
        true,
        found,
        mixed,
        directions=truth.directions,
        # On the plane a source may be placed beyond the poles.
        found_directions=np.clip(scene.directions, (-np.inf, -90), (np.inf, 90)),
    )
    assert judged.by_direction is not None
    assert judged.errors is not None
    placed, errors = judged.by_direction, judged.errors.great_circle_degrees
    if any(truth.trajectories):
        placed = pair_places(scene, truth)
        errors = np.array(
            [
                truth.off_by(m, scene.sources[j]) if j >= 0 else np.nan
                for m, j in enumerate(placed.found)
            ]
        )
    if not np.array_equal(placed.found, judged.by_sound.found):
        warnings.warn(
            "sounds and directions are swapped: a source sounds like one true source and is placed "
            "at another. Errors and decibels are each for the best match.",
            EaratlasWarning,
            stacklevel=2,
        )
    heard = _hearing(true, early, found, judged.by_sound, mixture.rate)
    rows = []
    for m, name in enumerate(truth.names):
        place, sound = (int(a.found[m]) for a in (placed, judged.by_sound))
        row: dict[str, Any] = {
            "name": name,
            "direction": _place(np.asarray(truth.directions)[m]),
            "found": None if place < 0 else _place(scene.sources[place].direction),
            "error": _rounded(errors[m], 2),
            "moves": m < len(truth.trajectories) and truth.trajectories[m] is not None,
            "source": None if sound < 0 else scene.sources[sound].name,
        }
        for key in ("sdr_db", "sir_db"):
            row[key] = _rounded(getattr(judged.quality, key)[m].mean(), 2)
            row[f"mixture_{key}"] = _rounded(getattr(judged.mixture, key)[m].mean(), 2)
        rows.append(row | {key: _rounded(values[m], 3) for key, values in heard.items()})
    return rows


def _as_long(
    truth: Truth, mixture: Audio, sounds: Sequence[Audio]
) -> tuple[Array, Array | None, Array, Array]:
    """Images, early images where there are any, sounds (M, 2, n) and mixture (2, n), all as long.

    At the rate of the mixture; resampling and padding may differ by a few samples at the end.
    """
    true, early = (
        [image.at_rate(mixture.rate).samples for image in images]
        for images in (truth.images, truth.early)
    )
    found = [sound.samples for sound in sounds]
    n = min(x.shape[1] for x in (*found, *true, *early, mixture.samples))
    whole, first, heard = (
        np.stack([x[:, :n] for x in parts]) if parts else None for parts in (true, early, found)
    )
    assert whole is not None
    assert heard is not None
    return whole, first, heard, mixture.samples[:, :n]


def _hearing(
    true: Array, early: Array | None, found: Array, order: Assignment, rate: int
) -> dict[str, Array]:
    """Cues that are kept and words that are understood, a value a true source (M,)."""
    from earatlas.evaluation.intelligibility import intelligibility
    from earatlas.evaluation.interaural import interaural_errors
    from earatlas.evaluation.quality import TAPS, all_pairs, quality_of

    errors = interaural_errors(true, found, rate=rate, assignment=order)
    clear = intelligibility(true, found, rate=rate, assignment=order)
    values = {
        "ild_error_db": errors.ild_db,
        "itd_error_microseconds": errors.itd_microseconds,
        "stoi": clear.mean(axis=1),
    }
    if early is not None:
        values["early_sdr_db"] = quality_of(all_pairs(early, found, TAPS), order).sdr_db.mean(
            axis=1
        )
    return values


def _place(direction: Array) -> list[float]:
    return [round(float(v), 2) for v in direction]


def _rounded(value: float, digits: int) -> float | None:
    """A number of JSON, which has no NaN: a source that was not found has no error."""
    return None if np.isnan(value) else round(float(value), digits) + 0.0  # no -0.0


def comparison_lines(rows: Sequence[dict[str, Any]]) -> list[str]:
    """A table of the truth against what was found."""
    alone = len(rows) == 1  # no other source interferes, so there is no ratio to it
    names = [_shortened(row["name"]) for row in rows]
    wide = max(8, *map(len, names))
    head = f"  {'name':{wide}}{'true':>16}{'found':>17}{'error':>8}"
    lines = [f"{head}  {'SDR, dB':>11}{'SIR, dB':>13}"]
    for name, row in zip(names, rows, strict=True):
        true, found = (
            "-" if place is None else "moves" if row["moves"] else ", ".join(map(degrees, place))
            for place in (row["direction"], row["found"])
        )
        error = "-" if row["error"] is None else f"{row['error']:.1f}°"
        decibels = "".join(
            f"{_figure(row[f'mixture_{key}']):>6} → {_figure(row[key]):>4}"
            if key == "sdr_db" or not alone
            else f"{'–':>13}"
            for key in ("sdr_db", "sir_db")
        )
        lines.append(f"  {name:{wide}}{true:>16}{found:>17}{error:>8}{decibels}")
    if any(row["moves"] for row in rows):
        lines.append("  (of one that moves, the error is the median along its way)")
    return lines


def hearing_lines(rows: Sequence[dict[str, Any]]) -> list[str]:
    """A table of how each separated source is heard."""
    names = [_shortened(row["name"]) for row in rows]
    wide = max(8, *map(len, names))
    lines = [f"  {'name':{wide}}{'ILD off by':>16}{'ITD off by':>17}{'STOI':>8}"]
    early = "early_sdr_db" in rows[0]
    lines[0] += f"{'early SDR, dB':>17}" if early else ""
    for name, row in zip(names, rows, strict=True):
        ild, itd, clear = (
            "-" if row[key] is None else f"{row[key]:{form}}"
            for key, form in (
                ("ild_error_db", ".1f"),
                ("itd_error_microseconds", ".0f"),
                ("stoi", ".2f"),
            )
        )
        last = f"{_figure(row['early_sdr_db']):>17}" if early else ""
        lines.append(f"  {name:{wide}}{ild + ' dB':>16}{itd + ' µs':>17}{clear:>8}{last}")
    return lines


def _shortened(name: str) -> str:
    return name if len(name) <= _NAME else f"{name[: _NAME - 1]}…"


def _figure(decibels: float | None) -> str:
    return "-" if decibels is None else f"{round(decibels, 1) + 0.0:.1f}"  # no -0.0
