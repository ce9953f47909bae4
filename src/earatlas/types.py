"""Array types and the progress callback type that the whole package uses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Array", "Complex", "Indices", "Mask", "Progress", "Single", "Spectra", "field_values"]

Array = NDArray[np.float64]
Single = NDArray[np.float32]  # for large arrays: half the memory, twice the speed
Complex = NDArray[np.complex128]
Spectra = Complex  # (channels, frequencies, frames)
Indices = NDArray[np.intp]
Mask = NDArray[np.bool_]

Progress = Callable[[float, float], None]  # called with (done, total) in any unit


def field_values(value: Any) -> dict[str, Any]:
    """Return the fields of a dataclass instance by name, without cached properties."""
    return {field.name: getattr(value, field.name) for field in fields(value)}
