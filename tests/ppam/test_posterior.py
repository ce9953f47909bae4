"""Tests of direction posteriors: regions, samples, products, densities and calibration."""

from __future__ import annotations

import re

import numpy as np
import pytest

from earatlas.errors import InputError
from earatlas.features.statistics import CueStatistics
from earatlas.geometry.angles import great_circle_error
from earatlas.geometry.chart_gaussians import change_chart
from earatlas.geometry.credible_region import grid_regions
from earatlas.geometry.direction_posterior import DirectionPosterior
from earatlas.geometry.spaces import Circle, Plane, Space, Sphere
from earatlas.ppam.calibration import Calibration

PLANE = Plane(((-60.0, 60.0), (-40.0, 40.0)))
COVARIANCE = np.array([[9.0, 3.0], [3.0, 4.0]])


def single_gaussian(
    space: Space = PLANE, centre: tuple[float, float] = (5.0, -8.0)
) -> DirectionPosterior:
    """Return a correlated Gaussian off the centre of its chart."""
    return DirectionPosterior(
        space, np.array([centre]), np.ones(1), np.array([[2.0, -1.0]]), COVARIANCE[None]
    )


def three_gaussians(space: Space = PLANE) -> DirectionPosterior:
    """Return components of unequal weights and shapes, two of which overlap."""
    return DirectionPosterior(
        space,
        np.array([[0.0, 0.0], [4.0, 3.0], [-30.0, 20.0]]),
        np.array([0.5, 0.3, 0.2]),
        np.array([[1.0, 1.0], [-1.0, 2.0], [0.5, 0.0]]),
        np.stack([COVARIANCE, np.diag([2.0, 8.0]), np.diag([1.0, 3.0])]),
    )


def test_credible_region_of_a_gaussian() -> None:
    """The area is -2 pi sqrt|V| log(1 - level); the cells hold the level and the best point."""
    for level in (0.5, 0.9):
        region = single_gaussian().credible_region(level, spacing=0.25)
        area = -2 * np.pi * np.sqrt(np.linalg.det(COVARIANCE)) * np.log(1 - level)
        np.testing.assert_allclose(region.area, area, rtol=0.02)
        assert level <= region.mass < level + 0.01
        np.testing.assert_allclose(region.cells[0], single_gaussian().best, atol=0.2)


@pytest.mark.parametrize("width", [0.01, 4.0])
def test_several_credible_regions_at_once(width: float) -> None:
    """Regions of several levels on the same grid are those of each level alone."""
    posterior = DirectionPosterior(
        Sphere(), np.array([[30.2, 10.3]]), np.ones(1), np.zeros((1, 2)), width**2 * np.eye(2)[None]
    )
    regions = grid_regions(posterior, (0.9, 0.5), 2.0)
    for level, region in zip((0.9, 0.5), regions, strict=True):
        alone = posterior.credible_region(level, spacing=2.0)
        np.testing.assert_array_equal(region.cells, alone.cells)
        assert (region.level, region.area, region.mass) == (level, alone.area, alone.mass)
    assert len(regions[1].cells) <= len(regions[0].cells)


def test_densities_at_many_points_are_those_at_few() -> None:
    """Points are evaluated in blocks; the number of points changes no density."""
    rng = np.random.default_rng(3)
    K = 700
    posterior = DirectionPosterior(
        Sphere(), rng.uniform(-60, 60, size=(K, 2)), np.full(K, 1 / K),
        rng.normal(size=(K, 2)), np.tile(COVARIANCE, (K, 1, 1)),
    )  # fmt: skip
    points = rng.uniform(-60, 60, size=(611, 2))
    few = [posterior.log_density(part) for part in np.array_split(points, 47)]
    np.testing.assert_allclose(posterior.log_density(points), np.concatenate(few), rtol=1e-12)


def test_credible_region_on_the_sphere_behind_the_head() -> None:
    """The seam at 180 degrees does not change the area."""
    region = single_gaussian(Sphere(), (180.0, 0.0)).credible_region(0.9, spacing=0.5)
    area = -2 * np.pi * np.sqrt(np.linalg.det(COVARIANCE)) * np.log(0.1)
    np.testing.assert_allclose(region.area, area, rtol=0.05)


def test_credible_region_at_the_edge_of_the_plane() -> None:
    """With half of the posterior outside the bounds, the cells hold the level of the rest."""
    region = single_gaussian(centre=(58.0, 0.0)).credible_region(0.9, spacing=0.5)
    assert 0.9 <= region.mass < 0.91
    assert region.cells[:, 0].max() < 60.0


