"""Nearest neighbours and pairs on the unit sphere, compared with SciPy's k-d tree."""

import tracemalloc

import numpy as np
import pytest
from scipy.spatial import cKDTree

import earatlas as ea
from earatlas.geometry.angles import to_vectors
from earatlas.geometry.neighbours import NeighbourSettings, nearest_neighbours, pairs_within
from earatlas.types import Array


def vectors(n: int, seed: int) -> Array:
    """Return random unit vectors (n, 3)."""
    v: Array = np.random.default_rng(seed).standard_normal((n, 3))
    v /= np.linalg.norm(v, axis=1, keepdims=True)
    return v


@pytest.mark.parametrize("k", [1, 2, 7])
@pytest.mark.parametrize("lowest", [-1.0, 0.3])
def test_neighbours_are_those_of_a_tree(k: int, lowest: float) -> None:
    """Rows and chords agree with the tree, also far from points that cover a part of the sphere."""
    points, targets = vectors(700, seed=1), vectors(300, seed=2)
    points = points[points[:, 2] > lowest]
    chords, rows = nearest_neighbours(points, targets, k)
    expected_chords, expected_rows = cKDTree(points).query(targets, k=range(1, k + 1))
    np.testing.assert_allclose(chords, expected_chords, rtol=0, atol=1e-12)
    np.testing.assert_array_equal(rows, expected_rows)


def test_neighbours_at_poles_and_axes() -> None:
    """Points on the faces of the cube around the sphere, where cells end, are found."""
    points = to_vectors([[0, 0], [90, 0], [180, 0], [-90, 0], [0, 90], [0, -90], [45, 30]])
    chords, rows = nearest_neighbours(points, points, 3)
    np.testing.assert_array_equal(rows[:, 0], np.arange(7))
    np.testing.assert_array_equal(chords[:, 0], 0.0)
    np.testing.assert_allclose(chords, cKDTree(points).query(points, k=3)[0], atol=1e-12)


def test_neighbours_beyond_the_largest_chord_are_missing() -> None:
    """Chords are infinite where no neighbour is within `max_chord`, as in the tree."""
    points, targets = vectors(150, seed=3), vectors(80, seed=4)
    chords = nearest_neighbours(points, targets, 2, max_chord=0.11)[0]
    expected = cKDTree(points).query(targets, k=2, distance_upper_bound=0.11)[0]
    assert 0.1 < np.isinf(expected).mean() < 0.9
    np.testing.assert_allclose(chords, expected, rtol=0, atol=1e-12)


def test_neighbours_by_the_tree() -> None:
    """The result is the same if there are too many pairs for a cell list."""
    points, targets = vectors(150, seed=3), vectors(80, seed=4)
    few = NeighbourSettings(max_pairs=1)
    for k, max_chord in ((3, 2.0), (1, 0.11)):
        chords, rows = nearest_neighbours(points, targets, k, max_chord=max_chord)
        tree_chords, tree_rows = nearest_neighbours(
            points, targets, k, max_chord=max_chord, settings=few
        )
        np.testing.assert_allclose(tree_chords, chords, rtol=0, atol=1e-12)
        near = np.isfinite(chords)
        np.testing.assert_array_equal(tree_rows[near], rows[near])


def test_dense_points_do_not_take_quadratic_memory() -> None:
    """4000 points in one cell are not compared with each other, which would take a gigabyte."""
    points = vectors(4000, seed=6) * 1e-3 + [1.0, 0.0, 0.0]
    tracemalloc.start()
    chords = nearest_neighbours(points, points, 2)[0]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 200e6
    np.testing.assert_allclose(chords, cKDTree(points).query(points, k=2)[0], atol=1e-12)


def test_at_most_as_many_neighbours_as_points() -> None:
    """k is reduced to the number of points; one point is the neighbour of every target."""
    chords, rows = nearest_neighbours(np.eye(3)[:1], vectors(5, seed=5), 4)
    assert chords.shape == rows.shape == (5, 1)
    assert np.isfinite(chords).all()


@pytest.mark.parametrize("degrees", [0.001, 9.0, 179.0])
def test_pairs_are_those_of_a_tree(degrees: float) -> None:
    """Pairs within a chord agree with the tree, and every row is its own neighbour."""
    v = to_vectors(ea.Sphere().grid(10.0))
    chord = 2 * np.sin(np.radians(degrees) / 2)
    first, second = pairs_within(v, chord)
    lists = cKDTree(v).query_ball_point(v, chord, return_sorted=True)
    assert sorted(zip(first, second, strict=True)) == [
        (row, other) for row, others in enumerate(lists) for other in others
    ]
