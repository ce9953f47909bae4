"""More sources than ears: how each reaches them, and who is silent when.

Two ears can cancel one source at a time. But speech is sparse: in most bins at most two of three
talkers are heard, and where it is known which two, they come apart as exactly as two alone. In:
spectra X and masks q of M > 2 sources. Out: columns A and powers v for the Wiener filter of
`spatial`; both are made better here than the masks tell them.

**Columns.** A source's column a_mf is where the directions x / |x| of its bins crowd together: each
bin counts by how near it is to the column,

    w_mft = r_mft (ε / (b_mft + ε))^p        b_mft = 1 - |a_mᴴ x|² / |x|²  what is beside it

ε falling from step to step, so that bins of two sources at once, which lie between, count less and
less. Where phases were learned, r is the mask. Above, masks rest on levels alone and are often
wrong for a whole frequency; there r is the posterior of a bin to be source m's (a complex angular
central Gaussian of a a^H + ε I), with a prior that is r averaged over many frequencies around: a
voice moves many of them at once.

**Powers.** x is Gaussian with covariance Σ_m v_m R_m, R_m = a_m a_mᴴ + ε I. Steps of EM make v more
probable, and each is drawn half way to its neighbours' mean: of three powers that two ears cannot
tell, one falls towards zero, the same in bins that belong together.

    v_m ← ½ E[c_mᴴ R_m⁻¹ c_m | x] = v_m + ½ v_m² (yᴴ R_m y - tr(S⁻¹ R_m))     S = Σ v R, y = S⁻¹ x

Powers of bins alone are told by two numbers a bin, of three. So they are drawn towards what each
voice has in its repertoire (`repertoire`), and made more probable again, in turns.

    X (2, F, T) spectra    q, r, v (M, F, T) masks, posteriors, powers    A (F, 2, M) columns
"""

from __future__ import annotations

from typing import Any, cast

import numpy as np

from earatlas.features.stft import squared_size
from earatlas.separation.demixing.nmf import Repertoire
from earatlas.separation.demixing.steering_vectors import (
    beside,
    covariances,
    principal,
    smoothed,
    spread_determinant,
)
from earatlas.types import Array, Complex, Single, Spectra

__all__ = ["crowded_columns", "sparse_powers", "voiced_powers"]

# Chosen on 8 mixtures of three talkers in the open (SNR dB, mean and worst) and 6 in a room of T60
# 0.3 s: columns and powers of the masks 12.2, 10.1 and 1.8; columns alone 13.2, 10.4; powers alone
# 12.7, 10.4; both 14.2, 11.4 and 2.5. With the true columns 15.5, 13.7: what is left is below 250
# Hz, where sources reach the ears alike, and 1 dB.
_NEAR = (0.8, 0.2, 0.05, 0.012, 0.003, 0.003)  # ε of the columns, step by step
_STEPS = (0.3, 0.3, 0.1, 0.1, 0.1, 0.03, 0.03, 0.01, 0.003)  # the same by neighbours
_BROAD = (65, 3)  # bins and frames of a prior
_EVERY = 2  # frames that columns are found from: they overlap by seven eighths
_LEAST = 1e-3  # of a bin that any source may have before it is looked at
_NEIGHBOURS = (3, 3)  # bins and frames of a power
_POWER_STEPS = 10  # 6 lose 0.2 dB
# SDR in dB of 5 mixtures each of ku100 and cipic_021: without a repertoire 13.9 and 14.5, with it
# 14.9 and 16.0. On cipic_021, 10 or 30 spectra 15.9, 10 turns 16.1, one step a turn 15.5, a third
# or two thirds of the way 15.7 and 16.0. All of the way, in 3 turns of ku100: 13.8.
_SPECTRA, _TURNS, _TURN_STEPS = 16, 5, 3
_FIRST_FIT, _FIT = 15, 5  # steps of the repertoire, which goes on from where it was


