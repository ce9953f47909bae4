"""A pinhole camera on a head: between directions and positions in its image.

The inputs are directions, positions or a `Head`. The outputs are positions in pixels, directions in
degrees, or a head that is labelled with positions. The camera looks straight ahead from the centre
of the head; x runs to the right and y downwards from the upper left corner of the image.

    f          focal length in pixels: half the width over the tangent of half the field of view
    (x, y)     (W / 2 - f v_y / v_x, H / 2 - f v_z / v_x) for the unit vector v of a direction
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from earatlas.errors import InputError
from earatlas.geometry.angles import to_directions, to_vectors
from earatlas.geometry.spaces import Plane
from earatlas.hrtf.head import Head
from earatlas.types import Array

__all__ = ["Camera"]


@dataclass(frozen=True)
class Camera:
    """A pinhole camera that looks straight ahead.

    Parameters
    ----------
    width, height : int
        Size of the image in pixels.
    field_of_view_degrees : float, default 60.0
        Angle from the left to the right edge of the image.

    Raises
    ------
    InputError
        If a size is not positive, or the angle not between 0 and 180 degrees.

    Examples
    --------
    >>> camera = Camera(640, 480)
    >>> camera.positions([[0.0, 0.0], [30.0, 0.0], [180.0, 0.0]]).round(1).tolist()
    [[320.0, 240.0], [0.0, 240.0], [nan, nan]]
    >>> camera.directions([[320.0, 240.0]]).round(1).tolist()
    [[0.0, 0.0]]
    """

    width: int
    height: int
    field_of_view_degrees: float = 60.0

    def __post_init__(self) -> None:
        _ = self.plane  # checks the values

    @property
    def plane(self) -> Plane:
        """The plane of positions in the image."""
        return Plane.image(self.width, self.height, self.field_of_view_degrees)

    @property
    def focal_length(self) -> float:
        """Focal length in pixels."""
        return 0.5 * self.width / float(np.tan(np.radians(self.field_of_view_degrees / 2)))

    def positions(self, directions: ArrayLike) -> Array:
        """Return the positions (N, 2) in pixels of directions (N, 2); NaN behind the camera."""
        v = to_vectors(np.asarray(directions, dtype=np.float64))
        depth = np.where(v[:, 0] > 0, v[:, 0], np.nan)
        offset = self.focal_length * v[:, 1:] / depth[:, None]
        return np.array([self.width / 2, self.height / 2]) - offset

    def directions(self, positions: ArrayLike) -> Array:
        """Return the directions (N, 2) in degrees of positions (N, 2) in pixels."""
        p = np.asarray(positions, dtype=np.float64)
        offset = np.array([self.width / 2, self.height / 2]) - p
        return to_directions(np.column_stack([np.full(len(p), self.focal_length), offset]))

    def head(self, head: Head) -> Head:
        """Return the part of a head that the camera sees, labelled with positions in pixels."""
        if head.plane is not None:
            raise InputError(
                f"head must have directions in degrees, got the positions of '{head.name}'. Use "
                "the head that was measured."
            )
        positions = self.positions(head.directions)
        low, high = np.array(self.plane.bounds).T
        with np.errstate(invalid="ignore"):
            seen = ((positions >= low) & (positions <= high)).all(axis=1)
        if not seen.any():
            raise InputError(
                f"head must have directions in the field of view, got none of {len(head)} of "
                f"'{head.name}'. Use a wider field of view."
            )
        chosen = head.subset(seen)
        return replace(chosen, directions=positions[seen], plane=self.plane)
