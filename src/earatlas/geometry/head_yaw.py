"""How the head was turned while it listened.

In: a number, times with degrees, or a CSV (time, yaw). Out: a `Yaw`, the degrees at any time.
Yaw is counter-clockwise, as azimuth is: positive where the head looks to its left. A sound at the
azimuth a of the head is then at a + yaw in the room, whose 0° is where the head looks at yaw 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import ArrayLike

from earatlas.csv_tables import table_rows
from earatlas.errors import InputError, existing_file
from earatlas.types import Array

__all__ = ["Yaw", "check_yaw_step"]

_FASTEST = 1000.0  # degrees a second; heads turn at up to 600
_MARGIN_SECONDS = 0.1  # by which a tracker may start late and end early
_ALWAYS = 1e9  # seconds before and after
_MOST_DEGREES = 1e6  # of a head: beyond, degrees lose their digits


@dataclass(frozen=True, eq=False, init=False)
class Yaw:
    """Degrees by which the head is turned to its left, at times in seconds from the sound's start.

    Between the times it is a straight line; 179 and -179 degrees are 2 degrees apart.

    >>> Yaw([0.0, 1.0], [170.0, -170.0]).at([0.5]).tolist()
    [180.0]
    """

    times: Array  # (n,) seconds, increasing
    degrees: Array  # (n,) without steps of 360

    def __init__(self, times: ArrayLike, degrees: ArrayLike) -> None:
        t, yaw = (np.asarray(values, dtype=np.float64) for values in (times, degrees))
        _check(t, yaw)
        yaw = np.unwrap(yaw, period=360.0)
        row = int(np.argmax(np.abs(np.diff(yaw)) / np.diff(t)))
        check_yaw_step(yaw[row : row + 2], t[row : row + 2])
        object.__setattr__(self, "times", t)
        object.__setattr__(self, "degrees", yaw)

    def __repr__(self) -> str:
        low, high = self.degrees.min(), self.degrees.max()
        return f"Yaw({len(self.times)} times, {low:g} to {high:g} degrees)"

    @classmethod
    def still(cls, degrees: float) -> Self:
        """That of a head which stays as it is."""
        if not abs(degrees) <= _MOST_DEGREES:
            raise InputError(
                f"yaw must be finite and at most {_MOST_DEGREES:g} either way, got {degrees}. "
                "Give degrees."
            )
        return cls(np.array([-_ALWAYS, _ALWAYS]), np.full(2, degrees))

    @classmethod
    def of(cls, yaw: float | Yaw | ArrayLike) -> Yaw:
        """Of a number, of an array (n, 2) of times and degrees, or a `Yaw` as it is."""
        if isinstance(yaw, Yaw):
            return yaw
        try:
            values = np.asarray(yaw, dtype=np.float64)
        except (TypeError, ValueError):
            raise InputError(
                f"yaw must be a number, or times with degrees, got {yaw!r}. Use Yaw(times, "
                "degrees), or Yaw.read(path) for a CSV."
            ) from None
        if values.ndim == 0:
            return cls.still(float(values))
        if values.ndim != 2 or values.shape[1] != 2:
            raise InputError(
                f"yaw must have a time for each value, got an array of shape {values.shape}. "
                "Use Yaw(times, degrees), or an array of shape (n, 2)."
            )
        return cls(*values.T)

    @classmethod
    def read(cls, path: str | Path) -> Self:
        """From a CSV with the columns time (seconds) and yaw (degrees); others are left out."""
        path = existing_file(path, "yaw")
        rows = [row.numbers("time", "yaw") for row in table_rows(path, ("time", "yaw"), "yaw")]
        times, degrees = np.array(rows, dtype=np.float64).reshape(-1, 2).T
        try:
            return cls(times, degrees)
        except InputError as error:
            raise InputError(f"'{path}': {error}") from error

    def at(self, seconds: ArrayLike) -> Array:
        """Degrees at times; beyond the ends those of the ends."""
        return np.interp(np.asarray(seconds, dtype=np.float64), self.times, self.degrees)

    def check_start(self) -> None:
        """Refuse a yaw that starts after the sound does."""
        if self.times[0] > _MARGIN_SECONDS:
            raise InputError(
                f"yaw must start with the sound, got one that starts {self.times[0]:.3g} s after "
                "it. Cut the sound, or add the yaw at 0."
            )

    def check_end(self, seconds: float) -> None:
        """Refuse a yaw that ends before a sound of so many seconds."""
        if self.times[-1] < seconds - _MARGIN_SECONDS:
            raise InputError(
                f"yaw must last as long as the sound ({seconds:.3g} s), got one that ends at "
                f"{self.times[-1]:.3g} s. Record it to the end, or cut the sound."
            )


def _check(times: Array, degrees: Array) -> None:
    if times.ndim != 1 or times.shape != degrees.shape or len(times) < 2:
        raise InputError(
            f"yaw must have a time for each of at least two values, got {times.size} times and "
            f"{degrees.size} values. Give a number for a head that stays as it is."
        )
    in_reach = np.abs(times) <= _ALWAYS
    if not in_reach.all():  # a tracker's clock counts from 1970
        row = int(np.argmin(in_reach))
        raise InputError(
            f"yaw must have times in seconds from the sound's start, at most {_ALWAYS:g} either "
            f"way, got {times[row]} s in row {row}. Subtract the time at which the sound starts."
        )
    possible = np.abs(degrees) <= _MOST_DEGREES
    if not possible.all():
        row = int(np.argmin(possible))
        raise InputError(
            f"yaw must be finite and at most {_MOST_DEGREES:g} either way, got {degrees[row]} at "
            f"{times[row]} s in row {row}. Remove that row."
        )
    later = np.diff(times) > 0
    if not later.all():
        row = int(np.argmin(later)) + 1
        raise InputError(
            f"yaw must have times that increase, got {times[row]:g} s after {times[row - 1]:g} s "
            f"in row {row}. Sort the rows, each time once."
        )


def check_yaw_step(degrees: Array, times: Array) -> None:
    """Refuse what no head does between two times (2,): a jump."""
    speed = abs(degrees[1] - degrees[0]) / (times[1] - times[0])
    if speed > _FASTEST:
        raise InputError(
            f"yaw must not jump, got {abs(degrees[1] - degrees[0]):.3g} degrees between "
            f"{times[0]:g} and {times[1]:g} s. No head turns faster than {_FASTEST:g} degrees a "
            "second: check the tracker, or the times' unit."
        )
