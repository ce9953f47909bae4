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

from dataclasses import dataclass

import numpy as np

from earatlas.features.reverberation import ReverberationEstimate
from earatlas.features.stft import istft, squared_magnitude, stft
from earatlas.types import Array, Complex, Spectra

__all__ = [
    "DereverberationSettings",
    "delayed_frames",
    "dereverberate",
    "explain_no_effect",
    "weighted_prediction_error",
]


# Evidence: docs/figures/settings/separation.md, "demixing.dereverberation".
@dataclass(frozen=True, slots=True)
class DereverberationSettings:
    """Settings of the weighted prediction error."""

    window_seconds: float = 0.064  # length of the STFT window
    hops_per_window: int = 4  # window length, hops
    delay: int = 4  # Δ, in hops of 16 ms
    taps: int = 6  # K, in hops
    iterations: int = 2  # alternating updates of λ and G
    loading: float = 1e-4  # diagonal loading relative to the mean diagonal
    power_floor: float = 1e-4  # of λ over its maximum; without it, silent frames (1/λ) dominate


def dereverberate(
    signals: Array, rate: int, settings: DereverberationSettings | None = None
) -> Array:
    """Reduce the late reverberation of each signal by weighted prediction error.

    Parameters
    ----------
    signals : array of shape (M, 2, n)
        Two-channel signals, one per source.
    rate : int
        Sampling rate in Hz.
    settings : DereverberationSettings, optional
        Window, delay and number of taps.

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
    settings = settings or DereverberationSettings()
    hop = max(round(settings.window_seconds * rate / settings.hops_per_window), 1)
    window = settings.hops_per_window * hop
    dry = np.empty_like(signals)
    for signal, out in zip(signals, dry, strict=True):
        scale = float(np.abs(signal).max()) or 1.0
        X = stft((signal / scale).astype(np.float32), window, hop)
        out[:] = scale * istft(weighted_prediction_error(X, settings), window, hop, signal.shape[1])
    return dry


def weighted_prediction_error(X: Spectra, settings: DereverberationSettings) -> Spectra:
    """Return the prediction error d (2, F, T) of spectra X (2, F, T)."""
    x = X.swapaxes(0, 1)  # (F, 2, T)
    z = delayed_frames(X, settings.delay, settings.taps)  # (F, 2 K, T)
    d = x
    for _ in range(settings.iterations):
        power = squared_magnitude(d).mean(axis=1)
        padded = np.pad(power, ((0, 0), (1, 1)), mode="edge")
        power = (padded[:, :-2] + padded[:, 1:-1] + padded[:, 2:]) / 3
        floor = settings.power_floor * power.max(axis=1, keepdims=True) + 1e-12
        weighted = z / np.maximum(power, floor)[:, None]
        R = weighted @ z.conj().mT
        diagonal = np.trace(R, axis1=1, axis2=2).real / R.shape[1]
        loading = settings.loading * diagonal + 1e-12
        R += loading[:, None, None] * np.eye(R.shape[1], dtype=R.dtype)
        G = np.linalg.solve(R, weighted @ x.conj().mT)
        d = x - G.conj().mT @ z
    return d.swapaxes(0, 1)


def delayed_frames(X: Spectra, delay: int, taps: int) -> Complex:
    """Return z (F, 2 K, T): both ears of the K frames that end Δ frames before each frame."""
    ears, F, T = X.shape
    z = np.zeros((F, ears * taps, T), dtype=X.dtype)
    for k in range(min(taps, max(T - delay, 0))):
        lag = delay + k
        z[:, ears * k : ears * (k + 1), lag:] = X[:, :, : T - lag].swapaxes(0, 1)
    return z


def explain_no_effect(reverberation: ReverberationEstimate | None) -> str:
    """Return a warning that explains why a recording with this reverberation is not changed."""
    effect = "Dereverberation has no effect: the signals are not changed, and sum to the mixture"
    if reverberation is None:
        return f"{effect}. This atlas has no model of reverberant rooms; learn the head again."
    if np.isnan(reverberation.decay_seconds):
        return f"{effect}. The recording has too few onsets to measure its reverberation."
    return (
        f"{effect}. The recording is not reverberant: sound decays by 60 dB in "
        f"{reverberation.decay_seconds:.2f} s, in reverberant rooms in "
        f"{reverberation.settings.reverberant_seconds:g} s or more."
    )
