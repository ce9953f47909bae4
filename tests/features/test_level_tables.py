"""Sums in tables of levels, compared with a slow loop."""

import numpy as np
import pytest

from earatlas.features.statistics import LevelTable


@pytest.mark.parametrize("frames", [1, 3, 40])
def test_frames_are_added_to_their_rows(rng: np.random.Generator, frames: int) -> None:
    """Several frames may share a row; a single value per frame is used for all columns."""
    rows = rng.integers(0, 4, (frames, 5))
    values, per_frame = rng.normal(size=(frames, 5)), rng.normal(size=(frames, 1))
    table = LevelTable(4, 5, n_sums=2)
    expected = np.zeros((2, 4, 5))
    for part in (slice(0, 1), slice(1, frames)):
        if len(rows[part]):
            table.add(rows[part], values[part], per_frame[part])
    for n in range(frames):
        for d in range(5):
            expected[0, rows[n, d], d] += values[n, d]
            expected[1, rows[n, d], d] += per_frame[n, 0]
    np.testing.assert_allclose(table.sums, expected, rtol=1e-12)


def test_old_frames_are_forgotten(rng: np.random.Generator) -> None:
    """A frame has the weight g^a after a further frames, also of those that were added elsewhere.

    The weight of new frames grows beyond the range of floats, if the table is not renormalized.
    """
    g, n = 0.5, 1500
    rows, values = rng.integers(0, 4, (n, 5)), rng.normal(size=(n, 5))
    table, other = (LevelTable(4, 5, forgetting=g) for _ in range(2))
    for part in np.split(np.arange(n), [3, 40, 400, 900]):
        table.add(rows[part], values[part])
    other.add(rows[:7], values[:7])
    table.advance(2)
    table.merge(other)
    expected = np.zeros((4, 5))
    for own, later in ((range(n), n + 2), (range(7), 7)):
        for k in own:
            for d in range(5):
                expected[rows[k, d], d] += g ** (later - 1 - k) * values[k, d]
    np.testing.assert_allclose(table.sums[0], expected, rtol=1e-9)


@pytest.mark.parametrize("frames", [990, 2000])
def test_long_advance_forgets_everything(rng: np.random.Generator, frames: int) -> None:
    """The decay may underflow; frames that are added later count as usual."""
    rows, values = rng.integers(0, 4, (7, 5)), rng.normal(size=(7, 5))
    table, fresh = (LevelTable(4, 5, forgetting=0.5) for _ in range(2))
    table.add(np.repeat(rows, 40, axis=0), np.repeat(values, 40, axis=0))
    table.advance(frames)
    np.testing.assert_allclose(table.sums, 0.0, atol=1e-290)
    table.add(rows, values)
    fresh.add(rows, values)
    np.testing.assert_allclose(table.sums, fresh.sums, rtol=1e-12)
