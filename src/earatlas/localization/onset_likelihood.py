"""Likelihood of directions given onsets: a model of direct sound over diffuse reverberation.

Input: onset bins (`earatlas.features.onset_detector`) and a head's anechoic interaural templates
(`earatlas.hrtf.interaural_templates`). Output: a log-likelihood for each direction.

Diffuse sound has the covariance Γ_f = mean of h hᴴ over all directions at frequency f. Whitened
with it, a bin z = Γ^(-1/2) (L, R) becomes a point on the unit sphere, its Stokes vector

    s = (|z_2|² - |z_1|², 2 Re z_2 z̄_1, 2 Im z_2 z̄_1) / (|z_1|² + |z_2|²)

Diffuse sound is uniformly distributed on that sphere, and sound from direction x is at one point
s_xf, which combines level and phase. Direct sound over diffuse sound has the density
(1 - b²) / (1 - b u)² relative to diffuse sound alone, with u = s · s_x; b increases with the
direct-to-diffuse ratio. The distribution of that ratio, for bins of a given rise and band, is
measured in rooms simulated from the head itself (`earatlas.training.reverberant`):

    log g_c(u) = log Σ_j w_cj (1 - b_j²) / (1 - b_j u)²        c: class of a bin, by rise and band
    L(x) = Σ_n v_n log g_c(n)(s_n · s_x,f(n))                 v_n = 1 / (1 + bins of its frequency)

Bins of one frequency have correlated errors, since the first reflections are the same at every
onset: v gives each frequency about one vote. b = 0 is the diffuse component.

    B  onset bins         F  frequencies    G  grid directions    W  windows
    C  coarse cells, or coordinates of a direction                P  evaluated directions
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from earatlas.features.input_plausibility import InterauralLimits
from earatlas.features.onset_detector import OnsetBins, OnsetDetectorSettings
from earatlas.geometry.angles import to_vectors
from earatlas.geometry.neighbours import nearest_neighbours
from earatlas.geometry.spaces import Circle, Space, Sphere
from earatlas.hrtf.interaural_templates import InterauralTemplates, LocalLinearInterpolation
from earatlas.numerics import distinct, quantile
from earatlas.types import Array, Complex, Indices, Mask, Single

__all__ = [
    "N_CLASSES",
    "N_TABLE_STEPS",
    "SHARPNESS",
    "DirectSoundModel",
    "DirectSoundSettings",
    "DirectionLogLikelihood",
    "LeaveOneOutTemplates",
    "OnsetPoints",
    "best_cells",
    "bin_class",
    "bin_weights",
    "stokes",
]

# The shape and the meaning of the table of densities, which is a part of atlas files
N_TABLE_STEPS = 512  # steps of u from -1 to 1 in the tables of log g
SHARPNESS = np.array([0.0, 0.3, 0.6, 0.8, 0.9, 0.95, 0.98, 0.992, 0.997])  # b_j
RISES_DB = (3.0, 5.0, 8.0, 12.0, 17.0)  # lower edges of the rise classes
BANDS_HZ = (150.0, 1500.0, 4000.0)  # lower edges of the frequency bands
N_CLASSES = len(RISES_DB) * len(BANDS_HZ)
_CACHED = ("grid", "interpolation", "cells", "coarse_points", "_points")  # shared by copies


# Evidence: docs/figures/settings/localization.md, "onset_likelihood".
@dataclass(frozen=True, slots=True)
class DirectSoundSettings:
    """Grid of directions of a `DirectSoundModel`, and interpolation of its templates."""

    coarse_degrees: float = 5.0  # spacing of the cells that are evaluated everywhere
    fine_degrees: float = 2.0  # spacing of the grid around the maxima
    points_per_gap: float = 7.0  # most grid points between two measured directions
    fine_cells: int = 130  # coarse cells that are evaluated on the fine grid
    neighbours: int = 6  # measured directions from which a grid point is interpolated
    rotated_neighbours: int = 4  # grid points from which a rotated direction is interpolated
    rotation_step_degrees: float = 3.0  # bins within this yaw of the head are evaluated together
    sparse_degrees: float = 6.0  # spacing beyond which leave-one-out templates are blended
    sparse_fraction: float = 0.25  # weight of leave-one-out templates then


def stokes(z: Complex) -> Array:
    """Return the Stokes vectors (..., 3) of complex pairs (..., 2), on the unit sphere."""
    a, b = z[..., 0], z[..., 1]
    left, right = a.real**2 + a.imag**2, b.real**2 + b.imag**2
    cross = 2 * b * a.conj()
    total = np.maximum(left + right, 1e-300)
    points: Array = np.stack([right - left, cross.real, cross.imag], axis=-1) / total[..., None]
    return points


def bin_class(rise_db: Array, frequencies_hz: Array) -> Indices:
    """Return the class (B,) of each bin, by its rise and its band."""
    rise = np.clip(np.searchsorted(RISES_DB, rise_db, side="right") - 1, 0, None)
    band = np.clip(np.searchsorted(BANDS_HZ, frequencies_hz, side="right") - 1, 0, None)
    return rise * len(BANDS_HZ) + band


def bin_weights(f: Indices) -> Array:
    """Return v (B,): 1 / (1 + number of bins of the same frequency)."""
    return 1 / (1.0 + np.bincount(f)[f])


@dataclass(frozen=True, eq=False)
class OnsetPoints:
    """Onset bins as the model observes them."""

    f: Indices  # (B,) frequency index
    classes: Indices  # (B,) row of the table of densities
    stokes_points: Single  # (B, 3) s

    def __len__(self) -> int:
        return len(self.f)

    def __getitem__(self, rows: Indices | slice) -> OnsetPoints:
        """Return some of the bins."""
        return OnsetPoints(self.f[rows], self.classes[rows], self.stokes_points[rows])

    @classmethod
    def concatenate(cls, parts: Iterable[OnsetPoints]) -> OnsetPoints:
        """Return the bins of all parts."""
        none, blank = np.zeros(0, dtype=np.intp), np.zeros((0, 3), dtype=np.float32)
        parts = [OnsetPoints(none, none, blank), *parts]
        return cls(
            np.concatenate([part.f for part in parts]),
            np.concatenate([part.classes for part in parts]),
            np.concatenate([part.stokes_points for part in parts]),
        )


@dataclass(frozen=True, eq=False)
class LeaveOneOutTemplates:
    """Templates of some grid points, interpolated without certain measured directions."""

    rows: Indices  # (n,) of the grid, ascending
    points: Single  # (F, 3, n)

    def of(self, rows: Indices) -> tuple[Mask, Single]:
        """Return which of these grid rows are replaced, and their points (F, 3, …)."""
        index = np.minimum(np.searchsorted(self.rows, rows), len(self.rows) - 1)
        hit: Mask = self.rows[index] == rows
        return hit, self.points[:, :, index[hit]]


@dataclass(frozen=True, eq=False)
class DirectionLogLikelihood:
    """Log-likelihood on an adaptive grid: fine points around the maxima, coarse cells elsewhere."""

    directions: Array  # (P, C) degrees
    log_likelihoods: Array  # (P,)
    sizes: Array  # (P,) area in fine cells
    features: Array  # (3,) of the recording: see `DirectSoundModel.log_likelihood`


@dataclass(frozen=True, eq=False)
class DirectSoundModel:
    """Density of onset bins given the direction of their direct sound, for any room."""

    space: Space
    templates: InterauralTemplates
    spacing_degrees: float  # between the measured directions
    whitening: Complex  # (F, 2, 2) Γ^(-1/2)
    log_densities: Single  # (classes, N_TABLE_STEPS) log g
    onset_settings: OnsetDetectorSettings
    settings: DirectSoundSettings = field(default_factory=DirectSoundSettings)

    def __repr__(self) -> str:
        N, F = self.templates.level_db.shape
        return f"DirectSoundModel({N} directions, {F} frequencies)"

    def with_densities(self, log_densities: Single) -> DirectSoundModel:
        """Return the model with other densities; cached grid properties are kept."""
        model = replace(self, log_densities=log_densities)
        cached = {name: vars(self)[name] for name in _CACHED if name in vars(self)}
        vars(model).update(cached)
        return model

    @cached_property
    def interaural_limits(self) -> InterauralLimits:
        """What the ratio of both ears can be, to which the input is compared."""
        return InterauralLimits.of(self.templates.frequencies_hz, self.templates.measured_ratios)

    def prepare(self) -> None:
        """Compute what a stream needs once per head, which takes up to 0.1 s, before it begins."""
        self.interaural_limits.ratios.prepare()
        _ = self.coarse_points

    @property
    def fine_degrees(self) -> float:
        """Spacing of the fine grid, which is wider for sparsely measured heads."""
        return max(self.settings.fine_degrees, self.spacing_degrees / self.settings.points_per_gap)

    @cached_property
    def grid(self) -> Array:
        """(G, C) fine grid points within the measured directions."""
        known = self.templates.directions
        if isinstance(self.space, Circle):
            return self.space.measured_arc(known)
        grid = self.space.grid(self.fine_degrees)
        widest = np.radians(max(6.0, 1.5 * self.spacing_degrees))
        gap = nearest_neighbours(to_vectors(known), to_vectors(grid), max_chord=widest)[0][:, 0]
        inside: Array = grid[gap < widest]
        return inside

    @cached_property
    def interpolation(self) -> LocalLinearInterpolation:
        """Interpolation of the grid from the measured directions."""
        return self.interpolation_for(self.templates.directions, self.grid)

    def interpolation_for(self, known: Array, wanted: Array) -> LocalLinearInterpolation:
        """Return the interpolation of directions (G, C) from known directions."""
        return LocalLinearInterpolation.of(
            self.space,
            known,
            wanted,
            neighbours=self.settings.neighbours,
            spacing=self.spacing_degrees,
        )

    @cached_property
    def cells(self) -> tuple[Indices, Indices]:
        """Grid rows (C,) of the centres of coarse cells, and the cell (G,) of each grid point."""
        if isinstance(self.space, Circle):
            every = np.arange(len(self.grid))
            return every, every
        spacing, v = self.settings.coarse_degrees, to_vectors(self.grid)
        widest, centres = np.radians(spacing), to_vectors(Sphere().grid(spacing))
        chord, near = nearest_neighbours(v, centres, max_chord=widest)
        coarse = distinct(near[chord < widest])
        return coarse, nearest_neighbours(v[coarse], v)[1][:, 0]

    @cached_property
    def _points(self) -> tuple[Single, Mask]:
        """s_x (F, 3, G), filled on demand, and which (G,) are filled."""
        F, G = len(self.whitening), len(self.grid)
        return np.empty((F, 3, G), dtype=np.float32), np.zeros(G, dtype=bool)

    def interpolated_points(self, at: LocalLinearInterpolation) -> Array:
        """Return s_x (F, 3, G) at interpolated directions."""
        return self.points_of_ratios(self.templates.ratios(at))

    def points_of_ratios(self, ratios: Complex) -> Array:
        """Return s_x (F, 3, G) of interaural ratios (G, F): the pair of ears is (1, ratio)."""
        z = np.empty((*ratios.shape, 2), dtype=ratios.dtype)
        for ear in (0, 1):
            z[..., ear] = self.whitening[:, ear, 0] + self.whitening[:, ear, 1] * ratios
        return stokes(z).transpose(1, 2, 0)

    def points(self, rows: Indices) -> Single:
        """Return s_x (F, 3, rows) at some grid points; those of all coarse cells are kept."""
        return self.coarse_points if rows is self.cells[0] else self._points_at(rows)

    def _points_at(self, rows: Indices) -> Single:
        """Return s_x (F, 3, rows) at some grid points, which are interpolated once."""
        points, filled = self._points
        missing = rows[~filled[rows]]
        if len(missing):
            at = self.interpolation_for(self.templates.directions, self.grid[missing])
        for start in range(0, len(missing), 500):
            batch = slice(start, start + 500)
            points[:, :, missing[batch]] = self.interpolated_points(at[batch])
        filled[missing] = True
        return np.take(points, rows, axis=2)

    @cached_property
    def coarse_points(self) -> Single:
        """s_x (F, 3, C) at the centres of the coarse cells."""
        return self._points_at(self.cells[0])

    def without_directions(self, rows: Indices) -> tuple[LeaveOneOutTemplates, Array]:
        """Return the grid without some measured directions, and s_x (F, 3, rows) at these.

        In a sparsely measured head, leaving out a direction makes a larger gap than any recording
        has: there, the templates are blended with those that use all directions.
        """
        known = self.templates.directions
        near = np.flatnonzero(np.isin(self.interpolation.rows, rows).any(axis=1))
        others = np.delete(np.arange(len(known)), rows)
        wanted = np.concatenate([known[rows], self.grid[near]])
        without = self.interpolation_for(known[others], wanted)
        points = self.interpolated_points(replace(without, rows=others[without.rows]))
        if self.spacing_degrees > self.settings.sparse_degrees:
            own = self.interpolated_points(self.interpolation_for(known, known[rows]))
            whole = np.concatenate([own, self.points(near)], axis=2)
            fraction = self.settings.sparse_fraction
            points = (1 - fraction) * whole + fraction * points
            points /= np.linalg.norm(points, axis=1, keepdims=True)
        own, around = np.split(points, [len(rows)], axis=2)
        return LeaveOneOutTemplates(near, around.astype(np.float32)), own

    def observed(self, bins: OnsetBins) -> OnsetPoints:
        """Return the bins with their points s and their classes."""
        z = np.einsum("bac,bc->ba", self.whitening[bins.f], bins.z)
        classes = bin_class(bins.rise_db, self.onset_settings.frequencies_hz[bins.f])
        return OnsetPoints(bins.f, classes, stokes(z).astype(np.float32))

    def log_likelihood_at(
        self, bins: OnsetBins, points: Single, weights: Array | None = None
    ) -> Array:
        """Return L (G,) at points (F, 3, G); `weights` v (B,) if these are some of more bins."""
        v = (bin_weights(bins.f) if weights is None else weights).astype(np.float32)
        total = np.zeros(points.shape[-1])
        for own, values in self.iter_table_values(self.log_densities, self.observed(bins), points):
            total += v[own] @ values
        return total

    def iter_table_values(
        self, table: Single, bins: OnsetPoints, points: Single
    ) -> Iterator[tuple[slice, Single]]:
        """Yield values of a table (classes, N_TABLE_STEPS) at s · s_x of bins and points (F, 3, G).

        Each item is a slice of b bins and their values (b, G).
        """
        # The table is padded by one: rounding may put u slightly beyond -1 or 1.
        flat = np.pad(table, ((0, 0), (1, 1)), mode="edge").ravel()
        half = np.float32(N_TABLE_STEPS / 2)
        s = bins.stokes_points * half
        centres = (bins.classes * (N_TABLE_STEPS + 2) + 1).astype(np.float32)[:, None] + half
        batch = 48  # bins of which the values stay in the cache
        for first in range(0, len(bins), batch):
            own = slice(first, first + batch)
            u = np.matmul(s[own, None], points[bins.f[own]])[:, 0]
            u += centres[own]
            yield own, flat.take(u.astype(np.int32))

    def densities(
        self, bins: OnsetBins, rows: Indices, leave_one_out: LeaveOneOutTemplates | None = None
    ) -> Single:
        """Return g (B, rows): the density of every bin at rows of the grid."""
        observed = self.observed(bins)
        densities = self.densities_at(observed, self.points(rows))
        if leave_one_out is not None:
            hit, replaced = leave_one_out.of(rows)
            densities[:, hit] = self.densities_at(observed, replaced)
        return densities

    def densities_at(self, bins: OnsetPoints, points: Single) -> Single:
        """Return g (B, G): the density of every bin at points (F, 3, G)."""
        out = np.empty((len(bins), points.shape[-1]), dtype=np.float32)
        for own, values in self.iter_table_values(self._densities, bins, points):
            out[own] = values
        return out

    @cached_property
    def _densities(self) -> Single:
        """g (classes, N_TABLE_STEPS)."""
        return np.exp(self.log_densities)

    def log_likelihood(
        self, bins: OnsetBins, leave_one_out: LeaveOneOutTemplates | None = None
    ) -> DirectionLogLikelihood:
        """Return the log-likelihood of directions: coarse cells first, then fine points.

        The features are the nats per (weighted) bin at the best direction, the median SNR of the
        bins in dB, and log2 of their number.
        """

        def evaluate(rows: Indices, fine: bool) -> Array:
            L = self.log_likelihood_at(bins, self.points(rows))
            if leave_one_out is not None:
                hit, replaced = leave_one_out.of(rows)
                L[hit] = self.log_likelihood_at(bins, replaced)
            return L

        return self._coarse_to_fine(bins, evaluate)

    def log_likelihood_batch(self, sounds: Sequence[OnsetBins]) -> list[DirectionLogLikelihood]:
        """Return the log-likelihood of each of many overlapping sounds, such as windows.

        The value of a bin at a direction is computed once for all sounds that contain the bin: with
        V (W, B) the weights v of each sound's bins, L = V log g. Single precision: 1e-6 of L.
        """
        bins, rows = OnsetBins.merge_overlapping(sounds)
        V = np.zeros((len(sounds), len(bins)), dtype=np.float32)
        for weights, sound, own in zip(V, sounds, rows, strict=True):
            weights[own] = bin_weights(sound.f)
        by_time = np.argsort(bins.t, kind="stable")
        bins, V = bins[by_time], V[:, by_time]
        coarse, cell = self.cells
        at_cells = self._weighted_sums(bins, V, self.coarse_points)
        best = np.stack([best_cells(L, self.settings.fine_cells) for L in at_cells])
        fine = np.flatnonzero(np.logical_or.reduce(best)[cell])
        at_fine = at_cells
        if len(fine) != len(coarse):
            at_fine = self._weighted_sums(bins, V, self.points(fine))
        inside = [mask[cell[fine]] for mask in best]
        return [
            self.adaptive_log_likelihood(fine[own], near[own], L, _features(sound, near[own]))
            for sound, L, own, near in zip(sounds, at_cells, inside, at_fine, strict=True)
        ]

    def _weighted_sums(self, bins: OnsetBins, weights: Single, points: Single) -> Array:
        """Return L (W, G) of sounds with weights (W, B), at points (F, 3, G).

        The bins are sorted by time, so a batch of bins belongs to few sounds; the others are
        skipped.
        """
        total = np.zeros((len(weights), points.shape[-1]), dtype=np.float32)
        for own, values in self.iter_table_values(self.log_densities, self.observed(bins), points):
            used = np.flatnonzero(weights[:, own].any(axis=1))
            span = slice(used[0], used[-1] + 1)
            total[span] += weights[span, own] @ values
        return total.astype(np.float64)

    def rotated_log_likelihood(self, bins: OnsetBins, yaw: Array) -> DirectionLogLikelihood:
        """Return the log-likelihood for a head with the yaw (B,), in degrees, at each bin.

        A bin at yaw ψ has the likelihood at x that it has at x - ψ without rotation:
        L(x) = Σ_n v_n log g(s_n · s_{x-ψ(n)}). Bins of similar yaw are evaluated together, and L is
        interpolated between grid points. Where x - ψ was not measured, the bin is taken as diffuse:
        log g = 0.
        """
        v, number = bin_weights(bins.f), np.floor(yaw / self.settings.rotation_step_degrees + 0.5)
        poses = [np.flatnonzero(number == n) for n in np.unique(number)]

        def evaluate(rows: Indices, fine: bool) -> Array:
            total = np.zeros(len(rows))
            for own in poses:
                rotated = self.space.rotated(self.grid[rows], -float(np.mean(yaw[own])))
                inside, at = self._grid_interpolation(rotated, fine)
                used, back = np.unique(at.rows, return_inverse=True)
                L = self.log_likelihood_at(bins[own], self.points(used), v[own])
                values = np.einsum("gk,gk->g", at.weights, L[back.reshape(at.rows.shape)])
                total += np.where(inside, values, 0.0)
            return total

        return self._coarse_to_fine(bins, evaluate)

    def _grid_interpolation(
        self, directions: Array, fine: bool
    ) -> tuple[Mask, LocalLinearInterpolation]:
        """Return which directions (G, C) are within the grid, and their interpolation from it.

        Fine: from the surrounding fine points. Coarse: from the nearest cell centre.
        """
        every = np.arange(len(self.grid))
        among, neighbours = every, self.settings.rotated_neighbours
        spacing = self.fine_degrees
        if not fine:
            among, neighbours, spacing = self.cells[0], 1, self.settings.coarse_degrees
        if isinstance(self.space, Circle):
            spacing = 1.0
        at = LocalLinearInterpolation.of(
            self.space, self.grid[among], directions, neighbours=neighbours, spacing=spacing
        )
        at = replace(at, rows=among[at.rows])
        gap = self.space.distance(directions, self.grid[at.rows[:, 0]])
        return gap < 1.5 * spacing, at

    def _coarse_to_fine(
        self, bins: OnsetBins, evaluate: Callable[[Indices, bool], Array]
    ) -> DirectionLogLikelihood:
        """Evaluate L at all coarse cells, then at the fine points of the best cells."""
        coarse, cell = self.cells
        L = evaluate(coarse, False)
        fine = np.flatnonzero(best_cells(L, self.settings.fine_cells)[cell])
        at_fine = evaluate(fine, True) if len(fine) != len(L) else L
        return self.adaptive_log_likelihood(fine, at_fine, L, _features(bins, at_fine))

    def adaptive_log_likelihood(
        self, fine: Indices, at_fine: Array, L: Array, features: Array
    ) -> DirectionLogLikelihood:
        """Combine L at grid rows `fine` with L (C,) of the coarse cells that have none of them."""
        coarse, cell = self.cells
        is_far = np.ones(len(coarse), dtype=bool)
        is_far[cell[fine]] = False
        far = np.flatnonzero(is_far)
        sizes = np.bincount(cell, minlength=len(coarse))[far]
        return DirectionLogLikelihood(
            self.grid[np.concatenate([fine, coarse[far]])],
            np.concatenate([at_fine, L[far]]),
            np.concatenate([np.ones(len(fine)), sizes]),
            features,
        )


def _features(bins: OnsetBins, at_fine: Array) -> Array:
    """Return φ (3,) of one sound with these bins; see `DirectSoundModel.log_likelihood`."""
    nats_per_bin = float(at_fine.max()) / max(float(bin_weights(bins.f).sum()), 1e-9)
    snr_db = min(quantile(bins.snr_db, 0.5), 60.0)
    return np.array([nats_per_bin, snr_db, np.log2(max(len(bins), 1))])


def best_cells(L: Array | Single, count: int) -> Mask:
    """Return which (C,) cells have the largest L."""
    count = min(count, len(L))
    best = np.zeros(len(L), dtype=bool)
    best[np.argpartition(-L, count - 1)[:count]] = True
    return best
