"""Tests of batched posterior summaries: they equal those of single posteriors."""

import numpy as np
import pytest

from earatlas.geometry.angles import to_vectors
from earatlas.geometry.chart_gaussians import gaussian_radius_90
from earatlas.geometry.direction_posterior import DirectionPosterior
from earatlas.geometry.posterior_summary import (
    _ExponentForms,
    _PaddedComponents,
    summarize_posteriors,
)
from earatlas.geometry.spaces import Sphere


def random_posterior(
    rng: np.random.Generator, components: int, widths: tuple[float, float]
) -> DirectionPosterior:
    """Return correlated Gaussians off their centres, with unequal weights."""
    centres = np.stack(
        [rng.uniform(-180, 180, components), rng.uniform(-80, 80, components)], axis=1
    )
    centres[1::2] = centres[0] + rng.uniform(-9, 9, size=(len(centres[1::2]), 2))
    weights = rng.dirichlet(np.full(components, 0.4))
    roots = np.zeros((components, 2, 2))
    roots[:, 0, 0], roots[:, 1, 1] = rng.uniform(*widths, size=(2, components))
    roots[:, 1, 0] = rng.uniform(-0.7, 0.7, size=components) * roots[:, 0, 0]
    means = rng.uniform(-6, 6, size=(components, 2))
    return DirectionPosterior(Sphere(), centres % 360, weights, means, roots @ roots.mT)


@pytest.fixture
def posteriors(rng: np.random.Generator) -> list[DirectionPosterior]:
    """Return posteriors of various sizes, from sharp to as broad as the sphere."""
    sizes = [1, 40, 2, 7, 300, 1, 15, 3, 90, 6]
    widths = [(0.4, 2.0), (1.0, 6.0), (0.5, 30.0), (20.0, 90.0)]
    some = [random_posterior(rng, n, widths[i % 4]) for i, n in enumerate(sizes * 2)]
    # One chart convolved with a kernel, as in most windows of anechoic recordings.
    kernel = [some[i].blurred([0.1, 1.3, 5.0], [0.2, 0.5, 0.3]) for i in (0, 5)]
    return some + kernel


def test_summaries_equal_single_posteriors(posteriors: list[DirectionPosterior]) -> None:
    """Directions agree within 0.01 degrees, radii within 1 %, areas within 15 % (half: 5 %)."""
    areas = []
    for summary, single in zip(summarize_posteriors(posteriors), posteriors, strict=True):
        assert Sphere().distance(summary.best, single.best) < 0.01
        assert Sphere().distance(summary.mean, single.mean) < 0.01
        distances = Sphere().distance(single.best, single._quasi_random_points[1])
        assert summary.radius_90 == pytest.approx(np.quantile(distances, 0.9), rel=0.01)
        areas.append(summary.area_90 / single.credible_area(0.9) - 1)
    assert np.abs(areas).max() < 0.15
    assert np.median(np.abs(areas)) < 0.05
    assert len(
        {round(summary.radius_90, 3) for summary in summarize_posteriors(posteriors)}
    ) == len(posteriors)


def test_densities_equal_those_of_single_posteriors(rng: np.random.Generator) -> None:
    """Densities in single precision are accurate within 2e-3, also of wide components."""
    posteriors = [random_posterior(rng, n, (0.5, 30.0)) for n in (7, 5)]
    padded = _PaddedComponents.of(posteriors)
    points = np.stack([posterior.sample(200, 1) for posterior in posteriors])
    vectors = to_vectors(points).astype(np.float32)
    found = _ExponentForms.of(padded).densities(vectors, padded.weights)
    for p, x, posterior in zip(found, points, posteriors, strict=True):
        np.testing.assert_allclose(p, np.exp(posterior.log_density(x)), rtol=2e-3)


def test_cached_summary_is_used(posteriors: list[DirectionPosterior]) -> None:
    """A posterior returns the cached values, and computes those at other levels."""
    summary, single = summarize_posteriors(posteriors[:1])[0], posteriors[0]
    other = single.credible_radius(0.5)
    single.cache_summary(summary)
    assert (single.radius_90, single.credible_area(0.9)) == (summary.radius_90, summary.area_90)
    assert single.best is summary.best
    assert single.mean is summary.mean
    assert single.credible_radius(0.5) == pytest.approx(other, rel=1e-5)


@pytest.mark.parametrize("dims", [1, 2])
def test_gaussian_radius_holds_90_percent(dims: int) -> None:
    """90 % of the draws of a standard Gaussian are within the radius."""
    draws = np.random.default_rng(dims).standard_normal((400_000, dims))
    within = np.linalg.norm(draws, axis=1) < gaussian_radius_90(dims)
    assert within.mean() == pytest.approx(0.9, abs=0.002)
