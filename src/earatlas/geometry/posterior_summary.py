"""Direction, mean, radius and area of many posteriors on the sphere at once: the windows of a track.

In: posteriors (`earatlas.geometry.direction_posterior.DirectionPosterior`). Out: a `Told` of each: what a row of a track
says. It is what one posterior after the other says, in single precision, and areas are of fewer points
(tests/geometry/test_posterior_summary.py says how near).

    b   posteriors of about the same size, padded with parts of no weight to n parts each
    m   points at which they are looked at
    v   (..., 3) unit vectors        x, y   coordinates in a chart, radians

A narrow part has, around its middle p, with r its precision along a and s across, the exponent

    -s (1 - v · p) - (r - s) (a · v - a · p)² / 2

(a chord for an arc), which is linear in (1, v, v vᵀ): one product of matrices.

Four of five posteriors in the open have all their parts at one place, a chart and its blur: these need
nothing but that chart (`earatlas.geometry.credible_region_concentric`), and take a tenth of the time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import TYPE_CHECKING

import numpy as np

from earatlas.geometry.angles import to_directions
from earatlas.geometry.credible_region_batch import (
    OF_AREA,
    areas_of,
    drawn,
    normals_of,
    radii_of,
    roots_of,
)
from earatlas.geometry.credible_region_concentric import OnePlace
from earatlas.geometry.sphere import Sphere, read_by_versine
from earatlas.types import Array, Indices, Mask, Single

if TYPE_CHECKING:
    from earatlas.geometry.direction_posterior import DirectionPosterior

__all__ = ["Told", "told_of"]

_CANDIDATES = 16  # parts at which the density may be greatest
_MASS = 0.998  # of a posterior: what is left out changes a 90 % region by less than its digits
_PARTS = 8_000  # of posteriors that are worked on at a time
_NUMBERS = 150_000  # exponents that are worked on at a time: they stay in the cache
_LEAST = np.float32(-60)  # of an exponent: what is less is not told, and would be ten times as slow
_STEPS = 4096  # of the table of angle / sin(angle)
_NARROW_DEGREES = 12.0  # wide of a part whose exponent may be told by chords
_STILL = 1e-5  # radians: a mean that moves by less is not a hundredth of a degree off
_DEGREES = 180 / np.pi
_PAIRS = np.triu_indices(3)


@dataclass(frozen=True, eq=False)
class Told:
    """What is told of a posterior."""

    best: Array  # (C,) degrees
    mean: Array  # (C,) degrees
    radius_90: float  # degrees
    area_90: float  # square degrees


def told_of(posteriors: Sequence[DirectionPosterior]) -> list[Told]:
    """What is told of each posterior, all on the sphere."""
    every = _Every.of(posteriors)
    told: dict[int, Told] = {}
    alone = every.at_one_place()
    for count in np.unique(every.counts[alone]):
        some = np.flatnonzero(alone & (every.counts == count))
        told.update(zip(some.tolist(), every.one_place(some), strict=True))
    for some in _alike(np.where(alone, 0, every.counts)):
        told.update(zip(some.tolist(), every.several_places(some), strict=True))
    return [told[n] for n in range(len(posteriors))]


def _alike(counts: Indices) -> Iterator[Indices]:
    """Numbers of posteriors with about as many parts, few enough to be worked on at a time."""
    order = np.argsort(counts, kind="stable")
    ordered = counts[order]
    start = int(np.searchsorted(ordered, 0, side="right"))
    while start < len(order):
        least = int(ordered[start])
        end = int(np.searchsorted(ordered, 1.5 * least + 4, side="right"))
        end = min(end, start + max(_PARTS // least, 1))
        yield order[start:end]
        start = end


@dataclass(frozen=True, eq=False)
class _Every:
    """The parts of all posteriors, one after the other; degrees."""

    weights: Array  # (N,)
    centres: Array  # (N, 2)
    means: Array  # (N, 2)
    V: Array  # (N, 2, 2)
    counts: Indices  # of parts of each posterior
    starts: Indices  # of each posterior

    @classmethod
    def of(cls, posteriors: Sequence[DirectionPosterior]) -> _Every:
        """Those of some posteriors."""
        weights, centres, means, V = (
            np.concatenate([getattr(posterior, name) for posterior in posteriors])
            for name in ("weights", "centres", "means", "covariances")
        )
        counts = np.array([len(posterior.weights) for posterior in posteriors])
        return cls(weights, centres, means, V, counts, np.cumsum(counts) - counts)

    def at_one_place(self) -> Mask:
        """Which posteriors have all their parts at one place."""
        first = np.repeat(self.starts, self.counts)
        same = (self.centres == self.centres[first]).all(axis=1)
        same &= (self.means == self.means[first]).all(axis=1)
        together: Mask = np.logical_and.reduceat(same, self.starts)
        return together

    def one_place(self, some: Indices) -> Iterator[Told]:
        """Of posteriors at one place, with as many parts each."""
        first = self.starts[some]
        rows = first[:, None] + np.arange(self.counts[some[0]])
        best = Sphere().exp(self.centres[first], self.means[first])
        place = OnePlace.of(self.means[first], self.weights[rows], self.V[rows], _MASS)
        return map(_told, best, best, *place.sizes(0.9))

    def several_places(self, some: Indices) -> Iterator[Told]:
        """Of posteriors with about as many parts each."""
        rows = np.arange(self.counts[some].max())
        there = rows < self.counts[some][:, None]
        rows = (self.starts[some][:, None] + rows) * there
        weights = self.weights.take(rows).astype(np.float32) * there
        points = self._points.take(rows, axis=1)
        means = to_directions(_mean(np.ascontiguousarray(points.transpose(1, 2, 0)), weights))
        peaks = weights / (self._roots[0] * self._roots[2]).take(rows)
        count = min(_CANDIDATES, peaks.shape[1])
        candidates = np.argpartition(-peaks, count - 1, axis=1)[:, :count]
        candidates += np.arange(0, weights.size, weights.shape[1])[:, None]
        sized = _heaviest(weights)
        used = sized > 0
        used.ravel()[candidates] = True
        parts = self._parts(rows, used, weights * used, sized)
        best, radii, areas = parts.sizes(points.reshape(3, -1).take(candidates, axis=1))
        return map(_told, to_directions(best.T), means, radii, areas)

    def _parts(self, rows: Indices, used: Mask, weights: Single, sized: Single) -> _Parts:
        """Parts (b, n) of which some are used, with those that are narrow first."""
        kind = np.where(used, (self._widest >= _NARROW_DEGREES**2).take(rows), 2)
        place = np.argsort(kind, axis=1, kind="stable")[:, : int(used.sum(axis=1).max())]
        place += np.arange(0, weights.size, weights.shape[1])[:, None]
        rows = rows.take(place)
        return _Parts(
            weights.take(place),
            sized.take(place),
            self._widest.take(rows) < _NARROW_DEGREES**2,
            self._frames.take(rows, axis=1),
            self._arcs.take(rows, axis=1),
            self._roots.take(rows, axis=1),
            self._forms.take(rows, axis=0),
        )

    @cached_property
    def _frames(self) -> Single:
        """(9, N) outward, east and north at the centres."""
        azimuth, elevation = np.radians(self.centres).T.astype(np.float32)
        sin, cos, up, level = np.sin(azimuth), np.cos(azimuth), np.sin(elevation), np.cos(elevation)
        rows = (level * cos, level * sin, up, -sin, cos, 0 * up, -up * cos, -up * sin, level)
        return np.stack(rows)

    @cached_property
    def _arcs(self) -> Single:
        """(2, N) the means, in radians."""
        return np.radians(self.means).T.astype(np.float32)

    @cached_property
    def _points(self) -> Single:
        """v (3, N) of the means."""
        x, y = self._arcs
        angle = np.sqrt(x * x + y * y)
        ratio = np.sin(angle) / np.maximum(angle, np.float32(1e-12))
        ratio[angle < 1e-6] = 1
        points: Single = np.cos(angle) * self._frames[:3]
        points += (ratio * x) * self._frames[3:6]
        points += (ratio * y) * self._frames[6:]
        return points

    @cached_property
    def _roots(self) -> Single:
        """(3, N) of the covariances."""
        return roots_of(self.V)

    @cached_property
    def _widest(self) -> Array:
        """(N,) the larger eigenvalue of the covariances."""
        a, b, c = self.V[:, 0, 0], self.V[:, 0, 1], self.V[:, 1, 1]
        widest: Array = 0.5 * (a + c) + np.hypot(0.5 * (a - c), b)
        return widest

    @cached_property
    def _forms(self) -> Single:
        """(N, 10) of the exponents of narrow parts: times 1, v and the products of v."""
        V, points, frames = self.V, self._points, self._frames
        sharp = _DEGREES**2 / (V[:, 0, 0] + V[:, 1, 1] - self._widest)
        blunt = _DEGREES**2 / self._widest
        turn = 0.5 * np.arctan2(2 * V[:, 0, 1], V[:, 0, 0] - V[:, 1, 1])
        a = np.cos(turn) * frames[6:] - np.sin(turn) * frames[3:6]  # (3, N)
        more = 0.5 * (sharp - blunt)
        at = (a * points).sum(axis=0)
        forms = np.empty((len(V), 10), dtype=np.float32)
        forms[:, 0] = -blunt - more * at**2
        forms[:, 1:4] = (blunt * points + (2 * more * at) * a).T
        i, j = _PAIRS
        forms[:, 4:] = (np.where(i == j, -1, -2)[:, None] * more * a[i] * a[j]).T
        return forms


@dataclass(frozen=True, eq=False)
class _Parts:
    """Parts of b posteriors; narrow ones come first."""

    weights: Single  # (b, n)
    sized: Single  # (b, n) the same for sizes: of the heaviest parts alone
    narrow: Mask  # (b, n)
    frames: Single  # (9, b, n) outward, east and north at the centre
    means: Single  # (2, b, n) radians
    roots: Single  # (3, b, n) of the covariance: a lower triangle, by rows; radians
    forms: Single  # (b, n, 10) of the exponent of a narrow one

    def sizes(self, candidates: Single) -> tuple[Single, Array, Array]:
        """v (3, b) of the one of v (3, b, c) that is most probable, radii and areas (b,)."""
        peaks = self._densities(candidates, self.weights)
        best = candidates[:, np.arange(len(peaks)), np.argmax(peaks, axis=1)]
        draws, versines = self._draws(best[..., None])
        areas = areas_of(self._densities(draws, self.sized), 0.9)
        return best, radii_of(versines, 0.9), areas

    def _draws(self, best: Single) -> tuple[Single, Single]:
        """Points (3, b, m) that are spread evenly over each posterior.

        And 1 - cos of the angles (b, M) from `best` (3, b, 1) to these and more such points, in
        terms that are as small as the answer: nothing cancels.
        """
        k = drawn(self.sized)
        x, y = normals_of(k, self.roots.reshape(3, -1), self.means.reshape(2, -1))
        half = np.sqrt(x * x + y * y)
        half *= np.float32(0.5)
        sine = np.sin(half)
        ratio = sine * np.cos(half)
        ratio /= np.maximum(half, np.float32(1e-12))  # sin(angle) / angle
        sine *= sine
        sine *= np.float32(2)  # 1 - cos(angle)
        ahead, *aside = self.frames.reshape(3, 3, *self.sized.shape)
        versines = (np.float32(0.5) * ((ahead - best) ** 2).sum(axis=0)).take(k)
        east, north = ((axis * best).sum(axis=0).take(k) for axis in aside)
        versines += sine * (1 - versines) - ratio * (x * east + y * north)
        some = slice(0, OF_AREA)
        own = self.frames.reshape(9, -1).take(k[:, some], axis=1)
        points = (1 - sine[:, some]) * own[:3]
        points += (ratio[:, some] * x[:, some]) * own[3:6]
        points += (ratio[:, some] * y[:, some]) * own[6:]
        return points, versines

    def _densities(self, points: Single, weights: Single) -> Single:
        """p (b, m) at v (3, b, m), of parts with weights (b, n), per square degree."""
        p = np.zeros(points.shape[1:], dtype=np.float32)
        v = points.transpose(1, 2, 0)
        powers = _powers(v)
        norms = weights / (2 * np.pi * _DEGREES**2 * self.roots[0] * self.roots[2])
        counts = self.narrow.sum(axis=1)
        block = max(_NUMBERS // (v.shape[1] * weights.shape[1]), 1)
        for start in range(0, len(p), block):
            own = slice(start, start + block)
            few, many = int(counts[own].min()), int(counts[own].max())
            if many:
                exponents = powers[own] @ self.forms[own, :many].mT
                p[own] += _summed(exponents, (norms * self.narrow)[own, :many])
            if few < norms.shape[1]:
                exponents = self._wide_exponents(v[own], own, slice(few, None))
                p[own] += _summed(exponents, (norms * ~self.narrow)[own, few:])
        return p

    def _wide_exponents(self, v: Single, own: slice, some: slice) -> Single:
        """(b, m, …) of some parts of any width of some posteriors, at v (b, m, 3)."""
        axes = self.frames.reshape(3, 3, *self.sized.shape)[:, :, own, some]
        ahead, east, north = (v @ axis.transpose(1, 0, 2) for axis in axes)
        scale = _arcs(ahead)
        east *= scale
        north *= scale
        a, c, d = self.roots[:, own, None, some]
        x, y = self.means[:, own, None, some]
        east -= x
        east /= a
        north -= y
        north -= c * east
        north /= d
        east *= east
        north *= north
        east += north
        exponents: Single = east
        exponents *= np.float32(-0.5)
        return exponents


def _told(best: Array, mean: Array, radius: float, area: float) -> Told:
    return Told(best, mean, float(radius), min(float(area), Sphere().largest_region))


def _heaviest(weights: Single) -> Single:
    """Weights (b, n) of the heaviest parts alone, which hold nearly all of each posterior."""
    ordered = -np.sort(-weights, axis=1)
    before = np.cumsum(ordered, axis=1) - ordered
    last = (before < _MASS * ordered.sum(axis=1, keepdims=True)).sum(axis=1) - 1
    heavy = np.where(weights >= ordered[np.arange(len(ordered)), last][:, None], weights, 0)
    heavy /= heavy.sum(axis=1, keepdims=True)
    return heavy


def _mean(v: Single, weights: Single) -> Array:
    """v (b, 3): where the weighted arcs to v (b, n, 3) sum to zero."""
    w = weights / weights.sum(axis=1, keepdims=True)
    c = w[:, None] @ v  # (b, 1, 3)
    for _ in range(50):
        c /= np.linalg.norm(c, axis=-1, keepdims=True)
        ahead = (v @ c.mT)[..., 0]
        pull = w * _arcs(ahead)
        step = pull[:, None] @ v - (pull * ahead).sum(axis=1)[:, None, None] * c
        length = np.linalg.norm(step, axis=-1, keepdims=True)
        c = np.cos(length) * c + np.sinc(length / np.pi) * step
        if length.max() < _STILL:
            break
    return np.asarray(c[:, 0], dtype=np.float64)


def _powers(v: Single) -> Single:
    """1, v and the products of v (..., 10) of v (..., 3)."""
    i, j = _PAIRS
    return np.concatenate([np.ones_like(v[..., :1]), v, v[..., i] * v[..., j]], axis=-1)


def _summed(exponents: Single, norms: Single) -> Single:
    """Σ_k norms_k exp(exponent_k): (b, m, n), (b, n) -> (b, m)."""
    np.maximum(exponents, _LEAST, out=exponents)
    summed: Single = (np.exp(exponents, out=exponents) @ norms[..., None])[..., 0]
    return summed


@cache
def _arc_table() -> tuple[Single, Single]:
    """angle / sin(angle) by steps of 1 - cos(angle), and the slopes between them."""
    ahead = 1 - np.linspace(0, 2, _STEPS + 1)
    angle = np.arccos(ahead[1:-1])
    ratios = np.concatenate([[1.0], angle / np.sin(angle)])
    ratios = np.append(ratios, ratios[-1])  # at the antipode it grows without end
    return ratios[:-1].astype(np.float32), np.diff(ratios).astype(np.float32)


def _arcs(ahead: Single) -> Single:
    """angle / sin(angle) of cosines."""
    return read_by_versine(1 - ahead, *_arc_table())
