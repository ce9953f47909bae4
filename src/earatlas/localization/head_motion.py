"""How the head moves while a stream is heard: known beforehand, or told block by block.

In: a yaw as users give it, or one number a block. Out: the yaw at any time that was heard so far.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from earatlas.errors import InputError
from earatlas.geometry.head_yaw import Yaw, check_yaw_step
from earatlas.geometry.spaces import Space
from earatlas.types import Array

__all__ = ["Motion", "YawLike", "checked_yaw"]

YawLike = float | Yaw | ArrayLike  # degrees, times with degrees, or an array (n, 2) of both
_KEPT_MEMORIES = 50  # of a stream that forgets: bins that are older are gone


def checked_yaw(yaw: YawLike, space: Space) -> Yaw:
    """The yaw, if the space can be turned and the yaw starts with the sound."""
    turned = Yaw.of(yaw)
    if turned.degrees.any() and not space.holds_directions:
        raise InputError(
            f"yaw must go with an atlas of directions, got one of a {space.name} of other "
            "coordinates. Leave the yaw out."
        )
    turned.check_start()
    return turned


class Motion:
    """The yaw of a stream: one that is known, or one that comes with the blocks.

    The yaw of a block is that at its end; from one end to the next the head turns evenly.
    """

    def __init__(self, yaw: Yaw | None, memory_seconds: float | None) -> None:
        self._known, self._memory = yaw, memory_seconds
        self._times: list[float] = []
        self._degrees: list[float] = []
        self._with_blocks: bool | None = None  # before the first block it may be either

    def tell(self, seconds: float, yaw: float | None) -> None:
        """The stream is so long now; `yaw` is the head's, where blocks bring it."""
        if self._known is not None:
            if yaw is not None:
                raise InputError(
                    f"yaw must come with the localizer or with its blocks, got {yaw} for a block "
                    "of one that has a yaw. Leave one of them out."
                )
            self._known.check_end(seconds)
            return
        if self._with_blocks not in (None, yaw is not None):
            raise InputError(
                "yaw must come with every block or with none, got blocks with and without one. "
                "Pass push(samples, yaw=...) the head's yaw each time."
            )
        self._with_blocks = yaw is not None
        if yaw is not None:
            self._add(seconds, float(yaw))

    def _add(self, seconds: float, yaw: float) -> None:
        if not np.isfinite(yaw):
            raise InputError(f"yaw must be finite, got {yaw}. Check the tracker.")
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
        """Degrees at times (n,) that were heard."""
        if self._known is not None:
            return self._known.at(seconds)
        if not self._times:
            return np.zeros(np.shape(seconds))
        return np.interp(np.asarray(seconds, dtype=np.float64), self._times, self._degrees)
