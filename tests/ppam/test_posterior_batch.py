"""Tests of posteriors with a batch axis: they equal loops over sounds and dense matrices."""

from dataclasses import replace

import numpy as np
import oracles
import pytest

import earatlas as ea
from earatlas.features.statistics import CueStatistics
from earatlas.geometry.angles import to_vectors
from earatlas.ppam.calibration import Calibration
from earatlas.ppam.model import PPAM
from earatlas.ppam.posterior import PosteriorSettings


def random_model(space: ea.Space, latent: int, rng: np.random.Generator) -> PPAM:
    """Return a model of three charts and 13 cues, with unequal maps and noises."""
    x = space.grid(25.0)
    slopes = rng.normal(size=(x.shape[1], 13))
    y = 20 * np.sin(np.radians(x) @ slopes) + rng.normal(size=(len(x), 13))
    fitted = PPAM.fit(space, x, y, components=3, latent=latent)
    return replace(fitted, spread=fitted.spread * rng.uniform(0.5, 2.0, size=fitted.spread.shape))


def random_statistics(rng: np.random.Generator, count: int) -> CueStatistics:
    """Return statistics of random sounds, with arbitrary R and E for unobserved cues."""
    Q = rng.uniform(0.5, 9.0, size=(count, 13))
    means = rng.normal(scale=12.0, size=Q.shape)
    Q[rng.random(Q.shape) < 0.3] = 0.0
    squares = Q * (means**2 + rng.uniform(0.1, 3.0, size=Q.shape))
    return CueStatistics(
        Q, np.where(Q > 0, Q * means, 1e6), np.where(Q > 0, squares, -7.0), frames=11.0
    )


