"""Time-varying Wiener filters for moving sources: from masks and directions to source signals.

Input: spectra of a recording, masks of its sources, and the interaural transfer function of each
source over time. Output: signals that sum to the recording. The steering vectors of static sources
are estimated from the signal (`earatlas.separation.demixing.spatial_filtering`); a moving source
does not stay long enough in one direction. Its direction is known, however, and the head model
gives the steering vector for it:

    a_mf = (1, r_f(x_m)) / |…|         of the learned head, at the direction of source m in a step
    images = v_m R_m (Σ v R)⁻¹ x       R_m = a_m a_mᴴ + ε I, v between masks and filters

    X (2, F, T) spectra    masks (M, F, T)    ratios (M, S, F) in steps that begin at frames (S,)
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from earatlas.features.layout import CueLayout
from earatlas.features.stft import istft, squared_magnitude
from earatlas.hrtf.interaural_templates import InterauralTemplates, LocalLinearInterpolation
from earatlas.separation.demixing.frames import FLOOR
from earatlas.separation.demixing.spatial_filtering import (
    ACTIVITY_SECONDS,
    FILTER_LEAKAGE,
    MASK_UNCERTAINTY,
    source_activity,
)
from earatlas.separation.demixing.steering_vectors import (
    image_powers,
    multichannel_wiener_filter,
    regularize_collinear,
)
from earatlas.types import Array, Complex, Indices, Spectra

__all__ = ["interaural_ratios_at", "separate_moving"]

# Evidence: docs/figures/settings/separation.md, "demixing.time_varying".
_DIFFUSE_TO_DIRECT = 0.03  # ε


def interaural_ratios_at(
    templates: InterauralTemplates, at: LocalLinearInterpolation, frequencies_hz: Array
) -> Complex:
    """Return interaural transfer functions (right over left) (G, F) by interpolation.

    Without the interaural delay, level and phase vary slowly with frequency and can be
    interpolated. Outside the templates' band, the values at its edges are used.
    """
    known_hz = templates.frequencies_hz
    delay = np.einsum("gk,gk->g", at.weights, templates.delay_seconds[at.rows])[:, None]
    smooth = templates.ratios(at) * np.exp(2j * np.pi * known_hz * delay)
    logs = np.log(np.abs(smooth)) + 1j * np.unwrap(np.angle(smooth), axis=1)
    interpolated = np.stack([np.interp(frequencies_hz, known_hz, row) for row in logs])
    ratios: Complex = np.exp(interpolated - 2j * np.pi * frequencies_hz * delay)
    return ratios


def separate_moving(
    spectra: Spectra, masks: Array, ratios: Complex, starts: Indices, layout: CueLayout, n: int
) -> Array:
    """Return the signals (M, 2, n) of moving sources; spectra (2, B, T) are in the layout."""
    X, M = spectra[:, 1:], len(masks)
    power = squared_magnitude(X).sum(axis=0)
    floor = FLOOR * max(float(power.max()), 1e-300)
    averaging = ACTIVITY_SECONDS * layout.rate / layout.hop
    weights = masks + MASK_UNCERTAINTY * source_activity(masks, power, averaging)
    images = np.empty((M, *X.shape), dtype=np.complex128)
    for s, (begin, end) in enumerate(pairwise([*starts, X.shape[2]])):
        step = slice(begin, end)
        images[..., step] = _separate_step(X[..., step], weights[..., step], ratios[:, s], floor)
    dc = np.broadcast_to(spectra[:, :1] / M, (M, 2, 1, X.shape[2]))
    return istft(np.concatenate([dc, images], axis=2), layout.window, layout.hop, n)


def _separate_step(X: Spectra, weights: Array, ratios: Complex, floor: float) -> Complex:
    """Return the images (M, 2, F, t) of sources with interaural ratios (M, F)."""
    vectors = np.stack([np.ones_like(ratios), ratios], axis=1)  # (M, 2, F)
    A = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).transpose(2, 1, 0)
    power = squared_magnitude(X).sum(axis=0)
    if len(weights) == 2:
        v = image_powers(X, regularize_collinear(A))
        weights = np.sqrt(weights * (v / (v.sum(axis=0) + floor) + FILTER_LEAKAGE))
    return multichannel_wiener_filter(X, A, weights * power + floor, _DIFFUSE_TO_DIRECT)
