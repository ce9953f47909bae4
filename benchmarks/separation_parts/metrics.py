"""Metrics of separated signals: one row per method and mixture, and tables of their means.

Row   SDR, SIR, SAR, SI-SDR in dB, STOI, SDR with respect to the early images (first 50 ms) in dB,
errors of ILD and ITD in dB and µs, azimuth and elevation error in degrees, sources beyond 20
degrees in %, CPU seconds per second; NaN for what a method does not estimate.
"""

from collections.abc import Callable, Iterable

import joblib
import numpy as np

import earatlas as ea
from earatlas.evaluation.directions import direction_errors
from earatlas.evaluation.intelligibility import intelligibility
from earatlas.evaluation.interaural import interaural_errors
from earatlas.evaluation.quality import assign_estimates, separation_quality
from earatlas.separation.demixing.masks import apply_masks
from earatlas.types import Array, Spectra

HEADER = (
    "| {} | SDR dB | SIR dB | SAR dB | SI-SDR dB | STOI | early SDR dB | ΔILD dB | "
    "ΔITD µs | worst tenth SDR dB | azimuth ° | elevation ° | beyond 20° % | s per s |\n|"
    + "---|"
    * 14
)
NO_DIRECTIONS = [np.nan] * 3  # metrics of a method that does not estimate directions
Row = list[float]


def perceptual_metrics(scene: ea.SimulatedScene, sounds: Array) -> Row:
    """Return the means of STOI, early SDR and interaural errors of signals (M, 2, n)."""
    images, rate = scene.images, scene.mixture.rate
    stoi = float(np.mean(intelligibility(images, sounds, rate=rate)))
    early = separation_quality(scene.early, sounds).mean().sdr_db
    return [stoi, early, *interaural_errors(images, sounds, rate=rate).mean()]


def signal_metrics(scene: ea.SimulatedScene, estimates: Array) -> Row:
    """Return the means of SDR, SIR, SAR, SI-SDR and perceptual metrics for the best assignment."""
    best = assign_estimates(scene.images, estimates).take(estimates)
    quality = separation_quality(scene.images, best).mean()
    values = [quality.sdr_db, quality.sir_db, quality.sar_db, quality.si_sdr_db]
    return [*values, *perceptual_metrics(scene, best)]


def direction_metrics(scene: ea.SimulatedScene, estimated: Array | None) -> Row:
    """Return azimuth and elevation errors and the percentage beyond 20 degrees."""
    if estimated is None:
        return NO_DIRECTIONS
    on_sphere = np.clip(estimated, (-180, -90), (180, 90))  # estimates on the plane are unbounded
    errors = direction_errors(scene.directions, on_sphere)
    beyond = float(np.mean(errors.great_circle_degrees > 20))
    return [
        float(np.mean(errors.azimuth_degrees)),
        float(np.mean(errors.elevation_degrees)),
        100 * beyond,
    ]


def row(scene: ea.SimulatedScene, sounds: Array, directions: Array | None, seconds: float) -> Row:
    """Return all metrics of signals (M, 2, n), which took `seconds` of CPU time."""
    values = signal_metrics(scene, sounds) + direction_metrics(scene, directions)
    return [*values, seconds / scene.mixture.seconds]


def masked_row(scene: ea.SimulatedScene, spectra: Spectra, masks: Array, directions: Array) -> Row:
    """Return all metrics of masks (M, F, T) except the cost."""
    sounds = apply_masks(spectra, masks, ea.CueLayout(), scene.mixture.samples.shape[1])
    return row(scene, sounds, directions, np.nan)


def table(title: str, rows: list[dict[str, Row]]) -> None:
    """Print the means over mixtures, and the mean SDR of the worst tenth of the mixtures."""
    print("\n" + HEADER.format(title))
    for name in rows[0]:
        print_row(name, [row[name] for row in rows])


def print_row(name: str, rows: list[Row]) -> None:
    """Print one line of the table: the means of the rows of a method, one row per mixture."""
    values = np.array(rows)
    sdr = np.sort(values[:, 0])
    worst = float(sdr[: max(len(sdr) // 10, 1)].mean())
    *sound, stoi, early, ild, itd, azimuth, elevation, beyond, seconds = values.mean(axis=0)
    cells = [f"{v:.1f}" for v in sound] + [f"{stoi:.2f}", f"{early:.1f}", f"{ild:.2f}"]
    cells += [f"{itd:.0f}", f"{worst:.1f}"]
    cells += [f"{v:.1f}" for v in (azimuth, elevation, beyond)] + [f"{seconds:.2f}"]
    shown = ["–" if cell == "nan" else cell for cell in cells]
    print(f"| {name} | " + " | ".join(shown) + " |", flush=True)


def print_incrementally(
    title: str,
    methods: dict[str, Callable[[ea.SimulatedScene], Row]],
    scenes: list[ea.SimulatedScene],
    jobs: int,
) -> None:
    """Print the table of slow methods, each line as soon as it is available."""
    print("\n" + HEADER.format(title), flush=True)
    for name, method in methods.items():
        rows = joblib.Parallel(n_jobs=jobs)(joblib.delayed(method)(s) for s in scenes)
        print_row(name, list(rows))


def on_mixtures(
    function: Callable[..., dict[str, Row]],
    scenes: Iterable[ea.SimulatedScene],
    jobs: int,
    *arguments: object,
) -> list[dict[str, Row]]:
    """Return the results of a function on every mixture, computed in parallel."""
    return list(
        joblib.Parallel(n_jobs=jobs)(joblib.delayed(function)(s, *arguments) for s in scenes)
    )
