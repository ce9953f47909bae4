"""Ground truth of a scene, and the assignment of estimated sources to true sources.

The inputs are a `SceneSummary` and a `GroundTruth`. The outputs are a `SourceMatching` with
assignments by direction and by mask, direction errors, and the true masks at the bins of the
spectrogram summary of the scene.

    M, J     numbers of true and estimated sources
    F', T'   frequencies and columns of the `SpectrogramSummary` of the scene
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
from earatlas.separation.result import SceneSummary, SourceSummary, SpectrogramSummary
from earatlas.simulation.scene import SimulatedScene
from earatlas.simulation.trajectories import Trajectory
from earatlas.types import Array

__all__ = [
    "ErrorsOverTime",
    "GroundTruth",
    "SourceMatching",
    "assign_by_direction",
    "assign_by_mask",
    "assign_by_position",
    "direction_distances",
    "true_masks",
]


@dataclass(frozen=True, eq=False)
class GroundTruth:
    """What is known about a scene: directions, the image of each source at both ears, or both.

    Parameters
    ----------
    directions : array_like, shape (M, C), optional
        True directions in degrees.
    images : tuple of Audio, optional
        Two-channel image of each source, as long as the mixture.
    names : tuple of str, optional
        Names of the sources, by default "true 1", "true 2", ...
    early : tuple of Audio, optional
        Images with the reflections of the first 50 ms only, for reverberant scenes.
    trajectories : tuple of Trajectory or None, optional
        Trajectory of each moving source, None for static sources.

    Raises
    ------
    InputError
        If neither directions nor images are given, or if their numbers differ.

    Examples
    --------
    >>> GroundTruth([[0.0, 0.0], [60.0, 0.0]]).names
    ('true 1', 'true 2')

    """

    directions: Array | None = None  # (M, C) degrees
    images: tuple[Audio, ...] = ()  # (M) or (), two channels each
    names: tuple[str, ...] = ()  # (M)
    early: tuple[Audio, ...] = ()  # (M) or ()
    trajectories: tuple[Trajectory | None, ...] = ()  # (M) or ()

    def __post_init__(self) -> None:
        if self.directions is not None:
            directions = np.asarray(self.directions, dtype=np.float64)
            if directions.ndim != 2 or not np.isfinite(directions).all():
                raise InputError(
                    f"directions must be finite and of shape (sources, 2), got {directions.shape}. "
                    "Give one row per source."
                )
            object.__setattr__(self, "directions", directions)
        given = {"directions": self.directions, "images": self.images, "names": self.names,
                 "early": self.early, "trajectories": self.trajectories}  # fmt: skip
        counts = {name: len(v) for name, v in given.items() if v is not None and len(v)}
        if len(set(counts.values())) != 1 or set(counts) == {"names"}:
            raise InputError(
                f"truth must have directions or images, as many as names, got {counts}. "
                "Give one of each per source."
            )
        if len({image.rate for image in self.images}) > 1 or any(
            image.channels != 2 for image in self.images
        ):
            raise InputError(
                f"images must have two channels and one rate, got {list(self.images)}. "
                "Give the image of each source at both ears."
            )
        if not self.names:
            object.__setattr__(self, "names", tuple(f"true {m + 1}" for m in range(len(self))))

    @classmethod
    def of(cls, scene: SimulatedScene) -> GroundTruth:
        """Return the ground truth of a simulated scene.

        Parameters
        ----------
        scene : SimulatedScene
            A scene that `render_scene` made.

        Returns
        -------
        GroundTruth
            Directions, images and trajectories of its sources.
        """
        images = tuple(scene.image(m) for m in range(len(scene.images)))
        rate = scene.mixture.rate
        early = tuple(Audio(x, rate) for x in scene.early) if scene.is_reverberant else ()
        return cls(scene.directions, images, scene.names, early, scene.trajectories)

    def __len__(self) -> int:
        return len(self.images) if self.directions is None else len(self.directions)

    def positions(self, m: int) -> Array:
        """Return the directions of a true source.

        Parameters
        ----------
        m : int
            Number of the source.

        Returns
        -------
        ndarray of shape (n, C)
            One direction, or several along its trajectory.
        """
        assert self.directions is not None
        trajectory = self.trajectories[m] if self.trajectories else None
        if trajectory is None:
            return self.directions[m : m + 1]
        return trajectory.at(np.linspace(trajectory.seconds[0], trajectory.seconds[-1], 9))

    def direction_error(self, m: int, source: SourceSummary) -> float:
        """Return the direction error of an estimate of true source m, in degrees.

        If the source or its estimate moves, it is the median over the time steps in which the
        estimate is active.

        Parameters
        ----------
        m : int
            Number of the true source.
        source : SourceSummary
            The estimated source.

        Returns
        -------
        float
            The error in degrees, or in the unit of another space.
        """
        assert self.directions is not None
        over_time = self.errors_over_time(m, source)
        if over_time is not None:
            return float(np.median(over_time.errors))
        space = source.posterior.space
        return float(direction_distances(space, self.directions[m], source.direction))

    def errors_over_time(self, m: int, source: SourceSummary) -> ErrorsOverTime | None:
        """Compare true source m with its estimate at the same moments.

        Parameters
        ----------
        m : int
            Number of the true source.
        source : SourceSummary
            The estimated source.

        Returns
        -------
        ErrorsOverTime or None
            Times at which the estimate is active, with both directions and their distance. None if
            neither of them moves, or if the estimate is never active.
        """
        assert self.directions is not None
        trajectory = self.trajectories[m] if self.trajectories else None
        track = source.track
        active = track.active
        if (trajectory is None and not track.moves) or not active.any():
            return None
        seconds, estimated = track.seconds[active], track.directions[active]
        true = np.broadcast_to(self.directions[m], estimated.shape)
        if trajectory is not None:
            true = trajectory.at(seconds)
        errors = direction_distances(source.posterior.space, true, estimated)
        return ErrorsOverTime(seconds, true, estimated, errors)


@dataclass(frozen=True, eq=False)
class ErrorsOverTime:
    """A true source and its estimate at the same n moments."""

    seconds: Array  # (n,) increasing
    true: Array  # (n, C) degrees
    estimated: Array  # (n, C) degrees
    errors: Array  # (n,) distance of both, degrees


def direction_distances(space: Space, true: ArrayLike, estimated: ArrayLike) -> Array:
    """Return distances (...,) of points (..., C) in a space, along great circles for directions."""
    t, f = np.asarray(true, dtype=np.float64), np.asarray(estimated, dtype=np.float64)
    if space.holds_directions and space.columns == 2:
        return great_circle_error(t, f)
    return space.unit_scale * space.distance(t, f)


def true_masks(summary: SpectrogramSummary, images: Sequence[Audio]) -> Array:
    """Return oracle masks (M, F', T') of the images at the bins of a summary; NaN if unobserved.

    A column is evaluated at the frame of its time, although the summary averages over several
    frames.
    """
    observed = ~np.isnan(summary.masks).all(axis=0)
    return np.where(
        observed, true_masks_at(summary.seconds, summary.frequencies_hz, images), np.nan
    )


def assign_by_mask(true: Array, estimated: Array) -> Assignment:
    """Assign estimated masks (J, F', T') to true masks (M, F', T') with the largest overlap."""
    t, f = np.nan_to_num(true), np.nan_to_num(estimated)
    return best_assignment(-np.einsum("mft,jft->mj", t, f))


def assign_by_direction(scene: SceneSummary, directions: Array) -> Assignment:
    """Assign the sources of a scene to true directions (M, C) with the least sum of errors."""
    if not scene.sources:
        return Assignment(np.full(len(directions), -1, dtype=np.intp), 0)
    space = scene.sources[0].posterior.space
    if directions.shape[1] != space.columns:
        raise InputError(
            f"directions must have {space.columns} columns like those of the scene, got "
            f"{directions.shape[1]}. Give (azimuth, elevation) for the scene of a head."
        )
    estimated = np.stack([source.direction for source in scene.sources])
    return best_assignment(direction_distances(space, directions[:, None], estimated[None]))


def assign_by_position(scene: SceneSummary, truth: GroundTruth) -> Assignment:
    """Assign the sources of a scene to true sources, which may be static or moving."""
    assert truth.directions is not None
    if not scene.sources or not any(truth.trajectories):
        return assign_by_direction(scene, truth.directions)
    every = range(len(truth))
    return best_assignment(
        np.array([[truth.direction_error(m, source) for source in scene.sources] for m in every])
    )


@dataclass(frozen=True, eq=False)
class SourceMatching:
    """Assignment of the estimated sources of a scene to the true sources."""

    truth: GroundTruth
    by_direction: Assignment | None  # None without true directions
    by_sound: Assignment | None  # None without true images
    masks: Array | None  # (M, F', T') true masks, None without true images

    @classmethod
    def of(cls, scene: SceneSummary, truth: GroundTruth) -> SourceMatching:
        """Match a scene with its ground truth, by directions and by the overlap of masks."""
        by_direction = None if truth.directions is None else assign_by_position(scene, truth)
        if not truth.images:
            return cls(truth, by_direction, None, None)
        masks = true_masks(scene.spectrogram, truth.images)
        return cls(truth, by_direction, assign_by_mask(masks, scene.spectrogram.masks), masks)

    def true_direction(self, j: int) -> Array | None:
        """Return the true direction of estimated source j, or None."""
        m = _true_index(self.by_direction, j)
        return None if m is None or self.truth.directions is None else self.truth.directions[m]

    def true_path(self, j: int) -> Array | None:
        """Return directions (n, C) of the true source of estimated source j over time, or None."""
        m = _true_index(self.by_direction, j)
        return None if m is None or self.truth.directions is None else self.truth.positions(m)

    def direction_error(self, j: int, source: SourceSummary) -> float:
        """Return the direction error of estimated source j in degrees, NaN if it is false."""
        m = _true_index(self.by_direction, j)
        return np.nan if m is None else self.truth.direction_error(m, source)

    def true_mask(self, j: int) -> tuple[str, Array] | None:
        """Return name and mask of the true source of estimated source j, or None."""
        m = _true_index(self.by_sound, j)
        return None if m is None or self.masks is None else (self.truth.names[m], self.masks[m])


def _true_index(pairs: Assignment | None, estimated: int) -> int | None:
    """Return the index of the true source of an estimated source, or None."""
    hits = [] if pairs is None else np.flatnonzero(pairs.found == estimated).tolist()
    return hits[0] if hits else None
