"""From masks to sound: both ears of every source.

In: a mixture (2, n), its spectra (2, B, T), and soft masks (M, F, T) of the bins above 0 Hz. Out:
sounds (M, 2, n) that add up to the mixture: nothing of it is lost. Three ways:

    spatial   filters that use both ears (`spatial`, beside): by far the best, and the default
    soft      every bin shared out by the masks, which sum to 1
    binary    every bin to its most probable source alone (the paper)
"""

from __future__ import annotations

from typing import Literal, get_args

from earatlas.errors import InputError
from earatlas.features.layout import CueLayout
from earatlas.separation.demixing.masking import binary_masks, render
from earatlas.separation.demixing.spatial_filtering import separate_spatially
from earatlas.types import Array, Complex, Spectra

__all__ = ["Rendering", "check_rendering", "sounds_of"]

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


def sounds_of(
    samples: Array,
    spectra: Spectra,
    masks: Array,
    layout: CueLayout,
    rendering: Rendering,
    *,
    in_room: bool | None = False,
    ratios: Complex | None = None,
) -> Array:
    """Both ears (M, 2, n) of every source of samples (2, n) with spectra (2, B, T).

    `in_room` None: it is not known. `ratios` (M, F) of right to left ear are expected of the
    sources, NaN where none is known.
    """
    if len(masks) == 1:
        return samples[None]
    match rendering:
        case "spatial":
            return separate_spatially(samples, masks, layout, in_room=in_room, ratios=ratios)
        case "soft":
            return render(spectra, masks, layout, samples.shape[1])
        case "binary":
            return render(spectra, binary_masks(masks), layout, samples.shape[1])
