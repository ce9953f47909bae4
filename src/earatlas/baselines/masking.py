"""Separation by time-frequency masks, the result type of all separation baselines.

The inputs are masks on the bins of a `CueLayout` and the mixture. The output is the image of each
source at both ears.

    w_mft   (M, F, T)   weight of source m at frequency f = 1 … window / 2 and frame t, 0 to 1
    S_eft   (2, B, T)   spectra of the mixture; 0 Hz uses the mask of the next frequency
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from earatlas.errors import InputError
from earatlas.features.audio import Audio
from earatlas.features.audio_checks import check_audio
from earatlas.features.layout import CueLayout
from earatlas.features.stft import stft
from earatlas.separation.demixing.masks import apply_masks, binary_masks
from earatlas.types import Array, Spectra

__all__ = ["MaskedMixture", "Separation", "check_n_sources"]


def check_n_sources(n_sources: int) -> None:
    """Raise InputError if the number of sources is less than 1."""
    if n_sources < 1:
        raise InputError(
            f"n_sources must be at least 1, got {n_sources}. Give the number of sources."
        )


@dataclass(frozen=True, eq=False, slots=True)
class MaskedMixture:
    """A recording and its short-time spectra."""

    audio: Audio  # at the layout's rate
    spectra: Spectra  # (2, B, T)
    layout: CueLayout

    @classmethod
    def of(cls, audio: Audio, layout: CueLayout | None = None) -> Self:
        """Compute the short-time spectra of a two-channel recording."""
        layout = layout or CueLayout()
        audio = check_audio(audio, layout)
        if not audio.samples.any(axis=1).all():
            raise InputError(
                "audio must have sound in both channels, got a silent one. "
                "Check the microphone, or select other channels."
            )
        return cls(audio, stft(audio.samples, layout.window, layout.hop), layout)


@dataclass(frozen=True, eq=False, slots=True)
class Separation:
    """Separated sources: source m is masks[m] times the mixture, at both ears.

    Attributes
    ----------
    masks : array, shape (M, F, T)
        Weights from 0 to 1; their sum is 1, or less in bins that belong to no source.
    delays_seconds : array, shape (M,)
        Delay of the right ear, NaN if it is not estimated.
    mixture : MaskedMixture
        Mixture and its spectra.

    """

    masks: Array  # (M, F, T)
    delays_seconds: Array  # (M,)
    mixture: MaskedMixture

    def __repr__(self) -> str:
        M, F, T = self.masks.shape
        delays = ", ".join(f"{1e6 * delay:.0f}" for delay in self.delays_seconds)
        return f"Separation({M} sources, {F} frequencies, {T} frames; delays {delays} microseconds)"

    @property
    def binary(self) -> Array:
        """Binary masks (M, F, T) that give each bin to its strongest source."""
        return binary_masks(self.masks)

    def render(self, *, binary: bool = False) -> Array:
        """Return the images (M, 2, n) of the sources, from soft or binary masks."""
        masks = self.binary if binary else self.masks
        n = self.mixture.audio.samples.shape[1]
        return apply_masks(self.mixture.spectra, masks, self.mixture.layout, n)
