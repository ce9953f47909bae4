"""What one more sound explains at every place, against a loop."""

from __future__ import annotations

import numpy as np
import pytest

from earatlas.localization.mixture_scan import LogSums


@pytest.mark.parametrize("bins", [1, 4, 9, 301])
def test_sums_are_those_of_a_loop(bins: int) -> None:
    """Whatever the number of bins of a weight, and in whatever order they come."""
    rng = np.random.default_rng(bins)
    g = np.exp(rng.normal(size=(bins, 5))).astype(np.float32)
    weights = rng.choice([0.2, 0.5, 1.0], bins).astype(np.float32)
    others = rng.uniform(0.1, 3.0, bins).astype(np.float32)
    expected = [
        sum(
            float(weights[n]) * np.log(0.3 * float(g[n, x]) + float(others[n])) for n in range(bins)
        )
        for x in range(5)
    ]
    np.testing.assert_allclose(LogSums(g, weights).at(0.3, others), expected, rtol=2e-5, atol=1e-5)


def test_small_and_large_factors_are_kept() -> None:
    """Products of four neither vanish nor overflow."""
    g = np.array([[1e-6], [1e-6], [1e-6], [1e-6], [1e3], [1e3], [1e3], [1e3]], dtype=np.float32)
    L = LogSums(g, np.ones(8, dtype=np.float32)).at(1.0, np.zeros(8, dtype=np.float32))
    np.testing.assert_allclose(L, [4 * np.log(1e-6) + 4 * np.log(1e3)], rtol=1e-6)
