"""Trajectories of sources: Viterbi, forward-backward, identity swaps and motion decisions."""

from itertools import product

import numpy as np
import pytest

from earatlas.geometry.angles import to_vectors
from earatlas.tracking.offline import select_fit
from earatlas.tracking.trajectory_hmm import DirectionGridHMM, smooth_trajectory
from earatlas.tracking.trajectory_mixture import (
    TrajectoryMixture,
    TrajectorySettings,
    resolve_identity_swaps,
)

SETTINGS = TrajectorySettings()
PENALTY = 0.3  # nats per degree
DIRECTIONS = np.column_stack([np.arange(-90.0, 91.0, 6.0), np.full(31, 10.0)])  # 31 cells


def every_path(grid: DirectionGridHMM, L: np.ndarray) -> list[tuple[tuple[int, ...], float]]:
    """Return all possible paths and their scores: loops over all combinations."""
    paths = []
    for cells in product(range(L.shape[1]), repeat=len(L)):
        value = L[0, cells[0]]
        for w in range(1, len(L)):
            before, now = cells[w - 1], cells[w]
            inside = np.isfinite(grid.neighbour_degrees[now])
            reach = dict(
                zip(grid.neighbours[now][inside], grid.neighbour_degrees[now][inside], strict=True)
            )
            value += L[w, now] - PENALTY * reach.get(before, np.inf)
        if np.isfinite(value):
            paths.append((cells, float(value)))
    return paths


@pytest.fixture
def small_grid() -> tuple[DirectionGridHMM, np.ndarray]:
    """Five cells at uneven distances, the last out of reach of the first; four windows."""
    directions = np.array([[0.0, 0], [5, 3], [9, -2], [17, 1], [24, 4]])
    L = np.random.default_rng(3).normal(scale=2.0, size=(4, 5)).astype(np.float32)
    return DirectionGridHMM(to_vectors(directions), 10.0, PENALTY), L


def test_viterbi_matches_exhaustive_search(small_grid: tuple[DirectionGridHMM, np.ndarray]) -> None:
    """Viterbi returns the best of all possible paths; some combinations are out of reach."""
    grid, L = small_grid
    cells, value = grid.viterbi(L)
    best, largest = max(every_path(grid, L), key=lambda path: path[1])
    assert tuple(cells) == best
    assert value == pytest.approx(largest, rel=1e-5)
    assert len(every_path(grid, L)) < 5**4


def test_forward_backward_matches_exhaustive_sums(
    small_grid: tuple[DirectionGridHMM, np.ndarray],
) -> None:
    """The posterior of each window is the sum over all paths."""
    grid, L = small_grid
    expected = np.zeros(L.shape)
    for cells, value in every_path(grid, L):
        expected[np.arange(len(L)), cells] += np.exp(value)
    expected /= expected.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(grid.forward_backward(L), expected, rtol=1e-4)


def test_smoothing_has_no_lag() -> None:
    """Constant velocity is reproduced, noise is reduced, a window without onsets is filled."""
    t = np.arange(30.0)
    true = to_vectors(np.column_stack([3 * t - 40, np.zeros(30)]))
    weights = np.where(t == 12, 0.0, 5.0)
    cosines = (smooth_trajectory(true, weights, 2.0) * true).sum(axis=1)
    errors = np.degrees(np.arccos(np.clip(cosines, -1, 1)))
    assert errors[3:-3].max() < 0.3
    assert errors.max() < 2.0
    noisy = true + np.random.default_rng(1).normal(scale=0.05, size=true.shape)
    noisy[12] = -true[12]  # a window without onsets
    smooth = smooth_trajectory(noisy, weights, 2.0)
    before, after = (
        np.linalg.norm(np.delete(trajectory - true, 12, axis=0)) for trajectory in (noisy, smooth)
    )
    assert after < 0.6 * before


def onset_mixture(paths: list[np.ndarray], seed: int = 0, onsets: int = 900) -> TrajectoryMixture:
    """Return onsets of sources on paths of cells (W,), of which a fifth are diffuse."""
    rng = np.random.default_rng(seed)
    W, centres = len(paths[0]), to_vectors(DIRECTIONS)
    window = np.sort(rng.integers(W, size=onsets))
    source = rng.integers(len(paths), size=onsets)
    cell = np.array([paths[m][w] for m, w in zip(source, window, strict=True)])
    diffuse = rng.random(onsets) < 0.2
    cell[diffuse] = rng.integers(len(DIRECTIONS), size=diffuse.sum())
    cell = np.clip(cell + rng.integers(-1, 2, size=onsets), 0, len(DIRECTIONS) - 1)
    distance = np.degrees(np.arccos(np.clip(centres[cell] @ centres.T, -1, 1)))
    g = 12 * np.exp(-0.5 * (distance / 6) ** 2) + 0.05
    grid = SETTINGS.hmm(DIRECTIONS)
    weights = np.full(onsets, 0.5)
    return TrajectoryMixture(g.astype(np.float32), weights, window, grid, W, SETTINGS)


