"""Separation by time-frequency masking: every bin of the mixture is divided among the sources."""

from __future__ import annotations

import numpy as np

from earatlas.features.layout import CueLayout
from earatlas.features.stft import istft
from earatlas.types import Array, Spectra

__all__ = ["apply_masks", "binary_masks"]


def binary_masks(masks: Array) -> Array:
    """Return binary masks (M, …) that assign each bin to its most probable source.

    Parameters
    ----------
    masks : array of shape (M, ...)
        Soft masks of M sources.

    Returns
    -------
    array of shape (M, ...)
        Zeros and ones that sum to 1 over the sources. Ties go to the first source.

    Examples
    --------
    >>> import numpy as np
    >>> binary_masks(np.array([[0.7, 0.2], [0.3, 0.8]]))
    array([[1., 0.],
           [0., 1.]])
    """
    index = np.arange(len(masks)).reshape(-1, *([1] * (masks.ndim - 1)))
    binary: Array = (index == masks.argmax(axis=0)).astype(np.float64)
    return binary


def apply_masks(spectra: Spectra, masks: Array, layout: CueLayout, n: int) -> Array:
    """Return the signals (M, 2, n) of spectra (2, B, T) weighted by masks (M, F, T).

    The 0 Hz bin has no cues and therefore no mask: it uses the mask of the next bin.
    """
    signals = np.empty((len(masks), 2, n))
    for m, mask in enumerate(masks):
        mask_with_dc = np.concatenate([mask[:1], mask])
        signals[m] = istft(mask_with_dc * spectra, layout.window, layout.hop, n)
    return signals
