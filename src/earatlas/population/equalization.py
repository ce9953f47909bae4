"""Equalization: transfer functions of both ears that do not depend on the direction of the sound.

Input: the layout of the cues. Output: loadings of a population that are the same everywhere.
Microphones, their position in the ear canal, and the equalization of a laboratory change the level
of each ear smoothly over frequency. What both ears have in common cancels in interaural cues; the
difference is a Gaussian process over the logarithm of the frequency.

    h, i  bands (H)    f_h  frequency of a band in octaves    C  components
    Σ_hi = s² exp(-(f_h - f_i)² / (2 l²)) = γ γᵀ for bands of level differences, 0 for others
"""

from __future__ import annotations

import numpy as np

from earatlas.features.layout import CueLayout
from earatlas.ppam.cue_bands import CueBands
from earatlas.types import Array

__all__ = ["equalization_loadings"]


def equalization_loadings(
    layout: CueLayout, bands: CueBands, *, deviation_db: float, octaves: float, components: int
) -> Array:
    """Return γ (H, C) with standard deviation s and correlation length l; C is 0 if s is."""
    hz = np.asarray(layout.cue_frequencies * (layout.rate / layout.window), dtype=np.float64)
    levels = bands.mean((layout.cue_kinds == "ild").astype(np.float64)) > 0
    f = np.log2(np.maximum(bands.mean(hz)[levels], 1.0))
    C = min(components, len(f)) if deviation_db > 0 else 0
    values, vectors = np.linalg.eigh(np.exp(-0.5 * ((f[:, None] - f) / octaves) ** 2))
    loadings = np.zeros((len(levels), C))
    largest = np.arange(len(f))[::-1][:C]
    roots = np.sqrt(np.maximum(values[largest], 0.0))
    loadings[levels] = deviation_db * vectors[:, largest] * roots
    return loadings
