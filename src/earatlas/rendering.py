"""From masks to sound: both ears of every source.

In: a mixture (2, n), its spectra (2, B, T), and soft masks (M, F, T) of the bins above 0 Hz. Out:
sounds (M, 2, n) that add up to the mixture: nothing of it is lost. Three ways:

    spatial   filters that use both ears (`earatlas.spatial`): by far the best, and the default
    soft      every bin shared out by the masks, which sum to 1
    binary    every bin to its most probable source alone (the paper)
"""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from earatlas.audio import Spectra, istft
from earatlas.cues import CueLayout
from earatlas.errors import InputError
from earatlas.spatial import separate_spatially

__all__ = ["Rendering", "binary_masks", "check_rendering", "render", "sounds_of"]

Array = NDArray[np.float64]
Rendering = Literal["spatial", "soft", "binary"]


def check_rendering(rendering: str) -> Rendering:
    """The name of a way to make sound from masks, or an InputError."""
    for name in get_args(Rendering):
        if rendering == name:
            return name  # type: ignore[no-any-return]
    raise InputError(
        f"rendering must be one of {', '.join(get_args(Rendering))}, got {rendering!r}. "
        "spatial is the default; soft and binary are masks."
    )


def binary_masks(masks: Array) -> Array:
    """The whole of each bin to its most probable source: (M, …) of 0 and 1, sums to 1."""
    order = np.arange(len(masks)).reshape(-1, *([1] * (masks.ndim - 1)))
    binary: Array = (order == masks.argmax(axis=0)).astype(np.float64)
    return binary


def sounds_of(
    samples: Array, spectra: Spectra, masks: Array, layout: CueLayout, rendering: Rendering
) -> Array:
    """Both ears (M, 2, n) of every source of samples (2, n) with spectra (2, B, T)."""
    if len(masks) == 1:
        return samples[None]
    match rendering:
        case "spatial":
            return separate_spatially(samples, masks, layout)
        case "soft":
            return render(spectra, masks, layout, samples.shape[1])
        case "binary":
            return render(spectra, binary_masks(masks), layout, samples.shape[1])


def render(spectra: Spectra, masks: Array, layout: CueLayout, n: int) -> Array:
    """Sounds (M, 2, n) of spectra (2, B, T) under masks (M, F, T); 0 Hz goes with the next bin."""
    sounds = np.empty((len(masks), 2, n))
    for m, mask in enumerate(masks):
        with_dc = np.concatenate([mask[:1], mask])
        sounds[m] = istft(with_dc * spectra, layout.window, layout.hop, n)
    return sounds
