"""The bounds of masking: the truth decides every bin, or nothing is done at all.

`separate` gives each bin to the source that is strongest there, which needs the true images: the
usual bound of binary masking. Filters that combine both ears can pass it. `mixture` gives every
source all bins.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from earatlas.baselines.masking import MaskedMixture, Separation, check_sources
from earatlas.errors import InputError
from earatlas.hearing.audio import Audio
from earatlas.hearing.layout import CueLayout
from earatlas.hearing.transform import stft
from earatlas.judging.masks import oracle_masks

__all__ = ["mixture", "separate"]


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


def mixture(audio: Audio, n_sources: int, *, layout: CueLayout | None = None) -> Separation:
    """The mixture itself as every source."""
    check_sources(n_sources)
    mixed = MaskedMixture.of(audio, layout)
    masks = np.ones((n_sources, mixed.layout.n_frequencies, mixed.spectra.shape[-1]))
    return Separation(masks, np.full(n_sources, np.nan), mixed)
