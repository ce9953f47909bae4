"""Learning a head: the PPAM, its errors on held-out directions, and the calibration.

Input: a `Head`. Output: a `LearnedHead`. The model is fitted to all directions; errors and
calibration come from ten-fold refits that were not trained on the directions they are tested on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from earatlas.errors import InputError
from earatlas.features.layout import CueLayout
from earatlas.geometry.spaces import Space
from earatlas.hrtf.diagnosis import format_coverage
from earatlas.hrtf.head import Head
from earatlas.hrtf.label_plausibility import label_fit
from earatlas.localization.head_mismatch import held_out_nats
from earatlas.localization.learned_head import MODEL_ARRAYS, Accuracy, LearnedHead
from earatlas.ppam.calibration import (
    Calibration,
    HeldOutSounds,
    fit_calibration,
    held_out_statistics,
)
from earatlas.ppam.cross_validation import CrossValidation
from earatlas.ppam.head_deviations import people_deviations
from earatlas.ppam.model import PPAM
from earatlas.simulation.synthetic_speech import SyntheticTalkers
from earatlas.threads import parallel_map, run_both
from earatlas.training.reverberant import DirectSoundTraining, reverberation_obstacle
from earatlas.training.verdict import covered_fraction, describe_gap
from earatlas.types import Array, Indices, Progress

__all__ = ["LearningSettings", "learn_head"]


# Evidence: docs/figures/settings/training.md, "learn_head".
@dataclass(frozen=True, slots=True)
class LearningSettings:
    """Sizes of a head and of its model."""

    directions_per_coordinate: int = 5  # per component and chart coordinate: ten on the sphere
    min_directions: int = 6  # fewest directions of a head that can be learned
    min_directions_to_hold_out: int = 20  # with fewer, every direction is needed for learning
    min_cue_range: float = 1e-3  # dB or unit circle; below, no cue depends on the direction
    max_held_out: int = 240  # directions; fractions of levels are then accurate within 3 %


LEARNING_SETTINGS = LearningSettings()


def learn_head(
    head: Head,
    *,
    space: Space | None = None,
    components: int | None = None,
    latent: int | None = None,
    constrained: bool = True,
    layout: CueLayout | None = None,
    rooms: bool = True,
    seed: int = 0,
    progress: Progress | None = None,
) -> LearnedHead:
    """Learn a head: model, held-out errors, calibration, reverberation; see `earatlas.learn`."""
    layout, space = layout or CueLayout(), space or head.space
    known = _restrict_to_space(head, space)
    x, y = known.directions, known.cues(layout)
    settings = LEARNING_SETTINGS
    _check_cues_vary(y, head.name)
    # The relative durations of fitting, simulation, calibration and reverberation
    advance = _progress_steps(progress, (4, 6, 1, 1))
    count = _component_count(len(known), space, components)
    tested = CrossValidation.fold_order(len(known), seed)[: settings.max_held_out]
    enough = len(known) >= settings.min_directions_to_hold_out

    def fit() -> tuple[PPAM, CrossValidation]:
        model = _rounded(
            PPAM.fit(
                space, x, y, components=count, latent=latent, constrained=constrained, seed=seed
            )
        )
        advance()
        return model, CrossValidation.of(model, x, y, constrained=constrained, seed=seed)

    def simulate() -> tuple[HeldOutSounds | None, DirectSoundTraining | None]:
        ready = rooms and reverberation_obstacle(known, layout) is None
        synthetic_talkers = SyntheticTalkers(layout.rate, seed)
        return (
            held_out_statistics(known.subset(tested), layout, synthetic_talkers)
            if enough
            else None,
            DirectSoundTraining.of(known, space, layout, synthetic_talkers) if ready else None,
        )

    # Both are independent, and fitting uses one thread.
    (model, folds), (held_out, training) = run_both(fit, simulate)
    advance()
    accuracy, calibration = None, _default_calibration(known.spacing_degrees)
    deviation: dict[str, float] = {}
    if held_out is not None:
        accuracy = _accuracy(folds, tested, x, y, space)
        refits = [folds.refit_without(n) for n in tested]
        repeats = len(held_out.directions) // len(tested)
        calibration = fit_calibration(refits * repeats, held_out)
        deviations = people_deviations()
        if deviations is not None and deviations.apply_to(model, layout):
            nats = held_out_nats(refits * repeats, held_out.statistics, calibration, deviations)
            deviation = {"held_out_nats": round(nats, 2)}
    advance()
    residual_threshold = 0.0 if accuracy is None else 1.0
    localizer = (
        None
        if training is None
        else training.localizer(folds, calibration, residual_threshold=residual_threshold)
    )
    advance()
    return LearnedHead(
        model=model,
        layout=layout,
        calibration=calibration,
        accuracy=accuracy,
        reverberant_localizer=localizer,
        about={
            "head": head.name,
            "licence": head.licence,
            "provenance": head.provenance,
            "directions": len(known),
            "left_out": len(head) - len(known),
            "spacing_degrees": round(known.spacing_degrees, 2),
            "coverage": format_coverage(known.space, known.directions, known.spacing_degrees),
            "covered_fraction": round(
                covered_fraction(known.space, known.directions, known.spacing_degrees), 3
            ),
            "largest_gap": describe_gap(known.space, known.directions),
            **deviation,
            **_findings(known, layout, rooms=rooms),
            "seed": seed,
        },
    )


def _findings(head: Head, layout: CueLayout, *, rooms: bool) -> dict[str, str]:
    """Return what the verdict about the atlas must know, if anything is unusual."""
    fit, obstacle = label_fit(head), reverberation_obstacle(head, layout) if rooms else None
    labels = {} if fit.plausible else {"labels": fit.reading.name.lower()}
    return labels | ({} if obstacle is None else {"room_obstacle": obstacle})


def _accuracy(
    folds: CrossValidation, tested: Indices, x: Array, y: Array, space: Space
) -> Accuracy:
    """Return the errors of the tested directions, each under the refit without it."""
    estimated = np.empty((len(tested), x.shape[1]))

    def estimate(refit: tuple[PPAM, Indices]) -> None:
        model, rows = refit
        estimated[rows] = model.inverse_map(y[tested[rows]])

    parallel_map(estimate, folds.by_refit(tested.tolist()))
    return Accuracy.of(x[tested], estimated, space)


def _progress_steps(progress: Progress | None, steps: tuple[int, ...]) -> Callable[[], None]:
    """Return a function that reports progress and must be called at the end of every step."""
    done = iter(np.cumsum(steps).tolist())

    def advance() -> None:
        if progress is not None:
            progress(next(done), sum(steps))

    return advance


def _restrict_to_space(head: Head, space: Space) -> Head:
    """Return the directions of the head that belong to the space."""
    if head.space.unit_name != space.unit_name:
        raise InputError(
            f"space must have the unit of the head, got {space} ({space.unit_name or 'no unit'}) "
            f"for the {head.label_name} of '{head.name}' in {head.space.unit_name}. Omit the "
            "space, or label the recordings accordingly."
        )
    inside = space.contains(head.directions)
    if not inside.any():
        raise InputError(
            f"space must contain directions of the head, got none of {len(head)} in {space}. "
            "Choose another space."
        )
    fewest = LEARNING_SETTINGS.min_directions
    if inside.sum() < fewest:
        raise InputError(
            f"head must have at least {fewest} directions in the space, got {inside.sum()}. "
            "Measure more, or choose another space."
        )
    known = head.subset(inside)
    if space.dims > 1 and known.space.dims == 1:
        elevation = round(float(known.directions[0, 1]), 1) + 0.0
        raise InputError(
            f"space must be the circle for a head that was measured at one elevation, got the "
            f"{space.name} for directions at {elevation:g}° only. Omit the space, or measure "
            "other elevations."
        )
    return known


def _check_cues_vary(y: Array, name: str) -> None:
    """Raise InputError unless some of the cues (N, D) depend on the direction."""
    if np.ptp(y, axis=0).max() < LEARNING_SETTINGS.min_cue_range:
        raise InputError(
            f"head must have level or phase differences that depend on the direction, got the same "
            f"ones for all {len(y)} directions of '{name}'. Check that both ears were measured, "
            "and that every direction has its own response."
        )


def _component_count(directions: int, space: Space, requested: int | None) -> int:
    """Return the number K of components: as requested, or one per ten directions."""
    largest = max(directions // (space.dims + 1), 1)
    default = max(directions // (LEARNING_SETTINGS.directions_per_coordinate * space.dims), 1)
    count = default if requested is None else requested
    if not 1 <= count <= largest:
        raise InputError(
            f"components must be between 1 and {largest} for {directions} directions, got {count}. "
            f"About {default} is good."
        )
    return count


def _default_calibration(spacing_degrees: float) -> Calibration:
    """Return a cautious calibration for heads with too few directions to hold some out.

    The kernel is as wide as a few directions, with a small weight for large errors. Evidence:
    docs/figures/settings/training.md, "learn_head".
    """
    return Calibration(
        temperature=32.0,
        kernel_widths=(spacing_degrees, 3 * spacing_degrees, 40.0),
        kernel_weights=(0.6, 0.3, 0.1),
        max_residual=2.0,
    )


def _rounded(model: PPAM) -> PPAM:
    """Round the parameters to float32, so that saving is exact and the file has half the size."""
    arrays = {
        name: getattr(model, name).astype(np.float32).astype(np.float64) for name in MODEL_ARRAYS
    }
    return replace(model, **arrays, log_likelihoods=(), converged=False)
