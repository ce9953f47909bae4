"""Functions that replace SciPy's agree with SciPy's."""

import numpy as np
import pytest
import scipy.fft
import scipy.special

from earatlas.numerics import fast_fft_length, logistic, logsumexp


@pytest.mark.parametrize("axis", [None, 0, 1, -1])
@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_logsumexp(axis: int | None, keepdims: bool, dtype: type, rng: np.random.Generator) -> None:
    """Values, shapes and types agree, also for values of -inf, inf and NaN."""
    a: np.ndarray = (300 * rng.standard_normal((7, 3, 5))).astype(dtype)
    a[0, 0], a[1, 2, 1] = -np.inf, -np.inf
    a[2, 0, 0], a[3, 1, 1] = np.inf, np.nan
    for values in (a[:1], a[:2], a):
        expected = scipy.special.logsumexp(values, axis=axis, keepdims=keepdims)
        result = logsumexp(values, axis=axis, keepdims=keepdims)
        assert (np.shape(result), result.dtype) == (np.shape(expected), expected.dtype)
        np.testing.assert_allclose(result, expected, rtol=1e-12 if dtype is np.float64 else 1e-6)


def test_logsumexp_of_nothing() -> None:
    """The logarithm of an empty sum is -inf."""
    assert logsumexp(np.zeros((0,))) == -np.inf


def test_logistic() -> None:
    """Values agree to the last digits for arguments of both signs."""
    x = np.linspace(-700.0, 700.0, 1401)
    np.testing.assert_allclose(logistic(x), scipy.special.expit(x), rtol=1e-14)


def test_fast_fft_length() -> None:
    """Lengths are those of scipy.fft for real transforms."""
    for n in range(1, 3000):
        assert fast_fft_length(n) == scipy.fft.next_fast_len(n, real=True)
