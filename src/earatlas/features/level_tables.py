"""Sums of frames in a table of levels: what a stream keeps of a sound of any length.

table   (levels, D) a sum a level and column      rows, values   (t, D) where, and what to add
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from earatlas.types import Array, Indices

__all__ = ["add_frames"]

_FEW = 16  # frames: up to here one after the other is faster, twice as fast for two of them


def add_frames(tables: Sequence[Array], rows: Indices, values: Sequence[Array]) -> None:
    """table[rows[n, d], d] += values[n, d] of every frame n, in each of the tables.

    The values of a table may be one a frame, (t, 1).
    """
    D = rows.shape[1]
    place = rows * D
    place += np.arange(D)
    for table, own in zip(tables, values, strict=True):
        flat = table.reshape(-1)
        if len(rows) <= _FEW:
            for there, value in zip(place, own, strict=True):
                flat[there] += value  # a frame has each column once
        else:
            np.add.at(flat, place.ravel(), np.broadcast_to(own, rows.shape).ravel())
