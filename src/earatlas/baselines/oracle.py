"""Oracle separation with ideal binary masks from the true images, an upper bound for binary masks.

Filters that combine both ears can exceed this bound.
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
    """Separate a mixture with ideal binary masks.

    Parameters
    ----------
    audio : Audio
        Two-channel mixture.
    images : array_like, shape (M, 2, n)
        True images of the sources, at the rate of the mixture.
    layout : CueLayout, optional
        Window and hop of the short-time Fourier transform.

    Returns
    -------
    separation : Separation
        Binary masks that give each bin to the strongest source; delays are NaN.

    Raises
    ------
    InputError
        If the shape of the images does not match the mixture.

    References
    ----------
    .. [1] D. Wang, "On ideal binary mask as the computational goal of auditory scene analysis", in
       Speech Separation by Humans and Machines, 2005.

    Examples
    --------
    >>> import earatlas as ea
    >>> import numpy as np
    >>> images = np.random.default_rng(0).normal(size=(2, 2, 8000))
    >>> mixture = ea.Audio(images.sum(axis=0), 16_000)
    >>> separate(mixture, images).masks.shape
    (2, 512, 63)

    """
    mixture = MaskedMixture.of(audio, layout)
    true = np.asarray(images, dtype=np.float64)
    if true.ndim != 3 or true.shape[1:] != audio.samples.shape or len(true) == 0:
        raise InputError(
            f"images must have shape (M, 2, {audio.samples.shape[1]}), both ears of each source "
            f"and as long as the mixture, got {true.shape}. Use the images of the rendered scene."
        )
    if mixture.audio.rate != audio.rate:
        true = np.stack([Audio(image, audio.rate).at_rate(mixture.audio.rate).samples
                         for image in true])  # fmt: skip
    spectra = [stft(image, mixture.layout.window, mixture.layout.hop)[:, 1:] for image in true]
    return Separation(oracle_masks(np.stack(spectra)), np.full(len(true), np.nan), mixture)
