"""What is really in a scene, and which found source is which true one.

In: a `FoundScene` and a `Truth`. Out: `Matched`, assignments by direction and by mask; errors of
places; and the true masks at the bins of the scene's picture.

    M, J     true and found sources
    F', T'   frequencies and columns of the scene's `Picture`
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from earatlas.errors import InputError
from earatlas.evaluation.assignment import Assignment, best_assignment
from earatlas.evaluation.masks import true_masks_at
from earatlas.features.audio import Audio
from earatlas.geometry.angles import great_circle_error
from earatlas.geometry.spaces import Space
from earatlas.separation.result import FoundScene, FoundSource
from earatlas.separation.spectrogram_summary import Picture
from earatlas.simulation.scene import SimulatedScene
from earatlas.simulation.trajectories import Trajectory
from earatlas.types import Array

__all__ = [
    "Matched",
    "Truth",
    "pair_directions",
    "pair_masks",
    "pair_places",
    "place_errors",
    "true_masks",
]


_SHOWN = 9  # places of a way, on a map


@dataclass(frozen=True, eq=False)
class Truth:
    """What is known about a scene: directions, or each source's own sound at both ears, or both."""

    directions: Array | None = None  # (M, C) degrees
    images: tuple[Audio, ...] = ()  # (M) two channels each, as long as the mixture; or none
    names: tuple[str, ...] = ()  # (M) or none: "true 1", …
    early: tuple[Audio, ...] = ()  # (M) images of the first 50 ms, where they differ; or none
    trajectories: tuple[Trajectory | None, ...] = ()  # (M) of the sources that move; or none

    def __post_init__(self) -> None:
        if self.directions is not None:
            places = np.asarray(self.directions, dtype=np.float64)
            if places.ndim != 2 or not np.isfinite(places).all():
                raise InputError(
                    f"directions must be finite and of shape (sources, 2), got {places.shape}. "
                    "Give one row a source."
                )
            object.__setattr__(self, "directions", places)
        given = {"directions": self.directions, "images": self.images, "names": self.names,
                 "early": self.early, "routes": self.trajectories}  # fmt: skip
        counts = {name: len(v) for name, v in given.items() if v is not None and len(v)}
        if len(set(counts.values())) != 1 or set(counts) == {"names"}:
            raise InputError(
                f"truth must have directions or images, as many as names, got {counts}. "
                "Give one of each a source."
            )
        if len({image.rate for image in self.images}) > 1 or any(
            image.channels != 2 for image in self.images
        ):
            raise InputError(
                f"images must have two channels and one rate, got {list(self.images)}. "
                "Give what both ears hear of each source."
            )
        if not self.names:
            object.__setattr__(self, "names", tuple(f"true {m + 1}" for m in range(len(self))))

    @classmethod
    def of(cls, scene: SimulatedScene) -> Truth:
        """All that is known about a scene that was rendered."""
        images = tuple(scene.image(m) for m in range(len(scene.images)))
        rate = scene.mixture.rate
        early = tuple(Audio(x, rate) for x in scene.early) if scene.is_reverberant else ()
        return cls(scene.directions, images, scene.names, early, scene.trajectories)

    def __len__(self) -> int:
        return len(self.images) if self.directions is None else len(self.directions)

    def places(self, m: int) -> Array:
        """(n, C) where true source m is: one place, or some along its way."""
        assert self.directions is not None
        trajectory = self.trajectories[m] if self.trajectories else None
        if trajectory is None:
            return self.directions[m : m + 1]
        return trajectory.at(np.linspace(trajectory.seconds[0], trajectory.seconds[-1], _SHOWN))

    def off_by(self, m: int, source: FoundSource) -> float:
        """How far a found source is from true source m; of one that moves, the median over time."""
        assert self.directions is not None
        space, trajectory = (
            source.posterior.space,
            self.trajectories[m] if self.trajectories else None,
        )
        there, track = self.directions[m], source.track
        if trajectory is None or not track.heard.any():
            return float(place_errors(space, there, source.direction))
        heard = track.heard
        along = trajectory.at(track.seconds[heard])
        return float(np.median(place_errors(space, along, track.directions[heard])))


