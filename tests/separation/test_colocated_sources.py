"""Sources that are close to each other are doubted, in the unit of their positions."""

from __future__ import annotations

import math

import numpy as np
import pytest

import earatlas as ea
from earatlas.separation.result import Evidence
from earatlas.separation.source_directions import LocatedSource, flag_colocated_sources


@pytest.mark.parametrize(
    ("space", "points", "words"),
    [
        (ea.Sphere(), [[20.0, 0.0], [80.0, 0.0], [24.0, 3.0]], ("5.0° away", "than 10°")),
        (
            ea.Plane.image(640, 480),
            [[200.0, 150.0], [500.0, 300.0], [232.0, 174.0]],
            ("40.0 pixels away", "than 107 pixels"),
        ),
    ],
)
def test_a_close_source_is_doubted_in_its_unit(
    space: ea.Sphere | ea.Plane, points: list[list[float]], words: tuple[str, str]
) -> None:
    """Only the third source, which is close to the first, has a doubt; lengths have its unit."""
    sources = [
        LocatedSource.static(
            ea.DirectionPosterior(
                space, np.array([point]), np.ones(1), np.zeros((1, 2)), np.eye(2)[None]
            ),
            Evidence(math.nan),
        )
        for point in points
    ]
    first, second, third = flag_colocated_sources(sources)
    assert not first.doubts
    assert not second.doubts
    (doubt,) = third.doubts
    assert all(text in doubt for text in words)
