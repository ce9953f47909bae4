"""Set-up error: a head that was taken away and set up again hears from slightly other directions.

Input: the calibration of a head. Output: the calibration for another set-up of the same head, whose
posterior is also convolved with the error of placement.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from earatlas.ppam.calibration import Calibration

__all__ = ["SETUP_ERROR_DEGREES", "with_setup_error"]

# Standard deviation per chart coordinate; evidence: docs/figures/settings/population.md, "set-up".
SETUP_ERROR_DEGREES = 3.2


def with_setup_error(calibration: Calibration, degrees: float = SETUP_ERROR_DEGREES) -> Calibration:
    """Return the calibration with kernels widened by a set-up error."""
    widths = tuple(float(np.hypot(width, degrees)) for width in calibration.kernel_widths)
    return replace(calibration, kernel_widths=widths)
