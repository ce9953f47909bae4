"""The kinds of arrays that travel through the package, and how progress is told."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Array", "Complex", "Indices", "Mask", "Progress", "Single", "Spectra", "field_values"]

Array = NDArray[np.float64]
Single = NDArray[np.float32]  # many and rough: half the memory, twice the speed
Complex = NDArray[np.complex128]
Spectra = Complex  # (channels, frequencies, frames)
Indices = NDArray[np.intp]
Mask = NDArray[np.bool_]

Progress = Callable[[float, float], None]  # told (done, total), in whatever unit the work has


def field_values(value: Any) -> dict[str, Any]:
    """The fields of a dataclass by name: what another one is made from, and nothing cached."""
    return {field.name: getattr(value, field.name) for field in fields(value)}
