"""Offline tracking: decide whether sources move, and estimate their trajectories.

Inputs: the onset bins of a recording, and the directions of its sources if all are static. Output:
one `EstimatedTrajectory` per source if at least one of them moves; an empty list otherwise.

A moving talker can also be explained by several static talkers, one after the other. The two are
distinguished by the likelihood of the onsets: static directions leave the onsets between them
unexplained.

    B, M, W, C  onset bins, sources, windows, cells of the direction grid
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import ArrayLike

from earatlas.features.onset_detector import OnsetBins
from earatlas.geometry.angles import cosines_to_degrees, to_directions, to_vectors
from earatlas.localization.onset_likelihood import DirectSoundModel
from earatlas.localization.onset_mixture import MixtureFit
from earatlas.numerics import logsumexp
from earatlas.tracking.trajectory_hmm import smooth_trajectory
from earatlas.tracking.trajectory_mixture import TrajectoryMixture, TrajectorySettings
from earatlas.types import Array, Indices, Mask

__all__ = [
    "EstimatedTrajectory",
    "TrajectoryOptions",
    "find_moving_trajectories",
    "find_trajectories",
    "select_fit",
]


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
    """Length of the recording, number of sources and settings of a trajectory search."""

    seconds: float  # length of the recording
    n_sources: int | None  # None: estimate the number
    max_sources: int
    settings: TrajectorySettings = field(default_factory=TrajectorySettings)


def find_moving_trajectories(
    sound: DirectSoundModel, onsets: OnsetBins, directions: Array, options: TrajectoryOptions
) -> list[EstimatedTrajectory]:
    """Return the trajectories of all sources if one of them moves, and none otherwise.

    `directions` (M, C) are those of the sources if all are static. In a short recording only a
    single moving source is searched, where several static ones would be needed.
    """
    settings = options.settings
    short = options.seconds < settings.min_seconds
    if options.seconds < settings.min_lone_seconds or not len(onsets):
        return []
    if short:
        if options.n_sources is not None or len(directions) < 2:
            return []
        options = replace(options, n_sources=1)
    search = _TrajectorySearch.from_onsets(sound, onsets, directions, options)
    mixture, static_fit = search.mixture, search.static_fit
    unexplained = mixture.residual_motion_gain(static_fit) >= settings.min_residual_gain
    if not unexplained and (short or not mixture.has_fragments(static_fit)):
        return []
    fit = search.fit(options)
    min_gain = settings.min_lone_gain if short else settings.min_trajectory_gain
    if mixture.score(fit) - mixture.score(static_fit) < min_gain:
        return []
    fit, moves = select_fit(mixture, fit)
    return search.fine_trajectories(fit, moves) if moves.any() else []


def find_trajectories(
    sound: DirectSoundModel, onsets: OnsetBins, directions: Array, options: TrajectoryOptions
) -> list[EstimatedTrajectory]:
    """Return the trajectories of all sources, which may all be static.

    `directions` (M, C) are added to the cells of the grid.
    """
    if not len(onsets):
        return []
    search = _TrajectorySearch.from_onsets(sound, onsets, directions, options)
    return search.fine_trajectories(*select_fit(search.mixture, search.fit(options)))


@dataclass(frozen=True, eq=False)
class _TrajectorySearch:
    """The onsets of a recording, prepared for the search, and the fit of static sources."""

    sound: DirectSoundModel
    onsets: OnsetBins
    mixture: TrajectoryMixture
    static_fit: MixtureFit
    fine: _FineGrid

    @classmethod
    def from_onsets(
        cls,
        sound: DirectSoundModel,
        onsets: OnsetBins,
        directions: Array,
        options: TrajectoryOptions,
    ) -> _TrajectorySearch:
        """Prepare the onsets of a recording."""
        settings, hop = options.settings, sound.onset_settings.hop / sound.onset_settings.rate
        n_windows = settings.count_windows(options.seconds)
        onsets = onsets[np.argsort(onsets.t, kind="stable")]  # the bins of a window are neighbours
        position = onsets.t * hop / settings.window_seconds
        window = np.minimum(position, n_windows - 1).astype(np.intp)
        weights = _window_weights(onsets, window)
        # The static directions are added to the cells; otherwise paths could fit better only
        # because their cells are nearer to the true directions.
        coarse = sound.cells[0]
        exact = (to_vectors(sound.grid) @ to_vectors(directions).T).argmax(axis=0)
        rows = np.concatenate([coarse, exact])
        grid = settings.hmm(sound.grid[rows])
        g = sound.densities(onsets, rows)
        mixture = TrajectoryMixture(g, weights, window, grid, n_windows, settings, onsets.f)
        static_fit = mixture.fit_static(list(range(len(coarse), len(rows))))
        fine = _FineGrid(sound, onsets, weights, window, n_windows, settings)
        return cls(sound, onsets, mixture, static_fit, fine)

    def fit(self, options: TrajectoryOptions) -> MixtureFit:
        """Fit the given number of sources, or estimate it."""
        if options.n_sources is None:
            return self.mixture.count_sources(options.max_sources)
        return self.mixture.search(options.n_sources)[-1]

    def fine_trajectories(self, fit: MixtureFit, moves: Mask) -> list[EstimatedTrajectory]:
        """Return the trajectories of all sources on the fine grid."""
        return [
            self.fine.trajectory(self.mixture, fit, m, moves=bool(moves[m]))
            for m in range(len(fit.cells))
        ]


def select_fit(mixture: TrajectoryMixture, fit: MixtureFit) -> tuple[MixtureFit, Mask]:
    """Select the fit with the fewest moving sources; return it and the mask (M,) of moving ones.

    Candidates are the fit with resolved identity swaps, the fit itself, and those with one more
    static source whose score is nearly as high.
    """
    min_score = mixture.score(fit) - mixture.trajectory_settings.static_tolerance
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


@dataclass(frozen=True, eq=False)
class _FineGrid:
    """Estimates trajectories on the fine grid, around the paths on the coarse one."""

    sound: DirectSoundModel
    onsets: OnsetBins
    weights: Array
    window: Indices
    n_windows: int
    settings: TrajectorySettings

    def trajectory(
        self, mixture: TrajectoryMixture, fit: MixtureFit, m: int, *, moves: bool
    ) -> EstimatedTrajectory:
        """Return the trajectory of source m, given the coarse paths of the others."""
        sound, settings, v = self.sound, self.settings, mixture.vectors
        path = v[np.unique(fit.cells[m])]
        coarse, cell = sound.cells
        min_cosine = np.cos(np.radians(settings.fine_search_degrees))
        nearby = (v[: len(coarse)] @ path.T).max(axis=1) > min_cosine
        rows = np.flatnonzero(nearby[cell])
        grid = settings.hmm(sound.grid[rows])
        g = sound.densities(self.onsets, rows)
        fine = TrajectoryMixture(g, self.weights, self.window, grid, self.n_windows, settings)
        components = mixture.components(fit)
        L = fine.log_likelihoods(components.without(m), fit.mixing_weights[m])
        responsibilities = components.responsibilities(m)
        onset_counts = mixture.onset_counts(fit, m)
        if moves:
            p = grid.forward_backward(L)
            mean_vectors = smooth_trajectory(
                p @ grid.vectors, onset_counts + 1e-3, settings.smoothing_windows
            )
        else:
            total = L.sum(axis=0)
            p = np.exp(total - logsumexp(total)).astype(np.float64)[None]
            mean = p @ grid.vectors
            mean_vectors = np.repeat(mean / np.linalg.norm(mean), self.n_windows, axis=0)
            p = np.repeat(p, self.n_windows, axis=0)
        distances = cosines_to_degrees(mean_vectors @ grid.vectors.T)
        posterior_radius = _quantile(distances, p, 0.9)
        seconds = (np.arange(float(self.n_windows)) + 0.5) * settings.window_seconds
        radius = np.hypot(posterior_radius, settings.model_error_degrees)
        gain, count = mixture.gain(fit, m), float(responsibilities.sum())
        return EstimatedTrajectory(seconds, mean_vectors, radius, onset_counts, moves, gain, count)


def _quantile(values: Array, p: Array, level: float) -> Array:
    """Return the quantiles (W,) of values (W, C) with probabilities p (W, C)."""
    order = np.argsort(values, axis=1)
    below = np.cumsum(np.take_along_axis(p, order, axis=1), axis=1)
    rank = np.minimum((below < level).sum(axis=1), values.shape[1] - 1)
    ranked = np.take_along_axis(values, order, axis=1)
    return np.asarray(ranked[np.arange(len(values)), rank])
