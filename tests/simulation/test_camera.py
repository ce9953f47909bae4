"""The camera: directions and positions are inverse, and a head is labelled with what it sees."""

import numpy as np
import pytest

import earatlas as ea
from earatlas.errors import InputError
from earatlas.simulation.camera import Camera

CAMERA = Camera(640, 360, 70.0)


def test_positions_and_directions_are_inverse() -> None:
    """A position is the projection of its direction; left in the image is a positive azimuth."""
    positions = np.array([[10.0, 20.0], [500.0, 340.0], [320.0, 180.0]])
    directions = CAMERA.directions(positions)
    np.testing.assert_allclose(CAMERA.positions(directions), positions, rtol=0, atol=1e-9)
    assert directions[0, 0] > 0
    assert directions[0, 1] > 0, "the top of the image is above"
    np.testing.assert_allclose(CAMERA.directions([[0.0, 180.0]]), [[35.0, 0.0]], atol=1e-9)


def test_a_head_is_labelled_with_what_the_camera_sees() -> None:
    """Directions outside the image, and behind the camera, are left out."""
    head = ea.simulated_head([[0.0, 0.0], [20.0, 10.0], [60.0, 0.0], [180.0, 0.0]])
    seen = CAMERA.head(head)
    assert len(seen) == 2
    assert seen.space == CAMERA.plane
    np.testing.assert_allclose(CAMERA.directions(seen.directions), [[0, 0], [20, 10]], atol=1e-9)
    np.testing.assert_array_equal(seen.responses().samples, head.responses().samples[:2])
    with pytest.raises(InputError, match="must have directions in degrees"):
        CAMERA.head(seen)
    with pytest.raises(InputError, match="in the field of view"):
        CAMERA.head(ea.simulated_head([[180.0, 0.0]]))


def test_a_head_of_positions_renders_no_sound() -> None:
    """Rendering, SOFA files and populations need directions."""
    seen = CAMERA.head(ea.simulated_head([[0.0, 0.0], [20.0, 10.0]]))
    with pytest.raises(InputError, match=r"to render sound, but .* positions in pixels"):
        ea.render_scene(seen, [ea.synthetic_speech(0.2, seed=1)], [[0.0, 0.0]])


@pytest.mark.parametrize(("width", "angle"), [(0, 60.0), (640, 0.0), (640, 180.0)])
def test_impossible_cameras_are_refused(width: int, angle: float) -> None:
    """An image has a size and a field of view below 180 degrees."""
    with pytest.raises(InputError, match="positive width and height"):
        Camera(width, 480, angle)
