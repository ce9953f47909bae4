"""Mixture scan: the log-likelihood at all directions, against a loop."""

from __future__ import annotations

import numpy as np
import pytest

from earatlas.localization.mixture_scan import MixtureScan


@pytest.mark.parametrize("bins", [1, 4, 9, 301])
def test_scan_equals_a_loop(bins: int) -> None:
    """The scan equals a loop for any number of bins per weight, in any order."""
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
    np.testing.assert_allclose(
        MixtureScan(g, weights).at(0.3, others), expected, rtol=2e-5, atol=1e-5
    )


def test_products_do_not_underflow_or_overflow() -> None:
    """Products of four of the smallest and of four of the largest factors are accurate."""
    g = np.array([[1e-6], [1e-6], [1e-6], [1e-6], [1e3], [1e3], [1e3], [1e3]], dtype=np.float32)
    L = MixtureScan(g, np.ones(8, dtype=np.float32)).at(1.0, np.zeros(8, dtype=np.float32))
    np.testing.assert_allclose(L, [4 * np.log(1e-6) + 4 * np.log(1e3)], rtol=1e-6)
