"""Figures of separated sounds: a row of them a method and mixture, and the table of their means.

Row   SDR, SIR, SAR, SI-SDR in dB, STOI, SDR to the early images (first 50 ms) in dB, errors of the
level and time differences between the ears in dB and µs, azimuth and elevation error in degrees,
sources beyond 20 degrees in %, seconds of work a second of sound; NaN where a method does not tell
"""

from collections.abc import Callable, Iterable

import joblib
import numpy as np

import earatlas as ea
from earatlas.evaluation.directions import direction_errors
from earatlas.evaluation.intelligibility import intelligibility
from earatlas.evaluation.interaural import interaural_errors
from earatlas.evaluation.quality import assign_sounds, separation_quality
from earatlas.separation.demixing.masking import render
from earatlas.types import Array, Spectra

HEADER = (
    "| {} | SDR dB | SIR dB | SAR dB | SI-SDR dB | STOI | early SDR dB | ΔILD dB | "
    "ΔITD µs | worst tenth SDR dB | azimuth ° | elevation ° | beyond 20° % | s per s |\n|"
    + "---|"
    * 14
)
NOWHERE = [np.nan] * 3
Row = list[float]


def hearing_figures(scene: ea.SimulatedScene, sounds: Array) -> Row:
    """STOI, SDR to early images, and interaural errors of sounds (M, 2, n), means."""
    images, rate = scene.images, scene.mixture.rate
    clear = float(np.mean(intelligibility(images, sounds, rate=rate)))
    early = separation_quality(scene.early, sounds).mean().sdr_db
    return [clear, early, *interaural_errors(images, sounds, rate=rate).mean()]


def sound_figures(scene: ea.SimulatedScene, estimates: Array) -> Row:
    """SDR, SIR, SAR, SI-SDR and what is heard of the best assignment, means."""
    best = assign_sounds(scene.images, estimates).take(estimates)
    quality = separation_quality(scene.images, best).mean()
    figures = [quality.sdr_db, quality.sir_db, quality.sar_db, quality.si_sdr_db]
    return [*figures, *hearing_figures(scene, best)]


def place_figures(scene: ea.SimulatedScene, found: Array | None) -> Row:
    """Azimuth, elevation and the share beyond 20 degrees under the best assignment."""
    if found is None:
        return NOWHERE
    on_sphere = np.clip(found, (-180, -90), (180, 90))  # on the plane, elevations may be anything
    errors = direction_errors(scene.directions, on_sphere)
    beyond = float(np.mean(errors.great_circle_degrees > 20))
    return [
        float(np.mean(errors.azimuth_degrees)),
        float(np.mean(errors.elevation_degrees)),
        100 * beyond,
    ]


def row(scene: ea.SimulatedScene, sounds: Array, found: Array | None, seconds: float) -> Row:
    """All figures of sounds (M, 2, n); `seconds` were spent on them."""
    figures = sound_figures(scene, sounds) + place_figures(scene, found)
    return [*figures, seconds / scene.mixture.seconds]


def masked(scene: ea.SimulatedScene, spectra: Spectra, masks: Array, found: Array) -> Row:
    """All figures of masks (M, F, T), whatever they cost."""
    sounds = render(spectra, masks, ea.CueLayout(), scene.mixture.samples.shape[1])
    return row(scene, sounds, found, np.nan)


def table(title: str, rows: list[dict[str, Row]]) -> None:
    """Means over the mixtures, and the mean SDR of the worst tenth of them."""
    print("\n" + HEADER.format(title))
    for name in rows[0]:
        print_row(name, [row[name] for row in rows])


def print_row(name: str, rows: list[Row]) -> None:
    """A line of the table: means of a method's rows, one a mixture."""
    figures = np.array(rows)
    sdr = np.sort(figures[:, 0])
    worst = float(sdr[: max(len(sdr) // 10, 1)].mean())
    *sound, clear, early, ild, itd, azimuth, elevation, beyond, seconds = figures.mean(axis=0)
    cells = [f"{v:.1f}" for v in sound] + [f"{clear:.2f}", f"{early:.1f}", f"{ild:.2f}"]
    cells += [f"{itd:.0f}", f"{worst:.1f}"]
    cells += [f"{v:.1f}" for v in (azimuth, elevation, beyond)] + [f"{seconds:.2f}"]
    shown = ["–" if cell == "nan" else cell for cell in cells]
    print(f"| {name} | " + " | ".join(shown) + " |", flush=True)


def as_they_come(
    title: str,
    methods: dict[str, Callable[[ea.SimulatedScene], Row]],
    scenes: list[ea.SimulatedScene],
    jobs: int,
) -> None:
    """The table of methods that take long: each line as soon as it is known."""
    print("\n" + HEADER.format(title), flush=True)
    for name, method in methods.items():
        rows = joblib.Parallel(n_jobs=jobs)(joblib.delayed(method)(s) for s in scenes)
        print_row(name, list(rows))


def on_mixtures(
    work: Callable[..., dict[str, Row]],
    scenes: Iterable[ea.SimulatedScene],
    jobs: int,
    *arguments: object,
) -> list[dict[str, Row]]:
    """`work` on every mixture, several at once."""
    return list(joblib.Parallel(n_jobs=jobs)(joblib.delayed(work)(s, *arguments) for s in scenes))
