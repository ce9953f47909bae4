"""Ways of sources: the best of all that can be gone, who is who after a meeting, and who moves."""

from itertools import product

import numpy as np
import pytest

from earatlas.geometry.angles import to_vectors
from earatlas.tracking.identity_swaps import untangled
from earatlas.tracking.trajectory_hmm import WayGrid, smooth_way
from earatlas.tracking.trajectory_mixture import WAY_COST, Ways

COST = 0.3
AROUND = np.column_stack([np.arange(-90.0, 91.0, 6.0), np.full(31, 10.0)])  # 31 cells


def every_way(grid: WayGrid, L: np.ndarray) -> list[tuple[tuple[int, ...], float]]:
    """All ways that can be gone, and the value of each: loops over everything."""
    ways = []
    for cells in product(range(L.shape[1]), repeat=len(L)):
        value = L[0, cells[0]]
        for w in range(1, len(L)):
            before, now = cells[w - 1], cells[w]
            inside = np.isfinite(grid.degrees[now])
            reach = dict(zip(grid.near[now][inside], grid.degrees[now][inside], strict=True))
            value += L[w, now] - COST * reach.get(before, np.inf)
        if np.isfinite(value):
            ways.append((cells, float(value)))
    return ways


@pytest.fixture
def few() -> tuple[WayGrid, np.ndarray]:
    """Five cells at uneven distances, the last out of reach of the first; four windows."""
    directions = np.array([[0.0, 0], [5, 3], [9, -2], [17, 1], [24, 4]])
    L = np.random.default_rng(3).normal(scale=2.0, size=(4, 5)).astype(np.float32)
    return WayGrid.of(directions, 10.0), L


def test_best_way_is_the_best_of_all(few: tuple[WayGrid, np.ndarray]) -> None:
    """Of every way that can be gone; none goes further in a window than it can."""
    grid, L = few
    cells, value = grid.best_way(L, COST)
    best, most = max(every_way(grid, L), key=lambda way: way[1])
    assert tuple(cells) == best
    assert value == pytest.approx(most, rel=1e-5)
    assert len(every_way(grid, L)) < 5**4


def test_marginals_are_those_of_all_ways(few: tuple[WayGrid, np.ndarray]) -> None:
    """What is believed of a window is summed up over all ways."""
    grid, L = few
    expected = np.zeros(L.shape)
    for cells, value in every_way(grid, L):
        expected[np.arange(len(L)), cells] += np.exp(value)
    expected /= expected.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(grid.marginals(L, COST), expected, rtol=1e-4)


def test_smooth_way_keeps_up() -> None:
    """Whoever goes at one speed is where he is; noise is less; a silent window is filled in."""
    t = np.arange(30.0)
    true = to_vectors(np.column_stack([3 * t - 40, np.zeros(30)]))
    weights = np.where(t == 12, 0.0, 5.0)
    off = np.degrees(np.arccos(np.clip((smooth_way(true, weights, 2.0) * true).sum(axis=1), -1, 1)))
    assert off[3:-3].max() < 0.3
    assert off.max() < 2.0
    noisy = true + np.random.default_rng(1).normal(scale=0.05, size=true.shape)
    noisy[12] = -true[12]  # nobody was heard there
    smooth = smooth_way(noisy, weights, 2.0)
    before, after = (np.linalg.norm(np.delete(way - true, 12, axis=0)) for way in (noisy, smooth))
    assert after < 0.6 * before


def heard(ways: list[np.ndarray], seed: int = 0, onsets: int = 900) -> Ways:
    """Onsets of sources on ways of cells (W,), each now and then; a fifth come from nowhere."""
    rng = np.random.default_rng(seed)
    W, centres = len(ways[0]), to_vectors(AROUND)
    window = np.sort(rng.integers(W, size=onsets))
    source = rng.integers(len(ways), size=onsets)
    cell = np.array([ways[m][w] for m, w in zip(source, window, strict=True)])
    nowhere = rng.random(onsets) < 0.2
    cell[nowhere] = rng.integers(len(AROUND), size=nowhere.sum())
    cell = np.clip(cell + rng.integers(-1, 2, size=onsets), 0, len(AROUND) - 1)
    gap = np.degrees(np.arccos(np.clip(centres[cell] @ centres.T, -1, 1)))
    g = 12 * np.exp(-0.5 * (gap / 6) ** 2) + 0.05
    grid = WayGrid.of(AROUND, 15.0)
    return Ways(g.astype(np.float32), np.full(onsets, 0.5), window, W, grid)


