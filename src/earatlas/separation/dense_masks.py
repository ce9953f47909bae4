"""Soft masks of all time-frequency bins, observed or not, from the cues of the sources.

Input: spectra of a block and a `VESSLState`. Output: the masks of `VESSL.posterior_masks` for every
bin (f, t), computed a few frames at a time and in single precision, which is five times as fast.

    q_mft ∝ λ_mc exp Σ_d (α_d y_d² + β_md y_d + γ_md)       d the level and phase cues of the bin
"""

from __future__ import annotations

import numpy as np

from earatlas.features.stft import squared_magnitude
from earatlas.separation.source_model import LOG_2PI
from earatlas.separation.vessl import VESSL, VESSLState, cue_moments
from earatlas.types import Array, Indices, Single, Spectra

__all__ = ["dense_masks"]

_FRAMES_AT_ONCE = 64  # fits the cache
_TINY = np.float32(1e-30)  # power relative to the loudest bin; avoids division by zero


def dense_masks(vessl: VESSL, state: VESSLState, spectra: Spectra) -> Array:
    """Return soft masks (M, F, T) of spectra (2, B, T) in the frames that the state refers to."""
    M, T = len(state.sources), spectra.shape[-1]
    masks = np.empty((M, spectra.shape[1] - 1, T))
    scale = float(max(np.abs(spectra.real).max(), np.abs(spectra.imag).max())) or 1.0
    log_likelihood = _QuadraticLogLikelihood(vessl, state)
    for first in range(0, T, _FRAMES_AT_ONCE):
        part = slice(first, min(first + _FRAMES_AT_ONCE, T))
        X: Spectra = np.ascontiguousarray(spectra[:, 1:, part] / scale).astype(np.complex64)
        logs = log_likelihood.log_mixing_weights(part)
        log_likelihood.add_cues(logs, X)
        logs -= logs.max(axis=0)
        q = np.exp(logs, out=logs)
        masks[..., part] = q / q.sum(axis=0)
    return masks


class _QuadraticLogLikelihood:
    """The terms of log q: one quadratic function per cue and source."""

    def __init__(self, vessl: VESSL, state: VESSLState) -> None:
        cues, squares = cue_moments(state.sources)
        v, layout = state.noise, vessl.bins.layout
        parts = (
            np.broadcast_to(-0.5 / v, cues.shape),
            cues / v,
            -0.5 * (LOG_2PI + np.log(v) + squares / v),
        )
        self._coefficients = np.stack(parts)[..., None].astype(np.float32)  # (3, M, D, 1)
        self._ild, self._ipd = layout.ild_frequencies, layout.ipd_frequencies
        self._F, self._bands = layout.n_frequencies, vessl.settings.weight_bands
        self._log_weights = np.log(np.maximum(state.mixing_weights, 1e-30)).astype(np.float32)

    def log_mixing_weights(self, frames: slice) -> Single:
        """Return log λ (M, F, t) of some frames."""
        t = frames.stop - frames.start
        if self._bands is None:
            return np.repeat(self._log_weights[:, :, None], t, axis=2)
        cells = self._log_weights.reshape(len(self._log_weights), -1, self._bands)
        cells = cells[:, frames]  # (M, t, bands)
        band = np.arange(self._F) * self._bands // self._F
        return np.ascontiguousarray(cells.swapaxes(1, 2)[:, band])

    def add_cues(self, logs: Single, X: Spectra) -> None:
        """Add the terms of level and phase differences of X (2, F, t) to logs (M, F, t)."""
        left, right = (power + _TINY for power in squared_magnitude(X))
        level, phase = len(self._ild), len(self._ipd)
        for band, y, first in (
            (self._ild, self._level(left, right), 0),
            *((self._ipd, y, level + i * phase) for i, y in enumerate(self._phase(X, left, right))),
        ):
            if not len(band):
                continue
            square, linear, constant = self._coefficients[:, :, first : first + len(band)]
            logs[:, band[0] : band[-1] + 1] += (square * y + linear) * y + constant

    def _level(self, left: Single, right: Single) -> Single:
        """Return the level differences in dB from the powers of both ears (F, t)."""
        band = _band_slice(self._ild)
        y: Single = 10 * np.log10(right[band] / left[band])
        return y

    def _phase(self, X: Spectra, left: Single, right: Single) -> tuple[Array, Array]:
        """Return cosine and sine of the phase differences; 0 if one ear is silent."""
        band = _band_slice(self._ipd)
        cross = X[1, band] * X[0, band].conj()
        size = 1 / (np.sqrt(left[band]) * np.sqrt(right[band]))
        return cross.real * size, cross.imag * size


def _band_slice(band: Indices) -> slice:
    """Return the slice of a contiguous band of frequencies."""
    return slice(int(band[0]), int(band[-1]) + 1) if len(band) else slice(0, 0)
