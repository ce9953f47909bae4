"""True masks: which source really is the strongest in each bin."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from earatlas.errors import InputError
from earatlas.hearing.transform import squared_size
from earatlas.types import Array

__all__ = ["oracle_masks"]


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
