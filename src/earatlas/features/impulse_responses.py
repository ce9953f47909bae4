"""Binaural impulse responses: their transfer functions, and whether they are reverberant."""

from __future__ import annotations

import numpy as np

from earatlas.features.layout import CueLayout
from earatlas.types import Array, Spectra

__all__ = ["responses_are_reverberant", "transfer_functions"]


def responses_are_reverberant(responses: Array, rate: float, layout: CueLayout) -> bool:
    """Return whether responses (N, 2, taps) were measured in a room.

    They are reverberant if they are longer than the window of the layout, or if much of their
    energy arrives late.
    """
    if responses.shape[2] / rate > layout.window / layout.rate:
        return True
    power = (responses**2).mean(axis=(0, 1))
    if not power.any():
        return False
    first = int(np.argmax(power > 1e-4 * power.max()))
    # The response of a head lasts no longer than a quarter of a window; of an anechoic one, at most
    # 1 % of the energy comes later. Evidence: docs/figures/settings/features.md,
    # "impulse_responses".
    late = power[first + round(0.25 * layout.window / layout.rate * rate) :].sum()
    return bool(late > 0.01 * power.sum())


def transfer_functions(responses: Array, rate: float, frequencies_hz: Array) -> Spectra:
    """Return the Fourier transforms (..., F) of responses (..., taps) at any frequencies in Hz."""
    phase = (-2 * np.pi / rate) * np.arange(responses.shape[-1])[:, None] * frequencies_hz
    rows = responses.reshape(-1, responses.shape[-1])
    out = np.empty((len(rows), len(frequencies_hz)), dtype=np.complex128)
    out.real, out.imag = rows @ np.cos(phase), rows @ np.sin(phase)  # two real products use BLAS
    return out.reshape(*responses.shape[:-1], -1)
