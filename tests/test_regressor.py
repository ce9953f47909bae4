"""Tests of the scikit-learn regressor: conventions, accuracy and calibration."""

import warnings

import numpy as np
import pytest

pytest.importorskip("sklearn", reason="scikit-learn is an extra")

from sklearn.model_selection import GridSearchCV, KFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

import earatlas as ea
from earatlas.sklearn import PPAMRegressor


def test_passes_check_estimator(monkeypatch: pytest.MonkeyPatch) -> None:
    """All checks of scikit-learn pass, with enough folds and samples to fit a kernel."""
    monkeypatch.setattr("earatlas.sklearn._MAX_KERNEL_SAMPLES", 10)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # skipped checks issue warnings
        check_estimator(PPAMRegressor(n_folds=2))


def test_cues_to_positions_in_a_pipeline(small_head: ea.Head) -> None:
    """Frontal directions of a simulated head are predicted in cross-validation."""
    front = small_head.subset(np.abs(small_head.directions[:, 0]) < 90)
    model = make_pipeline(StandardScaler(), PPAMRegressor(n_components=6, n_folds=0))
    folds = KFold(4, shuffle=True, random_state=0)  # the lattice is sorted by elevation
    score = cross_val_score(model, front.cues(), front.directions, cv=folds).mean()
    assert 0.7 < score < 0.9999


def test_grid_search_selects_components(rng: np.random.Generator) -> None:
    """A piecewise linear function needs several components."""
    x = rng.uniform(-1, 1, size=200)
    y = np.stack([np.abs(x), x, x**2, np.maximum(x, 0)], axis=1) + 0.01 * rng.normal(size=(200, 4))
    search = GridSearchCV(PPAMRegressor(n_folds=0), {"n_components": [1, 4]}, cv=3).fit(y, x)
    assert search.best_params_ == {"n_components": 4}
    assert search.predict(y[:5]).shape == (5,)


def test_prediction_is_mean_of_density(rng: np.random.Generator) -> None:
    """`predict` is the mean of `predict_density`."""
    x = rng.uniform(-1, 1, size=(120, 2))
    y = np.concatenate([x, x**2, x[:, :1] * x[:, 1:]], axis=1) + 0.01 * rng.normal(size=(120, 5))
    model = PPAMRegressor(n_components=5).fit(y, x)
    means = [posterior.mean for posterior in model.predict_density(y[:3])]
    np.testing.assert_allclose(model.predict(y[:3]), means, atol=1e-6)


def test_density_is_calibrated(rng: np.random.Generator) -> None:
    """The 90 % regions contain about 90 % of new positions, and far fewer without folds."""
    x = rng.uniform(-1, 1, size=(330, 2))
    maps = rng.normal(size=(5, 40))
    smooth = np.concatenate([x, np.sin(3 * x), x[:, :1] * x[:, 1:]], axis=1) @ maps
    y = smooth + 0.05 * rng.normal(size=smooth.shape)
    fractions = []
    for folds in (8, 0):
        model = PPAMRegressor(n_components=12, n_folds=folds).fit(y[:200], x[:200])
        levels = [
            posterior.credible_level(truth, 300)
            for posterior, truth in zip(model.predict_density(y[200:]), x[200:], strict=True)
        ]
        fractions.append(np.mean(np.array(levels) < 0.9))
    assert 0.83 < fractions[0] < 0.97
    assert fractions[1] < 0.7


def test_deviation_is_that_of_the_density(rng: np.random.Generator) -> None:
    """`return_std` returns the standard deviations of `predict_density`, per coordinate."""
    x = rng.uniform(-1, 1, size=(120, 2)) * [1.0, 3.0]
    y = np.concatenate([x, x**2, x[:, :1] * x[:, 1:]], axis=1) + 0.05 * rng.normal(size=(120, 5))
    model = PPAMRegressor(n_components=5, n_folds=3).fit(y, x)
    means, deviations = model.predict(y[:3], return_std=True)
    np.testing.assert_array_equal(means, model.predict(y[:3]))
    for row, posterior in zip(deviations, model.predict_density(y[:3]), strict=True):
        np.testing.assert_allclose(row, posterior.sample(100_000).std(axis=0), rtol=0.02)
    flat = PPAMRegressor(n_components=2, n_folds=0).fit(y, x[:, 0])
    assert flat.predict(y[:3], return_std=True)[1].shape == (3,)
