"""Tests of figures of a scene, of posterior maps, and of the matching with the ground truth."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_scenes import SPACES, make_scene, posterior_at, with_sources
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

import earatlas as ea
from earatlas.evaluation.ground_truth import (
    GroundTruth,
    SourceMatching,
    assign_by_direction,
    assign_by_mask,
    direction_distances,
    true_masks,
)
from earatlas.evaluation.masks import oracle_masks, true_masks_at
from earatlas.geometry.chart_gaussians import gaussian_radius_90
from earatlas.geometry.spaces import Space
from earatlas.plotting.palette import source_colour
from earatlas.plotting.posterior_maps import posterior_map, zoomed_map
from earatlas.plotting.scenes import draw_mask, draw_posterior, draw_posteriors, plot_scene
from earatlas.plotting.style import save
from earatlas.plotting.tracks import draw_direction_tracks, draw_levels, marginal_bands
from earatlas.report import report_page
from earatlas.separation.result import SourceSummary, SourceTrack
from earatlas.wording import format_direction

pytestmark = pytest.mark.usefixtures("arranged_pictures")


def colour_at(axes: Axes, x: float, y: float) -> np.ndarray:
    """Return the colour (3,) in [0, 1] drawn at a point in data units."""
    canvas = FigureCanvasAgg(axes.figure)
    canvas.draw()
    drawn = np.asarray(canvas.buffer_rgba()) / 255
    column, row = (int(v) for v in axes.transData.transform((x, y)))
    return drawn[len(drawn) - 1 - row, column, :3]


def titles(figure: Figure) -> list[str]:
    """Return the titles of all panels."""
    return [a.get_title(loc="left") for a in figure.axes if a.get_title(loc="left")]


def audios(images: np.ndarray) -> tuple[ea.Audio, ...]:
    """Return images (M, 2, n) as Audio."""
    return tuple(ea.Audio(image, 16_000) for image in images)


@pytest.mark.parametrize(("space", "places"), SPACES)
def test_every_space_is_drawn(space: Space, places: tuple[tuple[float, ...], ...]) -> None:
    """A scene has its own panels and two per source; with images also the true masks."""
    scene, images = make_scene(space, places[1:])
    figure = plot_scene(scene, truth=GroundTruth(np.array(places[1:]) + 3.0, audios(images)))
    names = titles(figure)
    assert names[:3] == ["Level difference", "Directions", "Free energy"]
    assert names.count("Mask") == 2
    assert sorted(n for n in names if n.startswith("True")) == [
        "True mask: true 1",
        "True mask: true 2",
    ]
    azimuth = "Azimuth (left is up)"
    over_time = [azimuth, *(["Elevation"] if space.dims > 1 else []), "Level"]
    assert [n for n in names if n in (azimuth, "Elevation", "Level")] == (
        over_time if space.holds_directions else []
    )


def test_only_scenes_are_drawn() -> None:
    """A number and a localization are refused."""
    thing: Any
    posterior = posterior_at(ea.Sphere(), (30.0, 0.0))
    for thing, words in ((3, "got 3"), (ea.Localization(posterior, 0.5, 1.0), "got Localization")):
        with pytest.raises(ea.InputError, match=f"scene must be a separated scene, {words}"):
            plot_scene(thing)


def test_any_number_of_sources_is_drawn(tmp_path: Path) -> None:
    """Six sources, one and none; dollar signs in names are not typeset as formulas."""
    places = [(60.0 * m - 170, 10.0 * m) for m in range(6)]
    scene, images = make_scene(places=places)
    assert len(titles(plot_scene(scene))) == 3 + 2 * 6 + 3
    alone = with_sources(scene, [4])
    truth = GroundTruth(np.array(places), audios(images), names=tuple("ab$^$cdef$"[:6]))
    assert save(plot_scene(alone, truth=truth), tmp_path / "one.png").stat().st_size > 5000
    assert titles(plot_scene(with_sources(scene, []))) == ["Level difference", "Free energy"]


def test_posterior_has_its_place_and_colour() -> None:
    """Left of the listener is on the left of the figure; the opposite side is blank."""
    for m, azimuth in ((1, 120.0), (4, -120.0)):
        axes = Figure().add_subplot()
        draw_posterior(
            axes, posterior_at(ea.Sphere(), (azimuth, 20), width=10), m=m, truth=(0, -60)
        )
        assert axes.transData.transform((90, 0))[0] < axes.transData.transform((-90, 0))[0]
        near = colour_at(axes, azimuth + 4, 24)  # next to the mark of the peak
        assert np.abs(near - to_rgb(source_colour(m))).max() < 0.1
        assert colour_at(axes, -azimuth, 20).min() > 0.99
        marks = {line.get_label(): line.get_xydata()[0] for line in axes.lines}
        assert marks["truth"] == pytest.approx((0, -60))


def tracked_source(track: SourceTrack, posterior: ea.DirectionPosterior) -> SourceSummary:
    """Return a source with this track."""
    return SourceSummary("source1", posterior, 1.0, track=track)


def test_tracks_are_broken_in_silence_and_at_wraps() -> None:
    """Lines are drawn where a source is active; bands in azimuth widen with elevation."""
    directions = np.array([[170.0, 60], [-175, 60], [-165, 60], [np.nan, np.nan], [-150, 60]])
    radius = np.where(np.isfinite(directions[:, 0]), 8.0, np.nan)
    track = SourceTrack(np.arange(5.0), directions, radius, -np.arange(5.0), moves=True)
    axes = Figure().add_subplot()
    draw_direction_tracks(axes, [tracked_source(track, posterior_at(ea.Sphere(), (170, 60)))])
    lines = [line.get_xydata().tolist() for line in axes.lines]
    assert lines == [[[0, 170]], [[1, -175], [2, -165]], [[4, -150]]]
    assert {line.get_color() for line in axes.lines} == {source_colour(0)}
    band = axes.collections[1].get_paths()[0].vertices[:, 1]
    # The marginal of an isotropic Gaussian in two dimensions; azimuths spread twice as far at 60°.
    width = 2 * 8 * gaussian_radius_90(1) / gaussian_radius_90(2)
    assert (band.min(), band.max()) == pytest.approx((-175 - width, -165 + width))
    circle = Figure().add_subplot()
    draw_direction_tracks(circle, [tracked_source(track, posterior_at(ea.Circle(), (170, 0)))])
    band = circle.collections[1].get_paths()[0].vertices[:, 1]
    assert (band.min(), band.max()) == pytest.approx((-175 - 8, -165 + 8))


def test_bands_of_a_static_source_are_the_marginals_of_its_posterior() -> None:
    """Azimuth and elevation have bands of their own, also across ±180 degrees."""
    posterior = ea.DirectionPosterior(
        ea.Sphere(), np.array([[179.0, 0.0]]), np.ones(1), np.zeros((1, 2)),
        np.diag([4.0, 100.0])[None],
    )  # fmt: skip
    directions = np.array([[179.0, 0.0], [np.nan, np.nan]])
    track = SourceTrack(np.arange(2.0), directions, np.array([20.0, np.nan]), np.zeros(2))
    bands = marginal_bands(tracked_source(track, posterior))
    expected = gaussian_radius_90(1) * np.array([2.0, 10.0])
    # Azimuths at the elevations of this posterior spread slightly more than on the horizon.
    assert bands[0] == pytest.approx(expected, rel=0.08)
    assert np.isnan(bands[1]).all()


def test_lines_over_time_have_numbers() -> None:
    """Each line over time begins with the number of its source, so that colour is not needed."""
    scene, _ = make_scene()
    for draw in (draw_direction_tracks, draw_levels):
        axes = Figure().add_subplot()
        draw(axes, scene.sources)
        assert [text.get_text() for text in axes.texts] == ["1", "2"]


def test_unknown_direction_is_not_drawn() -> None:
    """A source whose 90 % region is most of the sphere has no line."""
    track = SourceTrack(np.arange(2.0), np.zeros((2, 2)), np.full(2, 160.0), np.zeros(2))
    axes = Figure().add_subplot()
    draw_direction_tracks(
        axes, [tracked_source(track, posterior_at(ea.Sphere(), (0, 0), width=200))]
    )
    assert not axes.lines
    assert not axes.collections


def test_mask_has_low_frequencies_at_the_bottom_and_missing_bins_grey() -> None:
    """Bins of the source are coloured, those of others white, and missing ones grey."""
    scene, _ = make_scene()
    mask = np.zeros_like(scene.spectrogram.ild_db)
    mask[:10], mask[30:] = 1.0, np.nan
    axes = Figure().add_subplot()
    draw_mask(axes, scene.spectrogram, mask, m=2, title="x")
    red, white, grey = (colour_at(axes, 0.12, khz) for khz in (1.0, 4.0, 7.5))
    assert np.abs(red - to_rgb(source_colour(2))).max() < 0.05
    assert white.min() > 0.99
    assert 0.7 < grey.min() <= grey.max() < 0.9


@pytest.mark.parametrize(("space", "places"), SPACES)
def test_map_is_the_log_density_relative_to_its_peak(
    space: Space, places: tuple[tuple[float, ...], ...]
) -> None:
    """Single cells agree with the density; the peak is in the map, also outside a plane."""
    posterior = posterior_at(space, places[2], seed=2)
    drawn = posterior_map(posterior)
    peak = posterior.log_density(posterior.best[None])[0]
    for j, i in ((0, 0), (len(drawn.y) // 2, 7), (len(drawn.y) - 1, len(drawn.x) - 1)):
        point = np.array([[drawn.x[i], drawn.y[j]]])[:, : space.columns]
        expected = posterior.log_density(point)[0] - peak
        assert drawn.log_density[j, i] == pytest.approx(expected, rel=1e-9)
    left, right, low, high = drawn.extent
    assert left <= posterior.best[0] <= right
    if space.dims == 2:
        assert low <= posterior.best[1] <= high
        inside = (drawn.credible_levels <= 0.9) * drawn.cell_areas
        cell = (drawn.x[1] - drawn.x[0]) * (drawn.y[1] - drawn.y[0])
        if not isinstance(space, ea.Plane):  # there it is cut off, or narrower than a cell
            assert inside.sum() * cell == pytest.approx(posterior.credible_area(0.9), rel=0.12)


@pytest.mark.parametrize(
    ("components", "shape"), [(7, (90, 180)), (2500, (45, 89)), (6000, (30, 60))]
)
def test_maps_of_many_components_have_fewer_cells(components: int, shape: tuple[int, int]) -> None:
    """The cost of a map is bounded; its 90 % region keeps its size."""
    generator = np.random.default_rng(3)
    centres = np.column_stack(
        [generator.uniform(-90, 20, components), generator.uniform(-40, 60, components)]
    )
    posterior = ea.DirectionPosterior(
        ea.Sphere(),
        centres,
        np.full(components, 1 / components),
        np.zeros((components, 2)),
        np.tile([[81.0, 20.0], [20.0, 64.0]], (components, 1, 1)),
    )
    drawn = posterior_map(posterior)
    assert drawn.log_density.shape == shape
    assert zoomed_map(posterior, whole=drawn) is drawn
    inside = (drawn.credible_levels <= 0.9) * drawn.cell_areas
    cell = (drawn.x[1] - drawn.x[0]) * (drawn.y[1] - drawn.y[0])
    assert inside.sum() * cell == pytest.approx(posterior.credible_area(0.9), rel=0.05)


def test_credible_levels_of_cells() -> None:
    """The level of a cell is the mass of all denser cells plus half of its own."""
    drawn = posterior_map(posterior_at(ea.Sphere(), (10, 70), width=20))
    mass = np.exp(drawn.log_density) * drawn.cell_areas
    for j, i in ((80, 85), (70, 20), (88, 150)):
        denser = mass[drawn.log_density > drawn.log_density[j, i]].sum()
        expected = (denser + 0.5 * mass[j, i]) / mass.sum()
        assert drawn.credible_levels[j, i] == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize(
    ("place", "truth"), [((30, 10), (31, 8)), ((179, 0), (-178, 0)), ((-60, 89.5), None)]
)
def test_close_up_of_a_sharp_posterior(
    place: tuple[float, float], truth: tuple[float, float] | None
) -> None:
    """The map just contains posterior and truth, also across ±180 degrees and at a pole."""
    posterior = posterior_at(ea.Sphere(), place, width=0.5)
    drawn = zoomed_map(posterior, truth=truth)
    left, right, low, high = drawn.extent
    assert high <= 90 + 1e-9
    if truth is not None:
        assert right - left == pytest.approx(2 * (high - low))
        assert 10 <= right - left <= 20 + 1e-9
        assert (drawn.credible_levels <= 0.9).sum() > 30
        axes = Figure().add_subplot()
        draw_posterior(axes, posterior, m=0, truth=truth)
        for line in axes.lines:
            x, y = line.get_xydata()[0]
            assert left < x < right
            assert low < y < high
        assert all(
            abs(float(t.get_text().rstrip("°").replace("−", "-"))) <= 180
            for t in axes.get_xticklabels()
        )
    spread = posterior_at(ea.Sphere(), place, width=60)
    assert zoomed_map(spread).extent == pytest.approx((-180, 180, -90, 90))


def test_posterior_narrower_than_a_cell_is_drawn() -> None:
    """It has finite levels and a mark, and gives no warning."""
    needle = posterior_at(ea.Sphere(), (10.3, 20.7), width=0.004)
    levels = posterior_map(needle).credible_levels
    assert np.isfinite(levels).all()
    axes = Figure().add_subplot()
    draw_posteriors(axes, [needle], directions=[(50, 0)])
    FigureCanvasAgg(axes.figure).draw()
    assert [text.get_text() for text in axes.texts] == ["1"]


def test_true_masks_equal_the_oracle_masks_of_the_same_frames() -> None:
    """They equal the oracle masks of the full STFT at the bins of the summary, or are NaN."""
    scene, images = make_scene(places=((30, 10), (-50, -20), (90, 0)))
    found = true_masks(scene.spectrogram, audios(images))
    spectra = np.stack([ea.stft(image, 1024, 128) for image in images])
    bins = np.rint(scene.spectrogram.frequencies_hz / 15.625).astype(int)
    observed = ~np.isnan(scene.spectrogram.ild_db)
    assert 0.5 < observed.mean() < 0.9
    np.testing.assert_array_equal(
        found[:, observed], oracle_masks(spectra[:, :, bins])[:, observed]
    )
    assert np.isnan(found[:, ~observed]).all()


def test_true_masks_at_any_time_and_frequency(rng: np.random.Generator) -> None:
    """They equal an explicit loop over windowed frames at the nearest frequency."""
    rate, window = 8_000, 512
    images = [ea.Audio(scale * rng.normal(size=(2, 3000)), rate) for scale in (0.5, 1.0, 0.8)]
    seconds, frequencies_hz = np.array([0.0, 0.1003, 0.3, 0.37]), np.array([40.0, 777.0, 3990.0])
    found = true_masks_at(seconds, frequencies_hz, images)
    n = np.arange(window)
    for j, f in enumerate(frequencies_hz):
        wave = np.exp(-2j * np.pi * n * round(f * window / rate) / window)
        for i, t in enumerate(seconds):
            power = []
            for image in images:
                ears = np.zeros((2, window))
                for k, place in enumerate(round(t * rate) - window // 2 + n):
                    if 0 <= place < 3000:
                        ears[:, k] = image.samples[:, place] * np.sin(np.pi * k / window) ** 2
                power.append((np.abs(ears @ wave) ** 2).sum())
            assert found[:, j, i].tolist() == [float(m == np.argmax(power)) for m in range(3)]


def test_matching_gives_truth_by_estimated_source() -> None:
    """True directions and masks are in the order of the estimated sources, None without any."""
    places = np.array([(30.0, 10.0), (-50.0, -20.0), (90.0, 0.0)])
    scene, images = make_scene(places=places)
    permuted = with_sources(scene, [2, 0])
    matched = SourceMatching.of(
        permuted, GroundTruth(places, audios(images), names=("a", "b", "c"))
    )
    np.testing.assert_array_equal(matched.true_direction(0), places[2])
    np.testing.assert_array_equal(matched.true_direction(1), places[0])
    assert matched.by_sound is not None
    for j, m in enumerate(matched.by_sound.found.argsort()[1:]):  # the first one is missed
        name, mask = matched.true_mask(j) or ("", None)
        assert name == "abc"[m]
        np.testing.assert_array_equal(mask, true_masks(scene.spectrogram, audios(images))[m])
    without_images = SourceMatching.of(permuted, GroundTruth(places))
    assert (without_images.by_sound, without_images.masks, without_images.true_mask(0)) == (
        None,
        None,
        None,
    )
    without_directions = SourceMatching.of(permuted, GroundTruth(images=audios(images)))
    assert (without_directions.by_direction, without_directions.true_direction(0)) == (None, None)
    empty = SourceMatching.of(with_sources(scene, []), GroundTruth(places, audios(images)))
    assert empty.by_sound is not None
    assert empty.by_sound.missed == (0, 1, 2)


def test_assignment_of_permuted_and_missing_sources() -> None:
    """Each true source keeps its own estimate if sources are permuted or missing."""
    places = ((30.0, 10.0), (-50.0, -20.0), (90.0, 0.0))
    scene, _ = make_scene(places=places)
    permuted = with_sources(scene, [2, 0, 1])
    assert assign_by_direction(permuted, np.array(places)).found.tolist() == [1, 2, 0]
    assert assign_by_direction(with_sources(scene, [1]), np.array(places)).found.tolist() == [
        -1,
        0,
        -1,
    ]
    assert assign_by_direction(with_sources(scene, []), np.array(places)).found.tolist() == [-1] * 3
    masks = scene.spectrogram.masks
    assert assign_by_mask(np.rint(masks[:2]), permuted.spectrogram.masks).found.tolist() == [1, 2]


def test_moving_source_is_matched_along_its_path() -> None:
    """Half-way it passes a static source; over time it matches its own trajectory."""
    scene, images = make_scene(places=((0.0, 0.0), (5.0, 0.0)))
    seconds = scene.sources[0].track.seconds
    trajectory = ea.Trajectory((0, 0.25), [(40.0, 0.0), (-40.0, 0.0)])
    path = np.where(
        scene.sources[0].track.active[:, None],
        trajectory.at(seconds) + np.array([3.0, 0.0]),
        np.nan,
    )
    moving = replace(scene.sources[1], track=replace(scene.sources[1].track, directions=path))
    scene = replace(scene, sources=(scene.sources[0], moving))
    truth = GroundTruth(
        np.array([[0.0, 0.0], [2.0, 0.0]]), audios(images), trajectories=(trajectory, None)
    )
    matched = SourceMatching.of(scene, truth)
    assert matched.by_direction is not None
    assert matched.by_direction.found.tolist() == [1, 0]
    assert truth.direction_error(0, moving) == pytest.approx(3.0, abs=0.01)
    assert matched.direction_error(0, scene.sources[0]) == pytest.approx(2.0, abs=0.1)
    true_path = matched.true_path(1)
    assert true_path is not None
    np.testing.assert_allclose(true_path[[0, 4, -1], 0], [40, 0, -40], atol=1e-6)
    page = report_page(scene, title="x", truth=truth)
    assert page.count('class="truth"') > 3 * 9  # on the compass, the map and the close-up


def test_report_table_compares_a_moving_source_at_the_same_moments() -> None:
    """Truth, estimate and error of a row are of the time that the row names."""
    scene, _ = make_scene(places=((0.0, 0.0), (5.0, 0.0)))
    source = scene.sources[1]
    seconds = source.track.seconds
    trajectory = ea.Trajectory((0, 0.25), [(40.0, 0.0), (-40.0, 0.0)])
    active = np.zeros(len(seconds), dtype=bool)
    active[2:-1] = True  # the estimate begins after and ends before the talker
    offsets = np.column_stack([np.linspace(2.0, 8.13, len(seconds)), 0 * seconds])
    path = np.where(active[:, None], trajectory.at(seconds) + offsets, np.nan)
    moving = replace(source, track=replace(source.track, directions=path, moves=True))
    truth = GroundTruth(np.array([[0.0, 0.0]]), names=("Ada",), trajectories=(trajectory,))
    page = report_page(replace(scene, sources=(moving,)), title="x", truth=truth)
    table = page[page.index("<tbody>") : page.index("</tbody>")]
    rows = [re.findall(r"<(?:small|span)>(.*?)</", row) for row in table.split("<tr>")[2:]]
    steps = np.flatnonzero(active)
    moments = steps[sorted({0, (len(steps) - 1) // 2, len(steps) - 1})]
    assert [row[0] for row in rows] == [f"at {seconds[w]:.1f} s" for w in moments]
    for row, w in zip(rows, moments, strict=True):
        true = trajectory.at(seconds[w : w + 1])[0]
        expected = [format_direction(true), format_direction(path[w]), f"{offsets[w, 0]:.1f}°"]
        assert row[1:] == expected
    assert f"median {np.median(offsets[active, 0]):.1f}°" in table
    missed = report_page(replace(scene, sources=()), title="x", truth=truth)
    assert "40° left, ear height, front → 40° right, ear height, front" in missed


def test_direction_distances() -> None:
    """Directions have great-circle distances, pixels Euclidean ones."""
    assert direction_distances(ea.Plane(), [0, 60], [180, 60]) == pytest.approx(60)
    assert direction_distances(ea.Circle(), [170, 0], [-170, 0]) == pytest.approx(20)
    pixels = ea.Plane(((0, 640), (0, 480)))
    assert direction_distances(pixels, [100, 100], [400, 500]) == pytest.approx(500)
    spaces = [s.holds_directions for s in (pixels, ea.Plane(), ea.Plane(((-90, 90),)))]
    assert spaces == [False, True, True]


def test_ground_truth_is_validated() -> None:
    """Counts, channels and shapes are checked; a rendered scene provides everything."""
    sound, mono = ea.Audio(np.ones((2, 9)), 8000), ea.Audio(np.ones((1, 9)), 8000)
    for bad in (
        {},
        {"names": ("a",)},
        {"directions": np.zeros((2, 2)), "images": (sound,)},
        {"directions": np.zeros((2, 2)), "names": ("a",)},
        {"directions": np.array([[np.nan, 0]])},
        {"directions": np.zeros(2)},
        {"images": (mono,)},
        {"images": (sound, ea.Audio(np.ones((2, 9)), 16_000))},
    ):
        with pytest.raises(ea.InputError, match=r"must .*, got .*\. [A-Z].*\."):
            GroundTruth(**bad)
    scene, _ = make_scene()
    with pytest.raises(ea.InputError, match="2 columns"):
        assign_by_direction(scene, np.zeros((1, 1)))
    head = ea.simulated_head(np.array([[30.0, 0.0], [-60.0, 20.0]]))
    rendered = ea.render_scene(
        head, [np.eye(99)[3], np.eye(80)[7]], head.directions, names=["a", "b"]
    )
    truth = GroundTruth.of(rendered)
    assert (len(truth), truth.names) == (2, ("a", "b"))
    np.testing.assert_array_equal(truth.images[1].samples, rendered.images[1])
