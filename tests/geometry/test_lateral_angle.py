"""Lateral angles, and the smallest intervals that contain 90 % of a posterior."""

import numpy as np
import pytest

import earatlas as ea
from earatlas.geometry.angles import to_vectors
from earatlas.geometry.direction_posterior import DirectionPosterior
from earatlas.geometry.lateral_angle import LateralAngle, lateral_angles
from earatlas.geometry.spaces import Space
from earatlas.localization.result import Localization


def on_cone(lateral: float, width: float) -> DirectionPosterior:
    """Return a posterior that is spread over the cone of confusion of a lateral angle."""
    around = np.radians(np.arange(0, 360, 5.0))
    s = np.radians(lateral)
    vectors = np.stack(
        [np.cos(s) * np.cos(around), np.full(72, np.sin(s)), np.cos(s) * np.sin(around)], axis=1
    )
    azimuth = np.degrees(np.arctan2(vectors[:, 1], vectors[:, 0]))
    centres = np.stack([azimuth, np.degrees(np.arcsin(vectors[:, 2]))], axis=1)
    return DirectionPosterior(
        ea.Sphere(), centres, np.full(72, 1 / 72), np.zeros((72, 2)),
        np.tile(width**2 * np.eye(2), (72, 1, 1)),
    )  # fmt: skip


def test_lateral_angles_by_the_formula() -> None:
    """arcsin(cos(elevation) sin(azimuth)), at most 90 degrees."""
    x = np.random.default_rng(0).uniform([-180, -90], [180, 90], (200, 2))
    azimuth, elevation = np.radians(x).T
    expected = np.degrees(np.arcsin(np.cos(elevation) * np.sin(azimuth)))
    assert lateral_angles(to_vectors(x)) == pytest.approx(expected)
    assert lateral_angles(np.array([0.0, 1.0 + 1e-12, 0.0])) == 90.0


def test_known_lateral_angle_of_an_unknown_direction() -> None:
    """All directions of a cone are possible, yet the lateral angle is known."""
    posterior = on_cone(-40.0, 3.0)
    assert posterior.radius_90 > 60
    found = posterior.lateral_angle
    assert found is not None
    assert found.angle == pytest.approx(-40.0, abs=1.0)
    # 90 % of a Gaussian lie within 1.645 standard deviations.
    assert found.radius_90 == pytest.approx(1.645 * 3.0, rel=0.1)


def test_shortest_interval() -> None:
    """A tenth of the points may be anywhere, and is left out."""
    angles = np.concatenate([np.linspace(20, 29, 90), np.full(10, -60.0)])
    found = LateralAngle.of_points(np.random.default_rng(1).permutation(angles))
    assert (found.angle, found.radius_90) == pytest.approx((24.5, 4.5))


@pytest.mark.parametrize(
    ("space", "centre"),
    [
        (ea.Sphere(), [150.0, 0.0]),
        (ea.Circle(), [150.0, 0.0]),
        (ea.Cylinder(), [150.0, 0.0]),
        (ea.Plane(((-180, 180),)), [150.0]),
    ],
)
def test_every_space_of_directions_has_lateral_angles(space: Space, centre: list[float]) -> None:
    """Also those whose points are azimuths alone; pixels have none."""
    L = space.dims
    posterior = DirectionPosterior(
        space, np.array([centre]), np.ones(1), np.zeros((1, L)), 4 * np.eye(L)[None]
    )
    assert posterior.lateral_angle is not None
    assert posterior.lateral_angle.angle == pytest.approx(30.0, abs=0.5)


def test_pixels_have_no_lateral_angle() -> None:
    """Points of an image are no directions."""
    image = ea.Plane.image(640, 480)
    posterior = DirectionPosterior(
        image, np.array([[320.0, 240.0]]), np.ones(1), np.zeros((1, 2)), 4 * np.eye(2)[None]
    )
    assert posterior.lateral_angle is None
    assert Localization(posterior, 0.5, 1.0).to_dict()["lateral_angle"] is None


def test_json_values() -> None:
    """The interval is stored with rounded numbers and read again."""
    found = Localization(on_cone(28.4, 4.0), 0.5, 2.0)
    assert not found.direction_known
    assert "direction unknown, lateral angle 28 ± " in repr(found)
    fields = found.to_dict()["lateral_angle"]
    again = LateralAngle.from_dict(fields)
    assert again is not None
    assert again.to_dict() == fields
    assert fields["angle"] == pytest.approx(28.4, abs=2.0)
    assert LateralAngle.from_dict(None) is None
