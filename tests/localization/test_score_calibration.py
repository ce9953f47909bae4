"""Score calibration: batched posteriors equal single ones, and both follow the formulas."""

from dataclasses import replace

import numpy as np
import pytest

import earatlas as ea
from earatlas.geometry.spaces import Sphere
from earatlas.localization.onset_likelihood import DirectionLogLikelihood
from earatlas.localization.score_calibration import BETAS, KERNEL_WIDTHS_DEGREES, ScoreCalibration


@pytest.fixture
def likelihoods(rng: np.random.Generator) -> list[DirectionLogLikelihood]:
    """Return likelihoods of points 2 degrees apart around a direction, and of distant cells."""
    created = []
    for n, centre in ((3, (10.0, 40.0)), (5, (-179.0, -20.0)), (2, (90.0, 3.0))):
        steps = 2.0 * np.stack(np.meshgrid(np.arange(-n, n + 1), np.arange(-n, n)), axis=-1)
        fine = steps.reshape(-1, 2) / [np.cos(np.radians(centre[1])), 1.0] + centre
        far = np.stack([rng.uniform(-180, 180, 9), rng.uniform(-80, 80, 9)], axis=1)
        L = np.concatenate([rng.normal(size=len(fine)) + 6, rng.normal(size=9)])
        sizes = np.concatenate([np.ones(len(fine)), np.full(9, 5.0)])
        features = rng.uniform(1, 4, size=3)
        created.append(DirectionLogLikelihood(np.concatenate([fine, far]), L, sizes, features))
    return created


def test_batched_posteriors_equal_single_ones(
    rng: np.random.Generator, likelihoods: list[DirectionLogLikelihood]
) -> None:
    """The mixture weights are those of similar scenes; the peak is between the grid points."""
    weights = rng.uniform(size=(4, len(BETAS), len(KERNEL_WIDTHS_DEGREES)))
    features, scale = rng.uniform(1, 4, size=(4, 3)), np.array([0.3, 2.0, 0.7])
    calibration = ScoreCalibration(features, scale, weights, np.zeros(4))
    space = Sphere()
    batch = calibration.posteriors(space, likelihoods)
    for likelihood, posterior in zip(likelihoods, batch, strict=True):
        single = calibration.posterior(space, likelihood)
        np.testing.assert_allclose(posterior.weights, single.weights, rtol=1e-9)
        np.testing.assert_allclose(posterior.means, single.means, rtol=1e-9, atol=1e-12)
        squared = (((features - likelihood.features) / scale) ** 2).sum(axis=1)
        kernel = np.exp(-2.0 * squared) / np.exp(-2.0 * squared).sum()
        local = sum(kernel[n] * weights[n] for n in range(4))
        np.testing.assert_allclose(
            calibration.local_mixture_weights(likelihood.features), local, rtol=1e-9
        )
        beta = np.exp((local.sum(axis=1) * np.log(BETAS)).sum() / local.sum())
        L = likelihood.log_likelihoods
        best, total, u = int(np.argmax(L)), 0.0, np.zeros(2)
        centre = likelihood.directions[best]
        for direction, value, size in zip(likelihood.directions, L, likelihood.sizes, strict=True):
            if size == 1 and space.distance(centre, direction) < 3.2:
                v = np.exp(min(2 * beta, 1.0) * (value - L[best]))
                total, u = total + v, u + v * space.log(centre, direction)
        own = (posterior.centres == centre).all(axis=1)
        assert own.any()
        assert np.linalg.norm(u / total) > 1e-3, "the peak is not at the grid point"
        np.testing.assert_allclose(
            posterior.means[own], np.tile(u / total, (own.sum(), 1)), rtol=1e-9
        )
        assert not posterior.means[~own].any()


def test_rounding_keeps_the_settings() -> None:
    """Only arrays are rounded; settings other than the defaults are kept."""
    localizer = ea.example_atlas().reverberant_localizer
    assert localizer is not None
    assert localizer.multi_source_calibration is not None
    fewer = replace(localizer.score_calibration.settings, max_components=7)
    other = replace(fewer, max_components=9)
    wider = replace(localizer.direct_sound.settings, fine_degrees=3.5)
    rounded = replace(
        localizer,
        direct_sound=replace(localizer.direct_sound, settings=wider),
        score_calibration=replace(localizer.score_calibration, settings=fewer),
        multi_source_calibration=replace(localizer.multi_source_calibration, settings=other),
    ).rounded()
    assert rounded.direct_sound.settings == wider
    assert rounded.score_calibration.settings == fewer
    assert rounded.multi_source_calibration is not None
    assert rounded.multi_source_calibration.settings == other