@pytest.mark.parametrize("latent", [0, 2])
@pytest.mark.parametrize("space", [ea.Sphere(), ea.Circle(), ea.Plane()], ids=lambda s: s.name)
def test_batch_equals_dense_joint(space: ea.Space, latent: int, rng: np.random.Generator) -> None:
    """The posterior of each row equals that of the dense joint density of its observed frames."""
    model, frames = random_model(space, latent, rng), 4
    y = rng.normal(scale=12.0, size=(5, 13, frames))
    observed = rng.random(y.shape) < 0.6
    kept = np.where(observed, y, 0.0)
    statistics = CueStatistics(
        observed.sum(axis=2).astype(float), kept.sum(axis=2), (kept**2).sum(axis=2)
    )
    posteriors = model.posteriors(statistics)
    assert len(posteriors) == 5
    for n, posterior in enumerate(posteriors):
        weights, means, covariances = oracles.posterior(model, y[n], observed[n])
        np.testing.assert_allclose(posterior.weights, weights, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(posterior.means, means, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(posterior.covariances, covariances, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(posteriors.best()[n], posterior.best, atol=1e-9)


def test_blocks_of_sounds_do_not_change_posteriors(rng: np.random.Generator) -> None:
    """One sound per block gives the same posteriors as one block."""
    model, statistics = random_model(ea.Sphere(), 2, rng), random_statistics(rng, 7)
    whole = model.posteriors(statistics)
    charts = replace(model.charts, settings=PosteriorSettings(block_numbers=1))
    P, means = statistics.counts / model.noise, statistics.means
    single, block = charts.posteriors(P, means), model.charts.posteriors(P, means)
    np.testing.assert_allclose(single.logs, block.logs, rtol=1e-12)
    np.testing.assert_allclose(single.covariances, whole.covariances, rtol=1e-12)


@pytest.mark.parametrize("latent", [0, 2])
def test_precision_of_each_chart(latent: int, rng: np.random.Generator) -> None:
    """Equal precisions of all charts give `posteriors`, and (u, w) has the moments of a loop."""
    model, statistics = random_model(ea.Sphere(), latent, rng), random_statistics(rng, 1)
    charts, y, (K, D, L) = model.charts, statistics.means, model.A.shape
    P = statistics.counts / model.noise
    factors = rng.normal(size=(1, K))
    expected = charts.posteriors(P, y, factors)
    found = charts.posterior_of_charts(np.tile(P, (K, 1)), y[0], factors[0])
    np.testing.assert_allclose(found.log_evidence, expected.log_evidence, rtol=1e-9)
    np.testing.assert_allclose(found.weights, expected.weights, rtol=1e-9)
    np.testing.assert_allclose(found.means, expected.means, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(found.covariances, expected.covariances, rtol=1e-9, atol=1e-9)
    own = P * rng.uniform(0.5, 2.0, size=(K, D))  # now another precision in each chart
    found = charts.posterior_of_charts(own, y[0], factors[0])
    means, covariances = charts.joint_moments(own, y[0])
    np.testing.assert_allclose(means[:, :L].T, found.means[..., 0], rtol=1e-9)
    np.testing.assert_allclose(
        covariances[:, :L, :L].transpose(1, 2, 0), found.covariances[..., 0], rtol=1e-9
    )
    for k in range(K):
        root = np.sqrt(model.spread[k])[:, None]
        M = np.hstack([model.A[k], root * model.latent])
        W = np.diag(own[k] / model.spread[k])
        prior = np.eye(L + latent)
        prior[:L, :L] = np.linalg.inv(model.gammas[k])
        V = np.linalg.inv(prior + M.T @ W @ M)
        np.testing.assert_allclose(covariances[k], V, rtol=1e-9, atol=1e-12)
        mean = V @ M.T @ W @ (y[0] - model.b[k])
        np.testing.assert_allclose(means[k], mean, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("latent", [0, 2])
@pytest.mark.parametrize("space", [ea.Sphere(), ea.Circle(), ea.Plane()], ids=lambda s: s.name)
def test_calibrated_batch_equals_formulas(
    space: ea.Space, latent: int, rng: np.random.Generator
) -> None:
    """Bad fits are relaxed: temperature and squared widths are multiplied by the ratio."""
    fitted, statistics = random_model(space, latent, rng), random_statistics(rng, 5)
    calibration = Calibration(
        temperature=3.0,
        kernel_widths=(0.5, 4.0),
        kernel_weights=(0.7, 0.3),
        frame_noise=np.full(13, 2.0),
    )
    never = calibration.calibrated_posteriors(fitted, statistics).residual_ratios
    assert never.tolist() == [0.0] * 5, "the usual residual is infinite by default"
    unit = replace(calibration, max_residual=1.0)
    residuals = unit.calibrated_posteriors(fitted, statistics).residual_ratios
    usual = replace(calibration, max_residual=1.01 * float(np.median(residuals)))
    batch = usual.calibrated_posteriors(fitted, statistics)
    assert sum(batch.residual_ratios > 1) == 2
    for n, posterior in enumerate(batch.posteriors(np.arange(5))):
        effective = usual.effective_statistics(statistics[n], fitted.noise)
        best = fitted.posterior(effective).best
        expected = fitted.forward_map(best[None])[0]
        variances = fitted.noise + (fitted.latent**2).sum(axis=1)
        squared = effective.counts * (effective.means - expected) ** 2 / variances
        ratio = squared.sum() / effective.counts.sum() / usual.max_residual
        assert batch.residual_ratios[n] == pytest.approx(ratio, rel=1e-9)
        relaxed = usual.relaxed(max(ratio, 1.0))
        effective = relaxed.effective_statistics(statistics[n], fitted.noise)
        single = relaxed.blur(fitted.posterior(effective))
        np.testing.assert_allclose(posterior.weights, single.weights, rtol=1e-9)
        np.testing.assert_allclose(posterior.means, single.means, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(posterior.covariances, single.covariances, rtol=1e-9, atol=1e-9)


def test_charts_are_selected_by_some_of_the_cues(rng: np.random.Generator) -> None:
    """Few of 40 charts are used with all 600 cues, and posteriors equal those of all charts."""
    space, x = ea.Sphere(), ea.Sphere().grid(10.0)
    slopes = rng.normal(size=(3, 600))
    y = 8 * np.sin(2 * to_vectors(x) @ slopes) + rng.normal(size=(len(x), 600))
    fitted = PPAM.fit(space, x, y, components=40, latent=2)
    usual = Calibration(temperature=14.0, frame_noise=np.full(600, 2.0), max_residual=2.0)
    means = y[::50] + rng.normal(scale=0.5, size=(len(x[::50]), 600))
    outlier = np.arange(len(means)) % 3 == 0
    means[outlier] += rng.normal(scale=9.0, size=means[outlier].shape)
    Q = rng.uniform(5.0, 40.0, size=means.shape)
    statistics = CueStatistics(Q, Q * means, Q * (means**2 + 2.0), frames=50.0)
    batch = usual.calibrated_posteriors(fitted, statistics, all_charts=False)
    assert (batch.residual_ratios[outlier] > 1).all()
    assert (batch.residual_ratios[~outlier] < 1).all()
    effective = usual.effective_statistics(statistics, fitted.noise)
    some, every = (fitted.posteriors(effective, all_charts=own) for own in (False, True))
    assert (np.isneginf(some.logs).any(axis=0)).any(), "not all charts are used"
    np.testing.assert_allclose(some.weights, every.weights, rtol=1e-6, atol=1e-7)
    counts: list[int] = []
    whole = usual.calibrated_posteriors(fitted, statistics)
    rows = np.arange(len(means))
    for posterior, single in zip(batch.posteriors(rows), whole.posteriors(rows), strict=True):
        assert space.distance(posterior.best, single.best) < 0.01
        heavy = single.pruned(1e-4)
        counts.append(len(heavy.weights))
        assert len(posterior.pruned(1e-4).weights) == counts[-1]
    np.testing.assert_allclose(batch.residual_ratios, whole.residual_ratios, rtol=1e-6)
    assert max(counts) > 1, "some posteriors have several components"
