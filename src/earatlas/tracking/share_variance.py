"""Whether two tracks are two sources or one: what explains the share of a track in the onsets.

If two sources speak, they take turns: the share of one of them in the onset bins varies from step
to step. If one source does not fit the learned head, two tracks explain it together, one at some
frequencies and the other at the rest: the share varies over frequency, and is the same at all
times. Input: likelihoods of the bins under the tracks. Output: the fraction of the variance of the
share that steps explain, and that bands of frequencies explain.

    q_n   share of the track in bin n, among all tracks
    u_n   weight of bin n: its vote, without the part of the diffuse component
    R²    Σ_g U_g (q̄_g - q̄)² / Σ_n u_n (q_n - q̄)², for groups g of bins with total weight U_g
"""

from __future__ import annotations

import numpy as np

from earatlas.types import Array, Indices

__all__ = ["explained_variance", "is_frequency_bound"]


def is_frequency_bound(
    likelihoods: Array, m: int, v: Array, steps: Indices, bands: Indices
) -> bool:
    """Return whether the share of track m depends more on frequency than on time.

    `likelihoods` (B, M + 1) are those of the tracks and of the diffuse component, `v` (B,) the
    votes of the bins, `steps` and `bands` (B,) their groups in time and in frequency.
    """
    tracks = likelihoods[:, :-1].sum(axis=1)
    shares = likelihoods[:, m] / np.maximum(tracks, 1e-300)
    weights = v * tracks / (tracks + likelihoods[:, -1])
    by_time, by_frequency = (
        explained_variance(shares, weights, groups) for groups in (steps, bands)
    )
    return by_frequency > by_time


def explained_variance(values: Array, weights: Array, groups: Indices) -> float:
    """Return R² (0 to 1): the part of the weighted variance of values that groups explain.

    >>> explained_variance(np.array([0.0, 0, 1, 1]), np.ones(4), np.array([0, 0, 1, 1]))
    1.0
    >>> explained_variance(np.array([0.0, 1, 0, 1]), np.ones(4), np.array([0, 0, 1, 1]))
    0.0
    """
    mean = float(weights @ values) / max(float(weights.sum()), 1e-300)
    totals = np.bincount(groups, weights)
    means = np.bincount(groups, weights * values) / np.maximum(totals, 1e-300)
    variance = float(weights @ (values - mean) ** 2)
    return float(totals @ (means - mean) ** 2) / max(variance, 1e-300)
