"""The direct sound of a room: where a talker is, from the bins in which sound arrives.

In: onsets (`earatlas.features.onset_detector`) and what a head does to each direction in the open
(`earatlas.hrtf.interaural_templates`). Out: how likely each direction is.

Diffuse sound, which comes from everywhere at once, has at frequency f the covariance
Γ_f = mean of h hᴴ over all directions. Whitened with it, a bin z = Γ^(-1/2) (L, R) is a point on a
sphere, its Stokes vector

    s = (|z_2|² - |z_1|², 2 Re z_2 z̄_1, 2 Im z_2 z̄_1) / (|z_1|² + |z_2|²)

on which diffuse sound is spread evenly, and the sound of direction x stands at one place s_xf:
level and phase in one. Direct sound over diffuse sound has the density (1 - b²) / (1 - b u)², with
u = s · s_x, relative to diffuse sound alone; b grows with the ratio of the two. How that ratio is
distributed in bins that rise so much, in a band, is measured in rooms made from the head itself:

    log g_c(u) = log Σ_j w_cj (1 - b_j²) / (1 - b_j u)²        c: class of a bin, by rise and band
    L(x) = Σ_n v_n log g_c(n)(s_n · s_x,f(n))                 v_n = 1 / (1 + bins of its frequency)

Bins of one frequency err together, since the first reflections are the same at every onset: v gives
a frequency about one vote. b = 0 is the class of bins that come from nowhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from earatlas.features.onset_detector import Gate, OnsetBins
from earatlas.geometry.angles import to_vectors, wrap_degrees
from earatlas.geometry.spaces import Circle, Space, Sphere
from earatlas.hrtf.interaural_templates import Interpolation, Templates
from earatlas.types import Array, Complex, Indices, Mask, Single

__all__ = [
    "LEVELS",
    "N_CLASSES",
    "SHARPNESS",
    "DirectSound",
    "Look",
    "Patch",
    "bin_class",
    "bin_weights",
    "stokes",
]

LEVELS = 512  # steps of u from -1 to 1 in the tables of log g
SHARPNESS = np.array([0.0, 0.3, 0.6, 0.8, 0.9, 0.95, 0.98, 0.992, 0.997])  # b_j
RISES_DB = (3.0, 5.0, 8.0, 12.0, 17.0)  # lower edges of the classes
BANDS_HZ = (150.0, 1500.0, 4000.0)
N_CLASSES = len(RISES_DB) * len(BANDS_HZ)
_COARSE_DEGREES, _FINE_DEGREES = 5.0, 2.0  # of the points that are looked at: all, and the best
_POINTS_A_GAP = 7.0  # between measured directions, at most
_BINS_AT_ONCE = 48  # what is read then stays in the cache; by frequency it took 1.6 times as long
_CLOSELY = 130  # coarse cells whose fine points are looked at
# Of a turning head: bins that are closer go together. `benchmarks/yaw.py`, T60 0.3 s: a median of
# 1.0° with 3 degrees, 1.1° with 6.
_TURN_DEGREES = 3.0
_AROUND = 4  # points of the grid that L is read from where a turned one falls between them
_READY = ("grid", "interpolation", "cells", "coarse_points", "_points")  # what is made once
_NEIGHBOURS = 6  # directions that a point is interpolated from
_SPARSE_DEGREES = 6.0  # beyond, leaving out a direction makes a gap that no recording meets
_SPARSE_SHARE = 0.25  # of the way to the templates without it: errors grow with the gap squared


def stokes(z: Complex) -> Array:
    """Points (..., 3) on the unit sphere of pairs (..., 2)."""
    a, b = z[..., 0], z[..., 1]
    left, right = a.real**2 + a.imag**2, b.real**2 + b.imag**2
    cross = 2 * b * a.conj()
    total = np.maximum(left + right, 1e-300)
    points: Array = np.stack([right - left, cross.real, cross.imag], axis=-1) / total[..., None]
    return points


def bin_class(rise_db: Array, frequencies_hz: Array) -> Indices:
    """(B,) the class of each bin, by its rise and its band."""
    rise = np.clip(np.searchsorted(RISES_DB, rise_db, side="right") - 1, 0, None)
    band = np.clip(np.searchsorted(BANDS_HZ, frequencies_hz, side="right") - 1, 0, None)
    return rise * len(BANDS_HZ) + band


def bin_weights(f: Indices) -> Array:
    """v (B,): 1 / (1 + bins of the same frequency)."""
    return 1 / (1.0 + np.bincount(f)[f])


@dataclass(frozen=True, eq=False)
class Patch:
    """Some points of a grid as they would be if a direction had not been measured."""

    rows: Indices  # (n,) of the grid, ascending
    points: Single  # (F, 3, n)

    def of(self, rows: Indices) -> tuple[Mask, Single]:
        """Which of some rows of the grid it has, and the points (F, 3, …) of these."""
        place = np.minimum(np.searchsorted(self.rows, rows), len(self.rows) - 1)
        hit: Mask = self.rows[place] == rows
        return hit, self.points[:, :, place[hit]]


@dataclass(frozen=True, eq=False)
class Look:
    """How likely each place is: fine points where it is likely, the middles of cells elsewhere."""

    places: Array  # (P, C) degrees
    log_likelihoods: Array  # (P,)
    sizes: Array  # (P,) in fine cells
    features: Array  # (3,) what tells conditions apart: see `DirectSound.look`


@dataclass(frozen=True, eq=False)
class DirectSound:
    """What a head's direct sound is like in any room."""

    space: Space
    templates: Templates
    spacing_degrees: float  # between the measured directions
    whiten: Complex  # (F, 2, 2) Γ^(-1/2)
    log_densities: Single  # (classes, LEVELS) log g
    gate: Gate

    def __repr__(self) -> str:
        N, F = self.templates.level_db.shape
        return f"DirectSound({N} directions, {F} frequencies)"

    def with_densities(self, log_densities: Single) -> DirectSound:
        """The same with other densities; what was made ready for the grid stays."""
        told = replace(self, log_densities=log_densities)
        ready = {name: vars(self)[name] for name in _READY if name in vars(self)}
        vars(told).update(ready)
        return told

    @property
    def fine_degrees(self) -> float:
        """Between fine points: of a head with few directions no finer than these can tell."""
        return max(_FINE_DEGREES, self.spacing_degrees / _POINTS_A_GAP)

    @cached_property
    def grid(self) -> Array:
        """(G, C) fine points that lie among the measured directions."""
        from scipy.spatial import cKDTree

        known = self.templates.directions
        if isinstance(self.space, Circle):
            return _arc(known)
        grid = self.space.grid(self.fine_degrees)
        gap = cKDTree(to_vectors(known)).query(to_vectors(grid))[0]
        inside: Array = grid[np.degrees(gap) < max(6.0, 1.5 * self.spacing_degrees)]
        return inside

    @cached_property
    def interpolation(self) -> Interpolation:
        """Of the grid from the measured directions."""
        return self.between(self.templates.directions, self.grid)

    def between(self, known: Array, wanted: Array) -> Interpolation:
        """How wanted directions (G, C) are interpolated from known ones."""
        return Interpolation.of(
            self.space, known, wanted, neighbours=_NEIGHBOURS, spacing=self.spacing_degrees
        )

    @cached_property
    def cells(self) -> tuple[Indices, Indices]:
        """Rows (C,) of the grid that are the middles of coarse cells, and the cell (G,) of each."""
        from scipy.spatial import cKDTree

        if isinstance(self.space, Circle):
            every = np.arange(len(self.grid))
            return every, every
        wanted, v = Sphere().grid(_COARSE_DEGREES), to_vectors(self.grid)
        chord, near = cKDTree(v).query(to_vectors(wanted))
        coarse = np.unique(near[np.degrees(chord) < _COARSE_DEGREES]).astype(np.intp)
        return coarse, cKDTree(v[coarse]).query(v)[1].astype(np.intp)

    @cached_property
    def _points(self) -> tuple[Single, Mask]:
        """s_x (F, 3, G), made as they are needed, and which (G,) are there."""
        F, G = len(self.whiten), len(self.grid)
        return np.empty((F, 3, G), dtype=np.float32), np.zeros(G, dtype=bool)

    def points_of(self, at: Interpolation) -> Array:
        """s_x (F, 3, G) at interpolated directions."""
        ratios = self.templates.ratios(at)  # the pair of ears is (1, ratio)
        z = np.empty((*ratios.shape, 2), dtype=ratios.dtype)
        for ear in (0, 1):
            z[..., ear] = self.whiten[:, ear, 0] + self.whiten[:, ear, 1] * ratios
        return stokes(z).transpose(1, 2, 0)

    def points(self, rows: Indices) -> Single:
        """s_x (F, 3, rows) of some of the grid."""
        points, there = self._points
        missing = rows[~there[rows]]
        for start in range(0, len(missing), 500):
            some = missing[start : start + 500]
            points[:, :, some] = self.points_of(self.interpolation[some])
        there[missing] = True
        return np.take(points, rows, axis=2)

    @cached_property
    def coarse_points(self) -> Single:
        """s_x (F, 3, C) of the middles of coarse cells."""
        return self.points(self.cells[0])

    def left_out(self, rows: Indices) -> tuple[Patch, Array]:
        """The grid as if some directions had not been measured, and s_x (F, 3, rows) of these.

        Where directions are far apart, leaving one out makes a gap that no recording meets: only a
        part of the way is gone.
        """
        known = self.templates.directions
        near = np.flatnonzero(np.isin(self.interpolation.rows, rows).any(axis=1))
        others = np.delete(np.arange(len(known)), rows)
        wanted = np.concatenate([known[rows], self.grid[near]])
        without = self.between(known[others], wanted)
        points = self.points_of(replace(without, rows=others[without.rows]))
        if self.spacing_degrees > _SPARSE_DEGREES:
            own = self.points_of(self.between(known, known[rows]))
            whole = np.concatenate([own, self.points(near)], axis=2)
            points = (1 - _SPARSE_SHARE) * whole + _SPARSE_SHARE * points
            points /= np.linalg.norm(points, axis=1, keepdims=True)
        own, around = np.split(points, [len(rows)], axis=2)
        return Patch(near, around.astype(np.float32)), own

    def seen(self, bins: OnsetBins) -> Single:
        """s (B, 3) of the bins."""
        z = np.einsum("bac,bc->ba", self.whiten[bins.f], bins.z)
        return stokes(z).astype(np.float32)

    def log_likelihoods(
        self, bins: OnsetBins, points: Single, weights: Array | None = None
    ) -> Array:
        """L (G,) at points (F, 3, G); `weights` v (B,) where these are some of more bins."""
        v = (bin_weights(bins.f) if weights is None else weights).astype(np.float32)
        total = np.zeros(points.shape[-1])
        for own, values in self.read(self.log_densities, bins, points):
            total += v[own] @ values
        return total

    def read(
        self, table: Single, bins: OnsetBins, points: Single
    ) -> Iterator[tuple[slice, Single]]:
        """A table (classes, LEVELS) at s · s_x of bins and points (F, 3, G), some bins at a time.

        Which (b,) these are, and their values (b, G).
        """
        # An edge on each side: rounding may put u a hair beyond -1 or 1.
        flat = np.pad(table, ((0, 0), (1, 1)), mode="edge").ravel()
        half = np.float32(LEVELS / 2)
        s = self.seen(bins) * half
        cells = bin_class(bins.rise_db, self.gate.frequencies_hz[bins.f])
        middles = (cells * (LEVELS + 2) + 1).astype(np.float32)[:, None] + half
        for first in range(0, len(bins), _BINS_AT_ONCE):
            own = slice(first, first + _BINS_AT_ONCE)
            u = np.matmul(s[own, None], points[bins.f[own]])[:, 0]
            u += middles[own]
            yield own, flat.take(u.astype(np.int32))

    def look(self, bins: OnsetBins, patch: Patch | None = None) -> Look:
        """Coarse cells first, then the fine points of the best.

        The features: nats a (weighted) bin at the best place, the bins' median dB above the quiet
        level, and log2 of their number.
        """

        def likelihoods(rows: Indices, closely: bool) -> Array:
            points = self.points(rows) if closely else self.coarse_points
            L = self.log_likelihoods(bins, points)
            if patch is not None:
                hit, patched = patch.of(rows)
                L[hit] = self.log_likelihoods(bins, patched)
            return L

        return self._look(bins, likelihoods)

    def looks(self, sounds: Sequence[OnsetBins]) -> list[Look]:
        """The look at each of many sounds that overlap, as the windows of a track do.

        What a bin says of a place is read once for all sounds that hold it: with V (W, B) the
        weights v of each sound's bins, L = V log g. In single precision, so to 1e-6 of L.
        """
        bins, rows = OnsetBins.united(sounds)
        V = np.zeros((len(sounds), len(bins)), dtype=np.float32)
        for weights, sound, own in zip(V, sounds, rows, strict=True):
            weights[own] = bin_weights(sound.f)
        by_time = np.argsort(bins.t, kind="stable")
        bins, V = bins[by_time], V[:, by_time]
        coarse, cell = self.cells
        rough = self._shared(bins, V, self.coarse_points)
        close = np.stack([_closest(L) for L in rough])
        fine = np.flatnonzero(np.logical_or.reduce(close)[cell])
        near = rough if len(fine) == len(coarse) else self._shared(bins, V, self.points(fine))
        return [
            self._look_of(sound, L, mask, fine[mask[cell[fine]]], closely[mask[cell[fine]]])
            for sound, L, mask, closely in zip(sounds, rough, close, near, strict=True)
        ]

    def _shared(self, bins: OnsetBins, weights: Single, points: Single) -> Array:
        """L (W, G) of sounds with weights (W, B), at points (F, 3, G).

        Bins in order of time are those of few sounds: the others have no part in the product.
        """
        total = np.zeros((len(weights), points.shape[-1]), dtype=np.float32)
        for own, values in self.read(self.log_densities, bins, points):
            held = np.flatnonzero(weights[:, own].any(axis=1))
            some = slice(held[0], held[-1] + 1)
            total[some] += weights[some, own] @ values
        return total.astype(np.float64)

    def turned_look(self, bins: OnsetBins, turns: Array) -> Look:
        """The look with a head that is turned by so many degrees (B,) in each of the bins.

        A bin of a turn ψ says of place x what it says of x - ψ with a still head:
        L(x) = Σ_n v_n log g(s_n · s_{x-ψ(n)}). The bins of a few turns go together, and between
        points of the grid L is interpolated. Where x - ψ was not measured, the bin may be from
        nowhere: log g = 0.
        """
        v, number = bin_weights(bins.f), np.floor(turns / _TURN_DEGREES + 0.5)
        poses = [np.flatnonzero(number == n) for n in np.unique(number)]

        def likelihoods(rows: Indices, closely: bool) -> Array:
            total = np.zeros(len(rows))
            for own in poses:
                places = self.space.turned(self.grid[rows], -float(np.mean(turns[own])))
                known, at = self._near_grid(places, closely)
                used, back = np.unique(at.rows, return_inverse=True)
                L = self.log_likelihoods(bins[own], self.points(used), v[own])
                between = np.einsum("gk,gk->g", at.weights, L[back.reshape(at.rows.shape)])
                total += np.where(known, between, 0.0)
            return total

        return self._look(bins, likelihoods)

    def _near_grid(self, places: Array, closely: bool) -> tuple[Mask, Interpolation]:
        """Which places (G, C) are within the grid, and how to read values between its points.

        Closely from the fine points around each, else from the nearest middle of a cell.
        """
        every = np.arange(len(self.grid))
        among, neighbours, spacing = every, _AROUND, self.fine_degrees
        if not closely:
            among, neighbours, spacing = self.cells[0], 1, _COARSE_DEGREES
        if isinstance(self.space, Circle):
            spacing = 1.0
        at = Interpolation.of(
            self.space, self.grid[among], places, neighbours=neighbours, spacing=spacing
        )
        at = replace(at, rows=among[at.rows])
        gap = self.space.distance(places, self.grid[at.rows[:, 0]])
        return gap < 1.5 * spacing, at

    def _look(self, bins: OnsetBins, likelihoods: Callable[[Indices, bool], Array]) -> Look:
        """By L of rows of the grid, roughly or closely."""
        coarse, cell = self.cells
        L = likelihoods(coarse, False)
        close = _closest(L)
        fine = np.flatnonzero(close[cell])
        near = likelihoods(fine, True) if len(fine) != len(L) else L
        return self._look_of(bins, L, close, fine, near)

    def _look_of(self, bins: OnsetBins, L: Array, close: Mask, fine: Indices, near: Array) -> Look:
        """Of L (C,) at all cells and `near` at the fine points of those that are `close` (C,)."""
        coarse, cell = self.cells
        far = np.flatnonzero(~close)
        sizes = np.bincount(cell, minlength=len(L))[far]
        weight = float(bin_weights(bins.f).sum())
        return Look(
            np.concatenate([self.grid[fine], self.grid[coarse[far]]]),
            np.concatenate([near, L[far]]),
            np.concatenate([np.ones(len(fine)), sizes]),
            np.array(
                [
                    float(near.max()) / max(weight, 1e-9),
                    min(float(np.median(bins.snr_db)), 60.0),
                    np.log2(max(len(bins), 1)),
                ]
            ),
        )


def _closest(L: Array) -> Mask:
    """(C,) which cells are the best ones by L."""
    count = min(_CLOSELY, len(L))
    close = np.zeros(len(L), dtype=bool)
    close[np.argpartition(-L, count - 1)[:count]] = True
    return close


def _arc(known: Array) -> Array:
    """Every degree of a circle, or of the part of it that was measured."""
    azimuth = np.sort(known[:, 0])
    gaps = np.diff(azimuth, append=azimuth[0] + 360)
    widest = int(gaps.argmax())  # what was not measured
    low, high = -179.0, 180.0
    if gaps[widest] >= 2.5 * np.median(gaps):
        low, high = np.ceil(azimuth[widest] + gaps[widest]), np.floor(azimuth[widest] + 360)
    degrees = wrap_degrees(np.arange(low, high + 1))
    return np.stack([degrees, np.full(len(degrees), known[0, 1])], axis=-1)
