"""Numerical functions without SciPy: log domain, convolution, moving means, quantiles, assignment.

SciPy has these functions, too, but importing its packages takes longer than a short recording needs
to be localized (benchmarks/speed.py).
"""

from __future__ import annotations

from typing import Literal, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from earatlas.types import Array, Complex, Indices

__all__ = [
    "convolve",
    "decibels_to_amplitude",
    "distinct",
    "fast_fft_length",
    "half_solve",
    "linear_assignment",
    "logistic",
    "logsumexp",
    "moving_mean",
    "quantile",
    "unit_phasors",
    "weighted_median",
]

_Real = TypeVar("_Real", np.float32, np.float64)


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


def half_solve(matrices: Array, vectors: Array) -> tuple[Array, Array]:
    """Return Cholesky factors R of matrices (..., J, J), and R⁻¹ vectors (..., J, n).

    The eigenvalues of the matrices are at least 1, as those of I + B Bᵀ. Both results are blocks of
    the factor of one larger matrix, at a third of the cost of a general solution.

    >>> factor, half = half_solve(np.array([[4.0, 2.0], [2.0, 3.0]]), np.array([[2.0], [5.0]]))
    >>> (half.T @ half).round(6).tolist(), (factor @ half).round(6).tolist()
    ([[9.0]], [[2.0], [5.0]])
    """
    J, n = vectors.shape[-2:]
    joint = np.empty((*matrices.shape[:-2], J + n, J + n))
    joint[..., :J, :J] = matrices
    joint[..., J:, :J] = transposed = vectors.mT
    # Any block that makes the joint matrix positive definite; the upper one is not read.
    joint[..., :J, J:] = 0.0
    joint[..., J:, J:] = transposed @ vectors + np.eye(n)
    factor = np.linalg.cholesky(joint)
    return factor[..., :J, :J], factor[..., J:, :J].mT


def unit_phasors(angle: Array) -> Complex:
    """Return exp(j angle) of angles in radians.

    Both parts follow from the tangent of half the angle, for which NumPy has vector instructions
    (AVX-512), unlike for its complex exponential.

    >>> unit_phasors(np.array([0.0, np.pi / 2, np.pi])).round(9).tolist()
    [(1+0j), 1j, (-1+0j)]
    """
    tangent = np.tan(0.5 * angle)
    double = 2 / (1 + tangent**2)
    phasors = np.empty(angle.shape, dtype=np.complex128)
    phasors.real, phasors.imag = double - 1, tangent * double
    return phasors


def decibels_to_amplitude(level_db: Array) -> Array:
    """Return 10^(level / 20), as an exponential, which is faster than a power.

    >>> decibels_to_amplitude(np.array([0.0, 20.0])).round(9).tolist()
    [1.0, 10.0]
    """
    amplitude: Array = np.exp(level_db * (np.log(10) / 20))
    return amplitude


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


