"""Training of a head's direct-sound model and its calibration on simulated reverberant scenes.

Input: a head with impulse responses, then its anechoic model. Output: a `ReverberantLocalizer`.
The scenes are synthetic speech from measured directions: anechoic, noisy, and reverberant with
random reverberation (`earatlas.simulation.random_reverberation`). Each scene is evaluated as if its
direction had not been measured, so that the errors are those of new directions in new rooms.

Sources that sound at the same time as others have a calibration of their own, fitted to scenes of
two talkers. Each scene is decomposed by its onsets like a recording
(`earatlas.localization.detected_sources`), and the log-likelihood of each source is compared with
its true direction. Three and more sources use the calibration of two with equally many and equally
informative onsets.

    B   onset bins of a scene     u   cosine between a bin and a template, on the Poincaré sphere
    J   components of the density of u, (1 - b_j²) / (1 - b_j u)²     Γ   diffuse-field coherence
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from earatlas.features.hop_statistics import whole_statistics
from earatlas.features.impulse_responses import responses_are_reverberant, transfer_functions
from earatlas.features.layout import CueLayout
from earatlas.features.onset_detector import OnsetBins, OnsetDetectorSettings, detect_onsets
from earatlas.features.statistics import CueStatistics
from earatlas.geometry.spaces import Space
from earatlas.hrtf.head import Head, MeasuredCues
from earatlas.hrtf.interaural_templates import InterauralTemplates
from earatlas.localization.detected_sources import DETECTION_SETTINGS, SourceDetector
from earatlas.localization.onset_likelihood import (
    N_CLASSES,
    N_TABLE_STEPS,
    SHARPNESS,
    DirectionLogLikelihood,
    DirectSoundModel,
    LeaveOneOutTemplates,
    bin_class,
    stokes,
)
from earatlas.localization.reverberant_localizer import ReverberantLocalizer
from earatlas.localization.score_calibration import (
    ScoreCalibration,
    direction_scores,
    fit_anechoic_weight,
    fit_score_calibration,
)
from earatlas.numerics import logsumexp
from earatlas.ppam.calibration import Calibration
from earatlas.ppam.cross_validation import CrossValidation
from earatlas.ppam.model import PPAM
from earatlas.simulation.random_reverberation import solid_angle_weights
from earatlas.simulation.synthetic_speech import SyntheticTalkers
from earatlas.threads import parallel_map
from earatlas.training.scenes import TrainingScenes
from earatlas.types import Array, Complex, Indices, Single

__all__ = [
    "DirectSoundTraining",
    "ReverberantTrainingSettings",
    "fit_pair_calibration",
    "reverberation_obstacle",
]


# Evidence: docs/figures/settings/training.md, "reverberant".
@dataclass(frozen=True, slots=True)
class ReverberantTrainingSettings:
    """Settings of the training on simulated scenes."""

    scenes: int = 180  # scenes with one source
    scenes_per_pair: int = 3  # of these, per scene with two, which takes four times as long
    weight_scenes: int = 50  # scenes that the anechoic model localizes too; they fit four weights
    other_unit_fraction: float = 0.35  # part of the scenes with another unit of the head
    pair_other_unit_fraction: float = 0.5  # the same of scenes with two sources
    min_eigenvalue: float = 0.02  # of Γ (trace 2), which may be singular without it
    density_iterations: int = 25  # EM iterations of the densities of bins
    prior_bins: float = 20.0  # pseudo-bins per class, distributed as in all classes together


TRAINING_SETTINGS = ReverberantTrainingSettings()

_LabelledLikelihood = tuple[DirectionLogLikelihood, Array]  # with the true direction (C,)


@dataclass(frozen=True, eq=False)
class _Scene:
    """A sound from a measured direction, and templates without that direction."""

    row: int  # index of the direction
    truth: Array  # (C,) true direction, rotated a little for another unit of the head
    bins: OnsetBins
    leave_one_out: LeaveOneOutTemplates  # grid points interpolated without the direction
    cosines: Array  # (B,) u at the true direction, with mismatched templates
    classes: Indices  # (B,) classes of the bins
    statistics: CueStatistics | None  # for the anechoic model; None for most scenes


_EvaluatedScene = tuple[_Scene, DirectionLogLikelihood]


def reverberation_obstacle(head: Head, layout: CueLayout) -> str | None:
    """Return why a head cannot be prepared for reverberant recordings, or None if it can."""
    if head.plane is not None:
        return "has positions in an image instead of directions"
    if isinstance(head.ears, MeasuredCues):
        return "is known by recordings of noise, not by impulse responses"
    if responses_are_reverberant(head.ears.samples, head.ears.rate, layout):
        return "has reverberant responses, so that it is learned together with its room"
    return None


@dataclass(frozen=True, eq=False)
class DirectSoundTraining:
    """The direct-sound model of a head, trained on its scenes without the anechoic model."""

    direct_sound: DirectSoundModel
    score_calibration: ScoreCalibration  # the weight of the anechoic posterior is not fitted yet
    multi_source_calibration: ScoreCalibration
    weight_scenes: tuple[_EvaluatedScene, ...]  # for the weight of the anechoic posterior

    @classmethod
    def of(
        cls, head: Head, space: Space, layout: CueLayout, synthetic_talkers: SyntheticTalkers
    ) -> DirectSoundTraining:
        """Train on a head with anechoic impulse responses."""
        settings = TRAINING_SETTINGS
        sound = untrained_model(head, space, OnsetDetectorSettings(rate=layout.rate))
        simulator = TrainingScenes.of(head, synthetic_talkers)
        scenes = _simulate_scenes(simulator, sound, layout, settings)
        trained = sound.with_densities(
            fit_log_densities([s.cosines for s in scenes], [s.classes for s in scenes])
        )
        _ = trained.coarse_points  # computed once, before the threads need them
        likelihoods = parallel_map(
            lambda scene: trained.log_likelihood(scene.bins, scene.leave_one_out), scenes
        )
        score_calibration = fit_score_calibration(
            space, likelihoods, np.array([scene.truth for scene in scenes])
        )
        multi_source_calibration = fit_pair_calibration(simulator, trained, settings)
        pairs = zip(scenes, likelihoods, strict=True)
        weight_scenes = tuple(
            (scene, log_likelihood)
            for scene, log_likelihood in pairs
            if scene.statistics is not None
        )
        return cls(trained, score_calibration, multi_source_calibration, weight_scenes)

    def localizer(
        self, folds: CrossValidation, calibration: Calibration, *, residual_threshold: float
    ) -> ReverberantLocalizer:
        """Fit the weight of the anechoic posterior, and return the localizer.

        Where the residual ratio of the anechoic model does not exceed `residual_threshold`,
        the localizer will use the anechoic posterior alone.
        """
        space = self.direct_sound.space

        scenes = [scene for scene, _ in self.weight_scenes]
        residual_ratios, scores = np.empty((2, len(scenes)))

        def evaluate_anechoic(refit: tuple[PPAM, Indices]) -> None:
            """Set the residual ratios of the anechoic model, and log p of the truths."""
            model, numbers = refit
            own = [scenes[n] for n in numbers]
            statistics = [scene.statistics for scene in own if scene.statistics is not None]
            batch = calibration.calibrated_posteriors(model, CueStatistics.stack(statistics))
            residual_ratios[numbers] = batch.residual_ratios
            posteriors = batch.posteriors(np.arange(len(own)))
            for n, scene, posterior in zip(numbers, own, posteriors, strict=True):
                scores[n] = posterior.log_density(scene.truth[None])[0]

        parallel_map(evaluate_anechoic, folds.by_refit([scene.row for scene in scenes]))
        exceeding = np.flatnonzero(residual_ratios > residual_threshold)
        poor_fits = [self.weight_scenes[n] for n in exceeding]
        onset_scores = np.array(
            [
                _log_score(space, self.score_calibration, log_likelihood, scene.truth)
                for scene, log_likelihood in poor_fits
            ]
        )
        score_calibration = self.score_calibration
        if poor_fits:  # none if the model fits anything, as it does for responses of pure noise
            features = np.array([log_likelihood.features for _, log_likelihood in poor_fits])
            weights = fit_anechoic_weight(
                features, residual_ratios[exceeding], scores[exceeding], onset_scores
            )
            score_calibration = replace(score_calibration, weights=weights)
        return ReverberantLocalizer(
            self.direct_sound, score_calibration, self.multi_source_calibration, residual_threshold
        ).rounded()


def _log_score(
    space: Space,
    score_calibration: ScoreCalibration,
    log_likelihood: DirectionLogLikelihood,
    truth: Array,
) -> float:
    """Return log p of the true direction under the calibrated posterior of a log-likelihood."""
    scores = direction_scores(space, log_likelihood, truth)
    return float(
        logsumexp(
            scores
            + np.log(score_calibration.local_mixture_weights(log_likelihood.features) + 1e-12)
        )
    )


def untrained_model(
    head: Head, space: Space, onset_settings: OnsetDetectorSettings
) -> DirectSoundModel:
    """Return a model with templates and Γ, but with flat densities of bins."""
    templates = InterauralTemplates.of(head, onset_settings.frequencies_hz)
    ears = head.responses()
    H = transfer_functions(ears.samples, ears.rate, onset_settings.frequencies_hz)
    gamma = np.einsum("n,naf,nbf->fab", solid_angle_weights(head.directions), H, H.conj())
    gamma /= np.einsum("faa->f", gamma).real[:, None, None] / 2
    values, vectors = np.linalg.eigh(gamma)
    roots = np.maximum(values, TRAINING_SETTINGS.min_eigenvalue) ** -0.5
    return DirectSoundModel(
        space=space,
        templates=templates,
        spacing_degrees=head.spacing_degrees,
        whitening=np.einsum("fab,fb,fcb->fac", vectors, roots, vectors.conj()),
        log_densities=np.zeros((N_CLASSES, N_TABLE_STEPS), dtype=np.float32),
        onset_settings=onset_settings,
    )


def _simulate_scenes(
    simulator: TrainingScenes,
    sound: DirectSoundModel,
    layout: CueLayout,
    settings: ReverberantTrainingSettings,
) -> list[_Scene]:
    """Simulate the scenes with one source; some get statistics for the anechoic model."""
    onset_settings, unit_mismatch = sound.onset_settings, simulator.unit_mismatch
    step = max(settings.scenes // settings.weight_scenes, 1)

    def simulate(n: int) -> _Scene | None:
        # Every scene has its own generator, because scenes are simulated in parallel.
        rng = np.random.default_rng((simulator.synthetic_talkers.seed, n))
        row, samples = simulator.single_source(rng)
        bins = detect_onsets(samples, onset_settings)
        mismatch = unit_mismatch.interaural_factors(onset_settings.frequencies_hz, rng)
        truth = simulator.directions[row]
        if rng.random() < settings.other_unit_fraction:
            bins = replace(
                bins, z=bins.z * np.stack([np.ones(len(bins)), mismatch[bins.f]], axis=1)
            )
            truth = unit_mismatch.displaced(sound.space, truth, rng)
            mismatch = np.ones_like(mismatch)
        if not bins.enough:
            return None
        scene = _make_scene(sound, row, truth, bins, mismatch)
        if n % step:
            return scene
        return replace(scene, statistics=whole_statistics(samples, layout))

    _ = sound.grid, sound.interpolation  # computed once, before the threads need them
    return [scene for scene in parallel_map(simulate, range(settings.scenes)) if scene is not None]


def _make_scene(
    sound: DirectSoundModel, row: int, truth: Array, bins: OnsetBins, mismatch: Complex
) -> _Scene:
    """Build a scene with leave-one-out templates and the cosines of its bins."""
    leave_one_out, points = sound.without_directions(np.array([row]))
    z = bins.z * np.stack([np.ones(len(bins)), mismatch[bins.f]], axis=1)
    s = stokes(np.einsum("bac,bc->ba", sound.whitening[bins.f], z))
    cosines = np.clip((s * points[bins.f, :, 0]).sum(axis=1), -1.0, 1.0)
    classes = bin_class(bins.rise_db, sound.onset_settings.frequencies_hz[bins.f])
    return _Scene(row, truth, bins, leave_one_out, cosines, classes, None)


def fit_log_densities(cosines: list[Array], classes: list[Indices]) -> Single:
    """Return log g (N_CLASSES, N_TABLE_STEPS), the density of u per class of bins, fitted by EM."""
    u, c = np.concatenate(cosines), np.concatenate(classes)
    p = sharpness_components(u)
    w = np.full((N_CLASSES, len(SHARPNESS)), 1 / len(SHARPNESS))
    for _ in range(TRAINING_SETTINGS.density_iterations):
        r = p * w[c]
        r /= r.sum(axis=1, keepdims=True)
        counts = np.stack([np.bincount(c, column, N_CLASSES) for column in r.T], axis=1)
        pooled = counts.sum(axis=0) / counts.sum() + 0.02 / len(SHARPNESS)
        w = counts + TRAINING_SETTINGS.prior_bins * pooled
        w /= w.sum(axis=1, keepdims=True)
    middles = (np.arange(N_TABLE_STEPS) + 0.5) / N_TABLE_STEPS * 2 - 1
    logs: Single = np.log(sharpness_components(middles) @ w.T).T.astype(np.float32)
    return logs


def sharpness_components(u: Array) -> Array:
    """Return the components (1 - b_j²) / (1 - b_j u)² (n, J) of the density of u (n,)."""
    components: Array = (1 - SHARPNESS**2) / (1 - np.multiply.outer(u, SHARPNESS)) ** 2
    return components


def fit_pair_calibration(
    simulator: TrainingScenes, sound: DirectSoundModel, settings: ReverberantTrainingSettings
) -> ScoreCalibration:
    """Fit the score calibration of a source in the presence of another one."""
    onset_settings = replace(sound.onset_settings, most_bins=DETECTION_SETTINGS.few_bins)

    def localize(n: int) -> list[_LabelledLikelihood]:
        # Every scene has its own generator, because scenes are simulated in parallel.
        rng = np.random.default_rng((simulator.synthetic_talkers.seed, n, 2))
        other_unit = rng.random() < settings.pair_other_unit_fraction
        rows, samples = simulator.source_pair(rng, other_unit=other_unit)
        bins = detect_onsets(samples, onset_settings)
        if not bins.enough:
            return []
        truths = simulator.directions[rows]
        if other_unit:
            displaced = simulator.unit_mismatch.displaced
            truths = np.stack([displaced(sound.space, truth, rng) for truth in truths])
        detector = SourceDetector(sound, bins, sound.without_directions(rows)[0])
        sources = detector.sources(detector.mixture.search(2)[-1])
        estimates = np.stack([source.direction for source in sources])
        return [
            (sources[m].log_likelihood, truth)
            for m, truth in zip(match_pair(sound.space, truths, estimates), truths, strict=True)
        ]

    scenes = parallel_map(localize, range(settings.scenes // settings.scenes_per_pair))
    likelihoods, truths = zip(*(source for scene in scenes for source in scene), strict=True)
    return fit_score_calibration(sound.space, likelihoods, np.stack(truths))


def match_pair(space: Space, truths: Array, estimates: Array) -> tuple[int, int]:
    """Return the estimate (2, C) of each of two true directions, minimizing the total error."""
    errors = space.distance(truths[:, None], estimates[None])
    straight, crossed = np.trace(errors), np.trace(errors[:, ::-1])
    return (0, 1) if straight <= crossed else (1, 0)
