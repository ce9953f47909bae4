"""Accumulation of frames into a table indexed by level, which has constant size.

table   (levels, D)   one sum per level and column
rows    (t, D)        level of each frame and column
values  (t, D)        what is added there
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from earatlas.types import Array, Indices

__all__ = ["add_frames"]

_MAX_LOOP_FRAMES = 16  # up to here a loop over frames is faster than np.add.at


def add_frames(tables: Sequence[Array], rows: Indices, values: Sequence[Array]) -> None:
    """Perform table[rows[n, d], d] += values[n, d] for every frame n in each of the tables.

    The values of a table may have shape (t, 1), which is one value per frame.
    """
    D = rows.shape[1]
    index = rows * D
    index += np.arange(D)
    for table, own in zip(tables, values, strict=True):
        flat = table.reshape(-1)
        if len(rows) <= _MAX_LOOP_FRAMES:
            for position, value in zip(index, own, strict=True):
                flat[position] += value  # within a frame, every column occurs once
        else:
            np.add.at(flat, index.ravel(), np.broadcast_to(own, rows.shape).ravel())
