"""Best direction, mean, radius and area of many posteriors on the sphere at once.

Input: posteriors (`DirectionPosterior`), such as those of the windows of a track. Output: one
`PosteriorSummary` each. The values are those of the posterior's own methods up to single precision,
and areas use fewer points (tests/geometry/test_posterior_summary.py has the tolerances).

    b   posteriors of similar size, padded with components of zero weight to n components each
    m   points at which the densities are evaluated
    v   (b, m, 3) unit vectors of points      x, y   coordinates in a chart, radians

A point v has the coordinates (x, y) = s (v · east, v · north) in a chart, where s = angle /
sin(angle) is a function of v · outward. With Wᵀ W = V⁻¹ / 2 and the whitened axes
a = W (east, north), the exponent of a component is

    -|s a v - W m|² = s (-s vᵀ aᵀ a v + 2 (W m)ᵀ a v) - |W m|²

so that it is computed from matrix products with the points and with the products of their
coordinates.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from earatlas.geometry.angles import to_directions
from earatlas.geometry.chart_gaussians import quasi_random_draws
from earatlas.geometry.credible_region import REGION_SETTINGS, RegionSettings
from earatlas.geometry.sphere import Sphere
from earatlas.types import Array, Indices, Single

if TYPE_CHECKING:
    from earatlas.geometry.direction_posterior import DirectionPosterior

__all__ = ["PosteriorSummary", "summarize_posteriors"]


# Evidence: docs/figures/settings/geometry.md, "posterior_summary".
@dataclass(frozen=True, slots=True)
class SummarySettings:
    """Settings of the batches; those of the regions are `RegionSettings`."""

    n_area_points: int = 250  # points for an area, of which densities are needed
    block_components: int = 8_000  # components of the posteriors in one batch
    block_numbers: int = 100_000  # exponents per block, so that a block stays in the cache
    table_steps: int = 65_536  # steps of the table of angle / sin(angle), accurate within 1e-5
    mean_tolerance_radians: float = 1e-5  # step at which the iteration for the mean stops


_SETTINGS = SummarySettings()
_PAIRS = np.triu_indices(3)  # pairs of coordinates


@dataclass(frozen=True, eq=False)
class PosteriorSummary:
    """Point estimates and region sizes of one posterior."""

    best: Array  # (C,) degrees
    mean: Array  # (C,) degrees
    radius_90: float  # degrees
    area_90: float  # square degrees


def summarize_posteriors(posteriors: Sequence[DirectionPosterior]) -> list[PosteriorSummary]:
    """Summarize posteriors, all of which must be on the sphere."""
    counts = np.array([len(posterior.weights) for posterior in posteriors])
    summaries: dict[int, PosteriorSummary] = {}
    for batch in _size_batches(counts):
        padded = _PaddedComponents.of([posteriors[n] for n in batch])
        summaries.update(zip(batch.tolist(), padded.summaries(), strict=True))
    return [summaries[n] for n in range(len(posteriors))]


def _size_batches(counts: Indices) -> Iterator[Indices]:
    """Yield indices of posteriors with similar numbers of components."""
    order = np.argsort(counts, kind="stable")
    ordered, start = counts[order], 0
    while start < len(order):
        smallest = int(ordered[start])
        end = int(np.searchsorted(ordered, 1.5 * smallest + 4, side="right"))
        end = min(end, start + max(_SETTINGS.block_components // smallest, 1))
        yield order[start:end]
        start = end


@dataclass(frozen=True, eq=False)
class _PaddedComponents:
    """Components of b posteriors, padded to n each; single precision."""

    weights: Single  # (b, n)
    axes: Single  # (b, n, 3, 3) outward, east and north unit vectors of the charts
    means: Single  # (2, b, n) chart coordinates, radians
    roots: Single  # (3, b, n) Cholesky factors a, c, d of [[a, 0], [c, d]], radians

    @classmethod
    def of(cls, posteriors: Sequence[DirectionPosterior]) -> _PaddedComponents:
        """Pad the components of some posteriors."""
        counts = np.array([len(posterior.weights) for posterior in posteriors])
        rows = np.arange(counts.max())
        valid = rows < counts[:, None]
        index = (np.cumsum(counts) - counts)[:, None] + np.where(valid, rows, 0)
        weights, centres, means, V = (
            np.concatenate([getattr(posterior, name) for posterior in posteriors])
            for name in ("weights", "centres", "means", "covariances")
        )
        a = np.sqrt(V[:, 0, 0])
        c = V[:, 0, 1] / a
        roots = np.radians(np.stack([a, c, np.sqrt(V[:, 1, 1] - c**2)]))
        axes = np.stack(Sphere.frame(centres), axis=1).astype(np.float32)
        return cls(
            (weights[index] * valid).astype(np.float32),
            axes.take(index, axis=0),
            np.radians(means).T.astype(np.float32)[:, index],
            roots.astype(np.float32)[:, index],
        )

    def __getitem__(self, k: Indices) -> _PaddedComponents:
        """Return components k (b, n') of each posterior."""
        flat = self._flat(k)
        return _PaddedComponents(
            self.weights.take(flat),
            self.axes.reshape(-1, 3, 3).take(flat, axis=0),
            self.means.reshape(2, -1).take(flat, axis=1),
            self.roots.reshape(3, -1).take(flat, axis=1),
        )

    def _flat(self, k: Indices) -> Indices:
        """Return indices (b, m) into all b · n components."""
        flat: Indices = k + np.arange(0, self.weights.size, self.weights.shape[1])[:, None]
        return flat

    def summaries(self, settings: RegionSettings = REGION_SETTINGS) -> Iterator[PosteriorSummary]:
        """Summarize the posteriors."""
        points = self._points(np.broadcast_to(np.arange(self.weights.shape[1]), self.weights.shape))
        means = _mean(points, self.weights)
        peaks = self.weights / (self.roots[0] * self.roots[2])
        count = min(settings.n_candidates, peaks.shape[1])
        candidates = np.argpartition(-peaks, count - 1, axis=1)[:, :count]
        heavy = _heaviest(self.weights, settings.mass)
        # The heaviest components, and those at the candidates, approximate the density.
        used = heavy > 0
        np.put_along_axis(used, candidates, True, axis=1)
        k = np.argsort(~used, axis=1, kind="stable")[:, : int(used.sum(axis=1).max())]
        own, heavy = self[k], np.take_along_axis(heavy, k, axis=1)
        forms = _ExponentForms.of(own)
        points = np.take_along_axis(points, candidates[..., None], axis=1)
        densities = forms.densities(points, own.weights * np.take_along_axis(used, k, axis=1))
        best = points[np.arange(len(points)), np.argmax(densities, axis=1)]  # (b, 3)
        draws = own._points(_draw_components(heavy, settings.n_points), normals=True)
        versines = 0.5 * ((draws - best[:, None]) ** 2).sum(axis=-1)  # 1 - cos(angle)
        radii = np.degrees(2 * np.arcsin(np.sqrt(_quantiles(versines, 0.9) / 2)))
        densities = forms.densities(draws[:, : _SETTINGS.n_area_points], heavy)
        # The mean of 1[p > t] / p over points drawn from p is the area in which p > t.
        inside = densities >= _quantiles(densities, 0.1)[:, None]
        areas = np.where(inside, 1 / densities, 0).mean(axis=1, dtype=np.float64)
        areas = np.minimum(areas, Sphere().max_region_area)
        return map(
            PosteriorSummary, to_directions(best), to_directions(means), radii.tolist(),
            areas.tolist(),
        )  # fmt: skip

    def _points(self, k: Indices, *, normals: bool = False) -> Single:
        """Return the means (b, m, 3) of components k (b, m), or a quasi-random point of each."""
        drawn = self[k]
        x, y = drawn.means
        if normals:
            z = _sorted_draws(k.shape[1])[2]
            a, c, d = drawn.roots
            x, y = x + a * z[0], y + c * z[0] + d * z[1]
        angle = np.sqrt(x * x + y * y)
        ratio = np.sin(angle) / np.maximum(angle, np.float32(1e-12))
        ratio[angle < 1e-6] = 1
        coordinates = np.stack([np.cos(angle), ratio * x, ratio * y], axis=-1)
        points: Single = (coordinates[..., None, :] @ drawn.axes)[..., 0, :]
        return points


@dataclass(frozen=True, eq=False)
class _ExponentForms:
    """Exponents of the components of b posteriors as functions of a point."""

    steps: Single  # (b, 4, n) row of the table of s, given (v, 1)
    squares: Single  # (b, 6, n) -aᵀ a, given the products of two coordinates of v
    products: Single  # (b, 3, n) 2 (W m)ᵀ a, given v
    constants: Single  # (b, n) -|W m|²
    peaks: Single  # (b, n) density at the mean, per square degree

    @classmethod
    def of(cls, components: _PaddedComponents) -> _ExponentForms:
        """Return the forms of some components."""
        (a, c, d), (x, y) = components.roots * np.float32(np.sqrt(2)), components.means
        outward, east, north = np.moveaxis(components.axes, 2, 0)  # (b, n, 3)
        tilt = c / (a * d)
        whitened = np.stack(  # (2, b, n, 3)
            [east / a[..., None], north / d[..., None] - tilt[..., None] * east]
        )
        means = np.stack([x / a, y / d - tilt * x])  # (2, b, n)
        i, j = _PAIRS
        squares = np.where(i == j, -1, -2) * (whitened[..., i] * whitened[..., j]).sum(axis=0)
        half = np.float32(_SETTINGS.table_steps / 2)  # the table has even steps of 1 - cos(angle)
        steps = half * np.concatenate([-outward, np.ones_like(x)[..., None]], axis=-1)
        products = 2 * (whitened * means[..., None]).sum(axis=0)
        steps, squares, products = (
            np.ascontiguousarray(form.mT, dtype=np.float32) for form in (steps, squares, products)
        )
        volumes = np.degrees(np.degrees(components.roots[0] * components.roots[2]))
        peaks = 1 / (2 * np.pi * volumes)
        return cls(steps, squares, products, -(means**2).sum(axis=0), peaks)

    def densities(self, v: Single, weights: Single) -> Single:
        """Return densities (b, m) per square degree at v (b, m, 3), with weights (b, n)."""
        p = np.empty(v.shape[:2], dtype=np.float32)
        i, j = _PAIRS
        pairs, heights = v[..., i] * v[..., j], weights * self.peaks
        v_one = np.concatenate([v, np.ones_like(v[..., :1])], axis=-1)
        m = max(_SETTINGS.block_numbers // weights.shape[1], 1)  # points of a block
        size = max(m // v.shape[1], 1)  # posteriors of a block
        for start, first in product(range(0, len(p), size), range(0, v.shape[1], m)):
            own = slice(start, start + size)
            block = own, slice(first, first + m)
            steps = (v_one[block] @ self.steps[own]).astype(np.intp)  # (b, m, n)
            scale = _angle_over_sine_table().take(steps, mode="clip")
            exponents = pairs[block] @ self.squares[own]
            exponents *= scale
            exponents += v[block] @ self.products[own]
            exponents *= scale
            exponents += self.constants[own, None]
            # e^-60 changes nothing, and subnormal numbers are slow.
            np.maximum(exponents, np.float32(-60), out=exponents)
            p[block] = (np.exp(exponents, out=exponents) @ heights[own, :, None])[..., 0]
        return p


def _heaviest(weights: Single, mass: float) -> Single:
    """Return weights (b, n) of the components that hold the fraction `mass`, 0 for the others."""
    ordered = -np.sort(-weights, axis=1)
    before = np.cumsum(ordered, axis=1) - ordered
    last = (before < mass * ordered.sum(axis=1, keepdims=True)).sum(axis=1) - 1
    heavy = np.where(weights >= ordered[np.arange(len(ordered)), last][:, None], weights, 0)
    heavy /= heavy.sum(axis=1, keepdims=True)
    return heavy


@cache
def _sorted_draws(n: int) -> tuple[Array, Array, Single]:
    """Return `quasi_random_draws`, sorted within the points for areas and within the others."""
    uniforms, normals = quasi_random_draws(n, 2)
    split = _SETTINGS.n_area_points
    order = np.concatenate([
        np.argsort(uniforms[:split], kind="stable"),
        split + np.argsort(uniforms[split:], kind="stable"),
    ])  # fmt: skip
    first, rest = np.split(uniforms[order], [split])
    return first, rest, np.ascontiguousarray(normals[order].T, dtype=np.float32)


def _draw_components(weights: Single, n: int) -> Indices:
    """Return the components (b, m) from which m points are drawn, by their weights (b, n)."""
    order = np.argsort(-weights, axis=1, kind="stable")
    edges = np.cumsum(np.take_along_axis(weights, order, axis=1), axis=1, dtype=np.float64)
    out = []
    for uniforms in _sorted_draws(n)[:2]:
        below = np.searchsorted(uniforms, edges)
        below[:, -1] = len(uniforms)
        counts = np.diff(below, axis=1, prepend=0)
        out.append(np.repeat(order.ravel(), counts.ravel()).reshape(len(weights), -1))
    return np.concatenate(out, axis=1)


def _quantiles(values: Single, level: float) -> Array:
    """Return the quantile (b,) of each row, interpolated linearly."""
    position = level * (values.shape[1] - 1)
    low = int(position)
    below, above = np.partition(values, (low, low + 1), axis=1)[:, low : low + 2].T
    quantiles: Array = below + (position - low) * (above - below)
    return quantiles


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
        if length.max() < _SETTINGS.mean_tolerance_radians:
            break
    return np.asarray(c[:, 0], dtype=np.float64)


@cache
def _angle_over_sine_table() -> Single:
    """Return angle / sin(angle) at the middles of even steps of 1 - cos(angle) from 0 to 2."""
    n = _SETTINGS.table_steps
    angle = np.arccos(1 - (np.arange(n) + 0.5) * (2 / n))
    ratios: Single = (angle / np.sin(angle)).astype(np.float32)
    return ratios


def _angle_over_sine(cosines: Single) -> Single:
    """Return angle / sin(angle) from a table."""
    table = _angle_over_sine_table()
    step = 1 - cosines
    step *= np.float32(len(table) / 2)
    return table.take(step.astype(np.int32), mode="clip")
