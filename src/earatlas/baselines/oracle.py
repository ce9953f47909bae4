"""The bound of masking: the truth decides every bin.

`separate` gives each bin to the source that is strongest there, which needs the true images: the
usual bound of binary masking. Filters that combine both ears can pass it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from earatlas.baselines.masking import MaskedMixture, Separation
from earatlas.errors import InputError
from earatlas.evaluation.masks import oracle_masks
from earatlas.features.audio import Audio
from earatlas.features.layout import CueLayout
from earatlas.features.stft import stft

__all__ = ["separate"]


def separate(audio: Audio, images: ArrayLike, *, layout: CueLayout | None = None) -> Separation:
    """Binary masks from the true images (M, 2, n) of a mixture, at the mixture's rate."""
    mixed = MaskedMixture.of(audio, layout)
    true = np.asarray(images, dtype=np.float64)
    if true.ndim != 3 or true.shape[1:] != audio.samples.shape or len(true) == 0:
        raise InputError(
            f"images must have shape (M, 2, {audio.samples.shape[1]}), both ears of each source "
            f"and as long as the mixture, got {true.shape}. Take those of the rendered scene."
        )
    if mixed.audio.rate != audio.rate:
        true = np.stack([Audio(image, audio.rate).at_rate(mixed.audio.rate).samples
                         for image in true])  # fmt: skip
    spectra = [stft(image, mixed.layout.window, mixed.layout.hop)[:, 1:] for image in true]
    return Separation(oracle_masks(np.stack(spectra)), np.full(len(true), np.nan), mixed)
