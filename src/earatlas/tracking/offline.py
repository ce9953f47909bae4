"""Offline tracking: decide whether sources move, and estimate their trajectories.

Inputs: the onset bins of a recording, and the directions of its sources if all are static. Output:
one `EstimatedTrajectory` per source if at least one of them moves; an empty list otherwise.

A moving talker can also be explained by several static talkers, one after the other. The two are
distinguished by the likelihood of the onsets: static directions leave the onsets between them
unexplained.

    B, M, W, C  onset bins, sources, windows, cells of the direction grid
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from earatlas.features.onset_detector import OnsetBins
from earatlas.geometry.angles import to_directions, to_vectors
from earatlas.localization.onset_likelihood import DirectSoundModel
from earatlas.tracking.trajectory_hmm import DirectionGridHMM, smooth_trajectory
from earatlas.tracking.trajectory_mixture import (
    MAX_DEGREES_PER_SECOND,
    PATH_PENALTY_NATS_PER_DEGREE,
    TrajectoryFit,
    TrajectoryMixture,
)
from earatlas.types import Array, Indices, Mask, Single

__all__ = [
    "HOP_SECONDS",
    "EstimatedTrajectory",
    "TrajectoryOptions",
    "find_moving_trajectories",
    "find_trajectories",
]

# Evidence: docs/figures/settings/tracking.md, "offline".
HOP_SECONDS = 0.25  # length of a window of a trajectory
_MIN_RESIDUAL_GAIN = 0.07  # residual motion gain that starts the search, nats per onset
_MIN_SECONDS = 4.5  # shorter recordings are taken as static
_MANY_SOURCES = 3  # with so many static sources the search is always done
_MIN_TRAJECTORY_GAIN = 0.1  # gain of trajectories over static sources, nats per onset
_STATIC_TOLERANCE = 0.02  # loss that is accepted for fewer moving sources, nats per onset
_FINE_SEARCH_DEGREES = 8.0  # range of the fine search around the coarse path
_SMOOTHING_WINDOWS = 2.0  # standard deviation of the smoothing kernel, windows
_MODEL_ERROR_DEGREES = 6.0  # added to the radius for interpolation and other units of the head


@dataclass(frozen=True, eq=False)
class EstimatedTrajectory:
    """Direction of one source over time, its uncertainty, and its evidence."""

    seconds: Array  # (W,) centre of each window
    vectors: Array  # (W, 3) unit vectors
    radius_90: Array  # (W,) degrees
    weights: Array  # (W,) weighted number of onsets of the source
    moves: bool
    gain: float  # log-likelihood gain of having this source, nats per onset of the recording
    onset_bins: float  # number of onset bins of the source

    def at(self, seconds: ArrayLike) -> Array:
        """Return directions (T, 2) at times (T,); constant outside of the windows."""
        t = np.atleast_1d(np.asarray(seconds, dtype=np.float64))
        vectors = np.column_stack([np.interp(t, self.seconds, axis) for axis in self.vectors.T])
        return to_directions(vectors / np.linalg.norm(vectors, axis=1, keepdims=True))

    def radius_at(self, seconds: ArrayLike) -> Array:
        """Return the radii (T,) in degrees at times (T,)."""
        radii: Array = np.interp(np.atleast_1d(seconds), self.seconds, self.radius_90)
        return radii


@dataclass(frozen=True)
class TrajectoryOptions:
    """Length of the recording and number of sources of a trajectory search."""

    seconds: float  # length of the recording
    n_sources: int | None  # None: estimate the number
    max_sources: int


def find_moving_trajectories(
    sound: DirectSoundModel, onsets: OnsetBins, directions: Array, options: TrajectoryOptions
) -> list[EstimatedTrajectory]:
    """Return the trajectories of all sources if one of them moves, and none otherwise.

    `directions` (M, C) are those of the sources if all are static.
    """
    if options.seconds < _MIN_SECONDS or not len(onsets):
        return []
    search = _TrajectorySearch.from_onsets(sound, onsets, directions, options.seconds)
    mixture, static_fit = search.mixture, search.static_fit
    few = len(directions) < _MANY_SOURCES
    if few and mixture.residual_motion_gain(static_fit) < _MIN_RESIDUAL_GAIN:
        return []
    fit = search.fit(options)
    if mixture.score(fit) - mixture.score(static_fit) < _MIN_TRAJECTORY_GAIN * mixture.total:
        return []
    fit, moves = _select_fit(mixture, fit)
    return search.fine_trajectories(fit, moves) if moves.any() else []


def find_trajectories(
    sound: DirectSoundModel, onsets: OnsetBins, directions: Array, options: TrajectoryOptions
) -> list[EstimatedTrajectory]:
    """Return the trajectories of all sources, which may all be static.

    `directions` (M, C) are added to the cells of the grid.
    """
    if not len(onsets):
        return []
    search = _TrajectorySearch.from_onsets(sound, onsets, directions, options.seconds)
    return search.fine_trajectories(*_select_fit(search.mixture, search.fit(options)))


@dataclass(frozen=True, eq=False)
class _TrajectorySearch:
    """The onsets of a recording, prepared for the search, and the fit of static sources."""

    sound: DirectSoundModel
    onsets: OnsetBins
    mixture: TrajectoryMixture
    static_fit: TrajectoryFit
    fine: _FineGrid

    @classmethod
    def from_onsets(
        cls, sound: DirectSoundModel, onsets: OnsetBins, directions: Array, seconds: float
    ) -> _TrajectorySearch:
        """Prepare the onsets of a recording that lasts `seconds`."""
        n_windows = max(int(np.ceil(seconds / HOP_SECONDS)), 1)
        settings = sound.onset_settings
        position = onsets.t * settings.hop / settings.rate / HOP_SECONDS
        window = np.minimum(position, n_windows - 1).astype(np.intp)
        weights = _window_weights(onsets, window)
        # The static directions are added to the cells; otherwise paths could fit better only
        # because their cells are nearer to the true directions.
        coarse = sound.cells[0]
        exact = (to_vectors(sound.grid) @ to_vectors(directions).T).argmax(axis=0)
        rows = np.concatenate([coarse, exact])
        grid = DirectionGridHMM.from_directions(
            sound.grid[rows], MAX_DEGREES_PER_SECOND * HOP_SECONDS
        )
        densities = _densities(sound, onsets, rows)
        mixture = TrajectoryMixture(densities, weights, window, n_windows, grid)
        static_fit = mixture.static_fit(list(range(len(coarse), len(rows))))
        fine = _FineGrid(sound, onsets, weights, window, n_windows)
        return cls(sound, onsets, mixture, static_fit, fine)

    def fit(self, options: TrajectoryOptions) -> TrajectoryFit:
        """Fit the given number of sources, or estimate it."""
        if options.n_sources is None:
            return self.mixture.fit_unknown_count(options.max_sources)
        return self.mixture.fit_count(options.n_sources)

    def fine_trajectories(self, fit: TrajectoryFit, moves: Mask) -> list[EstimatedTrajectory]:
        """Return the trajectories of all sources on the fine grid."""
        return [
            self.fine.trajectory(self.mixture, fit, m, moves=bool(moves[m]))
            for m in range(len(fit.cells))
        ]


def _select_fit(mixture: TrajectoryMixture, fit: TrajectoryFit) -> tuple[TrajectoryFit, Mask]:
    """Select the fit with the fewest moving sources; return it and the mask (M,) of moving ones.

    Candidates are the fit with resolved identity swaps, the fit itself, and those with one more
    static source whose score is nearly as high.
    """
    min_score = mixture.score(fit) - _STATIC_TOLERANCE * mixture.total
    static_fits = mixture.with_one_static(fit) if len(fit.cells) > 1 else []
    equivalent = [each for each in static_fits if mixture.score(each) >= min_score]
    candidates = [
        mixture.static_where_possible(each)
        for each in (mixture.resolve_identity_swaps(fit), fit, *equivalent)
    ]
    return min(candidates, key=lambda candidate: int(candidate[1].sum()))


def _window_weights(onsets: OnsetBins, window: Indices) -> Array:
    """Return v (B,): 1 / (1 + number of bins of the same frequency in the same window)."""
    cell = window * (int(onsets.f.max(initial=0)) + 1) + onsets.f
    weights: Array = 1 / (1.0 + np.bincount(cell)[cell])
    return weights


def _densities(sound: DirectSoundModel, onsets: OnsetBins, rows: Indices) -> Single:
    """Return g (B, rows): the density of every onset around rows of the direction grid."""
    out = np.empty((len(onsets), len(rows)), dtype=np.float32)
    table, points = np.exp(sound.log_densities), sound.points(rows)
    for own, values in sound.iter_table_values(table, onsets, points):
        out[own] = values
    return out


@dataclass(frozen=True, eq=False)
class _FineGrid:
    """Estimates trajectories on the fine grid, around the paths on the coarse one."""

    sound: DirectSoundModel
    onsets: OnsetBins
    weights: Array
    window: Indices
    n_windows: int

    def trajectory(
        self, mixture: TrajectoryMixture, fit: TrajectoryFit, m: int, *, moves: bool
    ) -> EstimatedTrajectory:
        """Return the trajectory of source m, given the coarse paths of the others."""
        sound, v = self.sound, mixture.grid.vectors
        path = v[np.unique(fit.cells[m])]
        coarse, cell = sound.cells
        nearby = (v[: len(coarse)] @ path.T).max(axis=1) > np.cos(np.radians(_FINE_SEARCH_DEGREES))
        rows = np.flatnonzero(nearby[cell])
        grid = DirectionGridHMM.from_directions(
            sound.grid[rows], MAX_DEGREES_PER_SECOND * HOP_SECONDS
        )
        g = _densities(sound, self.onsets, rows)
        fine = TrajectoryMixture(g, self.weights, self.window, self.n_windows, grid)
        L = fine.log_likelihoods(mixture.likelihoods_without(fit, m), fit.mixing_weights[m])
        responsibilities = mixture.responsibilities(fit, m)
        onset_counts = mixture.onset_counts(fit, m)
        if moves:
            p = grid.forward_backward(L, PATH_PENALTY_NATS_PER_DEGREE)
            mean_vectors = smooth_trajectory(
                p @ grid.vectors, onset_counts + 1e-3, _SMOOTHING_WINDOWS
            )
        else:
            p = _softmax(L.sum(axis=0))[None]
            mean = p @ grid.vectors
            mean_vectors = np.repeat(mean / np.linalg.norm(mean), self.n_windows, axis=0)
            p = np.repeat(p, self.n_windows, axis=0)
        distances = np.degrees(np.arccos(np.clip(mean_vectors @ grid.vectors.T, -1, 1)))
        posterior_radius = _quantile(distances, p, 0.9)
        seconds = (np.arange(float(self.n_windows)) + 0.5) * HOP_SECONDS
        radius = np.hypot(posterior_radius, _MODEL_ERROR_DEGREES)
        gain, count = mixture.gain(fit, m), float(responsibilities.sum())
        return EstimatedTrajectory(seconds, mean_vectors, radius, onset_counts, moves, gain, count)


def _softmax(logs: Array) -> Array:
    """Return probabilities for log-probabilities."""
    p = np.exp(logs - logs.max())
    return np.asarray(p / p.sum(), dtype=np.float64)


def _quantile(values: Array, p: Array, level: float) -> Array:
    """Return the quantiles (W,) of values (W, C) with probabilities p (W, C)."""
    order = np.argsort(values, axis=1)
    below = np.cumsum(np.take_along_axis(p, order, axis=1), axis=1)
    rank = np.minimum((below < level).sum(axis=1), values.shape[1] - 1)
    ranked = np.take_along_axis(values, order, axis=1)
    return np.asarray(ranked[np.arange(len(values)), rank])
