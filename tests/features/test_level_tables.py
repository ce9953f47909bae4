"""Sums in tables of levels, compared with a slow loop."""

import numpy as np
import pytest

from earatlas.features.level_tables import add_frames


@pytest.mark.parametrize("frames", [1, 3, 40])
def test_frames_are_added_to_their_rows(rng: np.random.Generator, frames: int) -> None:
    """Several frames may share a row; a single value per frame is used for all columns."""
    rows = rng.integers(0, 4, (frames, 5))
    values, per_frame = rng.normal(size=(frames, 5)), rng.normal(size=(frames, 1))
    tables = [rng.normal(size=(4, 5)), np.zeros((4, 5))]
    expected = [table.copy() for table in tables]
    for n in range(frames):
        for d in range(5):
            expected[0][rows[n, d], d] += values[n, d]
            expected[1][rows[n, d], d] += per_frame[n, 0]
    add_frames(tables, rows, (values, per_frame))
    np.testing.assert_allclose(tables, expected, rtol=1e-12)
