"""Time-varying Wiener filters for moving sources: from masks and directions to source signals.

Input: spectra of a recording, masks of its sources, and the interaural transfer function of each
source over time. Output: signals that sum to the recording. The steering vectors of static sources
are estimated from the signal (`earatlas.separation.demixing.determined`); a moving source
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
from earatlas.features.stft import istft
from earatlas.hrtf.interaural_templates import InterauralTemplates, LocalLinearInterpolation
from earatlas.separation.demixing.determined import SecondMoments, regularize_collinear
from earatlas.separation.demixing.wiener import (
    WienerSettings,
    multichannel_wiener_filter,
    source_activity,
    source_powers,
)
from earatlas.types import Array, Complex, Indices, Spectra

__all__ = ["interaural_ratios_at", "separate_moving"]


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
    X, M, settings = spectra[:, 1:], len(masks), WienerSettings()
    moments = SecondMoments.from_spectra(X)
    max_power = float(moments.power.max())
    averaging = settings.activity_seconds * layout.rate / layout.hop
    activity = source_activity(masks, moments.power, averaging)
    vectors = np.stack([np.ones_like(ratios), ratios], axis=2)  # (M, S, 2, F)
    vectors = vectors / np.linalg.norm(vectors, axis=2, keepdims=True)
    images = np.empty((M, *X.shape), dtype=np.complex128)
    steps = pairwise([*starts, X.shape[2]])
    for A, (begin, end) in zip(vectors.transpose(1, 3, 2, 0), steps, strict=True):
        step = slice(begin, end)
        own = SecondMoments(moments.values[..., step], max_power)
        fractions = own.power_fractions(regularize_collinear(A)) if M == 2 else None
        v = source_powers(own, masks[..., step], activity[..., step], settings, fractions=fractions)
        images[..., step] = multichannel_wiener_filter(
            X[..., step], A, v, settings.moving_diffuse_to_direct
        )
    dc = np.broadcast_to(spectra[:, :1] / M, (M, 2, 1, X.shape[2]))
    return istft(np.concatenate([dc, images], axis=2), layout.window, layout.hop, n)