def test_credible_region_of_posterior_sharper_than_a_cell() -> None:
    """The region is one cell at the mean, not an empty set."""
    sharp = DirectionPosterior(
        PLANE, np.zeros((1, 2)), np.ones(1), np.full((1, 2), 0.3), np.eye(2)[None] * 1e-6
    )
    region = sharp.credible_region(0.9, spacing=2.0)
    np.testing.assert_allclose(region.cells, [[0.3, 0.3]])
    np.testing.assert_allclose(region.area, 4.0)


def test_density_integrates_to_one_and_best_is_its_peak() -> None:
    """The density sums to 1 over the cells, and the best point is near its maximum."""
    posterior = three_gaussians()
    cells = PLANE.grid(0.5)
    density = np.exp(posterior.log_density(cells))
    np.testing.assert_allclose(density.sum() * PLANE.area / len(cells), 1.0, rtol=1e-3)
    best = np.exp(posterior.log_density(posterior.best[None]))[0]
    assert best > 0.9 * density.max()


def test_sample_moments_and_mean() -> None:
    """Samples have the mixture's mean and covariance; `mean` is that mean on the plane."""
    posterior = three_gaussians()
    points = posterior.centres + posterior.means
    mean = posterior.weights @ points
    gap = points - mean
    covariance = np.einsum("k,klm->lm", posterior.weights, posterior.covariances)
    covariance += np.einsum("k,kl,km->lm", posterior.weights, gap, gap)
    sample = posterior.sample(200_000, seed=1)
    np.testing.assert_allclose(sample.mean(axis=0), mean, atol=0.15)
    np.testing.assert_allclose(np.cov(sample.T), covariance, rtol=0.02)
    np.testing.assert_allclose(posterior.mean, mean, rtol=1e-9)
    np.testing.assert_array_equal(posterior.sample(5, seed=1), posterior.sample(5, seed=1))


def test_times_is_the_product_of_densities() -> None:
    """The product is p q / Z, exact on the plane, for any charts of the factors."""
    p, q = three_gaussians(), single_gaussian()
    product = p.times(q)
    x = PLANE.grid(1.5)
    gap = product.log_density(x) - p.log_density(x) - q.log_density(x)
    near = product.log_density(x) > -20
    assert near.sum() > 50
    np.testing.assert_allclose(gap[near], gap[near][0], rtol=1e-7)


def test_product_on_the_sphere_across_charts() -> None:
    """Two posteriors of one direction near the pole, in different charts, have that product."""
    sphere, truth = Sphere(), np.array([[50.0, 88.0]])
    centres = np.array([[0.0, 80.0], [170.0, 84.0]])
    p, q = (
        DirectionPosterior(sphere, c[None], np.ones(1), sphere.log(c, truth), COVARIANCE[None] / 9)
        for c in centres
    )
    product = p.times(q)
    assert great_circle_error(product.best, truth[0]) < 1e-6
    x = sphere.exp(truth[0], np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [-0.7, 0.7]]))
    gap = product.log_density(x) - p.log_density(x) - q.log_density(x)
    np.testing.assert_allclose(gap, gap[0], atol=0.05)


def test_reweighting_by_a_gaussian_map_is_the_product() -> None:
    """A broad prior has the same effect as a function and as a mixture."""
    prior = DirectionPosterior(
        PLANE, np.array([[10.0, 0.0]]), np.ones(1), np.zeros((1, 2)), np.diag([80.0, 60.0])[None]
    )
    by_map, by_mixture = (
        three_gaussians().reweighted(prior.log_density),
        three_gaussians().times(prior),
    )
    np.testing.assert_allclose(by_map.mean, by_mixture.mean, atol=1e-3)
    np.testing.assert_allclose(by_map.weights, by_mixture.weights, rtol=1e-3)
    np.testing.assert_allclose(by_map.covariances, by_mixture.covariances, rtol=1e-3, atol=1e-3)
    with pytest.raises(InputError, match="log_factor must be above -inf"):
        three_gaussians().reweighted(lambda x: np.full(len(x), -np.inf))


def test_credible_levels_of_samples_are_uniform() -> None:
    """Half of the samples of a posterior lie in its 50 % region."""
    posterior = three_gaussians()
    levels = np.array([posterior.credible_level(x, 300) for x in posterior.sample(400, seed=2)])
    for level in (0.25, 0.5, 0.9):
        np.testing.assert_allclose((levels < level).mean(), level, atol=0.06)
    assert posterior.credible_level(posterior.best) < 0.05
    assert posterior.credible_level((50.0, -35.0)) == 1.0


