"""Oracle masks: the dominant source of each time-frequency bin, given the true images."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from earatlas.errors import InputError
from earatlas.features.audio import Audio
from earatlas.features.stft import hann_window, squared_magnitude
from earatlas.types import Array

__all__ = ["oracle_masks", "true_masks_at"]


def oracle_masks(spectra: ArrayLike) -> Array:
    """Compute ideal binary masks from the spectra of the true images.

    A bin belongs, at both ears, to the source with the largest power, summed over both ears. The
    masks sum to 1; a bin where all sources are equal or silent belongs to the first of them.

    Parameters
    ----------
    spectra : array_like, shape (M, 2, F, T)
        Short-time spectra of the true images.

    Returns
    -------
    masks : array, shape (M, F, T)
        Binary masks, the "oracle" of the paper.

    Examples
    --------
    >>> import numpy as np
    >>> oracle_masks(np.array([1.0, 2.0]).reshape(2, 1, 1, 1) * np.ones((2, 2, 1, 3)))[1]
    array([[1., 1., 1.]])

    """
    s = np.asarray(spectra)
    if s.ndim != 4 or s.shape[1] != 2 or len(s) == 0:
        raise InputError(
            "spectra must have shape (M, 2, F, T): sources, ears, bins, frames, "
            f"got {s.shape}. Stack the stft of each image."
        )
    if not np.isfinite(s).all():
        raise InputError("spectra must be finite, got NaN or infinity. Check the images.")
    power = squared_magnitude(s).sum(axis=1)
    masks: Array = (np.argmax(power, axis=0) == np.arange(len(s))[:, None, None]).astype(np.float64)
    return masks


def true_masks_at(seconds: Array, frequencies_hz: Array, images: Sequence[Audio]) -> Array:
    """Return oracle masks (M, F', T') of M images at given times (T',) and frequencies (F',).

    A bin is the frame around its time at the nearest frequency of the transform. If the times are
    those of the frames of a layout, it is the bin of the layout. All images have the same rate.
    """
    rate = images[0].rate
    window = 2 * round(0.064 * rate / 2)  # 64 ms, the window of every layout
    bins = np.rint(frequencies_hz * window / rate).astype(int).clip(0, window // 2)
    spectra = []
    for image in images:
        padded = np.pad(image.samples, ((0, 0), (window // 2, window)))
        frames = np.lib.stride_tricks.sliding_window_view(padded, window, axis=-1)
        starts = np.rint(seconds * rate).astype(int).clip(0, frames.shape[1] - 1)
        transformed = np.fft.rfft(frames[:, starts] * hann_window(window))
        spectra.append(transformed[..., bins].swapaxes(-1, -2))
    return oracle_masks(np.stack(spectra))
