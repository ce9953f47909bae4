"""Rendering of separated sources from time-frequency masks.

Input: a mixture (2, n), its spectra (2, B, T), and soft masks (M, F, T) of the bins above 0 Hz.
Output: signals (M, 2, n) that sum to the mixture. There are three methods:

    spatial   demixing filters and a multichannel Wiener filter (`spatial_filtering`); the default
    soft      soft masks, which sum to 1
    binary    each bin to its most probable source (the paper)
"""

from __future__ import annotations

from typing import Literal, get_args

from earatlas.errors import InputError
from earatlas.features.layout import CueLayout
from earatlas.separation.demixing.masking import apply_masks, binary_masks
from earatlas.separation.demixing.spatial_filtering import separate_spatially
from earatlas.types import Array, Complex, Spectra

__all__ = ["Rendering", "check_rendering", "render_sources"]

Rendering = Literal["spatial", "soft", "binary"]


def check_rendering(rendering: str) -> Rendering:
    """Return the name of a rendering method, or raise an InputError."""
    for name in get_args(Rendering):
        if rendering == name:
            return name  # type: ignore[no-any-return]
    raise InputError(
        f"rendering must be one of {', '.join(get_args(Rendering))}, got {rendering!r}. "
        "Use spatial (the default) for demixing filters, soft or binary for masks."
    )


def render_sources(
    samples: Array,
    spectra: Spectra,
    masks: Array,
    layout: CueLayout,
    rendering: Rendering,
    *,
    reverberant: bool | None = False,
    ratios: Complex | None = None,
) -> Array:
    """Return the signals (M, 2, n) of all sources of samples (2, n) with spectra (2, B, T).

    With `reverberant` None, whether the recording is reverberant is unknown. `ratios` (M, F) are
    the expected interaural transfer functions (right over left), NaN where unknown.
    """
    if len(masks) == 1:
        return samples[None]
    match rendering:
        case "spatial":
            return separate_spatially(
                samples, masks, layout, reverberant=reverberant, ratios=ratios
            )
        case "soft":
            return apply_masks(spectra, masks, layout, samples.shape[1])
        case "binary":
            return apply_masks(spectra, binary_masks(masks), layout, samples.shape[1])
