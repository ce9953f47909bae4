"""Functions that replace SciPy's agree with SciPy's."""

from typing import Literal

import numpy as np
import pytest
import scipy.fft
import scipy.ndimage
import scipy.optimize
import scipy.special

from earatlas.numerics import (
    convolve,
    decibels_to_amplitude,
    fast_fft_length,
    linear_assignment,
    logistic,
    logsumexp,
    moving_mean,
    quantile,
    unit_phasors,
)


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


@pytest.mark.parametrize(("n", "m"), [(1, 1), (1000, 1), (7, 7), (3, 50), (1000, 37), (129, 64)])
def test_convolve(n: int, m: int, rng: np.random.Generator) -> None:
    """Convolution by blocks is the sum over all products, and leading axes are broadcast."""
    x, h = rng.standard_normal(n), rng.standard_normal((3, 2, m))
    expected = [[np.convolve(x, response) for response in pair] for pair in h]
    np.testing.assert_allclose(convolve(x, h), expected, rtol=0, atol=1e-12)


def test_logistic() -> None:
    """Values agree to the last digits for arguments of both signs."""
    x = np.linspace(-700.0, 700.0, 1401)
    np.testing.assert_allclose(logistic(x), scipy.special.expit(x), rtol=1e-14)


def test_unit_phasors(rng: np.random.Generator) -> None:
    """Points on the unit circle are exact, also after many turns and at half a turn."""
    angle = np.concatenate([rng.uniform(-300, 300, (7, 3)), np.pi * np.arange(-3, 4)[:, None]], 1)
    np.testing.assert_allclose(unit_phasors(angle), np.exp(1j * angle), rtol=0, atol=1e-13)


def test_decibels_to_amplitude() -> None:
    """Values are those of the power of ten."""
    level_db = np.linspace(-300.0, 300.0, 601)
    np.testing.assert_allclose(decibels_to_amplitude(level_db), 10 ** (level_db / 20), rtol=1e-13)


def test_fast_fft_length() -> None:
    """Lengths are those of scipy.fft for real transforms."""
    for n in range(1, 3000):
        assert fast_fft_length(n) == scipy.fft.next_fast_len(n, real=True)


@pytest.mark.parametrize(
    ("mode", "name"), [("symmetric", "reflect"), ("edge", "nearest"), ("constant", "constant")]
)
@pytest.mark.parametrize("size", [1, 2, 5, 6, 11, 23])
def test_moving_mean(
    mode: Literal["symmetric", "edge", "constant"], name: str, size: int, rng: np.random.Generator
) -> None:
    """Odd and even sizes agree on every axis, also if the window is longer than the signal."""
    x = rng.standard_normal((3, 9, 4))
    for axis in (0, 1, -1):
        expected = scipy.ndimage.uniform_filter1d(x, size, axis=axis, mode=name)
        np.testing.assert_allclose(moving_mean(x, size, axis, mode=mode), expected, atol=1e-14)
    assert moving_mean(x.astype(np.float32), size).dtype == np.float32


@pytest.mark.parametrize("shape", [(1, 1), (3, 3), (2, 5), (6, 4), (7, 7), (0, 2)])
def test_linear_assignment(shape: tuple[int, int], rng: np.random.Generator) -> None:
    """Pairs agree for costs of both signs, and the total cost also if there are ties."""
    for _ in range(30):
        cost = rng.standard_normal(shape)
        for found, expected in zip(
            linear_assignment(cost), scipy.optimize.linear_sum_assignment(cost), strict=True
        ):
            np.testing.assert_array_equal(found, expected)
        cost = rng.integers(-2, 3, shape).astype(float)
        rows, columns = linear_assignment(cost)
        assert len(set(columns.tolist())) == min(shape)
        total = cost[scipy.optimize.linear_sum_assignment(cost)].sum()
        assert cost[rows, columns].sum() == total


@pytest.mark.parametrize(
    "values", [[3.0], [4.0, 1.0, 2.0], [np.inf] * 3, [1.0, np.nan, 2.0], [5.0, -2.0, 0.5, 9.0]]
)
@pytest.mark.parametrize("level", [0.0, 0.3, 0.5, 1.0])
def test_quantile(values: list[float], level: float) -> None:
    """Quantiles agree with NumPy's, also those of infinite values and of a NaN."""
    with np.errstate(invalid="ignore"):  # NumPy's subtracts infinite values
        expected = np.quantile(values, level) if np.isfinite(values).all() else values[1]
    np.testing.assert_allclose(quantile(values, level), expected, rtol=1e-12)
