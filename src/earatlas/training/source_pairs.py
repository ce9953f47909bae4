"""How far each of two sounds at once may be trusted: measured in scenes made from the head itself.

In: a head's direct sound, and scenes of two murmurs (`earatlas.training.scenes`). Out: the
`Trust` of a source beside another, as that of one sound by itself is measured: each scene is taken
apart by its onsets as a recording is (`earatlas.localization.onset_mixture`), as if neither direction had
been measured, and each of the two looks is compared with where the sound was.

Sources of three and more are believed as those of two with as many onsets that tell as much.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from earatlas.features.onset_detector import Gate, OnsetBins, OnsetStream
from earatlas.geometry.spaces import Space
from earatlas.localization.onset_likelihood import DirectSound, Look
from earatlas.localization.onset_mixture import Several
from earatlas.localization.score_calibration import Trust, fit_trust
from earatlas.threads import side_by_side
from earatlas.training.scenes import Stage, turned
from earatlas.types import Array

__all__ = ["ONSETS", "STRONGEST", "learn_crowd"]

STRONGEST, ONSETS = 800, 1500  # bins: 500 to 1200 did alike on two talkers in rooms
_OTHER_UNITS = 0.5  # of the scenes
_FEWEST_BINS = 20

_Looked = tuple[Look, Array]  # at a source, and where it is


def learn_crowd(stage: Stage, sound: DirectSound, *, scenes: int) -> Trust:
    """The trust of a source beside another; the densities of bins are known already."""
    gate = replace(sound.gate, most_bins=STRONGEST)

    def looked(n: int) -> list[_Looked]:
        rng = np.random.default_rng(
            (stage.synthetic_talkers.seed, n, 2)
        )  # its own: scenes are made side by side
        other_unit = rng.random() < _OTHER_UNITS
        rows, samples = stage.two(rng, other_unit=other_unit)
        bins = onsets_of(samples, gate)
        if len(bins) < _FEWEST_BINS:
            return []
        truths = stage.directions[rows]
        if other_unit:
            truths = np.stack([turned(sound.space, truth, rng) for truth in truths])
        several = Several(sound, bins, sound.left_out(rows)[0])
        heard = several.heard(several.placed(2)[-1])
        places = np.stack([own.place for own in heard])
        return [
            (heard[m].look, truth)
            for m, truth in zip(_matched(sound.space, truths, places), truths, strict=True)
        ]

    every = [own for scene in side_by_side(looked, range(scenes)) for own in scene]
    looks, truths = zip(*every, strict=True)
    return fit_trust(sound.space, looks, np.stack(truths))


def onsets_of(samples: Array, gate: Gate) -> OnsetBins:
    """The onsets of a whole sound (2, n)."""
    stream = OnsetStream(gate)
    stream.push(samples)
    stream.finish()
    return stream.bins()


def _matched(space: Space, truths: Array, places: Array) -> tuple[int, int]:
    """Which of two places each of two truths is: the way round that errs less."""
    errors = space.distance(truths[:, None], places[None])
    straight, crossed = np.trace(errors), np.trace(errors[:, ::-1])
    return (0, 1) if straight <= crossed else (1, 0)
