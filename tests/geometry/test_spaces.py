"""Direction spaces and angular errors: charts, distances, means, grids and thinning."""

import numpy as np
import pytest

from earatlas.errors import InputError
from earatlas.geometry.angles import (
    azimuth_error,
    elevation_error,
    great_circle_error,
    to_directions,
    to_vectors,
    wrap_degrees,
)
from earatlas.geometry.credible_region import cells_within_reach
from earatlas.geometry.direction_posterior import DirectionPosterior
from earatlas.geometry.spaces import Circle, Cylinder, Plane, Space, Sphere, space_from_dict

SPACES = [Plane(), Circle(), Cylinder(), Sphere()]
IMAGE = Plane.image(320, 200, 50.0)
TWO_DIMS = [Plane(), Cylinder(), Sphere()]


def random_points(space: Space, rng: np.random.Generator, n: int) -> np.ndarray:
    """Return points that every space accepts."""
    x = np.stack([rng.uniform(-160, 160, n), rng.uniform(-60, 60, n)], axis=-1)
    if isinstance(space, Circle):
        x[:, 1] = 12.0
    return x


@pytest.mark.parametrize("space", SPACES, ids=repr)
def test_exp_inverts_log(space: Space, rng: np.random.Generator) -> None:
    """exp_c(log_c(x)) = x for all pairs, broadcast over centres (K, 1) and points (N,)."""
    centres, points = random_points(space, rng, 3)[:, None], random_points(space, rng, 7)
    u = space.log(centres, points)
    assert u.shape == (3, 7, space.dims)
    back = space.exp(centres, u)
    np.testing.assert_allclose(back, np.broadcast_to(points, back.shape), atol=1e-9)


@pytest.mark.parametrize("space", SPACES, ids=repr)
def test_distance_is_the_length_of_the_log(space: Space, rng: np.random.Generator) -> None:
    """|log_c(x)| is the distance, and distance is symmetric."""
    a, b = random_points(space, rng, 9), random_points(space, rng, 9)
    np.testing.assert_allclose(
        np.linalg.norm(space.log(a, b), axis=-1), space.distance(a, b), rtol=1e-9
    )
    np.testing.assert_allclose(space.distance(a, b), space.distance(b, a), rtol=1e-9)


def test_sphere_log_points_left_and_up() -> None:
    """At the front, the first coordinate grows with azimuth and the second with elevation."""
    np.testing.assert_allclose(Sphere().log([0, 0], [10, 0]), [10, 0], atol=1e-12)
    np.testing.assert_allclose(Sphere().log([0, 0], [0, 10]), [0, 10], atol=1e-12)


def test_sphere_antipode_is_half_a_turn_away() -> None:
    """The log of the antipode has length 180 in an arbitrary direction, not 0 and not NaN."""
    assert np.linalg.norm(Sphere().log([30, 20], [-150, -20])) == pytest.approx(180)


def test_distance_wraps_at_the_azimuth_seam() -> None:
    """Neighbours across ±180 degrees are 2 degrees apart in all spaces except the plane."""
    a, b = [179.0, 0.0], [-179.0, 0.0]
    assert Plane().distance(a, b) == pytest.approx(358)
    for space in (Circle(), Cylinder(), Sphere()):
        assert space.distance(a, b) == pytest.approx(2)
        np.testing.assert_allclose(np.abs(space.mean([a, b])[0]), 180, atol=1e-9)


def test_distance_and_mean_near_a_pole() -> None:
    """Directions around the pole are close on the sphere, and their mean is the pole."""
    ring = [[0.0, 88.0], [90.0, 88.0], [180.0, 88.0], [-90.0, 88.0]]
    assert Sphere().distance(ring[0], ring[2]) == pytest.approx(4)
    assert Sphere().mean(ring)[1] == pytest.approx(90, abs=1e-9)


@pytest.mark.parametrize("space", SPACES, ids=repr)
def test_mean_is_where_weighted_logs_cancel(space: Space, rng: np.random.Generator) -> None:
    """The Riemannian mean fulfils its defining equation, for K = 3 sets of weights at once."""
    x = np.array([170.0, 20.0]) + rng.normal(size=(7, 2)) * (20, 8)
    x[:, 0] = wrap_degrees(x[:, 0])
    if isinstance(space, Circle):
        x[:, 1] = 12.0
    w = rng.uniform(0.1, 2.0, size=(7, 3))
    means = space.mean(x, w)
    assert means.shape == (3, 2)
    for k in range(3):
        residual = w[:, k] @ space.log(means[k], x) / w[:, k].sum()
        np.testing.assert_allclose(residual, 0, atol=1e-9)
        np.testing.assert_allclose(space.mean(x, w[:, k]), means[k], atol=1e-9)


