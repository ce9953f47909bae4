"""The spaces of directions, and their description in files.

Models are learned in charts (`earatlas.geometry.space`), so one model works on all spaces.

    space      points                    log_c(x)                          used for
    Plane      any L numbers             x - c                             the paper; pixels
    Circle     (azimuth, 0), L = 1       wrapped azimuth difference        horizontal measurements
    Cylinder   (azimuth, elevation)      azimuth wrapped, elevation flat   pan-tilt units
    Sphere     (azimuth, elevation)      tangent-plane logarithm           all directions (default)
"""

from __future__ import annotations

from typing import Any

from earatlas.errors import InputError
from earatlas.geometry.cylinder import Circle, Cylinder
from earatlas.geometry.plane import Plane
from earatlas.geometry.space import Space
from earatlas.geometry.sphere import Sphere

__all__ = ["Circle", "Cylinder", "Plane", "Space", "Sphere", "space_from_dict"]


def space_from_dict(fields: dict[str, Any]) -> Space:
    """Return the space that `Space.to_dict` described."""
    match fields:
        case {"space": "plane", "bounds": bounds}:
            scale = float(fields.get("units_per_degree", 1.0))
            pairs = tuple((float(low), float(high)) for low, high in bounds)
            return Plane(pairs, fields.get("unit"), scale)
        case {"space": "circle"}:
            return Circle()
        case {"space": "cylinder", "elevations": [low, high]}:
            return Cylinder((float(low), float(high)))
        case {"space": "sphere"}:
            return Sphere()
    raise InputError(
        f"space must be a plane, circle, cylinder or sphere with its parameters, got {fields}. "
        "Check the file that it was read from."
    )
