"""Comparison of separated sources with the ground truth that `earatlas simulate` wrote."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from earatlas.cli.console import format_degrees, out
from earatlas.errors import EaratlasWarning, InputError, existing_file
from earatlas.evaluation.ground_truth import GroundTruth
from earatlas.features.audio import Audio
from earatlas.features.audio_files import audio_seconds, read_all_channels, read_audio
from earatlas.geometry.spaces import Sphere
from earatlas.separation.result import SceneSummary
from earatlas.simulation.scene import read_scene_file
from earatlas.simulation.trajectories import Trajectory
from earatlas.types import Array

__all__ = [
    "check_truth",
    "compare_with_truth",
    "format_comparison",
    "format_perceptual_scores",
    "read_separated",
    "read_truth",
    "truth_files",
]


# Evidence: docs/figures/settings/cli.md, "ground_truth".
@dataclass(frozen=True, slots=True)
class TruthCheckSettings:
    """How the ground truth of a scene is compared with a recording."""

    length_tolerance_seconds: float = 0.1  # resampling and padding change the length by less
    min_correlation: float = 0.985  # of a recording with the mixture of its own scene
    compared_seconds: float = 60.0  # longest part of the recording that is correlated
    max_sources: int = 100  # of a scene.json; each names a file that is read


_CHECK = TruthCheckSettings()


def read_truth(path: Path, seconds: float) -> GroundTruth:
    """Read the ground truth of a mixture of this duration, in seconds."""
    file = _scene_file(path)
    try:
        sources = read_scene_file(file)["sources"]
        if len(sources) > _CHECK.max_sources:
            raise ValueError
        names = tuple(str(source["name"]) for source in sources)
        places = np.array([source["direction"] for source in sources], dtype=np.float64)
        directions = Sphere().check(places, "directions")
        images = [file.parent / str(source["file"]) for source in sources]
        early = [file.parent / str(s["early_file"]) for s in sources if "early_file" in s]
        trajectories = tuple(
            _trajectory(source["path"]) if "path" in source else None for source in sources
        )
    except (ArithmeticError, OSError, ValueError, LookupError, TypeError) as error:
        raise InputError(
            f"truth must be a scene.json that `earatlas simulate` wrote, or its folder, got "
            f"'{path}', which is not one. Name the folder of the simulated scene."
        ) from error
    sounds, first = (tuple(map(_read_image, files)) for files in (images, early))
    known = GroundTruth(directions, sounds, names, first, trajectories)
    for image in known.images:
        if abs(image.seconds - seconds) > _CHECK.length_tolerance_seconds:
            raise InputError(
                f"truth must be of this recording, which lasts {seconds:.1f} s, got '{path}' of "
                f"{image.seconds:.1f} s. Name the folder of the same scene."
            )
    return known


def _trajectory(rows: Any) -> Trajectory:
    """Return the trajectory of rows (seconds, azimuth, elevation)."""
    table = np.array(rows, dtype=np.float64)
    return Trajectory(table[:, 0], table[:, 1:])


def _scene_file(path: Path) -> Path:
    """Return the scene.json that is named, or that of the named folder."""
    is_folder = os.path.isdir(path)
    file = path / "scene.json" if is_folder else path
    if not os.path.exists(file):
        raise InputError(
            f"truth must be a folder that `earatlas simulate` wrote, got '{path}', which "
            f"{'has no scene.json' if is_folder else 'does not exist'}. Check the name."
        )
    return existing_file(file, "truth")


def truth_files(path: Path) -> list[Path]:
    """Return the scene.json of a folder, or a named one, and the sounds beside it."""
    file = _scene_file(path)
    return [file, *sorted(file.parent.glob("*.wav"))]


def _read_image(file: Path) -> Audio:
    """Read the image of a source that a scene.json names."""
    if not os.path.exists(file):
        raise InputError(
            f"truth must have all files that its scene.json names, got no '{file}'. Simulate the "
            "scene again."
        )
    return read_audio(file)


def check_truth(path: Path, recording: Path, channels: tuple[int, int]) -> None:
    """Refuse the truth of another scene, whose images and noise do not add up to the recording.

    Without the file of the noise, only the durations are compared.
    """
    known = read_truth(path, audio_seconds(recording))
    noise = _scene_file(path).parent / "noise.wav"
    if not noise.is_file():
        return
    rate = known.images[0].rate
    parts = [image.samples for image in known.images]
    parts.append(_read_output(noise).at_rate(rate).samples)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EaratlasWarning)  # they are shown during the separation
        recorded = read_audio(recording, channels=channels, rate=rate).samples
    n = min(int(_CHECK.compared_seconds * rate), *(part.shape[1] for part in (*parts, recorded)))
    mixture = sum(part[:, :n] for part in parts)
    max_lag = int(_CHECK.length_tolerance_seconds * rate)
    correlation = _max_correlation(recorded[:, :n], np.asarray(mixture), max_lag)
    if correlation < _CHECK.min_correlation:
        raise InputError(
            f"truth must be of this recording, got '{path}', whose sounds add up to another one "
            f"(correlation {correlation:.2f}). Name the folder of the same scene."
        )


def _max_correlation(a: Array, b: Array, max_lag: int) -> float:
    """Return the maximum correlation of two sounds (2, n) over lags up to `max_lag` samples."""
    n = a.shape[1]
    size = 1 << (2 * n - 1).bit_length()
    spectra = np.fft.rfft(a, size) * np.fft.rfft(b, size).conj()
    products = np.fft.irfft(spectra.sum(axis=0), size)
    near = np.concatenate([products[: max_lag + 1], products[-max_lag:]])
    energy = np.sqrt((a**2).sum() * (b**2).sum())
    return float(near.max() / max(energy, 1e-300))


def read_separated(
    recording: Path, files: Sequence[Path], channels: tuple[int, int] = (0, 1)
) -> tuple[Audio, list[Audio]]:
    """Read the recording and the files of its separated sources, at the rate of the files."""
    sounds = [_read_output(file) for file in files]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EaratlasWarning)  # they were shown when it was read first
        return read_audio(recording, channels=channels, rate=sounds[0].rate), sounds


def _read_output(file: Path) -> Audio:
    """Read a file that this package wrote, which may be silent."""
    return read_all_channels(file)


def compare_with_truth(
    scene: SceneSummary, truth: GroundTruth, mixture: Audio, sounds: Sequence[Audio]
) -> list[dict[str, Any]]:
    """Return one row of JSON values per true source: its error, and SDR and SIR in dB.

    SDR and SIR are given for the mixture and for the separated source.
    """
    from earatlas.evaluation.evaluate import evaluate

    found = evaluate(scene, truth, sounds=sounds, mixture=mixture)
    if found.agree is False:
        warnings.warn(
            "Sounds and directions are swapped: a source sounds like one true source, but its "
            "direction is that of another. Errors and decibels are each for the best match.",
            EaratlasWarning,
            stacklevel=2,
        )
    directions = {source.name: source.direction for source in scene.sources}
    rows = []
    for m, source in enumerate(found.sources):
        place = source.located_as
        row: dict[str, Any] = {
            "name": source.name,
            "direction": _rounded_direction(np.asarray(truth.directions)[m]),
            "found": None if place is None else _rounded_direction(directions[place]),
            "error": _rounded(source.error_degrees, 2),
            "moves": m < len(truth.trajectories) and truth.trajectories[m] is not None,
            "source": source.separated_as,
        }
        decibels = ("sdr_db", "mixture_sdr_db", "sir_db", "mixture_sir_db")
        perceptual = ["ild_error_db", "itd_error_microseconds", "stoi"]
        perceptual += ["early_sdr_db"] if truth.early else []
        row |= {key: _rounded(getattr(source, key), 2) for key in decibels}
        rows.append(row | {key: _rounded(getattr(source, key), 3) for key in perceptual})
    return rows


def _rounded_direction(direction: Array) -> list[float]:
    """Return a direction as JSON values with two decimals."""
    return [round(float(v), 2) for v in direction]


def _rounded(value: float, digits: int) -> float | None:
    """Return a rounded number, or None for NaN, which JSON does not have."""
    return None if np.isnan(value) else round(float(value), digits) + 0.0  # no -0.0


def format_comparison(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Return a table of true and estimated directions with SDR and SIR, as lines."""
    alone = len(rows) == 1  # without other sources there is no interference
    names = [_shorten(row["name"]) for row in rows]
    width = max(8, *map(len, names))
    head = f"  {'name':{width}}{'true':>16}{'found':>17}{'error':>8}"
    lines = [f"{head}  {'SDR, dB':>11}{'SIR, dB':>13}"]
    for name, row in zip(names, rows, strict=True):
        true, found = (
            "-"
            if place is None
            else "moves"
            if row["moves"]
            else ", ".join(map(format_degrees, place))
            for place in (row["direction"], row["found"])
        )
        error = "-" if row["error"] is None else f"{row['error']:.1f}°"
        decibels = "".join(
            f"{_format_db(row[f'mixture_{key}']):>6} → {_format_db(row[key]):>4}"
            if key == "sdr_db" or not alone
            else f"{'–':>13}"
            for key in ("sdr_db", "sir_db")
        )
        lines.append(f"  {name:{width}}{true:>16}{found:>17}{error:>8}{decibels}")
    if any(row["moves"] for row in rows):
        lines.append("  (the error of a moving source is the median along its trajectory)")
    return lines