@pytest.mark.parametrize("space", TWO_DIMS, ids=repr)
def test_grid_cells_have_the_requested_size(space: Space) -> None:
    """The area per point is spacing² within a few percent, and neighbours keep their distance."""
    g = space.grid(5.0)
    assert space.area / len(g) == pytest.approx(25.0, rel=0.03)
    nearest = [np.sort(space.distance(row, g))[1] for row in g[:: len(g) // 50]]
    assert 3.5 < min(nearest) <= max(nearest) < 6.0


def test_grid_of_circle_has_straight_ahead() -> None:
    """The grid contains 0 degrees and has 360 / spacing points."""
    g = Circle().grid(5.0)
    assert len(g) == 72
    assert np.abs(g[:, 0]).min() == 0


def test_sphere_grid_has_equal_areas() -> None:
    """Each hemisphere, in any orientation, contains half of the grid within a few points."""
    v = to_vectors(Sphere().grid(4.0))
    for axis in np.eye(3):
        assert abs((v @ axis > 0).mean() - 0.5) < 0.005


@pytest.mark.parametrize("space", SPACES, ids=repr)
def test_thin_keeps_spacing_and_coverage(space: Space, rng: np.random.Generator) -> None:
    """No two kept points are closer than the spacing; each dropped point has a kept neighbour."""
    x = random_points(space, rng, 300)
    kept = space.thin(x, 20.0)
    assert 5 < len(kept) < 200
    for i in kept:
        others = kept[kept != i]
        assert space.distance(x[i], x[others]).min() >= 20.0 - 1e-9
    assert max(space.distance(row, x[kept]).min() for row in x) < 20.0


def test_thinning_of_a_grid_gives_the_requested_spacing() -> None:
    """Thinning the paper's 2-degree plane to 4 degrees keeps a quarter."""
    azimuth, elevation = np.meshgrid(np.arange(-60, 60, 2), np.arange(-40, 40, 2))
    x = np.stack([azimuth.ravel(), elevation.ravel()], axis=-1).astype(float)
    assert len(Plane().thin(x, 4.0)) == len(x) / 4 == 600


def test_nearest_agrees_with_distance(rng: np.random.Generator) -> None:
    """The matrix product of the sphere gives the same nearest points as the distance."""
    x, t = random_points(Sphere(), rng, 40), random_points(Sphere(), rng, 11)
    expected = [np.argmin(great_circle_error(row, x)) for row in t]
    np.testing.assert_array_equal(Sphere().nearest(x, t), expected)
    np.testing.assert_array_equal(
        Cylinder().nearest(x, t), [np.argmin(Cylinder().distance(row, x)) for row in t]
    )


@pytest.mark.parametrize("space", SPACES, ids=repr)
def test_distances_from_one_of_the_points(space: Space, rng: np.random.Generator) -> None:
    """The squared distances from one point are those of the pairs."""
    x = random_points(space, rng, 7)
    squared = space.distances_from(x)
    for n in (0, 4):
        np.testing.assert_allclose(squared(n), space.distance(x[n], x) ** 2, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("space", SPACES, ids=repr)
def test_cells_within_reach_agree_with_distances(space: Space, rng: np.random.Generator) -> None:
    """The cells are those that are closer to any centre than its reach."""
    cells, centres = random_points(space, rng, 400), random_points(space, rng, 60)
    centres[40:] = centres[:20]  # the same centre with another reach
    reach = rng.uniform(0.5, 5.0, size=len(centres))
    expected = [
        any(space.distance(centre, cell) < own for centre, own in zip(centres, reach, strict=True))
        for cell in cells
    ]
    assert 0 < sum(expected) < len(cells)
    np.testing.assert_array_equal(cells_within_reach(space, cells, centres, reach), expected)


def test_angular_errors_wrap() -> None:
    """Azimuth errors follow the shorter arc; near a pole the great circle is short."""
    assert azimuth_error([170, 0], [-170, 0]) == pytest.approx(20)
    assert elevation_error([0, 10], [50, -5]) == pytest.approx(15)
    assert great_circle_error([0, 80], [180, 80]) == pytest.approx(20)
    assert great_circle_error([10, 0], [10 + 1e-7, 0]) == pytest.approx(1e-7, rel=1e-6)


def test_vectors_and_directions_invert(rng: np.random.Generator) -> None:
    """to_directions(to_vectors(x)) = x, and vectors have x ahead, y left and z up."""
    x = random_points(Sphere(), rng, 20)
    np.testing.assert_allclose(to_directions(3.0 * to_vectors(x)), x, atol=1e-12)
    np.testing.assert_allclose(to_vectors([90, 0]), [0, 1, 0], atol=1e-12)
    np.testing.assert_allclose(to_vectors([0, 90]), [0, 0, 1], atol=1e-12)


@pytest.mark.parametrize("space", SPACES, ids=repr)
def test_spaces_round_trip_through_json(space: Space) -> None:
    """space_from_dict(space.to_dict()) = space."""
    assert space_from_dict(space.to_dict()) == space


def test_plane_of_any_dimension() -> None:
    """A plane in pixels and a three-dimensional plane are supported."""
    space = Plane(((0, 10), (0, 20), (0, 30)))
    assert space.dims == 3
    assert len(space.grid(10.0)) == 6
    np.testing.assert_allclose(space.mean([[0, 0, 0], [2, 4, 6]], [1, 3]), [1.5, 3, 4.5])


@pytest.mark.parametrize(
    ("points", "words"),
    [
        ([[0.0, np.nan]], "row 0"),
        ([0.0, 1.0], "shape"),
        (np.zeros((0, 2)), "N >= 1"),
        ([[1.0, 2.0, 3.0]], "(N, 2)"),
    ],
)
def test_invalid_points_raise(points: object, words: str) -> None:
    """Wrong shapes and NaN raise an InputError that names the problem."""
    with pytest.raises(InputError) as caught:
        Sphere().check(points)  # type: ignore[arg-type]
    assert words in str(caught.value)


def test_invalid_settings_raise() -> None:
    """Invalid spacings, bounds and unknown spaces raise an InputError."""
    for call in (
        lambda: Sphere().grid(0.0),
        lambda: Plane(((1, 0),)),
        lambda: Cylinder((10, -10)),
        lambda: space_from_dict({"space": "torus"}),
    ):
        with pytest.raises(InputError, match="must"):
            call()


def test_charts_of_an_image_are_in_degrees_of_the_field_of_view() -> None:
    """Points are in pixels; distances, grids and areas are scaled, and a file keeps the scale."""
    scale = 320 / 50
    x = np.array([[10.0, 20.0], [300.0, 150.0]])
    np.testing.assert_allclose(IMAGE.log([100.0, 50.0], x), (x - [100, 50]) / scale, rtol=1e-12)
    np.testing.assert_allclose(IMAGE.exp([100.0, 50.0], IMAGE.log([100.0, 50.0], x)), x, rtol=1e-12)
    assert IMAGE.area == pytest.approx(320 * 200 / scale**2)
    grid = IMAGE.grid(5.0)
    assert len(grid) == 10 * 7
    assert IMAGE.distance(grid[0], grid[1]) == pytest.approx(200 / 7 / scale)
    assert space_from_dict(IMAGE.to_dict()) == IMAGE
    assert not IMAGE.holds_directions
    assert not Plane(((0, 100), (0, 80)), unit="pixels").holds_directions, "a small image"
    assert (IMAGE.unit_name, Plane().unit_name, Sphere().unit_name) == (
        "pixels",
        "degrees",
        "degrees",
    )
    with pytest.raises(InputError, match="units_per_degree must be positive"):
        Plane(units_per_degree=0.0)


def test_sizes_of_a_posterior_are_in_the_unit_of_the_space() -> None:
    """The same Gaussian has a radius and an area in pixels that are scaled from degrees."""
    arrays = np.ones(1), np.zeros((1, 2)), np.array([[[4.0, 1.0], [1.0, 3.0]]])
    degrees = DirectionPosterior(Plane(), np.array([[0.0, 0.0]]), *arrays)
    pixels = DirectionPosterior(IMAGE, np.array([[160.0, 100.0]]), *arrays)
    scale = IMAGE.unit_scale
    assert pixels.radius_90 == pytest.approx(scale * degrees.radius_90, rel=1e-9)
    assert pixels.credible_area(0.9) == pytest.approx(scale**2 * degrees.credible_area(0.9))
    region = pixels.credible_region(0.9)
    assert region.area == pytest.approx(pixels.credible_area(0.9), rel=0.1)
    assert region.equivalent_radius_degrees == pytest.approx(np.sqrt(region.area / np.pi))
    assert "square pixels" in repr(region)
    outside = DirectionPosterior(IMAGE, np.array([[900.0, 100.0]]), *arrays)
    assert outside.credible_region(0.9).area == pytest.approx(region.area, rel=0.15)
    assert pixels.alternatives[0].radius_90 == pytest.approx(pixels.radius_90, rel=1e-9)


@pytest.mark.parametrize("space", [Sphere(), Circle()])
@pytest.mark.parametrize(
    ("points", "words"),
    [
        ([[0, 0], [400, 0]], r"azimuths from -360 to 360 degrees, got 400 in row 1"),
        ([[0, -90.5]], r"elevations from -90 to 90 degrees, got -90\.5 in row 0"),
    ],
)
def test_angles_out_of_range_are_refused(
    space: Space, points: list[list[float]], words: str
) -> None:
    """An azimuth beyond one turn is a mistake in the unit, an elevation beyond the zenith too."""
    with pytest.raises(InputError, match=words):
        space.check(points)
    assert space.check([[-360, 90]]).tolist() == [[-360, 90]]