def test_change_of_chart_at_a_pole_rotates_covariances() -> None:
    """The Jacobian between two charts near a pole is a rotation."""
    sphere = Sphere()
    u, jacobian = change_chart(
        sphere, np.array([[0.0, 89.0]]), np.zeros((1, 2)), np.array([[90.0, 89.0]])
    )
    assert np.abs(u).max() < 1.5
    np.testing.assert_allclose(jacobian[0] @ jacobian[0].T, np.eye(2), atol=1e-3)
    assert np.abs(jacobian[0] - np.eye(2)).max() > 0.5


def test_blurred_adds_covariance() -> None:
    """Each component appears once per width, with width² added and the kernel weights."""
    posterior = three_gaussians().blurred([1.0, 5.0], [0.75, 0.25])
    np.testing.assert_allclose(posterior.weights[:3], 0.75 * three_gaussians().weights)
    np.testing.assert_allclose(
        posterior.covariances[3:], three_gaussians().covariances + 25 * np.eye(2)
    )


def test_saturated_statistics_never_count_more_than_one_vector() -> None:
    """Q' = s/(s + v/(tau Q)) / temperature has the limit 1 / temperature; R'/Q' is the mean."""
    calibration = Calibration(temperature=2.0, frame_weight=0.5)
    noise = np.array([1.0, 4.0, 2.0])
    Q = np.array([10.0, 1e9, 0.0])
    mean, variance = np.array([3.0, -1.0]), np.array([2.0, 2.0])
    R = np.array([30.0, -1e9, np.nan])
    E = np.append(Q[:2] * (mean**2 + variance), np.nan)
    effective = calibration.effective_statistics(CueStatistics(Q, R, E), noise)
    q, r, e = effective.counts, effective.sums, effective.squares
    np.testing.assert_allclose(q, [0.5 / (1 + 2 / 5), 0.5, 0.0], rtol=1e-6)
    np.testing.assert_allclose(r[:2] / q[:2], mean, rtol=1e-9)
    np.testing.assert_allclose(e[:2] / q[:2], mean**2, rtol=1e-9)
    assert r[2] == e[2] == 0.0


def test_kernel_recovers_width_of_errors() -> None:
    """Errors of 3.2 degrees and, one in ten, 25.6 degrees: widths and weights are recovered."""
    rng = np.random.default_rng(3)
    width = np.where(rng.random(800) < 0.1, 25.6, 3.2)
    truths = rng.normal(size=(800, 2)) * width[:, None]
    sharp = DirectionPosterior(
        PLANE, np.zeros((1, 2)), np.ones(1), np.zeros((1, 2)), np.eye(2)[None] * 1e-4
    )
    widths, weights, _ = Calibration.kernel([sharp] * 800, truths)
    assert weights[np.isclose(widths, 3.2)] > 0.75
    np.testing.assert_allclose(weights[widths > 10].sum(), 0.1, atol=0.03)
    blurred = sharp.blurred(widths, weights)
    levels = [blurred.credible_level(x, 300) for x in truths[:200]]
    np.testing.assert_allclose((np.array(levels) < 0.9).mean(), 0.9, atol=0.05)


def test_invalid_mixtures_and_levels_are_reported() -> None:
    """Shapes, weights and levels are validated."""
    with pytest.raises(InputError, match="weights must sum to 1"):
        DirectionPosterior(
            PLANE, np.zeros((2, 2)), np.ones(2), np.zeros((2, 2)), np.stack([np.eye(2)] * 2)
        )
    with pytest.raises(InputError, match="must have shapes"):
        DirectionPosterior(PLANE, np.zeros((2, 2)), np.ones(1), np.zeros((1, 2)), np.eye(2)[None])
    with pytest.raises(InputError, match="level must lie between"):
        single_gaussian().credible_region(1.0)