WALK = np.round(np.linspace(3, 27, 40)).astype(int)
BACK = WALK[::-1].copy()
STAND = np.full(40, 20)


def test_a_walker_is_one_source_and_standing_ones_stay() -> None:
    """One walker is one way, beside a standing talker they are two; who stands is told."""
    for true in ([WALK], [WALK, STAND]):
        ways = heard(true)
        found = ways.counted(5)
        assert len(found.cells) == len(true)
        settled, moves = ways.standing_still(found)
        assert moves.sum() == 1
        mover = settled.cells[int(np.flatnonzero(moves)[0])]
        assert np.median(np.abs(mover - WALK)) <= 1
        still = settled.cells[~moves]
        assert (np.abs(still - 20) <= 1).all()
        assert (np.diff(still, axis=1) == 0).all()


def test_only_motion_is_restless() -> None:
    """Places that stand leave much unexplained where somebody moves, and little elsewhere."""
    places = [np.full(40, 6), STAND]
    standing = heard(places)
    moving = heard([WALK, STAND])
    assert standing.restless(standing.standing([6, 20])) < 0.05
    assert moving.restless(moving.standing([6, 20])) > 0.2
    ways, still = standing.numbered(2), standing.standing([6, 20])
    assert standing.score(ways) - standing.score(still) < 0.05 * standing.total
    ways, still = moving.numbered(2), moving.standing([6, 20])
    assert moving.score(ways) - moving.score(still) > 0.2 * moving.total


def test_shares_and_gains_are_those_of_the_formula() -> None:
    """Shares of a window sum to 1; what is explained, and claimed, as loops over onsets say."""
    ways = heard([WALK, STAND], onsets=60)
    found = ways.numbered(2)
    np.testing.assert_allclose(found.shares.sum(axis=0), 1.0)
    total, claims = 0.0, np.zeros((2, 60))
    for n, w in enumerate(ways._w):
        own = [found.shares[m, w] * ways._g[n, found.cells[m, w]] for m in range(2)]
        mixed = sum(own) + found.shares[2, w]
        total += 0.5 * np.log(mixed)
        claims[:, n] = [part / mixed for part in own]
    assert found.explained == pytest.approx(total, rel=1e-6)
    for m in range(2):
        np.testing.assert_allclose(ways.claims(found, m), claims[m], rtol=1e-5)
        counts = np.bincount(ways._w, 0.5 * claims[m], 40)
        np.testing.assert_allclose(ways.told(found, m), counts, rtol=1e-5, atol=1e-9)
        assert ways.gain(found, m) > 0.1
    steps = np.abs(np.diff(found.cells[0])) * 6 * np.cos(np.radians(10))
    assert found.way_degrees[0] == pytest.approx(steps.sum(), rel=0.02)
    assert ways.score(found) < found.explained - WAY_COST * found.way_degrees.sum() + 1e-6


@pytest.mark.parametrize("silent", [False, True])
def test_whoever_walked_goes_on_walking(silent: bool) -> None:
    """Two that cross are not turned back where they meet, even if one is silent there."""
    vectors = to_vectors(AROUND[np.stack([WALK, BACK])])
    told = np.full((2, 40), 6.0)
    if silent:
        told[0, 16:24] = 0.0
    np.testing.assert_array_equal(untangled(vectors, told), [[0] * 40, [1] * 40])
    turned = vectors.copy()
    turned[:, 20:] = vectors[::-1, 20:]
    told[:, 20:] = told[::-1, 20:]
    whose = untangled(turned, told)
    put_right = np.take_along_axis(turned, whose[..., None], axis=0)
    off = np.linalg.norm(put_right - vectors, axis=-1)
    assert np.median(off, axis=1).max() < 1e-9
    assert (off > 0.1).mean() < 0.1  # but for a few windows in which they are in one place


def test_nothing_is_exchanged_where_nothing_is_heard() -> None:
    """A source that is silent after a meeting keeps its way."""
    vectors = to_vectors(AROUND[np.stack([WALK, STAND])])
    told = np.full((2, 40), 6.0)
    told[1, 15:] = 0.0
    np.testing.assert_array_equal(untangled(vectors, told), [[0] * 40, [1] * 40])
