"""Direction, mean, radius and area of many beliefs on the sphere at once: the windows of a track.

In: beliefs (`earatlas.space.belief.ChartMixture`). Out: a `Told` of each: what a row of a track
says. It is what one belief after the other says, in single precision, and areas are of fewer points
(tests/test_many_beliefs.py says how near).

    b   beliefs of about the same size, padded with parts of no weight to n parts each
    m   points at which they are looked at
    v   (..., 3) unit vectors        u   (..., 2) coordinates in a chart, degrees

A narrow part has, around its middle p, with r its precision along a and s across, the exponent

    -s (1 - v · p) - (r - s) (a · v - a · p)² / 2

(a chord for an arc, degrees for radians), which is linear in (1, v, v vᵀ): one product of matrices.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from earatlas.space.angles import to_directions
from earatlas.space.sizes import even_draws
from earatlas.space.sphere import Sphere, read_by_versine
from earatlas.types import Array, Indices, Mask, Single

if TYPE_CHECKING:
    from earatlas.space.belief import ChartMixture

__all__ = ["Told", "told_of"]

_DRAWS, _OF_AREA = 1000, 250  # points of a radius, and of an area: a density costs more
_CANDIDATES = 16  # parts at which the density may be greatest
_MASS = 0.998  # of a belief: what is left out changes a 90 % region by less than its digits
_NUMBERS = 300_000  # that are worked on at a time, about
_LEAST = np.float32(-60)  # of an exponent: what is less is not told, and would be ten times as slow
_STEPS = 4096  # of the table of angle / sin(angle)
_NARROW_DEGREES = 12.0  # wide of a part whose exponent may be told by chords
_DEGREES = 180 / np.pi
_PAIRS = np.triu_indices(3)


@dataclass(frozen=True, eq=False)
class Told:
    """What is told of a belief."""

    best: Array  # (C,) degrees
    mean: Array  # (C,) degrees
    radius_90: float  # degrees
    area_90: float  # square degrees


def told_of(beliefs: Sequence[ChartMixture]) -> list[Told]:
    """What is told of each belief, all on the sphere."""
    parts = _Parts.of(beliefs)
    counts = np.array([len(belief.weights) for belief in beliefs])
    starts = np.concatenate([[0], np.cumsum(counts)[:-1]])
    told: dict[int, Told] = {}
    for some in _alike(counts):
        rows = np.arange(counts[some].max())
        own = parts.padded(starts[some][:, None] + rows, rows < counts[some][:, None])
        told.update(zip(some.tolist(), own.told(), strict=True))
    return [told[n] for n in range(len(beliefs))]


def _alike(counts: Indices) -> Iterator[Indices]:
    """Numbers of beliefs with about as many parts, few enough to be worked on at a time."""
    order = np.argsort(counts, kind="stable")
    start = 0
    while start < len(order):
        least = int(counts[order[start]])
        end = int(np.searchsorted(counts[order], 1.5 * least + 4, side="right"))
        end = min(end, start + max(_NUMBERS // (_OF_AREA * least), 1))
        yield order[start:end]
        start = end


@dataclass(frozen=True, eq=False)
class _Parts:
    """Parts of beliefs, one after the other (n, …) or padded (b, n, …); narrow ones come first."""

    weights: Single  # (..., n)
    narrow: Mask  # (..., n)
    frames: Single  # (..., n, 9) outward, east and north at the centre
    means: Single  # (..., n, 2) degrees
    roots: Single  # (..., n, 3) of the covariance: a lower triangle, by rows
    points: Single  # (..., n, 3) v of the means
    forms: Single  # (..., n, 10) of the exponent of a narrow one

    @classmethod
    def of(cls, beliefs: Sequence[ChartMixture]) -> _Parts:
        """Those of all beliefs, one after the other."""
        weights, centres, means, V = (
            np.concatenate([getattr(belief, name) for belief in beliefs])
            for name in ("weights", "centres", "means", "covariances")
        )
        narrow = _widest(V) < _NARROW_DEGREES**2
        owner = np.repeat(np.arange(len(beliefs)), [len(belief.weights) for belief in beliefs])
        order = np.lexsort((~narrow, owner))
        narrow = narrow[order]
        weights, centres, means, V = (part[order] for part in (weights, centres, means, V))
        frames = np.concatenate(Sphere.frame(centres), axis=-1)
        a = np.sqrt(V[:, 0, 0])
        b = V[:, 0, 1] / a
        roots = np.stack([a, b, np.sqrt(V[:, 1, 1] - b**2)], axis=-1)
        points = _placed(frames, means)
        every = (weights, frames, means, roots, points, _chord_forms(V, frames, points))
        first, *rest = (part.astype(np.float32) for part in every)
        return cls(first, narrow, *rest)

    def padded(self, rows: Indices, there: Mask) -> _Parts:
        """Those of several beliefs: rows (b, n), of which some are there."""
        own = _Parts(*(getattr(self, field.name)[rows * there] for field in fields(self)))
        return replace(own, weights=own.weights * there)

    def told(self) -> Iterator[Told]:
        """Of each belief."""
        best = self._best()
        heavy = self._heaviest()
        draws, first = heavy._draws()
        radii = _quantile(_angles(draws, best[:, None]), 0.9)
        areas = _areas(heavy._densities(draws[:, first]), 0.9)
        areas = np.minimum(areas, Sphere().largest_region)
        directions, means = to_directions(best), to_directions(self._means())
        for n in range(len(best)):
            yield Told(directions[n], means[n], float(radii[n]), float(areas[n]))

    def _best(self) -> Single:
        """v (b, 3) of the means at which the density is greatest."""
        peaks = self.weights / (self.roots[..., 0] * self.roots[..., 2])
        most = min(_CANDIDATES, peaks.shape[1])
        top = np.argpartition(-peaks, most - 1, axis=1)[:, :most]
        points = np.take_along_axis(self.points, top[..., None], axis=1)
        best = np.argmax(self._densities(points), axis=1)
        found: Single = points[np.arange(len(points)), best]
        return found

    def _heaviest(self) -> _Parts:
        """The same without the lightest parts: the others hold nearly all of each belief."""
        order = np.argsort(-self.weights, axis=1, kind="stable")
        ordered = np.take_along_axis(self.weights, order, axis=1)
        before = np.cumsum(ordered, axis=1) - ordered
        kept = np.empty_like(self.narrow)
        np.put_along_axis(kept, order, before < _MASS * ordered.sum(axis=1)[:, None], axis=1)
        weights = self.weights * kept
        return replace(self, weights=weights / weights.sum(axis=1, keepdims=True))

    def _draws(self) -> tuple[Single, Indices]:
        """v (b, m, 3) of points that are spread evenly over each belief; some that are so, too."""
        b, n = self.weights.shape
        which, normals, first = _ordered_draws()
        order = np.argsort(-self.weights, axis=1, kind="stable")
        total = np.cumsum(np.take_along_axis(self.weights, order, axis=1), axis=1, dtype=np.float64)
        rows = np.arange(b)[:, None]
        edges = (total[:, :-1] + rows).ravel()
        number = np.searchsorted(edges, (which + rows).ravel(), side="right").reshape(b, -1)
        k = np.take_along_axis(order, number - rows * (n - 1), axis=1) + rows * n
        frames, means, roots = (
            part.reshape(b * n, -1).take(k, axis=0)
            for part in (self.frames, self.means, self.roots)
        )
        u = np.empty_like(means)
        u[..., 0] = roots[..., 0] * normals[:, 0]
        u[..., 1] = roots[..., 1] * normals[:, 0] + roots[..., 2] * normals[:, 1]
        u += means
        return _placed(frames, u).astype(np.float32, copy=False), first

    def _densities(self, points: Single) -> Single:
        """p (b, m) at v (b, m, 3)."""
        norms = self.weights / (2 * np.pi * self.roots[..., 0] * self.roots[..., 2])
        narrow = self.narrow.sum(axis=1)
        p = np.zeros(points.shape[:2], dtype=np.float32)
        if narrow.max():
            some = slice(0, int(narrow.max()))
            p += _summed(_powers(points) @ self.forms[:, some].mT, (norms * self.narrow)[:, some])
        if narrow.min() < norms.shape[1]:
            some = slice(int(narrow.min()), None)
            p += _summed(self._exponents(points, some), (norms * ~self.narrow)[:, some])
        return p

    def _exponents(self, points: Single, some: slice) -> Single:
        """(b, m, …) of some parts of any width, at v (b, m, 3)."""
        ahead, east, north = (
            points @ axis.mT for axis in np.split(self.frames[:, some], 3, axis=-1)
        )
        scale = _arcs(ahead)
        east *= scale
        north *= scale
        a, c, d = np.moveaxis(self.roots[:, some], -1, 0)[:, :, None]
        x, y = np.moveaxis(self.means[:, some], -1, 0)[:, :, None]
        east -= x
        east /= a
        north -= y
        north -= c * east
        north /= d
        east *= east
        north *= north
        east += north
        east *= np.float32(-0.5)
        return east

    def _means(self) -> Array:
        """v (b, 3): where the weighted arcs to the middles of all parts sum to zero."""
        v, w = self.points, self.weights / self.weights.sum(axis=1, keepdims=True)
        c = w[:, None] @ v  # (b, 1, 3)
        for _ in range(50):
            c /= np.linalg.norm(c, axis=-1, keepdims=True)
            ahead = (v @ c.mT)[..., 0]
            pull = w * _arcs(ahead) / np.float32(_DEGREES)
            step = pull[:, None] @ v - (pull * ahead).sum(axis=1)[:, None, None] * c
            length = np.linalg.norm(step, axis=-1, keepdims=True)
            c = np.cos(length) * c + np.sinc(length / np.pi) * step
            if length.max() < 1e-6:  # radians: less than is told
                break
        return np.asarray(c[:, 0], dtype=np.float64)


def _placed(frames: Array, u: Array) -> Array:
    """v (..., 3) at coordinates (..., 2) around centres with frames (..., 9)."""
    u = np.radians(u)
    angle = np.sqrt(u[..., 0] ** 2 + u[..., 1] ** 2)
    near = angle < 1e-6
    ratio = np.sin(angle) / np.where(near, 1, angle)
    ratio[near] = 1
    u *= ratio[..., None]
    placed: Array = np.cos(angle)[..., None] * frames[..., :3]
    placed += u[..., :1] * frames[..., 3:6]
    placed += u[..., 1:] * frames[..., 6:]
    return placed


def _widest(V: Array) -> Array:
    """The larger eigenvalue (n,) of covariances (n, 2, 2)."""
    a, b, c = V[:, 0, 0], V[:, 0, 1], V[:, 1, 1]
    widest: Array = 0.5 * (a + c) + np.hypot(0.5 * (a - c), b)
    return widest


def _chord_forms(V: Array, frames: Array, points: Array) -> Array:
    """(n, 10) of the exponents of narrow parts: times 1, v and the products of v."""
    widest = _widest(V)
    sharp = _DEGREES**2 / (V[:, 0, 0] + V[:, 1, 1] - widest)
    blunt = _DEGREES**2 / widest
    turn = 0.5 * np.arctan2(2 * V[:, 0, 1], V[:, 0, 0] - V[:, 1, 1])[:, None]
    a = np.cos(turn) * frames[:, 6:] - np.sin(turn) * frames[:, 3:6]  # (n, 3)
    more = 0.5 * (sharp - blunt)
    at = (a * points).sum(axis=1)
    forms = np.empty((len(V), 10))
    forms[:, 0] = -blunt - more * at**2
    forms[:, 1:4] = blunt[:, None] * points + (2 * more * at)[:, None] * a
    i, j = _PAIRS
    forms[:, 4:] = -(more[:, None] * a[:, i] * a[:, j] * np.where(i == j, 1, 2))
    return forms


def _powers(points: Single) -> Single:
    """1, v and the products of v (..., 10) of v (..., 3)."""
    i, j = _PAIRS
    ones = np.ones_like(points[..., :1])
    return np.concatenate([ones, points, points[..., i] * points[..., j]], axis=-1)


def _summed(exponents: Single, norms: Single) -> Single:
    """Σ_k norms_k exp(exponent_k): (b, m, n), (b, n) -> (b, m)."""
    np.maximum(exponents, _LEAST, out=exponents)
    summed: Single = (np.exp(exponents, out=exponents) @ norms[..., None])[..., 0]
    return summed


@cache
def _ordered_draws() -> tuple[Array, Single, Indices]:
    """`even_draws` in order of the parts they choose, and the places of the first ones of them."""
    which, normals = even_draws(_DRAWS, 2)
    order = np.argsort(which)
    return which[order], normals[order].astype(np.float32), np.flatnonzero(order < _OF_AREA)


def _angles(points: Single, others: Single) -> Single:
    """Degrees (...) between unit vectors: from the chord, which loses nothing at 0."""
    chord = np.sqrt(((points - others) ** 2).sum(axis=-1))
    angles: Single = np.degrees(2 * np.arcsin(np.minimum(chord / 2, 1)))
    return angles


def _quantile(values: Single, level: float) -> Single:
    """Of each row (b, m): as `np.quantile`, in a fifth of the time."""
    place = level * (values.shape[1] - 1)
    low = int(place)
    ordered = np.partition(values, (low, low + 1), axis=1)
    below, above = ordered[:, low], ordered[:, low + 1]
    quantile: Single = below + (place - low) * (above - below)
    return quantile


def _areas(densities: Single, level: float) -> Array:
    """(b,): the mean of 1[p > t] / p over points of p, t the density that `level` exceed."""
    least = _quantile(densities, 1 - level)[:, None]
    areas: Array = np.where(densities >= least, 1 / densities, 0).mean(axis=1, dtype=np.float64)
    return areas


@cache
def _arc_table() -> tuple[Single, Single]:
    """angle / sin(angle), in degrees, by steps of 1 - cos(angle), and the slopes between them."""
    ahead = 1 - np.linspace(0, 2, _STEPS + 1)
    angle = np.arccos(ahead[1:-1])
    ratios = np.degrees(np.concatenate([[1.0], angle / np.sin(angle)]))
    ratios = np.append(ratios, ratios[-1])  # at the antipode it grows without end
    return ratios[:-1].astype(np.float32), np.diff(ratios).astype(np.float32)


def _arcs(ahead: Single) -> Single:
    """angle / sin(angle), in degrees, of cosines."""
    return read_by_versine(1 - ahead, *_arc_table())
