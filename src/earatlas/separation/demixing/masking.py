"""Sound by masks: every bin shared out among the sources."""

from __future__ import annotations

import numpy as np

from earatlas.features.layout import CueLayout
from earatlas.features.stft import istft
from earatlas.types import Array, Spectra

__all__ = ["binary_masks", "render"]


def binary_masks(masks: Array) -> Array:
    """The whole of each bin to its most probable source: (M, …) of 0 and 1, sums to 1."""
    order = np.arange(len(masks)).reshape(-1, *([1] * (masks.ndim - 1)))
    binary: Array = (order == masks.argmax(axis=0)).astype(np.float64)
    return binary


def render(spectra: Spectra, masks: Array, layout: CueLayout, n: int) -> Array:
    """Sounds (M, 2, n) of spectra (2, B, T) under masks (M, F, T); 0 Hz goes with the next bin."""
    sounds = np.empty((len(masks), 2, n))
    for m, mask in enumerate(masks):
        with_dc = np.concatenate([mask[:1], mask])
        sounds[m] = istft(with_dc * spectra, layout.window, layout.hop, n)
    return sounds
