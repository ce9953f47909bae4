"""The contents of an atlas file: conversion to and from JSON values and arrays, and validation.

Input: a `LearnedHead`. Output: the JSON values and arrays that `earatlas.container` stores. Reading
checks every value, because a file may have been made by hand.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from earatlas.features.layout import CueLayout
from earatlas.geometry.spaces import Space, space_from_dict
from earatlas.localization.head_mismatch import Unit
from earatlas.localization.learned_head import MODEL_ARRAYS, Accuracy, LearnedHead
from earatlas.localization.reverberant_localizer import ReverberantLocalizer
from earatlas.ppam.calibration import Calibration
from earatlas.ppam.model import PPAM
from earatlas.types import Array

__all__ = ["from_contents", "to_contents"]


# Evidence: docs/figures/settings/atlas.md, "atlas_format".
@dataclass(frozen=True, slots=True)
class AtlasLimits:
    """Limits of the numbers in a file, beyond which computations overflow or fill the memory."""

    value: float = 1e12  # absolute value of a parameter; products of four do not overflow
    cue: float = 1e4  # dB, level difference at the centre of a chart
    template_level: float = 1e3  # dB, between the ears at one direction and frequency
    delay_seconds: float = 0.1  # between the ears
    sharpness: float = 1e14  # squared maps over noise; beyond, matrices become singular
    degrees: float = 360.0  # bound of a space, or width of a kernel
    frames_per_second: int = 20_000  # the default layout has 125


_LIMITS = AtlasLimits()


def to_contents(head: LearnedHead) -> tuple[dict[str, Any], dict[str, Array]]:
    """Return the JSON values and the arrays of a file."""
    arrays = {name: getattr(head.model, name) for name in MODEL_ARRAYS}
    calibration = head.calibration
    if calibration.frame_noise is not None:
        arrays["frame_noise"] = calibration.frame_noise
    localizer = head.reverberant_localizer
    if localizer is not None:
        arrays |= localizer.to_arrays()
    about = {
        "layout": head.layout.to_dict(),
        "space": head.space.to_dict(),
        "accuracy": None if head.accuracy is None else asdict(head.accuracy),
        "calibration": {
            "temperature": calibration.temperature,
            "widths": list(calibration.kernel_widths),
            "shares": list(calibration.kernel_weights),
            "frame_share": calibration.frame_weight,
            "prior_frames": calibration.prior_frames,
            "misfit": None if math.isinf(calibration.max_residual) else calibration.max_residual,
        },
        "about": head.about,
        "rooms": None if localizer is None else localizer.to_dict(),
    }
    return about, arrays


def from_contents(about: dict[str, Any], arrays: dict[str, Array]) -> LearnedHead:
    """Return the head that a file contains; raise a ValueError or similar for invalid contents."""
    model = _model(space_from_dict(about["space"]), arrays)
    calibration = _calibration(about["calibration"], arrays.get("frame_noise"))
    accuracy = None if about["accuracy"] is None else Accuracy(**about["accuracy"])
    layout = CueLayout.from_dict(about["layout"])
    localizer = None
    if about["rooms"] is not None:
        localizer = ReverberantLocalizer.from_arrays(model.space, arrays, about["rooms"])
    head = LearnedHead(model, layout, calibration, accuracy, about["about"], localizer)
    _check_consistency(head)
    _check_all_used(head, arrays)
    return head


def _model(space: Space, arrays: dict[str, Array]) -> PPAM:
    centres, weights, gammas, A, b, noise, latent, spread = (arrays[name] for name in MODEL_ARRAYS)
    return PPAM(space, centres, weights, gammas, A, b, noise, latent, spread)


def _calibration(fields: dict[str, Any], frame_noise: Array | None) -> Calibration:
    return Calibration(
        temperature=float(fields["temperature"]),
        kernel_widths=tuple(map(float, fields["widths"])),
        kernel_weights=tuple(map(float, fields["shares"])),
        frame_weight=float(fields["frame_share"]),
        prior_frames=float(fields["prior_frames"]),
        max_residual=math.inf if fields["misfit"] is None else float(fields["misfit"]),
        frame_noise=frame_noise,
    )


def _check_consistency(head: LearnedHead) -> None:
    """Raise a ValueError for values that learning cannot produce."""
    model, layout = head.model, head.layout
    good = (
        _has_valid_description(head.about)
        and len(model.weights) > 0
        and model.b.shape[1] == layout.n_cues
        and all((np.abs(getattr(model, name)) < _LIMITS.value).all() for name in MODEL_ARRAYS)
        and (np.abs(model.b) < _LIMITS.cue).all()
        and all((getattr(model, name) > 0).all() for name in ("weights", "noise", "spread"))
        and math.isclose(model.weights.sum(), 1.0, abs_tol=1e-6)
        and _is_well_conditioned(model)
        # Larger grids, or more frames per second, would fill the memory.
        and layout.hop * _LIMITS.frames_per_second >= layout.rate
        and _has_valid_bounds(model.space)
        and (head.accuracy is None or _are_finite(*asdict(head.accuracy).values()))
        and _is_valid_calibration(head.calibration, layout.n_cues)
        and (head.reverberant_localizer is None or _has_valid_rooms(head.reverberant_localizer))
    )
    if not good:
        raise ValueError("its parts are inconsistent")


def _has_valid_bounds(space: Space) -> bool:
    """Return whether the bounds of a space are within the limits, in degrees of its charts."""
    bounds = np.abs([*np.ravel(getattr(space, "bounds", 0)), *getattr(space, "elevations", ())])
    return isinstance(space.unit_name, str) and bool(
        bounds.max() <= min(_LIMITS.degrees * space.unit_scale, _LIMITS.value)
    )


def _is_well_conditioned(model: PPAM) -> bool:
    """Return whether posteriors can be computed in double precision (learned heads have 3e7)."""
    variances = np.linalg.eigvalsh(model.gammas)  # uses the lower triangles only
    transposed = model.gammas.swapaxes(1, 2)
    sharpness = (model.A**2 / (model.noise * model.spread)[..., None]).sum(axis=1)
    shared = (
        model.latent**2 / model.noise[:, None]
    ).sum()  # beyond the limit, I + BᵀΣ⁻¹B is singular
    return bool(
        np.allclose(model.gammas, transposed, atol=1e-6 * variances.max())
        and variances.min() > 0
        and sharpness.max() * variances.max() < _LIMITS.sharpness
        and shared < _LIMITS.sharpness
    )


def _has_valid_description(about: dict[str, Any]) -> bool:
    """Return whether the description of an atlas has the types that learning produces."""
    texts = (about.get(name, "") for name in ("licence", "provenance", "coverage"))
    counts = (about.get(name, 0) for name in ("directions", "left_out", "seed"))
    return (
        isinstance(about.get("head"), str)
        and all(isinstance(text, str) for text in texts)
        and all(isinstance(count, int) for count in counts)
        and isinstance(about.get("spacing_degrees", 0), int | float)
        and about.get("unit", Unit.OTHER) in list(Unit)
        and isinstance(about.get("held_out_nats", 0), int | float)
        and 0 <= about.get("held_out_nats", 0) < _LIMITS.value
    )


def _is_valid_calibration(calibration: Calibration, cues: int) -> bool:
    widths, weights = calibration.kernel_widths, calibration.kernel_weights
    noise = calibration.frame_noise
    return (
        len(widths) == len(weights) > 0
        and all(0 <= width <= _LIMITS.degrees for width in widths)
        and all(0 <= weight < _LIMITS.value for weight in weights)
        and sum(weights) > 0
        and 0 < calibration.temperature < _LIMITS.value
        and calibration.max_residual > 0
        and 0 < calibration.frame_weight < _LIMITS.value
        and 0 <= calibration.prior_frames < _LIMITS.value
        and (noise is None or (noise.shape == (cues,) and bool((noise >= 0).all())))
        and (noise is None or bool((noise < _LIMITS.value).all()))
    )


def _has_valid_rooms(localizer: ReverberantLocalizer) -> bool:
    """Return whether no value of the models for rooms makes indices or powers overflow."""
    limits = {
        "rooms.level_db": _LIMITS.template_level,
        "rooms.delay_seconds": _LIMITS.delay_seconds,
    }
    return all(
        bool((np.abs(array) < limits.get(name, _LIMITS.value)).all())
        for name, array in localizer.to_arrays().items()
    )


def _are_finite(*values: object) -> bool:
    return all(isinstance(value, int | float) and math.isfinite(value) for value in values)


def _check_all_used(head: LearnedHead, arrays: dict[str, Array]) -> None:
    """Raise a ValueError for arrays of unknown purpose."""
    read = {*MODEL_ARRAYS, "frame_noise"}
    if head.reverberant_localizer is not None:
        read |= head.reverberant_localizer.to_arrays().keys()
    if unused := arrays.keys() - read:
        raise ValueError(f"it has {len(unused)} unknown arrays")
