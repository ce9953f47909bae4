"""Less of the room: each separated source without what arrives later than 50 ms.

In: sources (M, 2, n), each by itself as a room answers it. Out: the same with their late
reverberation reduced; direct sound and early reflections stay. By weighted prediction error
(Nakatani et al. 2010): what can be predicted of a frame from frames some time before is the room's,
for speech itself changes too fast.

    d_t = x_t - Σ_k G_kᴴ x_{t-Δ-k}        x_t (2,) both ears, K taps after a delay of Δ frames
    G = (Σ_t z zᴴ / λ_t)⁻¹ Σ_t z x_tᴴ / λ_t    z_t (2K,) the frames before, λ_t the power of d_t

A frequency at a time; λ and G in turn.
"""

from __future__ import annotations

import numpy as np

from earatlas.features.stft import istft, squared_size, stft
from earatlas.types import Array, Complex, Spectra

__all__ = ["without_late_sound"]

# Two talkers at T60 0.3 and 0.5 s, six mixtures each, SNR to the early images in dB: not dried 8.7
# and 4.5; six taps after four hops 10.0 and 6.6, after three 8.6 and 5.8, after five 9.7 and 6.1,
# ten taps after four 9.8 and 6.5; 32 ms windows 9.2 and 6.2; the mixture dried before it is
# separated 10.1 and 6.3, the worst of the latter 1 dB worse.
_WINDOW_SECONDS = 0.064
_HOPS = 4  # a window
_DELAY, _TAPS = 4, 6  # hops
_ROUNDS = 2
_LOADING = 1e-4  # of the mean diagonal
_QUIET = 1e-4  # of a frequency's loudest frame: quieter ones count as this


def without_late_sound(sounds: Array, rate: int) -> Array:
    """Sounds (M, 2, n) with less of what a room adds after 50 ms; silence stays as it is."""
    hop = max(round(_WINDOW_SECONDS * rate / _HOPS), 1)
    dry = np.empty_like(sounds)
    for sound, out in zip(sounds, dry, strict=True):
        scale = float(np.abs(sound).max()) or 1.0
        X = stft((sound / scale).astype(np.float32), _HOPS * hop, hop)
        out[:] = scale * istft(unpredicted(X), _HOPS * hop, hop, sound.shape[1])
    return dry


def unpredicted(X: Spectra) -> Spectra:
    """Of spectra (2, F, T), what frames before do not predict."""
    x, z = X.swapaxes(0, 1), frames_before(X)  # (F, 2, T), (F, 2 K, T)
    d = x
    for _ in range(_ROUNDS):
        power = squared_size(d).mean(axis=1)
        power = (power + _before(power) + _after(power)) / 3
        least = _QUIET * power.max(axis=1, keepdims=True) + 1e-12
        weighted = z / np.maximum(power, least)[:, None]
        R = weighted @ z.conj().mT
        diagonal = np.trace(R, axis1=1, axis2=2).real / R.shape[1]
        R += (_LOADING * diagonal + 1e-12)[:, None, None] * np.eye(R.shape[1], dtype=R.dtype)
        G = np.linalg.solve(R, weighted @ x.conj().mT)
        d = x - G.conj().mT @ z
    return d.swapaxes(0, 1)


def frames_before(X: Spectra) -> Complex:
    """(F, 2 K, T) both ears of the K frames that end Δ before each."""
    ears, F, T = X.shape
    z = np.zeros((F, ears * _TAPS, T), dtype=X.dtype)
    for k in range(min(_TAPS, max(T - _DELAY, 0))):
        lag = _DELAY + k
        z[:, ears * k : ears * (k + 1), lag:] = X[:, :, : T - lag].swapaxes(0, 1)
    return z


def _before(power: Array) -> Array:
    return np.concatenate([power[:, :1], power[:, :-1]], axis=1)


def _after(power: Array) -> Array:
    return np.concatenate([power[:, 1:], power[:, -1:]], axis=1)