MOVING = np.round(np.linspace(3, 27, 40)).astype(int)
MOVING_BACK = MOVING[::-1].copy()
STATIC = np.full(40, 20)


def test_moving_and_static_sources_are_counted() -> None:
    """A moving source is one path, alone and beside a static one."""
    for true, seed in product(([MOVING], [MOVING, STATIC]), range(4)):
        mixture = onset_mixture(true, seed)
        fit = mixture.count_sources(5)
        assert len(fit.cells) == len(true)
        fit, moves = select_fit(mixture, fit)
        assert moves.sum() == 1
        moving = fit.cells[int(np.flatnonzero(moves)[0])]
        assert np.median(np.abs(moving - MOVING)) <= 1
        static = fit.cells[~moves]
        assert (np.abs(static - 20) <= 1).all()
        assert (np.diff(static, axis=1) == 0).all()


def test_source_with_frequencies_of_its_own_is_not_counted() -> None:
    """Paths must share their frequencies, so one talker with another head remains one path."""
    both = onset_mixture([np.full(40, 6), STATIC])
    assert both.window is not None
    # In one case the frequencies do not depend on the source, in the other they determine it.
    nearer = np.abs(both.vectors[both.densities.argmax(axis=1)] @ both.vectors[[6, 20]].T)
    own = nearer.argmax(axis=1) * 9 + np.arange(900) % 9
    for frequencies, count in ((np.arange(900) % 18, 2), (own, 1)):
        mixture = TrajectoryMixture(
            both.densities, both.weights, both.window, both.grid, 40, SETTINGS, frequencies
        )
        assert len(mixture.count_sources(5)) == count


def test_source_that_frequencies_displace_does_not_move() -> None:
    """A path must gain more than a direction per frequency band, which another head explains."""
    moving = onset_mixture([np.repeat([14, 16], 20)], seed=5)
    assert moving.window is not None
    rng = np.random.default_rng(6)
    late = moving.window >= 20
    for own, moves in ((rng.random(900) < 0.5, True), (late, False)):
        frequencies = 3 * rng.integers(0, 8, 900) + 24 * own  # bands of all times, or of one half
        mixture = TrajectoryMixture(
            moving.densities, moving.weights, moving.window, moving.grid, 40, SETTINGS, frequencies
        )
        fit, moving_sources = mixture.static_where_possible(mixture.search(1)[0])
        assert moving_sources.tolist() == [moves]
        assert len(set(fit.cells[0])) == (2 if moves else 1)


