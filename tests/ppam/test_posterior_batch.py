"""Tests of batched posteriors: they equal those of single sounds."""

from dataclasses import replace

import numpy as np
import pytest

import earatlas as ea
from earatlas.features.statistics import CueStatistics
from earatlas.geometry.angles import to_vectors
from earatlas.ppam.calibration import Calibration
from earatlas.ppam.model import PPAM
from earatlas.ppam.posterior_batch import PosteriorBatch


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
def test_batch_equals_single_posteriors(
    space: ea.Space, latent: int, rng: np.random.Generator
) -> None:
    """Posteriors and normalized residuals agree to single precision, for good and bad fits."""
    fitted, statistics = random_model(space, latent, rng), random_statistics(rng, 5)
    calibration = Calibration(
        temperature=3.0,
        kernel_widths=(0.5, 4.0),
        kernel_weights=(0.7, 0.3),
        frame_noise=np.full(13, 2.0),
    )
    residual_ratios = [calibration.calibrated_posterior(fitted, statistics[n])[1] for n in range(5)]
    assert residual_ratios == [0.0] * 5, "the usual residual is infinite by default"
    unit = replace(calibration, max_residual=1.0)
    median = float(
        np.median([unit.calibrated_posterior(fitted, statistics[n])[1] for n in range(5)])
    )
    usual = replace(calibration, max_residual=1.01 * median)
    batch = PosteriorBatch(fitted).calibrated_posterior(usual, statistics)
    assert sum(batch.residual_ratios > 1) == 2
    posteriors = batch.posteriors(np.arange(5))
    for n, (posterior, residual_ratio) in enumerate(
        zip(posteriors, batch.residual_ratios, strict=True)
    ):
        single, expected = usual.calibrated_posterior(fitted, statistics[n])
        assert residual_ratio == pytest.approx(expected, rel=1e-4)
        np.testing.assert_allclose(posterior.weights, single.weights, rtol=1e-3, atol=1e-7)
        np.testing.assert_allclose(posterior.means, single.means, rtol=1e-3, atol=1e-3)
        np.testing.assert_allclose(posterior.covariances, single.covariances, rtol=1e-3, atol=1e-5)


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
    batch = PosteriorBatch(fitted).calibrated_posterior(usual, statistics)
    assert (batch.residual_ratios[outlier] > 1).all()
    assert (batch.residual_ratios[~outlier] < 1).all()
    charts = [len(posteriors.centres) for _, posteriors in batch._unrelaxed.groups]
    assert charts[0] < 40, "not all charts are used"
    counts: list[int] = []
    for n, posterior in enumerate(batch.posteriors(np.arange(len(means)))):
        single, residual_ratio = usual.calibrated_posterior(fitted, statistics[n])
        assert batch.residual_ratios[n] == pytest.approx(residual_ratio, rel=1e-3)
        assert space.distance(posterior.best, single.best) < 0.01
        heavy = single.pruned(1e-4)
        counts.append(len(heavy.weights))
        assert len(posterior.pruned(1e-4).weights) == counts[-1]
    assert max(counts) > 1, "some posteriors have several components"
