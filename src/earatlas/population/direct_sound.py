"""The direct-sound model of a population: localization of unmeasured listeners in rooms.

Input: heads with anechoic impulse responses, and the anechoic model of their population. Output: a
`ReverberantLocalizer` with the templates of the expected head and their deviations
(`earatlas.population.listener_templates`). Its densities and calibration are fitted to scenes that
are simulated from the individual heads, so that they contain the differences between heads (compare
`earatlas.training.reverberant`, where templates and scenes share a head). The deviations of a scene
are those of a population that does not contain its head.

    s  heads    g  grid directions (G)    f  frequencies (F)

    level_g = mean_s level_sg,  delay_g = mean_s delay_sg,  phase_g = arg Σ_s exp(j phase_sg)

Mirror images of the heads are included: level, delay and phase change their signs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from earatlas.features.impulse_responses import transfer_functions
from earatlas.features.layout import CueLayout
from earatlas.features.onset_detector import OnsetBins, OnsetDetectorSettings, detect_onsets
from earatlas.features.statistics import CueStatistics, LevelStatistics
from earatlas.features.stft import stft
from earatlas.geometry.angles import to_vectors
from earatlas.geometry.spaces import Sphere
from earatlas.hrtf.head import Head
from earatlas.hrtf.interaural_templates import InterauralTemplates, LocalLinearInterpolation
from earatlas.localization.onset_likelihood import (
    N_CLASSES,
    N_TABLE_STEPS,
    DirectionLogLikelihood,
    DirectSoundModel,
    bin_class,
    stokes,
)
from earatlas.localization.reverberant_localizer import ReverberantLocalizer
from earatlas.localization.score_calibration import (
    direction_scores,
    fit_anechoic_weight,
    fit_score_calibration,
)
from earatlas.population.listener_templates import ListenerDirectSound
from earatlas.population.population import Population
from earatlas.ppam.calibration import Calibration
from earatlas.ppam.model import PPAM
from earatlas.simulation.random_reverberation import solid_angle_weights
from earatlas.simulation.synthetic_speech import SyntheticTalkers
from earatlas.training.reverberant import fit_log_densities
from earatlas.training.scenes import TrainingScenes
from earatlas.types import Array, Complex

__all__ = [
    "PopulationSceneSettings",
    "expected_templates",
    "population_localizer",
]


@dataclass(frozen=True)
class PopulationSceneSettings:
    """Settings of the templates and scenes of a population."""

    grid_degrees: float = 5.0  # spacing of the templates
    neighbours: int = 6  # measured directions per template
    max_gap_degrees: float = 6.0  # templates further from all directions of a head are left out
    scenes: int = 186  # simulated scenes, as for a single head; six per head of thirty
    weight_step: int = 3  # every third scene fits the weight of the anechoic posterior
    min_bins: int = 20  # scenes with fewer onset bins are skipped
    min_eigenvalue: float = 0.02  # of Γ (trace 2), which may be singular without it


def population_localizer(
    heads: Sequence[Head],
    model: PPAM,
    calibration: Calibration,
    layout: CueLayout,
    populations: Sequence[Population],
    *,
    settings: PopulationSceneSettings | None = None,
    seed: int = 0,
) -> ReverberantLocalizer:
    """Train the direct-sound model of the expected head on scenes of the heads of a population.

    `populations` has one population per head, which does not contain that head. The result is
    without deviations; `listener_localizer` of `earatlas.population.listener_templates` adds those
    of the whole population.
    """
    settings = settings or PopulationSceneSettings()
    onset_settings = OnsetDetectorSettings(rate=layout.rate)
    sound = DirectSoundModel(
        space=Sphere(),
        templates=expected_templates(heads, onset_settings.frequencies_hz, settings),
        spacing_degrees=settings.grid_degrees,
        whitening=_whitening(heads, onset_settings.frequencies_hz, settings),
        log_densities=np.zeros((N_CLASSES, N_TABLE_STEPS), dtype=np.float32),
        onset_settings=onset_settings,
    )
    talkers = SyntheticTalkers(layout.rate, seed)
    truths, bins, statistics, without = [], [], [], []
    for s, head in enumerate(heads):
        simulator = TrainingScenes.of(head, talkers)
        for n in range(s, settings.scenes, len(heads)):
            rng = np.random.default_rng((seed, n))
            row, samples = simulator.single_source(rng)
            found = detect_onsets(samples, onset_settings)
            if len(found) >= settings.min_bins:
                truths.append(simulator.directions[row])
                without.append(populations[s])
                bins.append(found)
                statistics.append(_cue_statistics(samples, layout))
    where = np.array(truths)
    cosines = [_cosines(sound, one, x) for one, x in zip(bins, where, strict=True)]
    hz = onset_settings.frequencies_hz
    classes = [bin_class(one.rise_db, hz[one.f]) for one in bins]
    sound = sound.with_densities(fit_log_densities(cosines, classes))
    held_out = {
        id(one): ListenerDirectSound.of(sound, one, layout) for one in populations
    }  # several heads share a population
    likelihoods = [
        held_out[id(population)].log_likelihood(one)
        for population, one in zip(without, bins, strict=True)
    ]
    scores = fit_score_calibration(sound.space, likelihoods, where)
    localizer = ReverberantLocalizer(sound, scores)
    rows = np.arange(0, len(where), settings.weight_step)
    weights = _anechoic_weights(
        localizer, model, calibration, [(statistics[n], likelihoods[n], where[n]) for n in rows]
    )
    return replace(localizer, score_calibration=replace(scores, weights=weights)).rounded()


def expected_templates(
    heads: Sequence[Head], frequencies_hz: Array, settings: PopulationSceneSettings
) -> InterauralTemplates:
    """Return the mean templates of heads and of their mirror images, on an even grid."""
    from scipy.spatial import cKDTree

    grid = Sphere().grid(settings.grid_degrees)
    G, F = len(grid), len(frequencies_hz)
    counts, level, delay = np.zeros(G), np.zeros((G, F)), np.zeros(G)
    phasors = np.zeros((G, F), dtype=np.complex128)
    for head in heads:
        own = InterauralTemplates.of(head, frequencies_hz)
        for sign in (1.0, -1.0):
            known = own.directions * (sign, 1.0)
            chord = cKDTree(to_vectors(known)).query(to_vectors(grid))[0]
            near = np.flatnonzero(np.degrees(chord) < settings.max_gap_degrees)
            at = LocalLinearInterpolation.of(
                Sphere(), known, grid[near], neighbours=settings.neighbours,
                spacing=head.spacing_degrees,
            )  # fmt: skip
            rows, w = at.rows, at.weights
            counts[near] += 1
            level[near] += sign * np.einsum("gk,gkf->gf", w, own.level_db[rows])
            delay[near] += sign * np.einsum("gk,gk->g", w, own.delay_seconds[rows])
            phase = np.exp(1j * sign * own.phase_radians)
            mean = np.einsum("gk,gkf->gf", w, phase[rows])
            phasors[near] += mean / np.maximum(np.abs(mean), 1e-9)
    keep = counts >= max(2, 0.2 * counts.max())
    n = counts[keep]
    return InterauralTemplates(
        grid[keep], frequencies_hz, level[keep] / n[:, None], delay[keep] / n,
        np.angle(phasors[keep]),
    )  # fmt: skip


def _whitening(
    heads: Sequence[Head], frequencies_hz: Array, settings: PopulationSceneSettings
) -> Complex:
    """Return Γ^(-1/2) (F, 2, 2) of the mean diffuse field of the heads and their mirror images."""
    total = np.zeros((len(frequencies_hz), 2, 2), dtype=np.complex128)
    for head in heads:
        ears = head.responses()
        H = transfer_functions(ears.samples, ears.rate, frequencies_hz)
        gamma = np.einsum("n,naf,nbf->fab", solid_angle_weights(head.directions), H, H.conj())
        gamma /= np.einsum("faa->f", gamma).real[:, None, None] / 2
        total += gamma + gamma[:, ::-1, ::-1]
    values, vectors = np.linalg.eigh(total / (2 * len(heads)))
    roots = np.maximum(values, settings.min_eigenvalue) ** -0.5
    whitening: Complex = np.einsum("fab,fb,fcb->fac", vectors, roots, vectors.conj())
    return whitening


def _cosines(sound: DirectSoundModel, bins: OnsetBins, truth: Array) -> Array:
    """Return u (B,) of the bins of a scene at its true direction."""
    at = sound.interpolation_for(sound.templates.directions, truth[None])
    points = sound.interpolated_points(at)
    s = stokes(np.einsum("bac,bc->ba", sound.whitening[bins.f], bins.z))
    cosines: Array = np.clip((s * points[bins.f, :, 0]).sum(axis=1), -1.0, 1.0)
    return cosines


def _cue_statistics(samples: Array, layout: CueLayout) -> CueStatistics:
    levels = LevelStatistics(layout)
    levels.push(stft(samples, layout.window, layout.hop))
    return levels.statistics()


def _anechoic_weights(
    localizer: ReverberantLocalizer,
    model: PPAM,
    calibration: Calibration,
    scenes: Sequence[tuple[CueStatistics, DirectionLogLikelihood, Array]],
) -> Array:
    """Return the weights (4,) of the anechoic posterior where the anechoic model fits badly."""
    features, ratios, anechoic, onsets = [], [], [], []
    scores = localizer.score_calibration
    for statistics, likelihood, truth in scenes:
        posterior, ratio = calibration.calibrated_posterior(model, statistics)
        if ratio <= localizer.residual_threshold:
            continue
        features.append(likelihood.features)
        ratios.append(ratio)
        anechoic.append(float(posterior.log_density(truth[None])[0]))
        mixture = scores.local_mixture_weights(likelihood.features)
        logs = direction_scores(localizer.direct_sound.space, likelihood, truth)
        onsets.append(float(np.log((np.exp(logs) * mixture).sum() + 1e-300)))
    if not features:
        return scores.weights
    return fit_anechoic_weight(
        np.array(features), np.array(ratios), np.array(anechoic), np.array(onsets)
    )
