"""Yaw of the head during a stream: known in advance, or given with each block.

Input: a yaw as users give it, or one number per block. Output: the yaw at any time so far.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from earatlas.errors import InputError
from earatlas.geometry.head_yaw import Yaw, check_yaw_step
from earatlas.geometry.spaces import Space
from earatlas.types import Array

__all__ = ["HeadMotion", "YawLike", "check_yaw"]

YawLike = float | Yaw | ArrayLike  # degrees, a Yaw, or an array (n, 2) of seconds and degrees
_KEPT_MEMORIES = 50  # time constants of a stream with memory for which yaws are kept


def check_yaw(yaw: YawLike, space: Space) -> Yaw:
    """Return the yaw; raise an InputError if the space has no yaw or it starts after the sound."""
    checked = Yaw.of(yaw)
    if checked.degrees.any() and not space.holds_directions:
        raise InputError(
            f"yaw must be used with an atlas of directions, got an atlas whose {space.name} has "
            "coordinates other than directions. Leave the yaw out."
        )
    checked.check_start()
    return checked


class HeadMotion:
    """Yaw of the head in a stream, known in advance or given with the blocks.

    The yaw of a block is that at its end, and is interpolated linearly between blocks.
    """

    def __init__(self, yaw: Yaw | None, memory_seconds: float | None) -> None:
        self._known, self._memory = yaw, memory_seconds
        self._times: list[float] = []
        self._degrees: list[float] = []
        self._with_blocks: bool | None = None  # None: not known before the first block

    def update(self, seconds: float, yaw: float | None) -> None:
        """Set the length of the stream and, if given with blocks, the present yaw."""
        if self._known is not None:
            if yaw is not None:
                raise InputError(
                    f"yaw must be given with the localizer or with its blocks, got {yaw} for a "
                    "block of a localizer that has a yaw. Leave one of them out."
                )
            self._known.check_end(seconds)
            return
        if self._with_blocks not in (None, yaw is not None):
            raise InputError(
                "yaw must be given with every block or with none, got blocks with and without one. "
                "Call push(samples, yaw=...) with the yaw of the head each time."
            )
        self._with_blocks = yaw is not None
        if yaw is not None:
            self._add(seconds, float(yaw))

    def _add(self, seconds: float, yaw: float) -> None:
        if not np.isfinite(yaw):
            raise InputError(f"yaw must be finite, got {yaw}. Check the head tracker.")
        if not self._times:
            self._times, self._degrees = [0.0], [yaw]
        if seconds <= self._times[-1]:
            return
        last = self._degrees[-1]
        now = float(np.unwrap([last, yaw], period=360.0)[1])
        check_yaw_step(np.array([last, now]), np.array([self._times[-1], seconds]))
        self._times.append(seconds)
        self._degrees.append(now)
        if self._memory is not None:
            while len(self._times) > 2 and self._times[1] < seconds - _KEPT_MEMORIES * self._memory:
                del self._times[0], self._degrees[0]

    def at(self, seconds: ArrayLike) -> Array:
        """Return the yaw in degrees at times (n,) so far."""
        if self._known is not None:
            return self._known.at(seconds)
        if not self._times:
            return np.zeros(np.shape(seconds))
        return np.interp(np.asarray(seconds, dtype=np.float64), self._times, self._degrees)
