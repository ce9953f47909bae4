"""Filters that follow sources on their ways: from masks and directions to the sound of each.

In: spectra of a recording, masks of its sources, and what both ears' ratio is for each of them over
time. Out: images that add up to the recording. Filters of standing sources learn from the sound how
each reaches the ears (`earatlas.separation.demixing.spatial_filtering`); one that walks is nowhere long enough.
But it is known where it is, and what the head does to that direction:

    a_mf = (1, r_f(x_m)) / |…|         of the learned head, at the place of source m in this step
    images = v_m R_m (Σ v R)⁻¹ x       R_m = a_m a_mᴴ + ε I, v between masks and filters

    X (2, F, T) spectra    masks (M, F, T)    ratios (M, S, F) in steps that begin at frames (S,)
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from earatlas.features.layout import CueLayout
from earatlas.features.stft import istft, squared_size
from earatlas.hrtf.interaural_templates import Interpolation, Templates
from earatlas.separation.demixing.spatial_filtering import activity
from earatlas.separation.demixing.steering_vectors import apart, powers, wiener
from earatlas.types import Array, Complex, Indices, Spectra

__all__ = ["ratios_at", "separate_along"]

# ε: 0.003, 0.03 and 0.1 gave 14.6, 15.0, 14.6 dB for walkers beside others on cipic_021.
_SPREAD = 0.03
_DOUBT = 0.1  # of a bin's power that a source may have whatever its mask says
_LEAK = 0.02  # of a bin's power that the filters may have given to the wrong source
_ACTIVITY_SECONDS = 0.25
_FLOOR = 1e-9  # of the strongest bin: keeps silence from being divided by


def ratios_at(templates: Templates, at: Interpolation, hertz: Array) -> Complex:
    """Right over left (G, F) at other directions and frequencies (F,).

    Without the delay, level and phase change slowly with frequency, and can be interpolated; beyond
    the templates' band they are as at its ends.
    """
    known = templates.frequencies_hz
    delay = np.einsum("gk,gk->g", at.weights, templates.delay_seconds[at.rows])[:, None]
    slow = templates.ratios(at) * np.exp(2j * np.pi * known * delay)
    logs = np.log(np.abs(slow)) + 1j * np.unwrap(np.angle(slow), axis=1)
    between = np.stack([np.interp(hertz, known, row) for row in logs])
    ratios: Complex = np.exp(between - 2j * np.pi * hertz * delay)
    return ratios


def separate_along(
    spectra: Spectra, masks: Array, ratios: Complex, starts: Indices, layout: CueLayout, n: int
) -> Array:
    """Both ears (M, 2, n) of every source; spectra (2, B, T) are in the layout."""
    X, M = spectra[:, 1:], len(masks)
    power = squared_size(X).sum(axis=0)
    floor = _FLOOR * max(float(power.max()), 1e-300)
    likely = masks + _DOUBT * activity(masks, power, _ACTIVITY_SECONDS * layout.rate / layout.hop)
    images = np.empty((M, *X.shape), dtype=np.complex128)
    for s, (begin, end) in enumerate(pairwise([*starts, X.shape[2]])):
        part = slice(begin, end)
        images[..., part] = _step(X[..., part], likely[..., part], ratios[:, s], floor)
    dc = np.broadcast_to(spectra[:, :1] / M, (M, 2, 1, X.shape[2]))
    return istft(np.concatenate([dc, images], axis=2), layout.window, layout.hop, n)


def _step(X: Spectra, likely: Array, ratios: Complex, floor: float) -> Complex:
    """Images (M, 2, F, t) of sources with ratios (M, F)."""
    columns = np.stack([np.ones_like(ratios), ratios], axis=1)  # (M, 2, F)
    A = (columns / np.linalg.norm(columns, axis=1, keepdims=True)).transpose(2, 1, 0)
    power = squared_size(X).sum(axis=0)
    if len(likely) == 2:
        v = powers(X, apart(A))
        likely = np.sqrt(likely * (v / (v.sum(axis=0) + floor) + _LEAK))
    return wiener(X, A, likely * power + floor, _SPREAD)
