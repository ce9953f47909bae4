"""Start times of sounds that overlap for a requested share of the time.

Input: lengths of M sounds and an overlap share. Output: their starts (M,), in the unit of the
lengths. Each sound starts later than the previous one by one common step.
"""

from __future__ import annotations

import warnings
from itertools import combinations, pairwise

import numpy as np
from numpy.typing import ArrayLike

from earatlas.errors import EaratlasWarning
from earatlas.types import Array

__all__ = ["overlap_share", "starts_for_overlap"]


def overlap_share(starts: ArrayLike, lengths: ArrayLike) -> float:
    """Return the share of the time from first start to last end with two or more sounds."""
    together, total = _overlap(np.asarray(starts, dtype=np.float64), np.asarray(lengths))
    return together / total


def _overlap(begin: Array, lengths: Array) -> tuple[float, float]:
    """Return the time with two or more sounds, and the time from first start to last end."""
    end = begin + lengths
    edges = np.unique(np.concatenate([begin, end]))
    middle, width = (edges[1:] + edges[:-1]) / 2, np.diff(edges)
    active = ((begin[:, None] <= middle) & (middle < end[:, None])).sum(axis=0)
    return float(width[active >= 2].sum()), float(width.sum())


def starts_for_overlap(lengths: ArrayLike, overlap: float) -> Array:
    """Return starts (M,) of sounds, a common step apart, with the requested overlap share.

    If several steps reach the share, the smallest is taken. If none does, as for a short sound
    beside a long one, the nearest share is taken and a warning is issued.
    """
    lengths = np.asarray(lengths, dtype=np.float64)
    order = np.arange(float(len(lengths)))
    # Steps at which a start coincides with an end, or two ends coincide. In between, the time
    # together and the total time are linear in the step: together = overlap * total is exact.
    pairs = list(combinations(range(len(lengths)), 2))
    breakpoints = [lengths[k] / (m - k) for k, m in pairs]
    breakpoints += [(lengths[k] - lengths[m]) / (m - k) for k, m in pairs]
    steps = np.unique(np.maximum([0.0, *breakpoints], 0.0))
    for (a, (together_a, total_a)), (b, (together_b, total_b)) in pairwise(
        [(step, _overlap(order * step, lengths)) for step in steps]
    ):
        excess_a, excess_b = together_a - overlap * total_a, together_b - overlap * total_b
        if excess_a * excess_b < 0:
            steps = np.append(steps, a + (b - a) * excess_a / (excess_a - excess_b))
    steps.sort()
    shares = np.array([overlap_share(order * step, lengths) for step in steps])
    best = int(np.argmin(np.round(np.abs(shares - overlap), 12)))  # the first of equal ones
    if abs(shares[best] - overlap) > 0.02:
        warnings.warn(
            f"overlap must be one that these lengths allow, got {overlap:g} and reached "
            f"{shares[best]:.2f}. Choose sounds of more similar lengths.",
            EaratlasWarning,
            stacklevel=2,
        )
    return order * float(steps[best])
