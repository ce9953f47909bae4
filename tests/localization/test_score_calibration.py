"""Score calibration: batched posteriors equal single ones, and both follow the formulas."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit

import earatlas as ea
from earatlas.geometry.spaces import Sphere
from earatlas.localization.onset_likelihood import DirectionLogLikelihood
from earatlas.localization.score_calibration import (
    BETAS,
    CALIBRATION_SETTINGS,
    KERNEL_WIDTHS_DEGREES,
    ScoreCalibration,
    fit_anechoic_weight,
)


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


def test_anechoic_weights_maximize_the_penalized_likelihood(rng: np.random.Generator) -> None:
    """The weights are those of a general minimizer, also where one of the posteriors is certain."""
    n = 37
    features = rng.uniform((0.5, 5.0, 1.0), (3.0, 45.0, 9.0), size=(n, 3))
    ratios = np.exp(rng.normal(size=n))
    scores = rng.normal(-5.0, 4.0, size=(2, n))
    scores[0, :3] -= 300.0
    x = np.stack([np.ones(n), features[:, 0] - 1.5, features[:, 1] / 10 - 2.5, np.log(ratios)], 1)
    a, b = np.exp(np.maximum(scores - scores.max(axis=0), -40.0))

    def loss(v: np.ndarray) -> float:
        pi = expit(x @ v)
        return float(-np.log(pi * a + (1 - pi) * b).sum() + CALIBRATION_SETTINGS.ridge * (v @ v))

    expected = minimize(loss, np.zeros(4), method="BFGS", options={"gtol": 1e-8})
    found = fit_anechoic_weight(features, ratios, *scores)
    np.testing.assert_allclose(found, expected.x, atol=1e-5)
    assert loss(found) <= loss(expected.x) + 1e-9


def test_weights_of_scores_without_a_value_are_refused(rng: np.random.Generator) -> None:
    """A score of NaN is an error, not weights of NaN."""
    features = rng.uniform((0.5, 5.0, 1.0), (3.0, 45.0, 9.0), size=(7, 3))
    scores = rng.normal(-5.0, 4.0, size=(2, 7))
    scores[1, 4] = np.nan
    with pytest.raises(ea.InputError, match="scores and features must be finite"):
        fit_anechoic_weight(features, np.ones(7), *scores)


def test_fit_of_weights_ends_without_convergence(rng: np.random.Generator) -> None:
    """Where no step is small enough, the fit ends after its largest number of steps."""
    features = rng.uniform((0.5, 5.0, 1.0), (3.0, 45.0, 9.0), size=(7, 3))
    anechoic, onset = rng.normal(-5.0, 4.0, size=(2, 7))
    found = [
        fit_anechoic_weight(
            features, np.ones(7), anechoic, onset,
            replace(CALIBRATION_SETTINGS, weight_tolerance=-1.0, max_weight_steps=steps),
        )
        for steps in (0, 1, 300)
    ]  # fmt: skip
    assert not found[0].any()
    assert found[1].any()
    np.testing.assert_allclose(
        found[2], fit_anechoic_weight(features, np.ones(7), anechoic, onset), atol=1e-6
    )