def test_credible_area_equals_area_of_region() -> None:
    """Samples and cells give the same area on the plane, beyond its bounds, and on a circle."""
    covariance = np.array([[[60.0, 20.0], [20.0, 40.0]]])
    expected = 2 * np.pi * np.log(10) * np.sqrt(np.linalg.det(covariance[0]))
    for centre in ([20.0, 5.0], [190.0, 0.0]):
        posterior = DirectionPosterior(
            Plane(), np.array([centre]), np.ones(1), np.zeros((1, 2)), covariance
        )
        assert posterior.credible_area(0.9) == pytest.approx(expected, rel=0.015)
        assert posterior.credible_region(0.9).area == pytest.approx(expected, rel=0.005)
    arc = DirectionPosterior(Circle(), np.array([[30.0, 20.0]]), np.ones(1), np.zeros((1, 1)),
                       np.full((1, 1, 1), 25.0))  # fmt: skip
    assert arc.credible_area(0.9) == pytest.approx(2 * 1.645 * 5, rel=0.01)
    assert arc.credible_region(0.9).cells[0, 1] == 20.0
    assert re.fullmatch(r"CredibleRegion\(90 %, [\d.]+ degrees\)", repr(arc.credible_region(0.9)))


@pytest.mark.parametrize("space", [Sphere(), Circle(), PLANE], ids=lambda s: s.name)
def test_log_density_equals_loop_oracle(space: Space, rng: np.random.Generator) -> None:
    """Densities of concentric, shifted and correlated components equal the sum of Gaussians."""
    L = space.dims
    centres = np.array([[20.0, 10.0], [-70.0, 40.0], [25.0, 5.0]])[[0, 0, 1, 1, 2, 0]]
    means, covariances = np.zeros((6, L)), np.stack([w**2 * np.eye(L) for w in (1, 5, 2, 9, 3, 4)])
    means[3] = 2.5
    covariances[4] += 0.7
    posterior = DirectionPosterior(space, centres, rng.dirichlet(np.ones(6)), means, covariances)
    points = posterior.sample(9)
    expected = [
        sum(
            w * np.exp(-0.5 * d @ np.linalg.solve(V, d)) / np.sqrt(np.linalg.det(2 * np.pi * V))
            for w, d, V in zip(
                posterior.weights, space.log(centres, point) - means, covariances, strict=True
            )
        )
        for point in points
    ]
    np.testing.assert_allclose(np.exp(posterior.log_density(points)), expected, rtol=1e-9)


def test_mean_on_the_sphere_is_riemannian(rng: np.random.Generator) -> None:
    """Weighted arcs sum to zero at the mean, and one mean equals one of several."""
    points = np.column_stack([rng.uniform(100, 250, 11), rng.uniform(-50, 80, 11)])
    weights = rng.uniform(0.1, 2.0, size=(11, 2))
    mean = Sphere().mean(points, weights[:, 1])
    np.testing.assert_allclose(weights[:, 1] @ Sphere().log(mean, points), 0, atol=1e-8)
    np.testing.assert_allclose(mean, Sphere().mean(points, weights)[1], atol=1e-8)
    np.testing.assert_allclose(Sphere().mean([[170.0, 20.0]]), [170.0, 20.0], atol=1e-9)


def test_no_region_is_larger_than_the_sphere() -> None:
    """A broad posterior has a radius of at most 180 degrees; a sharp one that of the plane."""
    parameters = np.zeros((1, 2)), np.ones(1), np.zeros((1, 2)), np.eye(2)[None]
    broad, sharp = (
        DirectionPosterior(Sphere(), *parameters[:3], width**2 * parameters[3])
        for width in (300.0, 2.0)
    )
    assert broad.credible_area(0.9) <= Sphere().area
    assert broad.credible_radius(0.99) <= 180.0
    assert broad.credible_region(0.9).equivalent_radius_degrees <= 180.0
    assert sharp.radius_90 == pytest.approx(2.0 * np.sqrt(2 * np.log(10)), rel=0.05)
    assert sharp.credible_region(0.9).equivalent_radius_degrees == pytest.approx(4.29, rel=0.05)
    assert Sphere().radius(Sphere().area / 2) == pytest.approx(90.0)


def test_credible_radius_contains_the_level() -> None:
    """The radius contains 90 % of the samples, and reaches the second peak if that matters."""
    for back_weight, low, high in ((0.05, 4.0, 8.0), (0.2, 118.0, 123.0)):
        posterior = DirectionPosterior(
            Sphere(), np.array([[30.0, 0.0], [150.0, 0.0]]),
            np.array([1 - back_weight, back_weight]),
            np.zeros((2, 2)), np.tile(4.0 * np.eye(2), (2, 1, 1)),
        )  # fmt: skip
        radius = posterior.radius_90
        assert low < radius < high
        distances = Sphere().distance(posterior.best, posterior.sample(20_000, seed=5))
        assert np.mean(distances < radius) == pytest.approx(0.9, abs=0.01)
        assert posterior.rounded_region_size(0.9)[0] == pytest.approx(radius, abs=0.005)
