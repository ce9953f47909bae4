"""Beliefs of many looks at once are those of each, by the formulas."""

import numpy as np
import pytest

from earatlas.geometry.spaces import Sphere
from earatlas.localization.onset_likelihood import Look
from earatlas.localization.score_calibration import BETAS, WIDTHS, Trust


@pytest.fixture
def looks(rng: np.random.Generator) -> list[Look]:
    """Of other sizes each: fine points of 2 degrees around somewhere, and cells far away."""
    found = []
    for n, middle in ((3, (10.0, 40.0)), (5, (-179.0, -20.0)), (2, (90.0, 3.0))):
        steps = 2.0 * np.stack(np.meshgrid(np.arange(-n, n + 1), np.arange(-n, n)), axis=-1)
        fine = steps.reshape(-1, 2) / [np.cos(np.radians(middle[1])), 1.0] + middle
        far = np.stack([rng.uniform(-180, 180, 9), rng.uniform(-80, 80, 9)], axis=1)
        L = np.concatenate([rng.normal(size=len(fine)) + 6, rng.normal(size=9)])
        sizes = np.concatenate([np.ones(len(fine)), np.full(9, 5.0)])
        found.append(Look(np.concatenate([fine, far]), L, sizes, rng.uniform(1, 4, size=3)))
    return found


def test_many_looks_are_believed_as_each(rng: np.random.Generator, looks: list[Look]) -> None:
    """The shares of the nearest scenes, and the peak between the points around the best one."""
    shares = rng.uniform(size=(4, len(BETAS), len(WIDTHS)))
    trust = Trust(rng.uniform(1, 4, size=(4, 3)), np.array([0.3, 2.0, 0.7]), shares, np.zeros(4))
    space = Sphere()
    for look, posterior in zip(looks, trust.posteriors(space, looks), strict=True):
        alone = trust.posterior(space, look)
        np.testing.assert_allclose(posterior.weights, alone.weights, rtol=1e-9)
        np.testing.assert_allclose(posterior.means, alone.means, rtol=1e-9, atol=1e-12)
        far = (((trust.features - look.features) / trust.scale) ** 2).sum(axis=1)
        w = np.exp(-2.0 * far) / np.exp(-2.0 * far).sum()
        near = sum(w[n] * shares[n] for n in range(4))
        np.testing.assert_allclose(trust.near(look.features), near, rtol=1e-9)
        beta = np.exp((near.sum(axis=1) * np.log(BETAS)).sum() / near.sum())
        best, total, u = int(np.argmax(look.log_likelihoods)), 0.0, np.zeros(2)
        for place, L, size in zip(look.places, look.log_likelihoods, look.sizes, strict=True):
            if size == 1 and space.distance(look.places[best], place) < 3.2:
                v = np.exp(min(2 * beta, 1.0) * (L - look.log_likelihoods[best]))
                total, u = total + v, u + v * space.log(look.places[best], place)
        own = (posterior.centres == look.places[best]).all(axis=1)
        assert own.any()
        assert np.linalg.norm(u / total) > 1e-3, "it stands beside the point"
        np.testing.assert_allclose(
            posterior.means[own], np.tile(u / total, (own.sum(), 1)), rtol=1e-9
        )
        assert not posterior.means[~own].any()