def test_displacement_gain_equals_a_loop_over_bands() -> None:
    """Each band has the best cell that is not farther from the source than coinciding sources."""
    mixture = onset_mixture([MOVING, STATIC], onsets=120)
    rng = np.random.default_rng(9)
    mixture._frequencies = rng.integers(0, 21, 120)
    e, pi = rng.uniform(0.1, 1, 120), rng.uniform(0.1, 0.9, 40)
    assert mixture.window is not None
    expected = 0.0
    for band in range(7):
        L = np.zeros(3)  # neighbours are 6 degrees apart: only the next ones are near enough
        for n in np.flatnonzero(mixture._frequencies // 3 == band):
            L += 0.5 * np.log(pi[mixture.window[n]] * mixture.densities[n, 19:22] + e[n])
        expected += L.max() - L[1]
    assert mixture._displacement_gain(e, pi, 20) == pytest.approx(expected, rel=1e-4)


def test_better_candidate_of_each_start_is_refined() -> None:
    """Of each start, the better fit with a further source is refined, and the best is returned.

    In this recording the best fit before refinement is not the best one after it.
    """
    mixture = onset_mixture([MOVING, MOVING_BACK, STATIC], seed=2)
    one, refined = mixture.search(1)[0], []
    for start in mixture._starts(one):
        components = mixture.components(start)
        fits = [
            mixture.fit_weights(
                np.concatenate([start.cells, mixture._place(components.diluted(w), np.full(40, w),
                                                            start.cells, 0.0)[None]])
            )
            for w in SETTINGS.mixture.new_weights
        ]  # fmt: skip
        better = max(fits, key=lambda fit: mixture.score(fit, 0.0))
        refined.append((mixture.score(better, 0.0), mixture._refine(better, 0.0)))
    best = max(mixture.score(fit, 0.0) for _, fit in refined)
    assert mixture.score(mixture.add_source(one, 0.0), 0.0) == pytest.approx(best)
    assert best > mixture.score(max(refined, key=lambda pair: pair[0])[1], 0.0) + 0.01


def test_residual_motion_gain_is_large_only_with_motion() -> None:
    """Static directions explain the onsets of static sources, and not of moving ones."""
    static = onset_mixture([np.full(40, 6), STATIC])
    moving = onset_mixture([MOVING, STATIC])
    assert static.residual_motion_gain(static.fit_static([6, 20])) < 0.05
    assert moving.residual_motion_gain(moving.fit_static([6, 20])) > 0.2
    fit, static_fit = static.search(2)[-1], static.fit_static([6, 20])
    assert static.score(fit) - static.score(static_fit) < 0.05
    fit, static_fit = moving.search(2)[-1], moving.fit_static([6, 20])
    assert moving.score(fit) - moving.score(static_fit) > 0.2


def test_weights_and_gains_match_the_formula() -> None:
    """Mixing weights sum to 1; likelihood and responsibilities equal loops over onsets."""
    mixture = onset_mixture([MOVING, STATIC], onsets=60)
    found = mixture.search(2)[-1]
    np.testing.assert_allclose(found.mixing_weights.sum(axis=0), 1.0)
    total, responsibilities = 0.0, np.zeros((2, 60))
    assert mixture.window is not None
    for n, w in enumerate(mixture.window):
        own = [
            found.mixing_weights[m, w] * mixture.densities[n, found.cells[m, w]] for m in range(2)
        ]
        mixed = sum(own) + found.mixing_weights[2, w]
        total += 0.5 * np.log(mixed)
        responsibilities[:, n] = [part / mixed for part in own]
    assert found.log_likelihood == pytest.approx(total, rel=1e-6)
    for m in range(2):
        np.testing.assert_allclose(
            mixture.components(found).responsibilities(m), responsibilities[m], rtol=1e-5
        )
        counts = np.bincount(mixture.window, 0.5 * responsibilities[m], 40)
        np.testing.assert_allclose(mixture.onset_counts(found, m), counts, rtol=1e-5, atol=1e-9)
        assert mixture.gain(found, m) > 0.1
    steps = np.abs(np.diff(found.cells)) * 6 * np.cos(np.radians(10))
    penalty = found.log_likelihood / mixture.total - mixture.score(found, same_cone_nats=0.0)
    expected = SETTINGS.path_nats_per_degree * steps.sum() / mixture.total
    assert penalty == pytest.approx(expected, rel=0.02)


@pytest.mark.parametrize("silent", [False, True])
def test_identity_swap_is_resolved_after_crossing(silent: bool) -> None:
    """Crossing sources keep their identities, even if one is silent during the encounter."""
    vectors = to_vectors(DIRECTIONS[np.stack([MOVING, MOVING_BACK])])
    onset_counts = np.full((2, 40), 6.0)
    if silent:
        onset_counts[0, 16:24] = 0.0
    np.testing.assert_array_equal(
        resolve_identity_swaps(vectors, onset_counts, SETTINGS), [[0] * 40, [1] * 40]
    )
    swapped = vectors.copy()
    swapped[:, 20:] = vectors[::-1, 20:]
    onset_counts[:, 20:] = onset_counts[::-1, 20:]
    assignment = resolve_identity_swaps(swapped, onset_counts, SETTINGS)
    resolved = np.take_along_axis(swapped, assignment[..., None], axis=0)
    errors = np.linalg.norm(resolved - vectors, axis=-1)
    assert np.median(errors, axis=1).max() < 1e-9
    assert (errors > 0.1).mean() < 0.1  # except in a few windows in which the directions coincide


def test_no_swap_without_onsets() -> None:
    """A source that is silent after an encounter keeps its trajectory."""
    vectors = to_vectors(DIRECTIONS[np.stack([MOVING, STATIC])])
    onset_counts = np.full((2, 40), 6.0)
    onset_counts[1, 15:] = 0.0
    np.testing.assert_array_equal(
        resolve_identity_swaps(vectors, onset_counts, SETTINGS), [[0] * 40, [1] * 40]
    )
