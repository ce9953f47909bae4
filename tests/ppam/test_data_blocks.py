"""Directions in patches: each in one, and the charts that reach it are all that count."""

from dataclasses import replace

import numpy as np
import pytest

from earatlas.geometry.spaces import Circle, Cylinder, Plane, Space, Sphere
from earatlas.ppam import data_blocks
from earatlas.ppam.data_blocks import Reach
from earatlas.ppam.em import EM, Learning

SPACES = [Sphere(), Circle(), Cylinder((-40.0, 60.0)), Plane(((-50.0, 50.0), (-30.0, 30.0)))]


def some_em(space: Space, n: int = 700) -> EM:
    """EM on smooth cues all over a space."""
    rng = np.random.default_rng(3)
    x = space.grid((space.area / n) ** (1 / space.dims))
    angles = np.radians(x) @ rng.normal(size=(x.shape[1], 9)) * 2
    return EM(space, x, np.sin(angles) + 0.05 * rng.normal(size=angles.shape), Learning(), 2, True)


@pytest.mark.parametrize("space", SPACES, ids=lambda space: space.name)
def test_every_row_is_in_one_patch(space: Space) -> None:
    """Patches are a partition, and each is smaller than the whole."""
    x = some_em(space).x
    parts = data_blocks.patches(space, x)
    assert np.array_equal(np.sort(np.concatenate(parts)), np.arange(len(x)))
    assert len(parts) > 3
    whole, widest = (
        space.squared_distances(x[rows], x[rows]).max()
        for rows in (np.arange(len(x)), max(parts, key=len))
    )
    assert widest < 0.8 * whole


@pytest.mark.parametrize("space", SPACES, ids=lambda space: space.name)
def test_charts_that_do_not_reach_change_nothing(
    space: Space, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Moments and spread equal those of all components over all data at once."""
    em = some_em(space)
    model = em.start(90, np.random.default_rng(1))
    found, spread = em.moments(model), em.with_spread(model, 3.0).spread
    reach = Reach.of(model)
    nearby = [len(reach.near(em.x[rows])) for rows in data_blocks.patches(space, em.x)]
    assert np.mean(nearby) < 0.8 * len(model.weights)
    monkeypatch.setattr(data_blocks, "_NOTHING", np.inf)
    monkeypatch.setattr(data_blocks, "_MOST", 1)
    dense = replace(em)
    expected = dense.moments(model)
    assert len(list(dense.responsibilities(model))) == 1
    for name in ("counts", "grams", "cross", "projected", "log_likelihood"):
        got, wanted = getattr(found, name), getattr(expected, name)
        np.testing.assert_allclose(got, wanted, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(spread, dense.with_spread(model, 3.0).spread, rtol=1e-9)
