"""Numerical functions in the log domain, and FFT lengths.

SciPy has these functions, too, but importing `scipy.special` or `scipy.fft` takes longer than a
short recording needs to be localized (benchmarks/speed.py).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from earatlas.types import Array

__all__ = ["fast_fft_length", "logistic", "logsumexp"]


def logsumexp(values: ArrayLike, axis: int | None = None, *, keepdims: bool = False) -> Array:
    """Return log(sum(exp(values))) over an axis, or over all values; -inf for an empty sum.

    >>> logsumexp(np.log([[1.0, 2.0], [3.0, 4.0]]), axis=1).round(6).tolist()
    [1.098612, 1.94591]
    >>> float(logsumexp([-np.inf, -np.inf]))
    -inf
    """
    a = np.asarray(values)
    largest = np.max(a, axis=axis, keepdims=True, initial=-np.inf)
    # An infinite maximum would give inf - inf.
    largest = np.where(np.isfinite(largest), largest, largest.dtype.type(0))
    with np.errstate(divide="ignore", over="ignore"):  # log(0) = -inf, exp(inf) = inf
        total = np.log(np.sum(np.exp(a - largest), axis=axis, keepdims=True)) + largest
    out: Array = total if keepdims else np.squeeze(total, axis=axis)
    return out


def logistic(x: ArrayLike) -> Array:
    """Return 1 / (1 + exp(-x)), without overflow.

    >>> logistic([-1000.0, 0.0, 1000.0]).tolist()
    [0.0, 0.5, 1.0]
    """
    e = np.exp(-np.abs(np.asarray(x, dtype=np.float64)))
    out: Array = np.where(np.asarray(x) >= 0, 1.0, e) / (1.0 + e)
    return out


def fast_fft_length(n: int) -> int:
    """Return the least length of at least n for which a real FFT is fast: 2^a 3^b 5^c.

    >>> [fast_fft_length(n) for n in (1, 7, 97, 1021)]
    [1, 8, 100, 1024]
    """
    best = 1 << max(n - 1, 0).bit_length()
    five = 1
    while five < best:
        three = five
        while three < best:
            length = three << max(-(-n // three) - 1, 0).bit_length()
            best = min(best, length)
            three *= 3
        five *= 5
    return best
