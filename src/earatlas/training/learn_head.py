"""Learn a head: its charts, how far off they are on held-out directions, how sure they may be.

In: a `Head`. Out: a `LearnedHead`. The charts are fitted to all directions; errors and calibration
come from refits that have not seen the directions they are asked about (ten folds).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from earatlas.errors import InputError
from earatlas.features.layout import CueLayout
from earatlas.geometry.spaces import Space
from earatlas.hrtf.diagnosis import coverage_words
from earatlas.hrtf.head import Head
from earatlas.localization.learned_head import Accuracy, LearnedHead
from earatlas.ppam.calibration import (
    Calibration,
    HeldOut,
    fit_calibration,
    held_out_statistics,
)
from earatlas.ppam.cross_validation import Folds
from earatlas.ppam.model import PPAM
from earatlas.simulation.synthetic_speech import SyntheticTalkers
from earatlas.threads import side_by_side, together
from earatlas.training.reverberant import RoomScenes, rooms_refused
from earatlas.types import Array, Indices, Progress

__all__ = ["MODEL_ARRAYS", "learn_head"]

# Of a component: ten on the sphere, which won on three measured heads (docs/figures.md).
_SAMPLES_PER_COORDINATE = 5
_FEWEST_DIRECTIONS = 6
_FEWEST_TO_HOLD_OUT = 20  # with fewer directions every one is needed for learning
_MOST_HELD_OUT = 240  # of 240 levels the share below one half is right within 3 %
MODEL_ARRAYS = ("centres", "weights", "gammas", "A", "b", "noise", "latent", "spread")
_STEPS = (4, 6, 1, 1)  # about what fitting, sounds, calibrating and rooms take of the time


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
    """Learn a head: charts, held-out errors, calibration and rooms; see `earatlas.learn`."""
    layout, space = layout or CueLayout(), space or head.space
    known = _within(head, space)
    x, y = known.directions, known.cues(layout)
    advance = _teller(progress, _STEPS)
    count = _chart_count(len(known), space, components)
    asked = Folds.order_of(len(known), seed)[:_MOST_HELD_OUT]
    enough = len(known) >= _FEWEST_TO_HOLD_OUT

    def fitted() -> tuple[PPAM, Folds]:
        model = _rounded(
            PPAM.fit(
                space, x, y, components=count, latent=latent, constrained=constrained, seed=seed
            )
        )
        advance()
        return model, Folds.of(model, x, y, constrained=constrained, seed=seed)

    def heard() -> tuple[HeldOut | None, RoomScenes | None]:
        ready = rooms and rooms_refused(known, layout) is None
        synthetic_talkers = SyntheticTalkers(layout.rate, seed)
        return (
            held_out_statistics(known.subset(asked), layout, synthetic_talkers) if enough else None,
            RoomScenes.of(known, space, layout, synthetic_talkers) if ready else None,
        )

    # One fits while the other makes sounds: neither needs the other, and fitting has one thread.
    (model, folds), (held, scenes) = together(fitted, heard)
    advance()
    accuracy, calibration = None, _cautious(known.spacing_degrees)
    if held is not None:
        accuracy = _accuracy(folds, asked, x, y)
        refits = [folds.without(n) for n in asked]
        calibration = fit_calibration(refits * (len(held.directions) // len(asked)), held)
    advance()
    doubted = 0.0 if accuracy is None else 1.0
    hearing = None if scenes is None else scenes.hearing(folds, calibration, doubted=doubted)
    advance()
    return LearnedHead(
        model=model,
        layout=layout,
        calibration=calibration,
        accuracy=accuracy,
        rooms=hearing,
        about={
            "head": head.name,
            "licence": head.licence,
            "provenance": head.provenance,
            "directions": len(known),
            "left_out": len(head) - len(known),
            "spacing_degrees": round(known.spacing_degrees, 2),
            "coverage": coverage_words(known.space, known.directions, known.spacing_degrees),
            "seed": seed,
        },
    )


def _accuracy(folds: Folds, asked: Indices, x: Array, y: Array) -> Accuracy:
    """Errors of the full spectra of some directions, each under the refit without it."""
    parts = [asked[i :: len(folds.refits)] for i in range(min(len(folds.refits), len(asked)))]
    found = side_by_side(lambda i: folds.refits[i].inverse_map(y[parts[i]]), range(len(parts)))
    return Accuracy.of(x[np.concatenate(parts)], np.concatenate(found))


def _teller(progress: Progress | None, steps: tuple[int, ...]) -> Callable[[], None]:
    """What to call at the end of every step."""
    done = iter(np.cumsum(steps).tolist())

    def advance() -> None:
        if progress is not None:
            progress(next(done), sum(steps))

    return advance


def _within(head: Head, space: Space) -> Head:
    """The head's directions that the space has: a plane or cylinder ends, a circle is flat."""
    inside = space.within(head.directions)
    if not inside.any():
        raise InputError(
            f"space must hold directions of the head, got none of {len(head)} within {space}. "
            "Choose another space."
        )
    if inside.sum() < _FEWEST_DIRECTIONS:
        raise InputError(
            f"head must have at least {_FEWEST_DIRECTIONS} directions in the space, got "
            f"{inside.sum()}. Measure more, or choose another space."
        )
    known = head.subset(inside)
    if space.dims > 1 and known.space.dims == 1:
        elevation = round(float(known.directions[0, 1]), 1) + 0.0
        raise InputError(
            f"space must be the circle for a head that was measured at one elevation, got the "
            f"{space.name} for directions at {elevation:g}° alone. Leave the space out, or measure "
            "other elevations."
        )
    return known


def _chart_count(directions: int, space: Space, wished: int | None) -> int:
    """K: one chart for ten directions, or the number that was wished for."""
    most = max(directions // (space.dims + 1), 1)
    usual = max(directions // (_SAMPLES_PER_COORDINATE * space.dims), 1)
    count = usual if wished is None else wished
    if not 1 <= count <= most:
        raise InputError(
            f"components must be between 1 and {most} for {directions} directions, got {count}. "
            f"About {usual} is good."
        )
    return count


def _cautious(spacing_degrees: float) -> Calibration:
    """Where nothing was measured: the width of a few directions, and a share for "somewhere".

    Heads of 12 to 19 directions were asked for the ones between (60 murmurs each): the 90 % regions
    held all of them (hats, 10 degrees apart; ku100, 30 degrees apart) or 95 % (ku100, 15 directions
    all round), the 50 % regions 100, 70 and 65 %.
    """
    return Calibration(
        temperature=32.0,
        widths=(spacing_degrees, 3 * spacing_degrees, 40.0),
        shares=(0.6, 0.3, 0.1),
        misfit=2.0,
    )


def _rounded(model: PPAM) -> PPAM:
    """The model in numbers that float32 holds: half the file, and saving loses nothing."""
    arrays = {
        name: getattr(model, name).astype(np.float32).astype(np.float64) for name in MODEL_ARRAYS
    }
    return replace(model, **arrays, log_likelihoods=(), converged=False)
