"""Best direction, mean, radius and area of many posteriors on the sphere at once.

Input: posteriors (`DirectionPosterior`), such as those of the windows of a track. Output: one
`PosteriorSummary` each. The values equal those of the posterior's own methods up to single
precision, and areas use fewer points (tests/geometry/test_posterior_summary.py has the tolerances).

    b   posteriors of similar size, padded with components of zero weight to n components each
    m   points at which the densities are evaluated
    v   (..., 3) unit vectors        x, y   coordinates in a chart, radians

A narrow component with mean p, precision r along the axis a and precision s across it has, with
arcs replaced by chords, the exponent

    -s (1 - v · p) - (r - s) (a · v - a · p)² / 2

which is linear in (1, v, v vᵀ), so that all exponents are one matrix product.

Posteriors whose components all share one centre and mean need only that chart
(`earatlas.geometry.credible_region_concentric`), which takes a tenth of the time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import TYPE_CHECKING

import numpy as np

from earatlas.geometry.angles import to_directions
from earatlas.geometry.credible_region_batch import (
    N_AREA_POINTS,
    chart_coordinates,
    cholesky_factors,
    credible_areas,
    credible_radii,
    draw_components,
)
from earatlas.geometry.credible_region_concentric import ConcentricPosteriors
from earatlas.geometry.sphere import Sphere, interpolate_by_versine
from earatlas.types import Array, Indices, Mask, Single

if TYPE_CHECKING:
    from earatlas.geometry.direction_posterior import DirectionPosterior

__all__ = ["PosteriorSummary", "summarize_posteriors"]

# Evidence: docs/figures/settings/geometry.md, "posterior_summary".
_CANDIDATES = 16  # component means at which the maximum of the density is sought
_REGION_MASS = 0.998  # probability that the components used for region sizes hold
_BLOCK_COMPONENTS = 8_000  # components of the posteriors in one batch
_BLOCK_NUMBERS = 150_000  # exponents per block, so that a block stays in the cache
_MIN_EXPONENT = np.float32(-60)  # smaller exponents do not matter, and subnormals are slow
_TABLE_STEPS = 4096  # steps of the table of angle / sin(angle)
_NARROW_DEGREES = 12.0  # largest standard deviation for which chords replace arcs
_MEAN_TOLERANCE = 1e-5  # radians per step at which the iteration for the mean stops
_DEGREES = 180 / np.pi  # degrees per radian
_PAIRS = np.triu_indices(3)  # rows and columns of the upper triangle of a 3 x 3 matrix


@dataclass(frozen=True, eq=False)
class PosteriorSummary:
    """Point estimates and region sizes of one posterior."""

    best: Array  # (C,) degrees
    mean: Array  # (C,) degrees
    radius_90: float  # degrees
    area_90: float  # square degrees


def summarize_posteriors(posteriors: Sequence[DirectionPosterior]) -> list[PosteriorSummary]:
    """Summarize posteriors, all of which must be on the sphere."""
    components = _AllComponents.of(posteriors)
    summaries: dict[int, PosteriorSummary] = {}
    concentric = components.concentric()
    for count in np.unique(components.counts[concentric]):
        batch = np.flatnonzero(concentric & (components.counts == count))
        summaries.update(zip(batch.tolist(), components.summarize_concentric(batch), strict=True))
    for batch in _size_batches(np.where(concentric, 0, components.counts)):
        summaries.update(zip(batch.tolist(), components.summarize_general(batch), strict=True))
    return [summaries[n] for n in range(len(posteriors))]


def _size_batches(counts: Indices) -> Iterator[Indices]:
    """Yield indices of posteriors with similar numbers of components; counts of 0 are skipped."""
    order = np.argsort(counts, kind="stable")
    ordered = counts[order]
    start = int(np.searchsorted(ordered, 0, side="right"))
    while start < len(order):
        smallest = int(ordered[start])
        end = int(np.searchsorted(ordered, 1.5 * smallest + 4, side="right"))
        end = min(end, start + max(_BLOCK_COMPONENTS // smallest, 1))
        yield order[start:end]
        start = end


@dataclass(frozen=True, eq=False)
class _AllComponents:
    """The components of all posteriors, concatenated; degrees."""

    weights: Array  # (N,)
    centres: Array  # (N, 2)
    means: Array  # (N, 2)
    V: Array  # (N, 2, 2)
    counts: Indices  # number of components per posterior
    starts: Indices  # index of the first component of each posterior

    @classmethod
    def of(cls, posteriors: Sequence[DirectionPosterior]) -> _AllComponents:
        """Concatenate the components of some posteriors."""
        weights, centres, means, V = (
            np.concatenate([getattr(posterior, name) for posterior in posteriors])
            for name in ("weights", "centres", "means", "covariances")
        )
        counts = np.array([len(posterior.weights) for posterior in posteriors])
        return cls(weights, centres, means, V, counts, np.cumsum(counts) - counts)

    def concentric(self) -> Mask:
        """Return which posteriors have one centre and mean for all their components."""
        first = np.repeat(self.starts, self.counts)
        same = (self.centres == self.centres[first]).all(axis=1)
        same &= (self.means == self.means[first]).all(axis=1)
        concentric: Mask = np.logical_and.reduceat(same, self.starts)
        return concentric

    def summarize_concentric(self, batch: Indices) -> Iterator[PosteriorSummary]:
        """Summarize concentric posteriors with equal numbers of components."""
        first = self.starts[batch]
        rows = first[:, None] + np.arange(self.counts[batch[0]])
        best = Sphere().exp(self.centres[first], self.means[first])
        posteriors = ConcentricPosteriors.of(
            self.means[first], self.weights[rows], self.V[rows], _REGION_MASS
        )
        return map(_summary, best, best, *posteriors.sizes(0.9))

    def summarize_general(self, batch: Indices) -> Iterator[PosteriorSummary]:
        """Summarize posteriors with similar numbers of components."""
        rows = np.arange(self.counts[batch].max())
        valid = rows < self.counts[batch][:, None]
        rows = (self.starts[batch][:, None] + rows) * valid
        weights = self.weights.take(rows).astype(np.float32) * valid
        points = self._points.take(rows, axis=1)
        means = to_directions(_mean(np.ascontiguousarray(points.transpose(1, 2, 0)), weights))
        peaks = weights / (self._roots[0] * self._roots[2]).take(rows)
        count = min(_CANDIDATES, peaks.shape[1])
        candidates = np.argpartition(-peaks, count - 1, axis=1)[:, :count]
        candidates += np.arange(0, weights.size, weights.shape[1])[:, None]
        heavy_weights = _heaviest(weights)
        used = heavy_weights > 0
        used.ravel()[candidates] = True
        padded = self._padded(rows, used, weights * used, heavy_weights)
        best, radii, areas = padded.sizes(points.reshape(3, -1).take(candidates, axis=1))
        return map(_summary, to_directions(best.T), means, radii, areas)

    def _padded(
        self, rows: Indices, used: Mask, weights: Single, heavy_weights: Single
    ) -> _PaddedComponents:
        """Select the used ones of components (b, n), with the narrow ones first."""
        kind = np.where(used, (self._max_variances >= _NARROW_DEGREES**2).take(rows), 2)
        index = np.argsort(kind, axis=1, kind="stable")[:, : int(used.sum(axis=1).max())]
        index += np.arange(0, weights.size, weights.shape[1])[:, None]
        rows = rows.take(index)
        return _PaddedComponents(
            weights.take(index),
            heavy_weights.take(index),
            self._max_variances.take(rows) < _NARROW_DEGREES**2,
            self._frames.take(rows, axis=1),
            self._chart_means.take(rows, axis=1),
            self._roots.take(rows, axis=1),
            self._forms.take(rows, axis=0),
        )

    @cached_property
    def _frames(self) -> Single:
        """Outward, east and north unit vectors at the centres, (9, N)."""
        azimuth, elevation = np.radians(self.centres).T.astype(np.float32)
        sin, cos, up, level = np.sin(azimuth), np.cos(azimuth), np.sin(elevation), np.cos(elevation)
        rows = (level * cos, level * sin, up, -sin, cos, 0 * up, -up * cos, -up * sin, level)
        return np.stack(rows)

    @cached_property
    def _chart_means(self) -> Single:
        """Means in chart coordinates (2, N), radians."""
        return np.radians(self.means).T.astype(np.float32)

    @cached_property
    def _points(self) -> Single:
        """Unit vectors (3, N) of the means."""
        x, y = self._chart_means
        angle = np.sqrt(x * x + y * y)
        ratio = np.sin(angle) / np.maximum(angle, np.float32(1e-12))
        ratio[angle < 1e-6] = 1
        points: Single = np.cos(angle) * self._frames[:3]
        points += (ratio * x) * self._frames[3:6]
        points += (ratio * y) * self._frames[6:]
        return points

    @cached_property
    def _roots(self) -> Single:
        """Cholesky factors (3, N) of the covariances, radians."""
        return cholesky_factors(self.V)

    @cached_property
    def _max_variances(self) -> Array:
        """Larger eigenvalues (N,) of the covariances, square degrees."""
        a, b, c = self.V[:, 0, 0], self.V[:, 0, 1], self.V[:, 1, 1]
        largest: Array = 0.5 * (a + c) + np.hypot(0.5 * (a - c), b)
        return largest

    @cached_property
    def _forms(self) -> Single:
        """Coefficients (N, 10) of narrow components' exponents in 1, v and the products of v."""
        V, points, frames = self.V, self._points, self._frames
        r = _DEGREES**2 / (V[:, 0, 0] + V[:, 1, 1] - self._max_variances)  # larger precision
        s = _DEGREES**2 / self._max_variances  # smaller precision
        angle = 0.5 * np.arctan2(2 * V[:, 0, 1], V[:, 0, 0] - V[:, 1, 1])
        a = np.cos(angle) * frames[6:] - np.sin(angle) * frames[3:6]  # (3, N)
        half = 0.5 * (r - s)
        at_mean = (a * points).sum(axis=0)
        forms = np.empty((len(V), 10), dtype=np.float32)
        forms[:, 0] = -s - half * at_mean**2
        forms[:, 1:4] = (s * points + (2 * half * at_mean) * a).T
        i, j = _PAIRS
        forms[:, 4:] = (np.where(i == j, -1, -2)[:, None] * half * a[i] * a[j]).T
        return forms


