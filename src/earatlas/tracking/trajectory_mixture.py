"""Mixture of sources with time-varying directions over the onset bins of a recording.

Inputs: the onset bins of a mixture with their windows, and the density of each around every cell of
a direction grid. Output: a path over the cells for each source. A `TrajectoryMixture` is an
`earatlas.localization.onset_mixture.OnsetMixture` of several windows in which the path of a source
is the Viterbi path given the other sources (`earatlas.tracking.trajectory_hmm`):

    L(x_1 … x_M) = Σ_n v_n log (Σ_m π_m,w(n) g_n(x_m,w(n)) + π_0,w(n)) - κ Σ_m path length of m

Rest costs nothing, so the path of a static source is one cell, and speeds are bounded.

Another head than the learned one displaces a static talker at some frequencies, at all times; a
motion displaces it at some times, at all frequencies. A source moves only if its path gains more
than a cell per frequency band does, each within `min_separation_degrees` of the best single cell.

Where two sources are in one direction, onsets do not determine which is which, and the likelihood
is the same if the identities are swapped from there on. Therefore a line (position and velocity) is
fitted to each trajectory before and after the encounter, and the assignment with the smaller change
of both is chosen.

    B, C, M, W  onset bins, cells, sources, windows
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from earatlas.geometry.angles import cosines_to_degrees, to_vectors
from earatlas.localization.onset_mixture import (
    MIXTURE_SETTINGS,
    MixtureFit,
    OnsetMixture,
    OnsetMixtureSettings,
    source_log_likelihoods,
)
from earatlas.numerics import distinct
from earatlas.tracking.trajectory_hmm import DirectionGridHMM
from earatlas.types import Array, Indices, Mask, Single

__all__ = ["TrajectoryMixture", "TrajectorySettings", "resolve_identity_swaps"]


# Evidence: docs/figures/settings/tracking.md, "trajectory_mixture".
@dataclass(frozen=True, slots=True)
class TrajectorySettings:
    """Settings of trajectories in a recording; gains are in nats per onset."""

    window_seconds: float = 0.25  # length of a window
    coincidence_nats: float = 1.0  # cost of two sources in one direction, nats per window

    # Motion
    max_degrees_per_second: float = 60.0  # largest speed of a source
    path_nats_per_degree: float = 0.2  # κ, penalty of the path length
    min_motion_gain: float = 0.03  # gain of motion over rest, if the lateral angle changes

    # Decision whether the sources of a recording move
    min_seconds: float = 4.5  # in shorter recordings only a single moving source is searched
    min_lone_seconds: float = 2.0  # shorter recordings are taken as static
    min_residual_gain: float = 0.07  # residual motion gain that starts the search
    fragment_spread: float = 0.6  # standard deviation of its times, over that of all onsets, below
    # which a static source may be a part of a trajectory; two of them start the search, too
    min_trajectory_gain: float = 0.1  # gain of trajectories over static sources
    min_lone_gain: float = 0.4  # the same, of a single moving source in a short recording
    static_tolerance: float = 0.02  # loss that is accepted for fewer moving sources

    # Trajectories on the fine grid
    fine_search_degrees: float = 8.0  # range of the fine search around the coarse path
    smoothing_windows: float = 2.0  # standard deviation of the smoothing kernel
    model_error_degrees: float = 6.0  # added to the radius for interpolation and other heads

    # Identity swaps
    encounter_degrees: float = 45.0  # distance within which two sources may swap identities
    line_windows: int = 8  # windows that a line is fitted to
    max_line_seconds: float = 5.0  # largest distance of these windows from the encounter
    min_line_onsets: float = 2.0  # weighted onsets of a window that is used

    # Stitching of the segments of a long recording
    overlap_seconds: float = 4.0  # overlap of consecutive segments
    gate_degrees: float = 25.0  # largest distance of a track that was active in the last segment
    coasting_gate_degrees: float = 15.0  # the same for a track that was not
    onset_penalty_degrees: float = 5.0  # cost of a coasting track per factor e of fewer onsets
    static_degrees: float = 10.0  # a static track stays within this distance in all segments
    min_onset_fraction: float = 0.03  # part of all onsets that a source must have

    @property
    def mixture(self) -> OnsetMixtureSettings:
        """Settings of the mixture."""
        return replace(MIXTURE_SETTINGS, coincidence_nats=self.coincidence_nats)

    def hmm(self, directions: Array) -> DirectionGridHMM:
        """Return the model of motion over a grid of directions (C, 2)."""
        max_step_degrees = self.max_degrees_per_second * self.window_seconds
        return DirectionGridHMM(to_vectors(directions), max_step_degrees, self.path_nats_per_degree)

    def count_windows(self, seconds: float) -> int:
        """Return the number of windows of a recording."""
        return max(int(np.ceil(seconds / self.window_seconds)), 1)


class TrajectoryMixture(OnsetMixture):
    """The onset bins of a recording, as a mixture of moving sources."""

    def __init__(
        self,
        densities: Single,
        weights: Array,
        window: Indices,
        grid: DirectionGridHMM,
        n_windows: int,
        trajectory_settings: TrajectorySettings,
        frequencies: Indices | None = None,
    ) -> None:
        """Take g (B, C), v (B,), the window (B,) and the frequency (B,) of each onset."""
        settings = trajectory_settings.mixture
        super().__init__(densities, weights, grid.vectors, settings, window, n_windows, frequencies)
        self.grid, self.trajectory_settings = grid, trajectory_settings

    def best_path(self, L: Single) -> Indices:
        """Return the Viterbi path (W,) for L (W, C)."""
        return self.grid.viterbi(L)[0]

    def score(self, fit: MixtureFit, same_cone_nats: float | None = None) -> float:
        """Return J minus the penalty of the path length, in nats per onset."""
        v, cells = self.vectors[fit.cells], fit.cells
        cosines = np.einsum("mwa,mwa->mw", v[:, 1:], v[:, :-1])
        length = float(cosines_to_degrees(cosines)[cells[:, 1:] != cells[:, :-1]].sum())
        penalty = self.grid.nats_per_degree * length / self.total
        return super().score(fit, same_cone_nats) - penalty

    def _starts(self, fit: MixtureFit) -> Iterator[MixtureFit]:
        """Yield the fit, and the same with each source static in turn.

        A single path over two talkers would follow whichever is louder, from one to the other.
        """
        yield fit
        for m in range(len(fit)):
            others = self.fit_weights(np.delete(fit.cells, m, axis=0))
            e = self.components(others).diluted(0.5)
            cells = fit.cells.copy()
            L = self.log_likelihoods(e, np.full(self.n_windows, 0.5))
            cells[m] = super().best_path(L)
            yield self.fit_weights(cells)

    def residual_motion_gain(self, fit: MixtureFit) -> float:
        """Return the gain, in nats per onset, of one more source that may jump every second.

        It is large where a source moves and the fit has only static ones.
        """
        components = self.components(fit)
        L = self.log_likelihoods(components.diluted(0.5), np.full(self.n_windows, 0.5))
        starts = np.arange(0, self.n_windows, round(1 / self.trajectory_settings.window_seconds))
        best = np.add.reduceat(L, starts, axis=0).max(axis=1)
        return float(best.sum() - components.log_likelihood) / self.total

    def has_fragments(self, fit: MixtureFit) -> bool:
        """Return whether two static sources are active in a part of the recording only.

        One moving source resembles several static ones, one after the other.
        """
        counts = np.stack([self.onset_counts(fit, m) for m in range(len(fit))])
        spread = _standard_deviation(counts) / _standard_deviation(counts.sum(axis=0))
        return int((spread < self.trajectory_settings.fragment_spread).sum()) > 1

    def resolve_identity_swaps(self, fit: MixtureFit) -> MixtureFit:
        """Return the fit with identities assigned for smooth motion through encounters."""
        counts = np.stack([self.onset_counts(fit, m) for m in range(len(fit))])
        assignment = resolve_identity_swaps(
            self.vectors[fit.cells], counts, self.trajectory_settings
        )
        permuted = self.fit_weights(np.take_along_axis(fit.cells, assignment, axis=0))
        # A swap may leave a jump that is faster than the largest speed: place the sources again.
        return self.fit_weights(self.placed_again(permuted, self.settings.same_cone_nats))

    def static_where_possible(self, fit: MixtureFit) -> tuple[MixtureFit, Mask]:
        """Replace paths without significant motion by one cell each.

        Return the fit and the mask (M,) of moving sources.
        """
        settings = self.trajectory_settings
        cells, moving = fit.cells.copy(), np.zeros(len(fit), dtype=bool)
        for m in range(len(fit)):
            e = self.components(fit).without(m)
            L = self.log_likelihoods(e, fit.mixing_weights[m])
            static = super().best_path(L)
            rest = float(L[:, static[0]].sum())
            path, score = self.grid.viterbi(L)
            # On one cone of confusion, reflections and another head resemble a motion.
            required = settings.min_motion_gain
            if np.ptp(self._lateral[path]) < self.settings.cone_degrees:
                required = self.settings.same_cone_nats
            gain = score - rest
            moving[m] = gain > required * self.total and gain > self._displacement_gain(
                e, fit.mixing_weights[m], static[0]
            )
            if not moving[m]:
                cells[m] = static
        return self.fit_weights(cells), moving

    def _displacement_gain(self, e: Array, pi: Array, cell: int) -> float:
        """Return the gain in nats if a source has a cell near `cell` for each frequency band.

        `e` (B,) are the likelihoods of the others, `pi` (W,) its mixing weights.
        """
        if self._frequencies is None:
            return 0.0
        min_cosine = np.cos(np.radians(self.settings.min_separation_degrees))
        near = np.flatnonzero(self.vectors @ self.vectors[cell] >= min_cosine)
        band = self._frequencies // self.settings.band_frequencies
        assert self.window is not None
        g = self.densities[:, near] * pi[self.window, None].astype(np.float32)
        gain = 0.0
        for own in (np.flatnonzero(band == b) for b in distinct(band)):
            L = source_log_likelihoods(g[own], self.weights[own], e[own], 1.0)
            gain += float(L.max() - L[near == cell][0])
        return gain

    def with_one_static(self, fit: MixtureFit) -> list[MixtureFit]:
        """Return one fit per source, with this source static and the others placed again."""
        _, *fits = self._starts(fit)
        for m in range(len(fits)):
            for _ in range(self.settings.refinement_rounds - 1):
                cells = self.placed_again(fits[m], self.settings.same_cone_nats, fixed=m)
                fits[m] = self.fit_weights(cells)
        return fits

    def onset_counts(self, fit: MixtureFit, m: int) -> Array:
        """Return the weighted number of onsets (W,) of source m in each window."""
        weights = self.weights * self.components(fit).responsibilities(m)
        assert self.window is not None
        return np.bincount(self.window, weights, self.n_windows).astype(np.float64)


def _standard_deviation(counts: Array) -> Array:
    """Return the standard deviation (...) of the windows of onsets with counts (..., W)."""
    t, total = np.arange(counts.shape[-1]), np.maximum(counts.sum(axis=-1), 1e-9)
    mean = counts @ t / total
    # Rounding may leave small negative values if all onsets are in one window.
    deviation: Array = np.sqrt(np.maximum(counts @ t**2 / total - mean**2, 1e-9))
    return deviation


def resolve_identity_swaps(
    vectors: Array, onset_counts: Array, settings: TrajectorySettings
) -> Indices:
    """Return the index (M, W) of the trajectory that each source follows in each window.

    `vectors` (M, W, 3) are the trajectories, `onset_counts` (M, W) their weighted onsets per
    window.
    """
    M, W = onset_counts.shape
    assignment = np.repeat(np.arange(M)[:, None], W, axis=1)
    onset_counts = onset_counts.copy()
    vectors = vectors.copy()
    for a in range(M):
        for b in range(a):
            pair, swapped = [a, b], [b, a]
            for w in _closest_approaches(vectors[a], vectors[b], settings):
                if _swap_is_smoother(vectors[pair], onset_counts[pair], w, settings):
                    for array in (assignment, onset_counts, vectors):
                        array[pair, w:] = array[swapped, w:]
    return assignment


def _closest_approaches(a: Array, b: Array, settings: TrajectorySettings) -> list[int]:
    """Return the window of the smallest distance of each encounter of two paths (W, 3)."""
    distance = cosines_to_degrees(np.einsum("wa,wa->w", a, b))
    encounters: list[list[int]] = []
    for w in np.flatnonzero(distance < settings.encounter_degrees):
        if not encounters or w - encounters[-1][-1] > settings.line_windows:
            encounters.append([])
        encounters[-1].append(int(w))
    return [min(encounter, key=lambda w: float(distance[w])) for encounter in encounters]


def _swap_is_smoother(
    pair: Array, onset_counts: Array, w: int, settings: TrajectorySettings
) -> bool:
    """Return whether swapping two trajectories (2, W, 3) from window w on is smoother."""
    lines = [
        _fit_line(trajectory, weights, w, side, settings)
        for trajectory, weights in zip(pair, onset_counts, strict=True)
        for side in (-1, 1)
    ]
    if not all(map(len, lines)):
        return False
    a, a_after, b, b_after = lines
    kept_cost = ((a - a_after) ** 2).sum() + ((b - b_after) ** 2).sum()
    swapped_cost = ((a - b_after) ** 2).sum() + ((b - a_after) ** 2).sum()
    return bool(swapped_cost < kept_cost)


def _fit_line(
    trajectory: Array, onset_counts: Array, w: int, side: int, settings: TrajectorySettings
) -> Array:
    """Fit position and velocity (2, 3) at window w to the windows on one side of it.

    The velocity is per second. The result is empty with fewer than two windows that have onsets.
    """
    seconds = (np.arange(len(trajectory)) - w) * settings.window_seconds
    distance = side * seconds
    within = (distance > 0) & (distance <= settings.max_line_seconds)
    rows = np.flatnonzero((onset_counts > settings.min_line_onsets) & within)
    rows = rows[np.argsort(distance[rows])][: settings.line_windows]
    if len(rows) < 2:
        return np.zeros((0, 3))
    weights = np.sqrt(onset_counts[rows])[:, None]
    A = np.column_stack([np.ones(len(rows)), seconds[rows]]) * weights
    # A prior of zero velocity: a few neighbouring windows do not determine a speed.
    A = np.concatenate([A, [[0.0, np.sqrt(settings.min_line_onsets)]]])
    y = np.concatenate([trajectory[rows] * weights, np.zeros((1, 3))])
    line: Array = np.linalg.lstsq(A, y, rcond=None)[0]
    return line
