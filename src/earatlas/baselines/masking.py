"""A separation by masks: each source is the mixture, bin by bin times a number from 0 to 1.

In: masks on the bins of a `CueLayout` and the mixture they were made for. Out: both ears of each
source. This is what every separation baseline returns.

    w_mft   (M, F, T)   share of source m at frequency f = 1 … window / 2, frame t
    S_eft   (2, B, T)   spectra of the mixture, with 0 Hz, which goes with the next frequency
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from earatlas.errors import InputError
from earatlas.features.audio import Audio
from earatlas.features.cues import checked_audio
from earatlas.features.layout import CueLayout
from earatlas.features.stft import stft
from earatlas.separation.demixing.masking import binary_masks, render
from earatlas.types import Array, Spectra

__all__ = ["MaskedMixture", "Separation", "check_sources"]


def check_sources(n_sources: int) -> None:
    """Refuse a number of sources that means nothing."""
    if n_sources < 1:
        raise InputError(
            f"n_sources must be at least 1, got {n_sources}. Say how many sounds there are."
        )


@dataclass(frozen=True, eq=False, slots=True)
class MaskedMixture:
    """A recording and its spectra, ready to be masked."""

    audio: Audio  # at the layout's rate
    spectra: Spectra  # (2, B, T)
    layout: CueLayout

    @classmethod
    def of(cls, audio: Audio, layout: CueLayout | None = None) -> Self:
        """Transform a two-channel recording."""
        layout = layout or CueLayout()
        audio = checked_audio(audio, layout)
        if not audio.samples.any(axis=1).all():
            raise InputError(
                "audio must have sound in both channels, got a silent one. "
                "Check that microphone, or pick other channels."
            )
        return cls(audio, stft(audio.samples, layout.window, layout.hop), layout)


@dataclass(frozen=True, eq=False, slots=True)
class Separation:
    """Source m is masks[m] times the mixture, in both ears."""

    masks: Array  # (M, F, T) from 0 to 1; they sum to 1, or to less where a bin is nobody's
    delays_seconds: Array  # (M,) by which the right ear hears later; NaN where none is estimated
    mixture: MaskedMixture

    def __repr__(self) -> str:
        M, F, T = self.masks.shape
        places = ", ".join(f"{1e6 * delay:.0f}" for delay in self.delays_seconds)
        return f"Separation({M} sources, {F} frequencies, {T} frames; delays {places} microseconds)"

    @property
    def binary(self) -> Array:
        """The masks (M, F, T) with all of a bin given to its strongest source."""
        return binary_masks(self.masks)

    def render(self, *, binary: bool = False) -> Array:
        """Samples (M, 2, n) of both ears of each source."""
        masks = self.binary if binary else self.masks
        n = self.mixture.audio.samples.shape[1]
        return render(self.mixture.spectra, masks, self.mixture.layout, n)