def format_perceptual_scores(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Return a table of the perceptual scores of each separated source, as lines."""
    names = [_shorten(row["name"]) for row in rows]
    width = max(8, *map(len, names))
    lines = [f"  {'name':{width}}{'ILD error':>16}{'ITD error':>17}{'STOI':>8}"]
    early = "early_sdr_db" in rows[0]
    lines[0] += f"{'early SDR, dB':>17}" if early else ""
    for name, row in zip(names, rows, strict=True):
        ild, itd, stoi = (
            "-" if row[key] is None else f"{row[key]:{form}}"
            for key, form in (
                ("ild_error_db", ".1f"),
                ("itd_error_microseconds", ".0f"),
                ("stoi", ".2f"),
            )
        )
        early_sdr = f"{_format_db(row['early_sdr_db']):>17}" if early else ""
        lines.append(f"  {name:{width}}{ild + ' dB':>16}{itd + ' µs':>17}{stoi:>8}{early_sdr}")
    return lines


def _shorten(name: str) -> str:
    """Return a name that is shortened if it is long, or if a row would exceed the terminal."""
    longest = 24  # characters
    if out.is_terminal:  # the other columns of a row have 69 characters
        longest = min(max(out.width - 69, 11), longest)
    return name if len(name) <= longest else f"{name[: longest - 1]}…"


def _format_db(decibels: float | None) -> str:
    """Format decibels with one decimal, or a dash for None."""
    return "-" if decibels is None else f"{round(decibels, 1) + 0.0:.1f}"  # no -0.0
