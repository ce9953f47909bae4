"""The scikit-learn regressor: its conventions hold, and it maps what it is told to map."""

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


def test_scikit_learn_accepts_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of check_estimator, with folds and held-out samples enough to have a kernel."""
    monkeypatch.setattr("earatlas.sklearn._MOST_HELD_OUT", 10)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # checks that skip themselves say so by a warning
        check_estimator(PPAMRegressor(n_folds=2))


def test_cues_to_positions_in_a_pipeline(small_head: ea.Head) -> None:
    """Frontal directions from a simulated head's cues, cross-validated; far better than chance."""
    front = small_head.subset(np.abs(small_head.directions[:, 0]) < 90)
    model = make_pipeline(StandardScaler(), PPAMRegressor(n_components=6, n_folds=0))
    folds = KFold(4, shuffle=True, random_state=0)  # the lattice is sorted by elevation
    score = cross_val_score(model, front.cues(), front.directions, cv=folds).mean()
    assert 0.7 < score < 0.9999


def test_grid_search_turns_its_knobs(rng: np.random.Generator) -> None:
    """A kinked line needs two components: the search finds more than one."""
    x = rng.uniform(-1, 1, size=200)
    y = np.stack([np.abs(x), x, x**2, np.maximum(x, 0)], axis=1) + 0.01 * rng.normal(size=(200, 4))
    search = GridSearchCV(PPAMRegressor(n_folds=0), {"n_components": [1, 4]}, cv=3).fit(y, x)
    assert search.best_params_ == {"n_components": 4}
    assert search.predict(y[:5]).shape == (5,)


def test_density_is_around_the_prediction(rng: np.random.Generator) -> None:
    """`predict` is the mean of `predict_density`."""
    x = rng.uniform(-1, 1, size=(120, 2))
    y = np.concatenate([x, x**2, x[:, :1] * x[:, 1:]], axis=1) + 0.01 * rng.normal(size=(120, 5))
    model = PPAMRegressor(n_components=5).fit(y, x)
    means = [posterior.mean for posterior in model.predict_density(y[:3])]
    np.testing.assert_allclose(model.predict(y[:3]), means, atol=1e-6)


def test_density_is_honest(rng: np.random.Generator) -> None:
    """Held-out positions lie in the 90 % regions nine times in ten; without folds hardly ever."""
    x = rng.uniform(-1, 1, size=(330, 2))
    maps = rng.normal(size=(5, 40))
    smooth = np.concatenate([x, np.sin(3 * x), x[:, :1] * x[:, 1:]], axis=1) @ maps
    y = smooth + 0.05 * rng.normal(size=smooth.shape)
    shares = []
    for folds in (8, 0):
        model = PPAMRegressor(n_components=12, n_folds=folds).fit(y[:200], x[:200])
        levels = [
            posterior.level_of(truth, 300)
            for posterior, truth in zip(model.predict_density(y[200:]), x[200:], strict=True)
        ]
        shares.append(np.mean(np.array(levels) < 0.9))
    assert 0.83 < shares[0] < 0.97
    assert shares[1] < 0.7
