"""From masks to sound: both ears of every source.

In: spectra X (2, B, T) of a mixture and masks (M, F, T) of the bins above 0 Hz. Out: sounds
(M, 2, n). Soft masks sum to 1 in every bin and the inverse transform is linear, so the sounds add
up to the mixture: nothing of it is lost. Binary masks give a bin to one source alone (the paper).
"""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from earatlas.audio import Spectra, istft
from earatlas.cues import CueLayout
from earatlas.errors import InputError

__all__ = ["Rendering", "binary_masks", "check_rendering", "render"]

Array = NDArray[np.float64]
Rendering = Literal["soft", "binary"]


def check_rendering(rendering: str) -> Rendering:
    """The name of a way to make sound from masks, or an InputError."""
    for name in get_args(Rendering):
        if rendering == name:
            return name  # type: ignore[no-any-return]
    raise InputError(
        f"render must be one of {', '.join(get_args(Rendering))}, got {rendering!r}. "
        "soft loses nothing of the mixture; binary is the paper's."
    )


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
