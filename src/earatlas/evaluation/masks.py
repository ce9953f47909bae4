"""True masks: which source really is the strongest in each bin."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from earatlas.errors import InputError
from earatlas.features.audio import Audio
from earatlas.features.stft import squared_size
from earatlas.types import Array

__all__ = ["oracle_masks", "true_masks_at"]

_WINDOW_SECONDS = 0.064  # 1024 samples at 16 kHz, the window of every layout


def oracle_masks(spectra: ArrayLike) -> Array:
    """Binary masks (M, F, T) from the true images' spectra (M, 2, F, T): the paper's "oracle".

    A bin goes, for both ears, to the source with the most power there, both ears summed. Masks sum
    to 1; a bin where all are equal (or silent) goes to the first of them.
    """
    s = np.asarray(spectra)
    if s.ndim != 4 or s.shape[1] != 2 or len(s) == 0:
        raise InputError(
            "spectra must have shape (M, 2, F, T): sources, ears, bins, frames, "
            f"got {s.shape}. Stack stft of each image."
        )
    if not np.isfinite(s).all():
        raise InputError("spectra must be finite, got NaN or infinity. Check the images.")
    power = squared_size(s).sum(axis=1)
    masks: Array = (np.argmax(power, axis=0) == np.arange(len(s))[:, None, None]).astype(np.float64)
    return masks


def true_masks_at(seconds: Array, frequencies_hz: Array, images: Sequence[Audio]) -> Array:
    """Oracle masks (M, F', T') of the images (M) at any times (T',) and frequencies (F',).

    A bin is the frame around its time, at the nearest frequency of the transform: that of a layout
    wherever the times are its frames'. All images have one rate.
    """
    rate = images[0].rate
    window = 2 * round(_WINDOW_SECONDS * rate / 2)
    shape = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(window) / window)
    bins = np.rint(frequencies_hz * window / rate).astype(int).clip(0, window // 2)
    spectra = []
    for image in images:
        padded = np.pad(image.samples, ((0, 0), (window // 2, window)))
        frames = np.lib.stride_tricks.sliding_window_view(padded, window, axis=-1)
        starts = np.rint(seconds * rate).astype(int).clip(0, frames.shape[1] - 1)
        spectra.append(np.fft.rfft(frames[:, starts] * shape)[..., bins].swapaxes(-1, -2))
    return oracle_masks(np.stack(spectra))