@dataclass(frozen=True, eq=False)
class _PaddedComponents:
    """Components of b posteriors, padded to n each; narrow ones come first."""

    weights: Single  # (b, n)
    heavy_weights: Single  # (b, n) weights of the heaviest components, 0 for the others
    narrow: Mask  # (b, n) whether chords may replace arcs
    frames: Single  # (9, b, n) outward, east and north at the centre
    means: Single  # (2, b, n) radians
    roots: Single  # (3, b, n) Cholesky factors of the covariances, radians
    forms: Single  # (b, n, 10) coefficients of the exponent of a narrow component

    def sizes(self, candidates: Single) -> tuple[Single, Array, Array]:
        """Return the most probable (3, b) of candidates (3, b, c), and radii and areas (b,)."""
        peaks = self._densities(candidates, self.weights)
        best = candidates[:, np.arange(len(peaks)), np.argmax(peaks, axis=1)]
        draws, versines = self._draws(best[..., None])
        areas = credible_areas(self._densities(draws, self.heavy_weights), 0.9)
        return best, credible_radii(versines, 0.9), areas

    def _draws(self, best: Single) -> tuple[Single, Single]:
        """Return quasi-random points (3, b, m), and 1 - cos of their angles to `best` (b, M).

        `best` has shape (3, b, 1). The first m of the M points are returned as vectors. The
        versines are sums of terms that are as small as the result, so nothing cancels.
        """
        k = draw_components(self.heavy_weights)
        x, y = chart_coordinates(k, self.roots.reshape(3, -1), self.means.reshape(2, -1))
        half = np.sqrt(x * x + y * y)
        half *= np.float32(0.5)
        sine = np.sin(half)
        ratio = sine * np.cos(half)
        ratio /= np.maximum(half, np.float32(1e-12))  # sin(angle) / angle
        sine *= sine
        sine *= np.float32(2)  # 1 - cos(angle)
        outward, *tangents = self.frames.reshape(3, 3, *self.heavy_weights.shape)
        versines = (np.float32(0.5) * ((outward - best) ** 2).sum(axis=0)).take(k)
        east, north = ((axis * best).sum(axis=0).take(k) for axis in tangents)
        versines += sine * (1 - versines) - ratio * (x * east + y * north)
        first = slice(0, N_AREA_POINTS)
        frames = self.frames.reshape(9, -1).take(k[:, first], axis=1)
        points = (1 - sine[:, first]) * frames[:3]
        points += (ratio[:, first] * x[:, first]) * frames[3:6]
        points += (ratio[:, first] * y[:, first]) * frames[6:]
        return points, versines

    def _densities(self, points: Single, weights: Single) -> Single:
        """Return densities (b, m) per square degree at v (3, b, m), with weights (b, n)."""
        p = np.zeros(points.shape[1:], dtype=np.float32)
        v = points.transpose(1, 2, 0)
        monomials = _monomials(v)
        norms = weights / (2 * np.pi * _DEGREES**2 * self.roots[0] * self.roots[2])
        counts = self.narrow.sum(axis=1)
        size = max(_BLOCK_NUMBERS // (v.shape[1] * weights.shape[1]), 1)
        for start in range(0, len(p), size):
            block = slice(start, start + size)
            fewest, most = int(counts[block].min()), int(counts[block].max())
            if most:
                exponents = monomials[block] @ self.forms[block, :most].mT
                p[block] += _weighted_sum(exponents, (norms * self.narrow)[block, :most])
            if fewest < norms.shape[1]:
                exponents = self._wide_exponents(v[block], block, slice(fewest, None))
                p[block] += _weighted_sum(exponents, (norms * ~self.narrow)[block, fewest:])
        return p

    def _wide_exponents(self, v: Single, block: slice, components: slice) -> Single:
        """Return exponents (b, m, …) of components of any width in a block, at v (b, m, 3)."""
        axes = self.frames.reshape(3, 3, *self.heavy_weights.shape)[:, :, block, components]
        cosines, east, north = (v @ axis.transpose(1, 0, 2) for axis in axes)
        scale = _angle_over_sine(cosines)
        east *= scale
        north *= scale
        a, c, d = self.roots[:, block, None, components]
        x, y = self.means[:, block, None, components]
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


def _summary(best: Array, mean: Array, radius: float, area: float) -> PosteriorSummary:
    return PosteriorSummary(best, mean, float(radius), min(float(area), Sphere().max_region_area))


def _heaviest(weights: Single) -> Single:
    """Return weights (b, n) of the components that hold `_REGION_MASS`, 0 for the others."""
    ordered = -np.sort(-weights, axis=1)
    before = np.cumsum(ordered, axis=1) - ordered
    last = (before < _REGION_MASS * ordered.sum(axis=1, keepdims=True)).sum(axis=1) - 1
    heavy = np.where(weights >= ordered[np.arange(len(ordered)), last][:, None], weights, 0)
    heavy /= heavy.sum(axis=1, keepdims=True)
    return heavy


def _mean(v: Single, weights: Single) -> Array:
    """Return the Riemannian means (b, 3) of unit vectors v (b, n, 3) with weights (b, n)."""
    w = weights / weights.sum(axis=1, keepdims=True)
    c = w[:, None] @ v  # (b, 1, 3)
    for _ in range(50):
        c /= np.linalg.norm(c, axis=-1, keepdims=True)
        cosines = (v @ c.mT)[..., 0]
        scaled = w * _angle_over_sine(cosines)
        step = scaled[:, None] @ v - (scaled * cosines).sum(axis=1)[:, None, None] * c
        length = np.linalg.norm(step, axis=-1, keepdims=True)
        c = np.cos(length) * c + np.sinc(length / np.pi) * step
        if length.max() < _MEAN_TOLERANCE:
            break
    return np.asarray(c[:, 0], dtype=np.float64)


def _monomials(v: Single) -> Single:
    """Return 1, v and the products of v, (..., 10), of v (..., 3)."""
    i, j = _PAIRS
    return np.concatenate([np.ones_like(v[..., :1]), v, v[..., i] * v[..., j]], axis=-1)


def _weighted_sum(exponents: Single, norms: Single) -> Single:
    """Return Σ_k norms_k exp(exponent_k) (b, m) of exponents (b, m, n) and norms (b, n)."""
    np.maximum(exponents, _MIN_EXPONENT, out=exponents)
    summed: Single = (np.exp(exponents, out=exponents) @ norms[..., None])[..., 0]
    return summed


@cache
def _angle_over_sine_table() -> tuple[Single, Single]:
    """Return angle / sin(angle) at even steps of 1 - cos(angle), and the differences."""
    cosines = 1 - np.linspace(0, 2, _TABLE_STEPS + 1)
    angle = np.arccos(cosines[1:-1])
    ratios = np.concatenate([[1.0], angle / np.sin(angle)])
    ratios = np.append(ratios, ratios[-1])  # at the antipode the ratio diverges
    return ratios[:-1].astype(np.float32), np.diff(ratios).astype(np.float32)


def _angle_over_sine(cosines: Single) -> Single:
    """Return angle / sin(angle) of cosines, by table lookup."""
    return interpolate_by_versine(1 - cosines, *_angle_over_sine_table())
