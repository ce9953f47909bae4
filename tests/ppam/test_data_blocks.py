"""Tests of spatial blocks and of the charts that are relevant to them."""

from dataclasses import replace

import numpy as np
import pytest

from earatlas.geometry.spaces import Circle, Cylinder, Plane, Space, Sphere
from earatlas.ppam.data_blocks import BlockSettings, ChartSupport
from earatlas.ppam.em import EM, EMSettings

SPACES = [Sphere(), Circle(), Cylinder((-40.0, 60.0)), Plane(((-50.0, 50.0), (-30.0, 30.0)))]


def smooth_em(space: Space, n: int = 700) -> EM:
    """Return EM on smooth cues over a whole space."""
    rng = np.random.default_rng(3)
    x = space.grid((space.area / n) ** (1 / space.dims))
    angles = np.radians(x) @ rng.normal(size=(x.shape[1], 9)) * 2
    return EM(
        space, x, np.sin(angles) + 0.05 * rng.normal(size=angles.shape), EMSettings(), 2, True
    )


@pytest.mark.parametrize("space", SPACES, ids=lambda space: space.name)
def test_blocks_are_a_partition(space: Space) -> None:
    """Every direction is in one block, and blocks are smaller than the space."""
    data = smooth_em(space).data
    x, blocks = data.x, data.spatial_blocks
    assert np.array_equal(np.sort(np.concatenate(blocks)), np.arange(len(x)))
    assert len(blocks) > 3
    whole, widest = (
        space.squared_distances(x[rows], x[rows]).max()
        for rows in (np.arange(len(x)), max(blocks, key=len))
    )
    assert widest < 0.8 * whole


@pytest.mark.parametrize("space", SPACES, ids=lambda space: space.name)
def test_irrelevant_charts_do_not_change_result(space: Space) -> None:
    """Sufficient statistics and spread equal those of all components on one block."""
    em = smooth_em(space)
    model = em.initialize(90, np.random.default_rng(1))
    statistics, spread = em.e_step(model), em.estimate_spread(model, 3.0).spread
    support = ChartSupport.of(model, em.settings.blocks)
    counts = [len(support.relevant_components(block)) for block in em.data.blocks(columns=1)]
    assert np.mean(counts) < 0.8 * len(model.weights)
    one_block = BlockSettings(negligible_nats=np.inf, max_blocks=1)
    dense = replace(em, settings=replace(em.settings, blocks=one_block))
    expected = dense.e_step(model)
    assert len(list(dense.responsibilities(model))) == 1
    for name in ("counts", "grams", "cross", "projected", "log_likelihood"):
        actual, desired = getattr(statistics, name), getattr(expected, name)
        np.testing.assert_allclose(actual, desired, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(spread, dense.estimate_spread(model, 3.0).spread, rtol=1e-9)
