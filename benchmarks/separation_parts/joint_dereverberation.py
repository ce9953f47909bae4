"""Joint dereverberation and demixing of two sources by iterative source steering (T-ISS) [1]_.

Input: spectra of two channels. Output: images of two sources without their late reverberation. The
powers of the sources are those of a nonnegative matrix factorization (NMF), as in ILRMA [2]_.

    y_ft = P_f z_ft       z_ft = (x_ft, x_f,t-D, ..., x_f,t-D-L+1)
    C = Σ_f (Σ_mt |y_mft|² / r_mft + log r_mft) - 2 T log |det W_f|

W_f (2, 2) are the first columns of P_f. Each update is a rank-one change y_m ← y_m - v_m s, where s
is one of the sources or one delayed channel; the v that minimize C are known in closed form, so C
never increases.

    F, T, M, L   frequencies, frames, sources (2), taps
    X (2, F, T)  Y (M, F, T)  r (M, F, T)  P (F, M, 2 + 2 L)

References
----------
.. [1] T. Nakashima, R. Scheibler, M. Togami and N. Ono, "Joint dereverberation and separation with
   iterative source steering", ICASSP 2021.
.. [2] D. Kitamura, N. Ono, H. Sawada, H. Kameoka and H. Saruwatari, "Determined blind source
   separation unifying independent vector analysis and nonnegative matrix factorization", IEEE/ACM
   Trans. Audio, Speech, and Language Processing 24(9), 2016.
"""

from dataclasses import dataclass

import numpy as np

from earatlas.features.stft import istft, stft
from earatlas.separation.demixing.underdetermined import ItakuraSaitoNMF
from earatlas.types import Array, Complex


@dataclass(frozen=True)
class JointSettings:
    """Settings of T-ISS, as in the publication; the number of templates is that of ILRMA."""

    window: int = 4096  # samples, at 16 kHz
    hop: int = 1024
    taps: int = 5  # L, in hops
    delay: int = 1  # D, in hops
    templates: int = 2  # of the NMF, per source
    iterations: int = 40


def separate(samples: Array, settings: JointSettings) -> Array:
    """Return the images (2, 2, n) of two sources in samples (2, n)."""
    X = stft(samples, settings.window, settings.hop)
    Y, P, _ = joint_demixing(X, settings)
    A = np.linalg.inv(P[:, :, :2])  # (F, 2, M)
    images = np.einsum("fem,mft->meft", A, Y)
    return istft(images, settings.window, settings.hop, samples.shape[1])


def joint_demixing(X: Complex, settings: JointSettings) -> tuple[Complex, Complex, list[float]]:
    """Return sources Y (2, F, T), filters P (F, 2, 2 + 2 L), and the cost per iteration."""
    X = X / np.sqrt(np.mean(np.abs(X) ** 2))
    past = delayed(X, settings)  # (2 L, F, T)
    Y = X.copy()
    P = np.zeros((X.shape[1], 2, 2 + len(past)), dtype=np.complex128)
    P[:, :, :2] = np.eye(2)
    models = [ItakuraSaitoNMF.initialize(np.abs(y) ** 2, settings.templates) for y in Y]
    costs = []
    for _ in range(settings.iterations):
        models = [m.fit(np.abs(y) ** 2, 1) for m, y in zip(models, Y, strict=True)]
        r = np.stack([m.powers for m in models]).astype(np.float64)
        costs.append(cost(Y, P, r))
        for k in range(len(Y)):
            v = steering(Y, Y[k], r)
            energy = (np.abs(Y[k]) ** 2 / r[k]).mean(axis=1)
            v[k] = 1 - 1 / np.sqrt(np.maximum(energy, 1e-12))
            row = P[:, k].copy()
            Y = Y - v[:, :, None] * Y[k]
            P -= v.T[:, :, None] * row[:, None]
        for n, channel in enumerate(past):
            v = steering(Y, channel, r)
            Y -= v[:, :, None] * channel
            P[:, :, 2 + n] -= v.T
    return Y, P, costs


def delayed(X: Complex, settings: JointSettings) -> Complex:
    """Return the channels of earlier frames (2 L, F, T), zero before the first one."""
    past = np.zeros((settings.taps, *X.shape), dtype=np.complex128)
    for tap in range(settings.taps):
        shift = settings.delay + tap
        past[tap, :, :, shift:] = X[:, :, : X.shape[2] - shift]
    return past.reshape(-1, *X.shape[1:])


def steering(Y: Complex, s: Complex, r: Array) -> Complex:
    """Return v (M, F), the weighted regression of the sources on a signal s (F, T)."""
    weights = s.conj() / r
    power = (weights * s).real.sum(axis=2)
    v: Complex = (Y * weights).sum(axis=2) / np.maximum(power, 1e-12)
    return v


def cost(Y: Complex, P: Complex, r: Array) -> float:
    """Return the negative log-likelihood C, but for a constant."""
    fit = (np.abs(Y) ** 2 / r + np.log(r)).sum()
    return float(fit - 2 * Y.shape[2] * np.log(np.abs(np.linalg.det(P[:, :, :2]))).sum())
