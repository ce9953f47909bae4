"""How sure one may be of each of several sounds: a belief from a look at one source beside others.

In: a `Look` at one source (`earatlas.learning.several`). Out: a belief that is honest in the open,
in noise and in rooms.

    p_g(β) ∝ size_g exp(β L_g)                                      which place
    belief = Σ_i share_i Σ_g p_g(β_i) N(g, width_i² + turn²)         as sharply, or less

The turn is that of interpolation in one half, and that of another unit of the head in the other.

A frequency has about one vote in L, so that exp L is nearly a likelihood as it stands: most of the
belief has β = 1. Few bins may all be wrong together, and then it is better to be unsure of
everything: the fewer they are, the larger the share that knows only about where the source is.

The numbers were chosen by log score and by how many truths lie in the regions, on 736 talkers of
cipic_021 and kemar_full in the open, in noise and in shoebox rooms, and of both heads as others
might have measured them (docs/figures.md, several talkers). Nats a bin, evidence and the distance
to the neighbour as further inputs changed the score on the head that was left out by 0.02 nats at
most: what they tell is in L already.
"""

from __future__ import annotations

import numpy as np

from earatlas.learning.direct import Look
from earatlas.learning.several import Heard
from earatlas.learning.trust import believed_places, place_probabilities
from earatlas.space.belief import ChartMixture
from earatlas.space.spaces import Space
from earatlas.types import Array

__all__ = ["DOUBTFUL_GAIN", "crowded_belief", "unsure"]

EXPERTS = ((0.75, 1.0), (0.25, 2.0), (0.06, 3.0))  # β, width in degrees
SHARES = np.array([0.72, 0.24, 0.04])
BROAD = (0.06, 30.0)  # β, width: about where
BROAD_MOST = 0.4  # its share with hardly any bins; none with many
DOUBTFUL_GAIN = 0.03  # nats an onset; true sources gained 0.1 and more, copies of others 0.015
FEW_BINS, MANY_BINS = 32.0, 512.0
NOISY_DB, CLEAR_DB = 12.0, 16.0  # median of onsets above the quiet: in noise, and elsewhere
SHARPER = 4.0  # times β in noise, whose bins err each by itself: a frequency has more than a vote
# Half of the belief is as if another unit of the head heard: two measurements of one kind differ by
# some 6 degrees in where their responses point. Without it, 60 to 75 % of two talkers of a ku100 as
# another might have measured it lay within the 90 % radius, in noise of 20 to -5 dB.
OTHER_UNIT = 4.5  # degrees
TURN_SPACING = 0.15  # of the gap between measured directions: what interpolation may be off
_UNSURE = 0.7  # of a belief that no onset confirms and that does not fit
_GATHERED_DEGREES = 15.0  # between the middles of broad Gaussians


def broad_share(bins: float, gain: float) -> float:
    """How much of the belief knows only about where the source is, with so many onsets.

    A source that gains nothing need not exist: nothing is known of where it is.
    """
    few = np.log(MANY_BINS / max(bins, 1.0)) / np.log(MANY_BINS / FEW_BINS)
    known = np.clip(gain / DOUBTFUL_GAIN, 0.0, 1.0)
    return float(1 - known * (1 - BROAD_MOST * np.clip(few, 0.0, 1.0)))


def crowded_belief(space: Space, heard: Heard, spacing_degrees: float) -> ChartMixture:
    """Where one of several sources is believed to be."""
    look, broad = heard.look, broad_share(heard.bins, heard.evidence)
    turns, sharper = (TURN_SPACING * spacing_degrees, OTHER_UNIT), _sharper(look)
    parts = [
        believed_places(space, look, sharper * beta, float(np.hypot(width, turn)))
        for beta, width in EXPERTS
        for turn in turns
    ]
    parts.append(_gathered(space, look, *BROAD))
    known = np.repeat(SHARES / SHARES.sum(), len(turns)) / len(turns)
    shares = np.append((1 - broad) * known, broad)
    return ChartMixture(
        space,
        np.concatenate([part.centres for part in parts]),
        np.concatenate([s * part.weights for s, part in zip(shares, parts, strict=True)]),
        np.concatenate([part.means for part in parts]),
        np.concatenate([part.covariances for part in parts]),
    )


def unsure(belief: ChartMixture) -> ChartMixture:
    """A belief that nothing but itself speaks for: as broad as one that gains nothing."""
    return belief.blurred([0.0, BROAD[1]], [1 - _UNSURE, _UNSURE])


def _sharper(look: Look) -> float:
    """By what L counts more, since noise and not a room blurs it."""
    noisy = np.clip((CLEAR_DB - look.features[1]) / (CLEAR_DB - NOISY_DB), 0.0, 1.0)
    return float(SHARPER**noisy)


def _gathered(space: Space, look: Look, beta: float, width: float) -> ChartMixture:
    """Broad Gaussians, their middles on a coarse grid."""
    p = place_probabilities(look, np.array([beta]))[0]
    grid = space.grid(_GATHERED_DEGREES)
    if space.columns > space.dims:  # a circle: where it was measured
        grid[:, 1:] = look.places[0, 1:]
    mass: Array = np.bincount(space.nearest(grid, look.places), p, len(grid)).astype(np.float64)
    kept = mass > 1e-4
    covariances = np.tile(width**2 * np.eye(space.dims), (int(kept.sum()), 1, 1))
    means = np.zeros((len(covariances), space.dims))
    return ChartMixture(space, grid[kept], mass[kept] / mass[kept].sum(), means, covariances)