def crowded_columns(X: Spectra, q: Array, learned: int) -> Complex:
    """A (F, 2, M) of M sources with masks q; phases were learned below bin `learned`."""
    X, q = X[:, :, ::_EVERY], q[:, :, ::_EVERY]
    power = squared_size(X).sum(axis=0)
    weights = q**2 / np.maximum(power, 1e-9 * float(power.max()))
    A = principal(covariances(X, weights))
    for near in _NEAR:
        A = principal(covariances(X, weights * _fit(X, A, near) ** 2))
    begin = max(learned - _BROAD[0] // 2, 0)
    if learned < len(A):
        A[learned:] = _by_neighbours(X[:, begin:], q[:, begin:])[learned - begin :]
    return A


def _by_neighbours(X: Spectra, q: Array) -> Complex:
    """Columns by who is heard at many frequencies around: one frequency's masks may be wrong."""
    power = squared_size(X).sum(axis=0)
    weights = 1 / np.maximum(power, 1e-9 * float(power.max()) + 1e-300)
    prior = _around(q)
    A = principal(covariances(X, prior * weights))
    for near in _STEPS:
        fit = _fit(X, A, near)
        r = prior * fit**2
        r /= r.sum(axis=0)
        A = principal(covariances(X, r * fit * weights))
        prior = _around(r)
    return A


def _around(r: Array) -> Array:
    """What a bin is before it is looked at: the mean of its neighbours."""
    from scipy.ndimage import uniform_filter

    return np.stack([uniform_filter(row, _BROAD) for row in r]) + _LEAST


def _fit(X: Spectra, A: Complex, near: float) -> Array:
    """(M, F, T) how well a bin fits each column: 1 on it, a half if ε is beside it."""
    fit: Array = near / (beside(X, A) + near)
    return fit


def voiced_powers(X: Spectra, A: Complex, v: Array | Single, spread: float, floor: float) -> Array:
    """Powers (M, F, T) that explain X better than v does, each nearly a few spectra."""
    powers = sparse_powers(X, A, v, spread, floor)
    voices = [Repertoire.of(own, _SPECTRA) for own in powers]
    for turn in range(_TURNS):
        for m, own in enumerate(powers):
            voices[m] = voices[m].fitted(own, _FIT if turn else _FIRST_FIT)
            own *= voices[m].powers
        powers = sparse_powers(X, A, np.sqrt(powers, out=powers), spread, floor, steps=_TURN_STEPS)
    return powers


def sparse_powers(
    X: Spectra,
    A: Complex,
    v: Array | Single,
    spread: float,
    floor: float,
    *,
    steps: int = _POWER_STEPS,
) -> Array:
    """Powers (M, F, T) that explain X better than v does."""
    v = cast(Array, v.copy())  # of either precision
    a, b = (A[:, ear].T.astype(X.dtype)[..., None] for ear in (0, 1))  # (M, F, 1)
    R00, R11, R01 = squared_size(a) + spread, squared_size(b) + spread, a * b.conj()
    for _ in range(steps):
        S00, S11, S01 = (_summed(v, R) for R in (R00, R11, R01))
        scale = 1 / spread_determinant(a, b, v, spread)
        left = scale * (S11 * X[0] - S01 * X[1])
        right = scale * (S00 * X[1] - S01.conj() * X[0])
        # yᴴ R y - tr(S⁻¹ R): three numbers a bin, three a source.
        on_left = squared_size(left) - scale * S11
        on_right = squared_size(right) - scale * S00
        across = right * left.conj() + scale * S01.conj()
        for own, r00, r11, r01 in zip(v, R00, R11, R01, strict=True):
            gain = r00 * on_left
            gain += r11 * on_right
            gain += 2 * (r01.real * across.real - r01.imag * across.imag)
            gain *= own
            gain *= own
            own += 0.5 * gain
        np.maximum(v, floor, out=v)
        v += smoothed(v, _NEIGHBOURS, floor)
        v *= 0.5
    return v


def _summed(v: Array, R: Array | Complex) -> Any:
    """Σ_m v_m R_m (F, T), without the products all at once."""
    total = v[0] * R[0]
    for own, r in zip(v[1:], R[1:], strict=True):
        total += own * r
    return total
