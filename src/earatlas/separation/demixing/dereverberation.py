"""Dereverberation of separated sources by weighted prediction error (WPE).

Input: separated sources (M, 2, n). Output: the same with reduced late reverberation; the direct
sound and the reflections within about 50 ms remain. Late reverberation can be predicted linearly
from earlier frames, whereas speech itself changes too quickly [1]_:

    d_t = x_t - Σ_k G_kᴴ x_{t-Δ-k}                x_t (2,) both ears, K taps after Δ frames
    G = (Σ_t z zᴴ / λ_t)⁻¹ Σ_t z x_tᴴ / λ_t       z_t (2K,) delayed frames, λ_t the power of d_t

Every frequency is processed on its own; λ and G are updated in turn.

References
----------
.. [1] T. Nakatani, T. Yoshioka, K. Kinoshita, M. Miyoshi and B.-H. Juang, "Speech dereverberation
   based on variance-normalized delayed linear prediction", IEEE Trans. Audio, Speech, and Language
   Processing 18(7), 2010.
"""

from __future__ import annotations

import numpy as np

from earatlas.features.stft import istft, squared_magnitude, stft
from earatlas.types import Array, Complex, Spectra

__all__ = ["delayed_frames", "dereverberate", "weighted_prediction_error"]

# Evidence: docs/figures/settings/separation.md, "demixing.dereverberation".
_WINDOW_SECONDS = 0.064  # length of the STFT window, s
_HOPS_PER_WINDOW = 4  # window length, hops
_DELAY, _TAPS = 4, 6  # Δ and K, in hops of 16 ms
_ITERATIONS = 2  # alternating updates of λ and G
_LOADING = 1e-4  # diagonal loading relative to the mean diagonal
_POWER_FLOOR = 1e-4  # floor of λ over its maximum; without it, silent frames (1/λ) dominate


def dereverberate(signals: Array, rate: int) -> Array:
    """Reduce the late reverberation of each signal by weighted prediction error.

    Parameters
    ----------
    signals : array of shape (M, 2, n)
        Two-channel signals, one per source.
    rate : int
        Sampling rate in Hz.

    Returns
    -------
    array of shape (M, 2, n)
        The dereverberated signals. Silent signals stay silent.

    References
    ----------
    .. [1] T. Nakatani et al., "Speech dereverberation based on variance-normalized delayed linear
       prediction", IEEE Trans. Audio, Speech, and Language Processing 18(7), 2010.

    Examples
    --------
    >>> import numpy as np
    >>> noise = np.random.default_rng(0).normal(size=(1, 2, 8000))
    >>> dereverberate(noise, 16000).shape
    (1, 2, 8000)
    """
    hop = max(round(_WINDOW_SECONDS * rate / _HOPS_PER_WINDOW), 1)
    window = _HOPS_PER_WINDOW * hop
    dry = np.empty_like(signals)
    for signal, out in zip(signals, dry, strict=True):
        scale = float(np.abs(signal).max()) or 1.0
        X = stft((signal / scale).astype(np.float32), window, hop)
        out[:] = scale * istft(weighted_prediction_error(X), window, hop, signal.shape[1])
    return dry


def weighted_prediction_error(X: Spectra) -> Spectra:
    """Return the prediction error d (2, F, T) of spectra X (2, F, T)."""
    x, z = X.swapaxes(0, 1), delayed_frames(X)  # (F, 2, T), (F, 2 K, T)
    d = x
    for _ in range(_ITERATIONS):
        power = squared_magnitude(d).mean(axis=1)
        power = (power + _previous(power) + _next(power)) / 3
        floor = _POWER_FLOOR * power.max(axis=1, keepdims=True) + 1e-12
        weighted = z / np.maximum(power, floor)[:, None]
        R = weighted @ z.conj().mT
        diagonal = np.trace(R, axis1=1, axis2=2).real / R.shape[1]
        R += (_LOADING * diagonal + 1e-12)[:, None, None] * np.eye(R.shape[1], dtype=R.dtype)
        G = np.linalg.solve(R, weighted @ x.conj().mT)
        d = x - G.conj().mT @ z
    return d.swapaxes(0, 1)


def delayed_frames(X: Spectra) -> Complex:
    """Return z (F, 2 K, T): both ears of the K frames that end Δ frames before each frame."""
    ears, F, T = X.shape
    z = np.zeros((F, ears * _TAPS, T), dtype=X.dtype)
    for k in range(min(_TAPS, max(T - _DELAY, 0))):
        lag = _DELAY + k
        z[:, ears * k : ears * (k + 1), lag:] = X[:, :, : T - lag].swapaxes(0, 1)
    return z


def _previous(power: Array) -> Array:
    """Shift by one frame; the first frame is repeated."""
    return np.concatenate([power[:, :1], power[:, :-1]], axis=1)


def _next(power: Array) -> Array:
    """Shift by minus one frame; the last frame is repeated."""
    return np.concatenate([power[:, 1:], power[:, -1:]], axis=1)
