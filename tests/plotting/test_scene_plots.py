"""The scene's figure: every source and space, left on the left, the truth beside what it is of."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from made_scenes import SPACES, belief_at, made_scene, with_sources
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

import earatlas as ea
from earatlas.evaluation.ground_truth import (
    Matched,
    Truth,
    pair_directions,
    pair_masks,
    place_errors,
    true_masks,
)
from earatlas.evaluation.masks import oracle_masks, true_masks_at
from earatlas.geometry.spaces import Space
from earatlas.plotting.palette import colour_of
from earatlas.plotting.posterior_maps import belief_map, zoomed_map
from earatlas.plotting.scenes import draw_belief, draw_beliefs, draw_mask, plot_scene
from earatlas.plotting.style import save
from earatlas.plotting.tracks import draw_ways
from earatlas.report import report_page
from earatlas.separation.source_track import SourceTrack


def colour_at(axes: Axes, x: float, y: float) -> np.ndarray:
    """The colour (3,) in [0, 1] drawn at a point in data units."""
    canvas = FigureCanvasAgg(axes.figure)
    canvas.draw()
    drawn = np.asarray(canvas.buffer_rgba()) / 255
    column, row = (int(v) for v in axes.transData.transform((x, y)))
    return drawn[len(drawn) - 1 - row, column, :3]


def titles(figure: Figure) -> list[str]:
    """Titles of all panels."""
    return [a.get_title(loc="left") for a in figure.axes if a.get_title(loc="left")]


def audios(images: np.ndarray) -> tuple[ea.Audio, ...]:
    """Images (M, 2, n) as sounds."""
    return tuple(ea.Audio(image, 16_000) for image in images)


@pytest.mark.parametrize(("space", "places"), SPACES)
def test_every_space_is_drawn(space: Space, places: tuple[tuple[float, ...], ...]) -> None:
    """Scene panels and two panels a source; with images the true masks as well."""
    scene, images = made_scene(space, places[1:])
    figure = plot_scene(scene, truth=Truth(np.array(places[1:]) + 3.0, audios(images)))
    names = titles(figure)
    assert names[:3] == ["Level difference", "Directions", "Free energy"]
    assert names.count("Assignment") == 2
    assert sorted(n for n in names if n.startswith("True")) == ["True: true 1", "True: true 2"]
    over_time = ["Azimuth", *(["Elevation"] if space.dims > 1 else []), "Level"]
    assert [n for n in names if n in ("Azimuth", "Elevation", "Level")] == (
        over_time if space.holds_directions else []
    )


def test_any_number_of_sources_is_drawn(tmp_path: Path) -> None:
    """Six sources, one and none; names are not taken for formulas."""
    places = [(60.0 * m - 170, 10.0 * m) for m in range(6)]
    scene, images = made_scene(places=places)
    assert len(titles(plot_scene(scene))) == 3 + 2 * 6 + 3
    alone = with_sources(scene, [4])
    truth = Truth(np.array(places), audios(images), names=tuple("ab$^$cdef$"[:6]))
    assert save(plot_scene(alone, truth=truth), tmp_path / "one.png").stat().st_size > 5000
    assert titles(plot_scene(with_sources(scene, []))) == ["Level difference", "Free energy"]


def test_belief_is_drawn_in_its_place_and_colour() -> None:
    """Left of the listener is left in the picture; the far side is blank."""
    for m, azimuth in ((1, 120.0), (4, -120.0)):
        axes = Figure().add_subplot()
        draw_belief(axes, belief_at(ea.Sphere(), (azimuth, 20), width=10), m=m, truth=(0, -60))
        assert axes.transData.transform((90, 0))[0] < axes.transData.transform((-90, 0))[0]
        near = colour_at(axes, azimuth + 4, 24)  # beside the mark of the peak
        assert np.abs(near - to_rgb(colour_of(m))).max() < 0.1
        assert colour_at(axes, -azimuth, 20).min() > 0.99
        marks = {line.get_label(): line.get_xydata()[0] for line in axes.lines}
        assert marks["truth"] == pytest.approx((0, -60))


def test_ways_break_in_silence_and_at_the_seam() -> None:
    """Lines where a source is heard, each in its colour; bands are wider in azimuth higher up."""
    directions = np.array([[170.0, 60], [-175, 60], [-165, 60], [np.nan, np.nan], [-150, 60]])
    heard = np.isfinite(directions[:, 0])
    track = SourceTrack(np.arange(5.0), directions, np.where(heard, 8.0, np.nan), -np.arange(5.0))
    axes = Figure().add_subplot()
    draw_ways(axes, [track])
    lines = [line.get_xydata().tolist() for line in axes.lines]
    assert lines == [[[0, 170]], [[1, -175], [2, -165]], [[4, -150]]]
    assert {line.get_color() for line in axes.lines} == {colour_of(0)}
    band = axes.collections[1].get_paths()[0].vertices[:, 1]
    assert (band.min(), band.max()) == pytest.approx((-175 - 16, -165 + 16))
    circle = Figure().add_subplot()
    draw_ways(circle, [track], elevation=False)
    band = circle.collections[1].get_paths()[0].vertices[:, 1]
    assert (band.min(), band.max()) == pytest.approx((-175 - 8, -165 + 8))


def test_mask_has_low_below_and_missing_in_grey() -> None:
    """Its own bins in its colour, those of others white, and unheard ones grey."""
    scene, _ = made_scene()
    mask = np.zeros_like(scene.picture.ild_db)
    mask[:10], mask[30:] = 1.0, np.nan
    axes = Figure().add_subplot()
    draw_mask(axes, scene.picture, mask, m=2, title="x")
    red, white, grey = (colour_at(axes, 0.12, khz) for khz in (1.0, 4.0, 7.5))
    assert np.abs(red - to_rgb(colour_of(2))).max() < 0.05
    assert white.min() > 0.99
    assert 0.7 < grey.min() <= grey.max() < 0.9


@pytest.mark.parametrize(("space", "places"), SPACES)
def test_map_is_the_density_below_its_peak(
    space: Space, places: tuple[tuple[float, ...], ...]
) -> None:
    """Each cell, looked up on its own; the peak is in the map, also beyond a plane's bounds."""
    posterior = belief_at(space, places[2], seed=2)
    drawn = belief_map(posterior)
    peak = posterior.log_density(posterior.best[None])[0]
    for j, i in ((0, 0), (len(drawn.y) // 2, 7), (len(drawn.y) - 1, len(drawn.x) - 1)):
        point = np.array([[drawn.x[i], drawn.y[j]]])[:, : space.columns]
        expected = posterior.log_density(point)[0] - peak
        assert drawn.log_density[j, i] == pytest.approx(expected, rel=1e-9)
    left, right, low, high = drawn.extent
    assert left <= posterior.best[0] <= right
    if space.dims == 2:
        assert low <= posterior.best[1] <= high
        inside = (drawn.levels <= 0.9) * drawn.sizes
        cell = (drawn.x[1] - drawn.x[0]) * (drawn.y[1] - drawn.y[0])
        if not isinstance(space, ea.Plane):  # on which it is cut off, or narrower than a cell
            assert inside.sum() * cell == pytest.approx(posterior.credible_area(0.9), rel=0.12)


def test_levels_are_those_of_the_smallest_regions() -> None:
    """The mass of all denser cells and half of one's own, cell by cell."""
    drawn = belief_map(belief_at(ea.Sphere(), (10, 70), width=20))
    mass = np.exp(drawn.log_density) * drawn.sizes
    for j, i in ((80, 85), (70, 20), (88, 150)):
        denser = mass[drawn.log_density > drawn.log_density[j, i]].sum()
        expected = (denser + 0.5 * mass[j, i]) / mass.sum()
        assert drawn.levels[j, i] == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize(
    ("place", "truth"), [((30, 10), (31, 8)), ((179, 0), (-178, 0)), ((-60, 89.5), None)]
)
def test_sharp_belief_is_seen_from_near_by(
    place: tuple[float, float], truth: tuple[float, float] | None
) -> None:
    """The map holds posterior and truth, also across the seam and at a pole, and little else."""
    posterior = belief_at(ea.Sphere(), place, width=0.5)
    drawn = zoomed_map(posterior, truth=truth)
    left, right, low, high = drawn.extent
    assert high <= 90 + 1e-9
    if truth is not None:
        assert right - left == pytest.approx(2 * (high - low))
        assert 10 <= right - left <= 20 + 1e-9
        assert (drawn.levels <= 0.9).sum() > 30
        axes = Figure().add_subplot()
        draw_belief(axes, posterior, m=0, truth=truth)
        for line in axes.lines:
            x, y = line.get_xydata()[0]
            assert left < x < right
            assert low < y < high
        assert all(
            abs(float(t.get_text().replace("−", "-"))) <= 180 for t in axes.get_xticklabels()
        )
    spread = belief_at(ea.Sphere(), place, width=60)
    assert zoomed_map(spread).extent == pytest.approx((-180, 180, -90, 90))


def test_needle_is_drawn() -> None:
    """A posterior that is narrower than any cell has levels, a mark, and no warning."""
    needle = belief_at(ea.Sphere(), (10.3, 20.7), width=0.004)
    levels = belief_map(needle).levels
    assert np.isfinite(levels).all()
    axes = Figure().add_subplot()
    draw_beliefs(axes, [needle], directions=[(50, 0)])
    FigureCanvasAgg(axes.figure).draw()
    assert [text.get_text() for text in axes.texts] == ["1"]


def test_true_masks_are_the_oracles_of_the_same_frames() -> None:
    """As of the whole transform, at the picture's bins; unheard bins have none."""
    scene, images = made_scene(places=((30, 10), (-50, -20), (90, 0)))
    found = true_masks(scene.picture, audios(images))
    spectra = np.stack([ea.stft(image, 1024, 128) for image in images])
    bins = np.rint(scene.picture.frequencies_hz / 15.625).astype(int)
    heard = ~np.isnan(scene.picture.ild_db)
    assert 0.5 < heard.mean() < 0.9
    np.testing.assert_array_equal(found[:, heard], oracle_masks(spectra[:, :, bins])[:, heard])
    assert np.isnan(found[:, ~heard]).all()


def test_true_masks_at_any_time_and_frequency(rng: np.random.Generator) -> None:
    """A windowed frame around each time, its spectrum at the nearest frequency, bin by bin."""
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


def test_matched_is_what_goes_with_each_source() -> None:
    """Directions and masks of the true sources in the order of the found ones; none of none."""
    places = np.array([(30.0, 10.0), (-50.0, -20.0), (90.0, 0.0)])
    scene, images = made_scene(places=places)
    turned = with_sources(scene, [2, 0])
    matched = Matched.of(turned, Truth(places, audios(images), names=("a", "b", "c")))
    np.testing.assert_array_equal(matched.direction_of(0), places[2])
    np.testing.assert_array_equal(matched.direction_of(1), places[0])
    assert matched.by_sound is not None
    for j, m in enumerate(matched.by_sound.found.argsort()[1:]):  # the first one is missed
        name, mask = matched.mask_of(j) or ("", None)
        assert name == "abc"[m]
        np.testing.assert_array_equal(mask, true_masks(scene.picture, audios(images))[m])
    blind = Matched.of(turned, Truth(places))
    assert (blind.by_sound, blind.masks, blind.mask_of(0)) == (None, None, None)
    deaf = Matched.of(turned, Truth(images=audios(images)))
    assert (deaf.by_direction, deaf.direction_of(0)) == (None, None)
    empty = Matched.of(with_sources(scene, []), Truth(places, audios(images)))
    assert empty.by_sound is not None
    assert empty.by_sound.missed == (0, 1, 2)


def test_truth_goes_with_its_source() -> None:
    """Sources in another order, one too many, one too few: each has its own truth."""
    places = ((30.0, 10.0), (-50.0, -20.0), (90.0, 0.0))
    scene, _ = made_scene(places=places)
    turned = with_sources(scene, [2, 0, 1])
    assert pair_directions(turned, np.array(places)).found.tolist() == [1, 2, 0]
    assert pair_directions(with_sources(scene, [1]), np.array(places)).found.tolist() == [-1, 0, -1]
    assert pair_directions(with_sources(scene, []), np.array(places)).found.tolist() == [-1] * 3
    masks = scene.picture.masks
    assert pair_masks(np.rint(masks[:2]), turned.picture.masks).found.tolist() == [1, 2]


def test_a_walker_is_judged_along_its_way() -> None:
    """Half-way it is where another stands; over time it is the one that went with it."""
    scene, images = made_scene(places=((0.0, 0.0), (5.0, 0.0)))
    seconds = scene.sources[0].track.seconds
    walk = ea.Trajectory((0, 0.25), [(40.0, 0.0), (-40.0, 0.0)])
    gone = np.where(
        scene.sources[0].track.heard[:, None], walk.at(seconds) + np.array([3.0, 0.0]), np.nan
    )
    walker = replace(scene.sources[1], track=replace(scene.sources[1].track, directions=gone))
    scene = replace(scene, sources=(scene.sources[0], walker))
    truth = Truth(np.array([[0.0, 0.0], [2.0, 0.0]]), audios(images), trajectories=(walk, None))
    matched = Matched.of(scene, truth)
    assert matched.by_direction is not None
    assert matched.by_direction.found.tolist() == [1, 0]
    assert truth.off_by(0, walker) == pytest.approx(3.0, abs=0.01)
    assert matched.off_by(0, scene.sources[0]) == pytest.approx(2.0, abs=0.1)
    along = matched.places_of(1)
    assert along is not None
    np.testing.assert_allclose(along[[0, 4, -1], 0], [40, 0, -40], atol=1e-6)
    page = report_page(scene, title="x", truth=truth)
    assert page.count('class="truth"') > 3 * 9  # on both maps, and from near by


def test_errors_are_angles_or_distances() -> None:
    """Directions by great circles, pixels by their distance."""
    assert place_errors(ea.Plane(), [0, 60], [180, 60]) == pytest.approx(60)
    assert place_errors(ea.Circle(), [170, 0], [-170, 0]) == pytest.approx(20)
    pixels = ea.Plane(((0, 640), (0, 480)))
    assert place_errors(pixels, [100, 100], [400, 500]) == pytest.approx(500)
    spaces = [s.holds_directions for s in (pixels, ea.Plane(), ea.Plane(((-90, 90),)))]
    assert spaces == [False, True, True]


def test_truth_must_fit_together() -> None:
    """Counts, channels and shapes are checked; a rendered scene gives all of it."""
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
            Truth(**bad)
    scene, _ = made_scene()
    with pytest.raises(ea.InputError, match="2 columns"):
        pair_directions(scene, np.zeros((1, 1)))
    head = ea.simulated_head(np.array([[30.0, 0.0], [-60.0, 20.0]]))
    rendered = ea.render_scene(
        head, [np.eye(99)[3], np.eye(80)[7]], head.directions, names=["a", "b"]
    )
    truth = Truth.of(rendered)
    assert (len(truth), truth.names) == (2, ("a", "b"))
    np.testing.assert_array_equal(truth.images[1].samples, rendered.images[1])
