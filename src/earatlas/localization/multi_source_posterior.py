"""How sure one may be of each of several sounds: a posterior from a look at one source beside others.

In: a `Look` at one source (`earatlas.localization.onset_mixture`). Out: a posterior as sure as the sources of
scenes of two were that are most like it (`earatlas.training.source_pairs`), or less where nothing speaks
for the source.
"""

from __future__ import annotations

from earatlas.geometry.direction_posterior import DirectionPosterior
from earatlas.localization.onset_mixture import Heard
from earatlas.localization.reverberant_localizer import RoomHearing

__all__ = ["DOUBTFUL_GAIN", "crowded_belief", "unsure"]

DOUBTFUL_GAIN = 0.03  # nats an onset; true sources gained 0.1 and more, copies of others 0.015
_UNSURE, _UNSURE_DEGREES = 0.7, 30.0  # of a posterior that nothing confirms: how much, how wide


def crowded_belief(rooms: RoomHearing, heard: Heard) -> DirectionPosterior:
    """Where one of several sources is believed to be."""
    space = rooms.sound.space
    if rooms.crowd is None:  # as of one sound, which is too sure
        return unsure(rooms.trust.posterior(space, heard.look))
    return rooms.crowd.posterior(space, heard.look)


def unsure(posterior: DirectionPosterior, doubt: float = 1.0) -> DirectionPosterior:
    """A posterior that nothing but itself speaks for: known only about where it is.

    `doubt`: from 0, as it is, to 1.
    """
    return posterior.blurred([0.0, _UNSURE_DEGREES], [1 - doubt * _UNSURE, doubt * _UNSURE])
