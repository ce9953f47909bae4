"""Two tracks share the onsets by time (two sources) or by frequency (one source, other head)."""

import numpy as np

from earatlas.tracking.share_variance import explained_variance, is_frequency_bound


def test_explained_variance_matches_loops() -> None:
    """R² is the variance between the groups over the total variance, with weights."""
    rng = np.random.default_rng(3)
    values, weights, groups = rng.uniform(size=30), rng.uniform(size=30), rng.integers(0, 5, 30)
    mean = sum(weights[n] * values[n] for n in range(30)) / sum(weights)
    between = 0.0
    for g in range(5):
        own = [n for n in range(30) if groups[n] == g]
        total = sum(weights[n] for n in own)
        own_mean = sum(weights[n] * values[n] for n in own) / total
        between += total * (own_mean - mean) ** 2
    variance = sum(weights[n] * (values[n] - mean) ** 2 for n in range(30))
    np.testing.assert_allclose(
        explained_variance(values, weights, groups), between / variance, rtol=1e-9
    )


def test_sources_that_take_turns_are_not_frequency_bound() -> None:
    """Shares that change from step to step are two sources; shares by band are one."""
    rng = np.random.default_rng(4)
    n_steps, n_bands = 7, 5
    steps, bands = (index.ravel() for index in np.indices((n_steps, n_bands)))
    noise = rng.uniform(0.0, 0.2, size=len(steps))
    v = rng.uniform(0.5, 1.0, size=len(steps))
    for groups, expected in ((steps, False), (bands, True)):
        share = 0.8 * (groups % 2) + noise
        likelihoods = np.stack([share, 1 - share, np.full(len(share), 0.1)], axis=1)
        for m in (0, 1):
            assert is_frequency_bound(likelihoods, m, v, steps, bands) is expected