def convolve(x: Array, h: Array) -> Array:
    """Return the convolution (..., n + m - 1) of signals (..., n) and responses (..., m).

    It is computed by overlap-add: blocks of four responses are transformed together. Leading axes
    are broadcast.

    >>> convolve(np.array([1.0, 2.0, 3.0]), np.array([[0.0, 1.0], [2.0, 0.0]])).round(9).tolist()
    [[0.0, 1.0, 2.0, 3.0], [2.0, 4.0, 6.0, 0.0]]
    """
    if x.shape[-1] < h.shape[-1]:
        x, h = h, x
    n, m = x.shape[-1], h.shape[-1]
    size = fast_fft_length(min(4 * m, n + m - 1))
    step = size - m + 1  # at least m - 1, so that only neighbouring blocks overlap
    count = -(-n // step)
    padding = [(0, 0)] * (x.ndim - 1) + [(0, count * step - n)]
    blocks = np.pad(x, padding).reshape(*x.shape[:-1], count, step)
    products = np.fft.rfft(blocks, size) * np.fft.rfft(h, size)[..., None, :]
    parts = np.fft.irfft(products, size)
    out = np.zeros((*parts.shape[:-2], count + 1, step))
    out[..., :-1, :] = parts[..., :step]
    out[..., 1:, : m - 1] += parts[..., step:]
    whole: Array = out.reshape(*out.shape[:-2], -1)[..., : n + m - 1]
    return whole


def moving_mean(
    x: NDArray[_Real],
    size: int,
    axis: int = -1,
    *,
    mode: Literal["symmetric", "edge", "constant"] = "symmetric",
) -> NDArray[_Real]:
    """Return the mean of `size` values around each value, size // 2 of them before it.

    `mode` is that of `numpy.pad`; `symmetric` reflects the values at both ends, `constant` uses
    zeros. Sums of 2, 4, 8, ... values are used, so the time grows with the logarithm of the size.

    >>> moving_mean(np.array([0.0, 3.0, 6.0, 0.0]), 3).tolist()
    [1.0, 3.0, 3.0, 2.0]
    """
    if size == 1:
        return x.copy()
    n, before = x.shape[axis], size // 2
    sums = np.moveaxis(_extended(x, before, size - 1 - before, axis, mode), axis, 0)
    total, first, length = None, 0, 1
    while True:
        if size & length:  # a binary digit of the size
            part = sums[first : first + n]
            total = part.copy(order="K") if total is None else np.add(total, part, out=total)
            first += length
        if first == size:
            break
        sums = sums[:-length] + sums[length:]
        length *= 2
    assert total is not None  # because the size has a binary digit
    total /= size
    return np.moveaxis(total, 0, axis)


def _extended(
    x: NDArray[_Real],
    before: int,
    after: int,
    axis: int,
    mode: Literal["symmetric", "edge", "constant"],
) -> NDArray[_Real]:
    """Return `numpy.pad` of one axis, without its general code, which is slow on short signals."""
    n = x.shape[axis]
    if mode == "symmetric" and max(before, after) <= n:
        rows = np.concatenate([np.arange(before)[::-1], np.arange(n), n - 1 - np.arange(after)])
        return x.take(rows, axis=axis)
    padding = np.zeros((x.ndim, 2), dtype=int)
    padding[axis] = before, after
    return np.pad(x, padding, mode=mode)


def quantile(values: ArrayLike, level: float) -> float:
    """Return a quantile of one or more values, interpolated linearly as by `numpy.quantile`.

    NumPy's function imports its masked arrays, which takes longer than localizing a short sound. As
    with that function, the quantile of values with a NaN is NaN.

    >>> quantile([4.0, 1.0, 2.0], 0.75)
    3.0
    """
    ordered = np.sort(np.asarray(values, dtype=np.float64), axis=None)
    rank = level * (len(ordered) - 1)
    lower = int(rank)
    if np.isnan(ordered[-1]) or lower == rank:  # NaN is sorted to the end
        return float(ordered[-1] if np.isnan(ordered[-1]) else ordered[lower])
    fraction = rank - lower
    return float((1 - fraction) * ordered[lower] + fraction * ordered[lower + 1])


def distinct(indices: Indices) -> Indices:
    """Return the distinct values of indices (…), ascending; see `quantile` about `numpy.unique`.

    >>> distinct(np.array([3, 0, 3])).tolist()
    [0, 3]
    """
    return np.flatnonzero(np.bincount(indices.ravel()))


def linear_assignment(cost: Array) -> tuple[Indices, Indices]:
    """Return rows and columns of the pairs with the least total cost (M, J), which are finite.

    Each row and each column is in at most one of the min(M, J) pairs, which are sorted by row.
    This is the Hungarian algorithm with shortest augmenting paths [1]_.

    References
    ----------
    .. [1] R. Jonker and A. Volgenant, "A shortest augmenting path algorithm for dense and sparse
       linear assignment problems", Computing 38, 1987.

    Examples
    --------
    >>> cost = np.array([[4.0, 1.0, 3.0], [2.0, 0.0, 5.0]])
    >>> [pairs.tolist() for pairs in linear_assignment(cost)]
    [[0, 1], [1, 0]]
    """
    M, J = cost.shape
    if M > J:
        columns, rows = linear_assignment(cost.T)
        order = np.argsort(rows)
        return rows[order], columns[order]
    free = -1
    row_of = np.full(J + 1, free)  # the row of each column; column J starts a path
    row_price, column_price = np.zeros(M), np.zeros(J + 1)
    for row in range(M):
        column, row_of[J] = J, row
        reached = np.zeros(J + 1, dtype=bool)
        distance, previous = np.full(J + 1, np.inf), np.full(J + 1, J)
        while row_of[column] != free:
            reached[column] = True
            i = row_of[column]
            reduced = cost[i] - row_price[i] - column_price[:J]
            nearer = np.flatnonzero(~reached[:J] & (reduced < distance[:J]))
            distance[nearer], previous[nearer] = reduced[nearer], column
            column = int(np.argmin(np.where(reached, np.inf, distance)))
            step = distance[column]
            row_price[row_of[reached]] += step
            column_price[reached] -= step
            distance[~reached] -= step
        while column != J:
            row_of[column] = row_of[previous[column]]
            column = int(previous[column])
    used = np.flatnonzero(row_of[:J] != free)
    order = np.argsort(row_of[used])
    return row_of[used][order], used[order]


def weighted_median(values: Array, weights: Array) -> float:
    """Return the weighted median of values (B,)."""
    order = np.argsort(values, kind="stable")
    below = np.cumsum(weights[order])
    middle = int(np.searchsorted(below, 0.5 * below[-1]))
    return float(values[order[min(middle, len(values) - 1)]])
