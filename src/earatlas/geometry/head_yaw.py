"""Head yaw over time.

Input: a number, times with degrees, or a CSV file (time, yaw). Output: a `Yaw`, which gives the
degrees at any time. Yaw is counter-clockwise, like azimuth: positive to the left. A sound at
azimuth a relative to the head is at azimuth a + yaw in world coordinates, whose 0° is where the
head points at yaw 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import ArrayLike

from earatlas.csv_tables import read_table
from earatlas.errors import InputError, existing_file
from earatlas.types import Array

__all__ = ["Yaw", "check_yaw_step"]


@dataclass(frozen=True, slots=True)
class YawLimits:
    """Limits that are valid for the yaw of a head."""

    degrees_per_second: float = 1000.0  # human heads reach about 600
    margin_seconds: float = 0.1  # time by which a tracker may start late or end early
    seconds: float = 1e9  # absolute value of a time
    degrees: float = 1e6  # absolute value; larger numbers lose their fractional digits


_LIMITS = YawLimits()


@dataclass(frozen=True, eq=False, init=False)
class Yaw:
    """Head yaw over time, linearly interpolated.

    Parameters
    ----------
    times : array_like of shape (n,)
        Increasing times in seconds from the start of the recording, at least two.
    degrees : array_like of shape (n,)
        Yaw in degrees at these times, counter-clockwise (to the left). Values are unwrapped: 179
        and -179 degrees are 2 degrees apart.

    Raises
    ------
    InputError
        If times and degrees do not match, are not finite, do not increase, or if the yaw jumps.

    Examples
    --------
    >>> import earatlas as ea
    >>> yaw = ea.Yaw([0.0, 1.0], [170.0, -170.0])
    >>> yaw.at([0.5]).tolist()
    [180.0]
    """

    times: Array  # (n,) seconds, increasing
    degrees: Array  # (n,) unwrapped

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
    def constant(cls, degrees: float) -> Self:
        """Return a yaw that does not change over time.

        Parameters
        ----------
        degrees : float
            Yaw in degrees, counter-clockwise (to the left).

        Returns
        -------
        Yaw
            The constant yaw.

        Raises
        ------
        InputError
            If the yaw is not finite or exceeds a million degrees.

        Examples
        --------
        >>> import earatlas as ea
        >>> ea.Yaw.constant(30.0).at([0.0, 5.0]).tolist()
        [30.0, 30.0]
        """
        if not abs(degrees) <= _LIMITS.degrees:
            raise InputError(
                f"yaw must be finite and between -{_LIMITS.degrees:g} and {_LIMITS.degrees:g} "
                f"degrees, got {degrees}. Give degrees."
            )
        return cls(np.array([-_LIMITS.seconds, _LIMITS.seconds]), np.full(2, degrees))

    @classmethod
    def of(cls, yaw: float | Yaw | ArrayLike) -> Yaw:
        """Convert a number, or an array (n, 2) of times and degrees; a `Yaw` is returned as is.

        Parameters
        ----------
        yaw : float, array_like of shape (n, 2) or Yaw
            Constant yaw in degrees, times with degrees, or a yaw over time.

        Returns
        -------
        Yaw
            The yaw over time.
        """
        if isinstance(yaw, Yaw):
            return yaw
        try:
            values = np.asarray(yaw, dtype=np.float64)
        except (TypeError, ValueError):
            raise InputError(
                f"yaw must be a number, or times with degrees, got {yaw!r}. Use Yaw(times, "
                "degrees), or Yaw.read(path) for a CSV file."
            ) from None
        if values.ndim == 0:
            return cls.constant(float(values))
        if values.ndim != 2 or values.shape[1] != 2:
            raise InputError(
                f"yaw must have one time per value, got an array of shape {values.shape}. "
                "Use Yaw(times, degrees), or an array of shape (n, 2)."
            )
        return cls(*values.T)

    @classmethod
    def read(cls, path: str | Path) -> Self:
        """Read a CSV file with the columns time (seconds) and yaw (degrees).

        Parameters
        ----------
        path : str or Path
            The file; other columns are ignored.

        Returns
        -------
        Yaw
            The yaw over time.

        Raises
        ------
        InputError
            If the file cannot be read or holds no usable yaw.
        """
        path = existing_file(path, "yaw")
        rows = [row.numbers("time", "yaw") for row in read_table(path, ("time", "yaw"), "yaw")]
        times, degrees = np.array(rows, dtype=np.float64).reshape(-1, 2).T
        try:
            return cls(times, degrees)
        except InputError as error:
            raise InputError(f"'{path}': {error}") from error

    def at(self, seconds: ArrayLike) -> Array:
        """Return the yaw at given times, constant before the first and after the last known one.

        Parameters
        ----------
        seconds : array_like of any shape
            Times in seconds from the start of the recording.

        Returns
        -------
        ndarray of the same shape
            Yaw in degrees, unwrapped.
        """
        return np.interp(np.asarray(seconds, dtype=np.float64), self.times, self.degrees)

    def check_start(self) -> None:
        """Raise an InputError if the yaw starts later than the recording.

        Raises
        ------
        InputError
            If the first time is more than 0.1 s after the start.
        """
        if self.times[0] > _LIMITS.margin_seconds:
            raise InputError(
                f"yaw must start with the sound, got one that starts {self.times[0]:.3g} s after "
                "it. Trim the recording, or add the yaw at 0 s."
            )

    def check_end(self, seconds: float) -> None:
        """Raise an InputError if the yaw ends before the recording.

        Parameters
        ----------
        seconds : float
            Length of the recording in seconds.

        Raises
        ------
        InputError
            If the last time is more than 0.1 s before the end.
        """
        if self.times[-1] < seconds - _LIMITS.margin_seconds:
            raise InputError(
                f"yaw must last as long as the sound ({seconds:.3g} s), got one that ends at "
                f"{self.times[-1]:.3g} s. Record it to the end, or trim the recording."
            )


def _check(times: Array, degrees: Array) -> None:
    if times.ndim != 1 or times.shape != degrees.shape or len(times) < 2:
        raise InputError(
            f"yaw must have one time per value and at least two values, got {times.size} times and "
            f"{degrees.size} values. Give a number if the head does not move."
        )
    valid_times = np.abs(times) <= _LIMITS.seconds
    if not valid_times.all():  # such as a tracker's clock that counts from 1970
        row = int(np.argmin(valid_times))
        raise InputError(
            f"yaw must have times in seconds from the sound's start, between -{_LIMITS.seconds:g} "
            f"and {_LIMITS.seconds:g}, got {times[row]} s in row {row}. Subtract the time at which "
            "the sound starts."
        )
    valid_degrees = np.abs(degrees) <= _LIMITS.degrees
    if not valid_degrees.all():
        row = int(np.argmin(valid_degrees))
        raise InputError(
            f"yaw must be finite and between -{_LIMITS.degrees:g} and {_LIMITS.degrees:g} degrees, "
            f"got {degrees[row]} at {times[row]} s in row {row}. Remove that row."
        )
    increasing = np.diff(times) > 0
    if not increasing.all():
        row = int(np.argmin(increasing)) + 1
        raise InputError(
            f"yaw must have times that increase, got {times[row]:g} s after {times[row - 1]:g} s "
            f"in row {row}. Sort the rows and remove duplicates."
        )


def check_yaw_step(degrees: Array, times: Array) -> None:
    """Raise an InputError if the yaw jumps between two times (2,)."""
    speed = abs(degrees[1] - degrees[0]) / (times[1] - times[0])
    if speed > _LIMITS.degrees_per_second:
        raise InputError(
            f"yaw must not jump, got {abs(degrees[1] - degrees[0]):.3g} degrees between "
            f"{times[0]:g} and {times[1]:g} s. No head turns faster than "
            f"{_LIMITS.degrees_per_second:g} degrees per second: check the tracker, or the unit of "
            "the times."
        )