def place_errors(space: Space, true: ArrayLike, found: ArrayLike) -> Array:
    """Distances (...,) of places (..., C): great circles where they are directions."""
    t, f = np.asarray(true, dtype=np.float64), np.asarray(found, dtype=np.float64)
    if space.holds_directions and space.columns == 2:
        return great_circle_error(t, f)
    return space.distance(t, f)


def true_masks(picture: Picture, images: Sequence[Audio]) -> Array:
    """Oracle masks (M, F', T') of the images at the picture's bins; NaN where it has none.

    A column is the frame at its time, whatever the picture's columns have been averaged over.
    """
    heard = ~np.isnan(picture.masks).all(axis=0)
    return np.where(heard, true_masks_at(picture.seconds, picture.frequencies_hz, images), np.nan)


def pair_masks(true: Array, found: Array) -> Assignment:
    """Which found mask (J, F', T') is which true one (M, F', T'): the most bins in common."""
    t, f = np.nan_to_num(true), np.nan_to_num(found)
    return best_assignment(-np.einsum("mft,jft->mj", t, f))


def pair_directions(scene: FoundScene, directions: Array) -> Assignment:
    """Which found direction is which true one (M, C): the least sum of errors."""
    if not scene.sources:
        return Assignment(np.full(len(directions), -1, dtype=np.intp), 0)
    space = scene.sources[0].posterior.space
    if directions.shape[1] != space.columns:
        raise InputError(
            f"directions must have {space.columns} columns, as the scene's, got "
            f"{directions.shape[1]}. Give (azimuth, elevation) of a head's scene."
        )
    found = np.stack([source.direction for source in scene.sources])
    return best_assignment(place_errors(space, directions[:, None], found[None]))


def pair_places(scene: FoundScene, truth: Truth) -> Assignment:
    """The same for a truth with directions, of which some may be ways."""
    assert truth.directions is not None
    if not scene.sources or not any(truth.trajectories):
        return pair_directions(scene, truth.directions)
    every = range(len(truth))
    return best_assignment(
        np.array([[truth.off_by(m, source) for source in scene.sources] for m in every])
    )


@dataclass(frozen=True, eq=False)
class Matched:
    """Which found source of a scene is which true one."""

    truth: Truth
    by_direction: Assignment | None  # None: no directions are known
    by_sound: Assignment | None  # None: no images are known
    masks: Array | None  # (M, F', T') true ones, where images are known

    @classmethod
    def of(cls, scene: FoundScene, truth: Truth) -> Matched:
        """By directions, and by the bins that true and found masks have in common."""
        places = None if truth.directions is None else pair_places(scene, truth)
        if not truth.images:
            return cls(truth, places, None, None)
        masks = true_masks(scene.picture, truth.images)
        return cls(truth, places, pair_masks(masks, scene.picture.masks), masks)

    def direction_of(self, j: int) -> Array | None:
        """The true direction of found source j."""
        m = _true_index(self.by_direction, j)
        return None if m is None or self.truth.directions is None else self.truth.directions[m]

    def places_of(self, j: int) -> Array | None:
        """Where the true source of found source j is, or was over time: (n, C)."""
        m = _true_index(self.by_direction, j)
        return None if m is None or self.truth.directions is None else self.truth.places(m)

    def off_by(self, j: int, source: FoundSource) -> float:
        """How far found source j, which is this one, is from the true one; NaN without one."""
        m = _true_index(self.by_direction, j)
        return np.nan if m is None else self.truth.off_by(m, source)

    def mask_of(self, j: int) -> tuple[str, Array] | None:
        """Name and mask of the true source that found source j is."""
        m = _true_index(self.by_sound, j)
        return None if m is None or self.masks is None else (self.truth.names[m], self.masks[m])


def _true_index(pairs: Assignment | None, found: int) -> int | None:
    hits = [] if pairs is None else np.flatnonzero(pairs.found == found).tolist()
    return hits[0] if hits else None
