"""Lateral angle of a source: its angle from the median plane, to the left.

Interaural cues determine the lateral angle of a source much better than its position on the cone of
confusion. Therefore it is often known where the direction is not.

    s = arcsin(v_2) = arcsin(cos(elevation) sin(azimuth))    from -90 (right) to 90 degrees (left)
    v = unit vector of the direction: x front, y left, z up
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from earatlas.types import Array

__all__ = ["LateralAngle", "lateral_angles"]


def lateral_angles(vectors: Array) -> Array:
    """Return the lateral angles (...) in degrees of unit vectors (..., 3).

    >>> from earatlas.geometry.angles import to_vectors
    >>> lateral_angles(to_vectors([[30, 0], [150, 0], [-90, 60]])).round(6).tolist()
    [30.0, 30.0, -30.0]
    """
    angles: Array = np.degrees(np.arcsin(np.clip(vectors[..., 1], -1, 1)))
    return angles


@dataclass(frozen=True, slots=True)
class LateralAngle:
    """An interval of lateral angles.

    Attributes
    ----------
    angle : float
        Middle of the interval in degrees, positive on the left.
    radius_90 : float
        Half the length of the interval in degrees. It contains the lateral angle of the source with
        90 % probability.

    Examples
    --------
    >>> from earatlas.geometry.lateral_angle import LateralAngle
    >>> LateralAngle.of_points([30.0, 32.0, 31.0, 30.0])
    LateralAngle(31.0, radius_90 1.0)
    """

    angle: float
    radius_90: float

    def __repr__(self) -> str:
        return f"LateralAngle({self.angle:.1f}, radius_90 {self.radius_90:.1f})"

    @classmethod
    def of_points(cls, angles: ArrayLike) -> LateralAngle:
        """Return the shortest interval that contains 90 % of the points of a posterior.

        Parameters
        ----------
        angles : array_like of shape (n,)
            Lateral angles, in degrees, of directions that are distributed like the posterior.

        Returns
        -------
        LateralAngle
            The interval.
        """
        ordered = np.sort(np.asarray(angles, dtype=np.float64))
        n_inside = int(np.ceil(0.9 * len(ordered)))
        low, high = ordered[: len(ordered) - n_inside + 1], ordered[n_inside - 1 :]
        first = int(np.argmin(high - low))
        return cls(float(low[first] + high[first]) / 2, float(high[first] - low[first]) / 2)

    def to_dict(self) -> dict[str, Any]:
        """Return the interval as JSON values.

        Returns
        -------
        dict
            Keys angle and radius_90, degrees.
        """
        return {"angle": round(self.angle, 2), "radius_90": round(self.radius_90, 2)}

    @classmethod
    def from_dict(cls, values: dict[str, Any] | None) -> LateralAngle | None:
        """Return the interval of JSON values, the inverse of `to_dict`; None for None.

        Parameters
        ----------
        values : dict or None
            Keys angle and radius_90.

        Returns
        -------
        LateralAngle or None
            The interval, with rounded values.
        """
        return None if values is None else cls(values["angle"], values["radius_90"])
