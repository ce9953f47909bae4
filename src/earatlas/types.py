"""The kinds of arrays that travel through the package, and how progress is told."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

__all__ = ["Array", "Complex", "Indices", "Mask", "Progress", "Single", "Spectra"]

Array = NDArray[np.float64]
Single = NDArray[np.float32]  # many and rough: half the memory, twice the speed
Complex = NDArray[np.complex128]
Spectra = Complex  # (channels, frequencies, frames)
Indices = NDArray[np.intp]
Mask = NDArray[np.bool_]

Progress = Callable[[float, float], None]  # told (done, total), in whatever unit the work has
