"""Learning a population of heads: charts, components, calibration on people who were held out.

Input: heads of any grid, rate and coverage. Output: a `LearnedPopulation`, whose model is that of a
unknown listener. Every head is also used mirrored, which doubles the population.

Errors and calibration come from people who were left out: a fold of the heads is removed, the
population is fitted to the others, and synthetic speech from the removed heads is localized.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from earatlas.errors import InputError
from earatlas.features.layout import CueLayout
from earatlas.geometry.direction_posterior import DirectionPosterior
from earatlas.hrtf.head import Head
from earatlas.localization.learned_head import Accuracy
from earatlas.population.chart_regression import ChartRegression, SharedCharts
from earatlas.population.direct_sound import population_localizer
from earatlas.population.equalization import equalization_loadings
from earatlas.population.learned_population import LearnedPopulation
from earatlas.population.listener_templates import listener_localizer
from earatlas.population.membership import check_membership
from earatlas.population.population import Population, fit_population
from earatlas.ppam.calibration import Calibration, held_out_statistics
from earatlas.ppam.cue_bands import CueBands
from earatlas.simulation.synthetic_speech import SyntheticTalkers
from earatlas.training.reverberant import reverberation_obstacle
from earatlas.types import Array

__all__ = ["PopulationSettings", "learn_population_model"]


@dataclass(frozen=True)
class PopulationSettings:
    """Settings of a population. Evidence: docs/figures/settings/population.md."""

    spacing_degrees: float = 10.0  # between charts; 13° has 1 % more errors beyond 30°
    spacing_ratio: float = 1.5  # least distance of charts over that of measured directions
    coordinates: int = 40  # J; 20 have 1.4 % more errors beyond 30°
    shared: float = 0.3  # ρ: principal components explain 0.26 (ILD) to 0.47 (IPD) of a new head
    unexplained_share: float = 0.2  # of the variance between heads; 0.05 and 0.5 are worse
    equalization_db: float = 2.0  # standard deviation between the microphones of both ears
    equalization_octaves: float = 0.7  # correlation length of their difference
    equalization_components: int = 8  # largest number of its components
    temperature: float = 24.0  # cues per independent cue; 12 and 48 are within 1 %
    folds: int = 5  # groups of people that are held out in turn
    sounds_per_head: int = 16  # held-out sounds for the calibration
    min_heads: int = 3  # fewer have no spread


def learn_population_model(
    heads: Sequence[Head],
    *,
    layout: CueLayout | None = None,
    settings: PopulationSettings | None = None,
    rooms: bool = True,
    seed: int = 0,
) -> LearnedPopulation:
    """Learn a population; heads that do not belong are left out and listed in `members`.

    `rooms`: prepare it for reverberant recordings, if enough heads have anechoic responses.
    """
    settings, layout = settings or PopulationSettings(), layout or CueLayout()
    heads = list(heads)
    _check_count(len(heads), settings)
    for head in heads:
        head.check_directions("belong to a population")
    bands = CueBands.of(layout)
    everywhere = np.concatenate([head.directions for head in heads])
    # Charts need two directions of a head or more, so coarse grids have fewer of them.
    measured = float(np.median([head.spacing_degrees for head in heads]))
    spacing = max(settings.spacing_degrees, settings.spacing_ratio * measured)
    charts = SharedCharts.covering(everywhere, spacing)
    regressions = [_regressions(charts, head, layout) for head in heads]

    def fit(chosen: Sequence[int]) -> Population:
        pairs = (pair for s in chosen for pair in regressions[s])
        return fit_population(
            charts, bands, pairs, coordinates=settings.coordinates, shared=settings.shared,
            unexplained_share=settings.unexplained_share,
            equalization=equalization_loadings(
                layout, bands, deviation_db=settings.equalization_db,
                octaves=settings.equalization_octaves,
                components=settings.equalization_components,
            ),
        )  # fmt: skip

    members = check_membership(fit(range(len(heads))).model(), layout, heads)
    kept = [s for s, member in enumerate(members) if member.problem is None]
    _check_count(len(kept), settings)
    population = fit(kept).rounded()
    folds = [kept[i :: settings.folds] for i in range(min(settings.folds, len(kept)))]
    without = [fit([s for s in kept if s not in fold]) for fold in folds]
    held_out = [
        _HeldOut.of(without[i], [heads[s] for s in fold], layout, settings, seed + i)
        for i, fold in enumerate(folds)
    ]
    accuracy, calibration = _calibrate(held_out)
    model, localizer = population.model(), None
    ready = [s for s in kept if reverberation_obstacle(heads[s], layout) is None]
    if rooms and len(ready) >= settings.min_heads:
        localizer = population_localizer(
            [heads[s] for s in ready], model, calibration, layout,
            [without[kept.index(s) % len(folds)] for s in ready], seed=seed,
        )  # fmt: skip
        localizer = listener_localizer(localizer, population, layout)
    return LearnedPopulation(
        model=model,
        layout=layout,
        calibration=calibration,
        accuracy=accuracy,
        reverberant_localizer=localizer,
        about={
            "head": f"population of {len(kept)} heads",
            "licence": "; ".join(dict.fromkeys(heads[s].licence for s in kept)),
            "provenance": "; ".join(heads[s].name for s in kept),
            "directions": int(np.median([len(heads[s]) for s in kept])),
            "left_out": 0,
            "seed": seed,
        },
        population=population,
        members=members,
    )


def _check_count(count: int, settings: PopulationSettings) -> None:
    if count < settings.min_heads:
        raise InputError(
            f"heads must be at least {settings.min_heads} that belong together, got {count}. "
            "Add heads of the same kind, or learn a single head."
        )


def _regressions(charts: SharedCharts, head: Head, layout: CueLayout) -> list[ChartRegression]:
    """Return the affine maps of a head and of its mirror image."""
    x, y = head.directions, head.cues(layout)
    signs = np.where(layout.cue_kinds == "ipd_cos", 1.0, -1.0)
    return [
        ChartRegression.of(charts, x, y),
        ChartRegression.of(charts, x * (-1.0, 1.0), y * signs),
    ]


@dataclass(frozen=True, eq=False)
class _HeldOut:
    """Localizations of synthetic speech from heads that a population does not contain."""

    posteriors: list[DirectionPosterior]
    truths: Array  # (n, 2) degrees
    residuals: Array  # (n,) normalized
    frame_noise: Array  # (D,)
    temperature: float

    @classmethod
    def of(
        cls,
        population: Population,
        heads: Sequence[Head],
        layout: CueLayout,
        settings: PopulationSettings,
        seed: int,
    ) -> _HeldOut:
        model, rng = population.model(), np.random.default_rng(seed)
        talkers = SyntheticTalkers(layout.rate, seed)
        sounds, truths = [], []
        for head in heads:
            rows = rng.choice(len(head), min(settings.sounds_per_head, len(head)), replace=False)
            found = held_out_statistics(head.subset(rows), layout, talkers)
            sounds.append(found)
            truths.append(found.directions)
        noise = np.mean([found.frame_noise for found in sounds], axis=0)
        noise = noise.astype(np.float32).astype(np.float64)
        tempered = Calibration(temperature=settings.temperature, frame_noise=noise)
        posteriors, residuals = [], []
        for found in sounds:
            effective = tempered.effective_statistics(found.statistics, model.noise)
            batch = model.posteriors(effective)
            posteriors += list(batch)
            residuals.append(model.normalized_residuals(effective, batch.best()))
        return cls(
            posteriors, np.concatenate(truths), np.concatenate(residuals), noise,
            settings.temperature,
        )  # fmt: skip


def _calibrate(held_out: Sequence[_HeldOut]) -> tuple[Accuracy, Calibration]:
    """Return errors and calibration over the held-out heads of all folds."""
    posteriors = [posterior for fold in held_out for posterior in fold.posteriors]
    truths = np.concatenate([fold.truths for fold in held_out])
    residuals = np.concatenate([fold.residuals for fold in held_out])
    widths, weights, _ = Calibration.kernel(posteriors, truths)
    calibration = Calibration(
        temperature=held_out[0].temperature,
        kernel_widths=tuple(map(float, widths)),
        kernel_weights=tuple(map(float, weights)),
        max_residual=2 * float(np.median(residuals)),
        frame_noise=held_out[0].frame_noise,
    )
    estimates = np.array([posterior.best for posterior in posteriors])
    return Accuracy.of(truths, estimates), calibration
