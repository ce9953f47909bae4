"""Atlas: learning finds directions, says how far it was off, and survives the disk bit by bit."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import earatlas as ea
from earatlas.atlas import Atlas, learn
from earatlas.container import read_container, write_container
from earatlas.errors import InputError
from earatlas.features.statistics import CueStatistics
from earatlas.geometry.angles import great_circle_error
from earatlas.localization.learned_head import Accuracy
from earatlas.ppam.calibration import HeldOut, fit_calibration, held_out_statistics
from earatlas.ppam.model import PPAM
from earatlas.simulation.synthetic_speech import SyntheticTalkers, synthetic_speech
from earatlas.training.learn_head import MODEL_ARRAYS

Change = Callable[[dict[str, Any], dict[str, np.ndarray]], object]


def test_held_out_errors_are_measured(atlas: Atlas) -> None:
    """A head of 700 directions: errors well below chance (90 degrees), and not a leak's zero."""
    accuracy = atlas.accuracy
    assert accuracy is not None
    assert accuracy.held_out == 240
    assert 0.5 < accuracy.median_degrees < 8.0
    assert accuracy.median_degrees <= accuracy.mean_degrees < 15.0
    assert accuracy.beyond_30_share < 0.1


def test_accuracy_by_hand() -> None:
    """Three directions with known errors."""
    true, found = np.array([[0.0, 0], [10, 0], [0, 0]]), np.array([[0.0, 2], [14, 0], [40, 0]])
    accuracy = Accuracy.of(true, found)
    assert accuracy.median_degrees == pytest.approx(4)
    assert accuracy.beyond_30_share == pytest.approx(1 / 3)
    assert accuracy.mean_azimuth_degrees == pytest.approx(44 / 3)
    assert accuracy.mean_elevation_degrees == pytest.approx(2 / 3)


def test_new_directions_are_found(atlas: Atlas) -> None:
    """Cues of directions between the learned ones give those directions."""
    x = ea.Sphere().grid(21.0)
    found = atlas.model.inverse_map(ea.simulated_head(x).cues())
    assert 0.1 < np.median(great_circle_error(x, found)) < 4.0


def test_save_and_load_are_exact(tmp_path: Path, atlas: Atlas) -> None:
    """Every parameter, the layout, the calibration and the words; the answer is the same."""
    back = Atlas.load(atlas.save(tmp_path / "x.atlas"))
    assert (back.layout, back.space) == (atlas.layout, atlas.space)
    assert (back.accuracy, back.about) == (atlas.accuracy, atlas.about)
    assert back.calibration == atlas.calibration
    for name in MODEL_ARRAYS:
        np.testing.assert_array_equal(getattr(atlas.model, name), getattr(back.model, name))
    y = CueStatistics.of_vector(atlas.model.b[3])
    np.testing.assert_allclose(back.posterior(y).weights, atlas.posterior(y).weights, rtol=1e-9)
    assert (tmp_path / "x.atlas").stat().st_size < 3_000_000


def test_container_that_is_no_atlas_is_refused(tmp_path: Path, atlas: Atlas) -> None:
    """Right format, wrong contents: missing arrays, wrong shapes, wrong words."""
    path = atlas.save(tmp_path / "x.atlas")
    about, arrays = read_container(path, "atlas", 3)
    for change in (
        {"arrays": {k: v for k, v in arrays.items() if k != "A"}},
        {"arrays": {**arrays, "b": arrays["b"][:, :-1]}},
        {"about": {**about, "scales": 1}},
        {"about": {**about, "space": {"space": "torus"}}},
        {"about": {**about, "layout": {**about["layout"], "ild_band_hz": [0, 4000]}}},
        {"about": {**about, "accuracy": {"unknown": 1}}},
        {"about": {k: v for k, v in about.items() if k != "calibration"}},
    ):
        parts = {"about": about, "arrays": arrays, **change}
        write_container(path, "atlas", 3, parts["about"], parts["arrays"])
        with pytest.raises(InputError, match="atlas must be a file that earatlas wrote"):
            Atlas.load(path)


def test_a_file_of_version_1_is_read(tmp_path: Path, atlas: Atlas) -> None:
    """It has coarser models beside the one that is used, which is its last."""
    open_only = replace(atlas, rooms=None)
    about, arrays = read_container(open_only.save(tmp_path / "x.atlas"), "atlas", 3)
    old = {"frame_noise": arrays["frame_noise"]}
    for scale in (0, 1):
        old |= {f"scale{scale}.{name}": arrays[name] + (1 - scale) for name in MODEL_ARRAYS}
    write_container(tmp_path / "old.atlas", "atlas", 1, {**about, "scales": 2}, old)
    back = Atlas.load(tmp_path / "old.atlas")
    for name in MODEL_ARRAYS:
        np.testing.assert_array_equal(getattr(atlas.model, name), getattr(back.model, name))
    assert back.calibration == atlas.calibration


def _calibrated(**fields: object) -> Change:
    return lambda about, _: about["calibration"].update(fields)


def _array(name: str, place: tuple[int, ...], value: float) -> Change:
    def change(_: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        arrays[name] = arrays[name].copy()
        arrays[name][place] = value

    return change


@pytest.mark.parametrize(
    "change",
    [
        lambda _, arrays: arrays.update({n: arrays[n][:0] for n in MODEL_ARRAYS if n != "noise"}),
        _array("weights", (3,), 0.0),
        _array("weights", (3,), 0.5),
        _array("weights", (3,), np.nan),
        _array("noise", (3,), 0.0),
        _array("A", (1, 2, 0), np.inf),
        _array("A", (1, 2, 0), 1e200),
        _array("latent", (3, 1), 1e11),
        _array("gammas", (1, 0, 1), 1e11),  # the half that eigvalsh does not look at
        _array("frame_noise", (5,), -1.0),
        _array("frame_noise", (5,), np.inf),
        _calibrated(shares=[float("nan")] * 7),
        _calibrated(widths=[float("inf")] * 7),
        _calibrated(widths=[1.0]),
        _calibrated(temperature=float("nan")),
        _calibrated(frame_share=0.0),
        _calibrated(prior_frames=-1.0),
        lambda about, _: about.update(space={"space": "cylinder", "elevations": [-1e9, 60]}),
        lambda about, _: about.update(space={"space": "plane", "bounds": [[-160, 1e9], [-60, 60]]}),
        lambda about, _: about["layout"].update(hop=1),
        lambda about, _: about["layout"].update(hop=128.5),
        lambda about, _: about["accuracy"].update(median_degrees="5"),
        lambda about, _: about["about"].update(head=7),
        lambda about, _: about["about"].update(licence=["CC0"]),
        lambda about, _: about["about"].update(directions="many"),
        lambda _, arrays: arrays.update(more=np.zeros(3)),
        lambda _, arrays: arrays.update({"rooms.beta": np.ones(3)}),
        lambda about, _: about.update(scales=10**9),
    ],
)  # fmt: skip
def test_parts_that_do_not_fit_are_refused(tmp_path: Path, atlas: Atlas, change: Change) -> None:
    """A checksum that is right, and numbers that no learning gives, or that nothing reads."""
    path = atlas.save(tmp_path / "x.atlas")
    about, arrays = read_container(path, "atlas", 3)
    change(about, arrays)
    write_container(path, "atlas", 3, about, arrays)
    with pytest.raises(InputError, match="atlas must be a file that earatlas wrote"):
        Atlas.load(path)


@pytest.mark.usefixtures("learned_quickly")
@pytest.mark.parametrize("space", [ea.Plane(), ea.Cylinder((-40.0, 40.0)), ea.Circle()], ids=repr)
def test_spaces_take_the_directions_they_have(space: ea.Space) -> None:
    """Directions outside a plane or cylinder are left out; a circle takes one elevation."""
    directions = [
        [a, e] for e in (-80, -50, -30, -15, 0, 15, 30, 50, 80) for a in range(-180, 180, 12)
    ]
    atlas = learn(ea.simulated_head(directions), space=space, components=4)
    assert atlas.space == space
    kept = atlas.about["directions"]
    inside = {ea.Plane: 7 * 27, ea.Cylinder: 5 * 30, ea.Circle: 30}[type(space)]
    assert kept == inside


def test_few_directions_still_learn() -> None:
    """37 directions of a circle: each is held out once, and azimuths are found."""
    ring = ea.simulated_head([[float(a), 0.0] for a in range(-90, 91, 5)])
    atlas = learn(ring, components=6)
    assert atlas.accuracy is not None
    assert atlas.accuracy.held_out == 37
    found = atlas.model.inverse_map(ring.cues())
    assert np.median(np.abs(found[:, 0] - ring.directions[:, 0])) < 3.0
    np.testing.assert_allclose(found[:, 1], 0.0, atol=1e-9)


@pytest.mark.usefixtures("learned_quickly")
def test_progress_reaches_its_end() -> None:
    """The callback counts up to its own total."""
    seen: list[tuple[float, float]] = []
    head = ea.simulated_head(ea.Sphere().grid(20.0))
    learn(head, components=4, progress=lambda done, total: seen.append((done, total)))
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert seen[-1][0] == seen[-1][1]


def test_one_elevation_is_a_circle() -> None:
    """A ring claims no elevation; left out, as the words say, the space is the circle."""
    ring = ea.simulated_head([[float(a), 20.0] for a in range(-180, 180, 40)])
    for space in (ea.Sphere(), ea.Cylinder(), ea.Plane()):
        words = f"got the {space.name} for directions at 20° alone. Leave the space out"
        with pytest.raises(InputError, match=words):
            learn(ring, space=space)
    assert learn(ring, rooms=False).space == ea.Circle()


def test_empty_space_is_explained() -> None:
    """A plane that holds none of the head's directions."""
    head = ea.simulated_head([[170.0, 0.0], [175.0, 5.0]])
    with pytest.raises(InputError, match="got none of 2"):
        learn(head, space=ea.Plane())


def test_murmur_has_the_gaps_of_speech(small_head: ea.Head, rng: np.random.Generator) -> None:
    """Between 4 and 30 % of the bins are observed, most of them low; one seed, one sound."""
    scene = ea.render_scene(small_head, [synthetic_speech(3.0, 16000, rng)], [[30.0, 0.0]])
    cues = ea.audio_cues(scene.mixture)
    assert 0.04 < cues.observed_share < 0.3
    assert cues.observed[:128].mean() > 3 * cues.observed[256:].mean()
    a, b = (synthetic_speech(0.5, 16000, np.random.default_rng(3)) for _ in range(2))
    np.testing.assert_array_equal(a, b)


def test_held_out_statistics_of_a_noise_head(small_head: ea.Head) -> None:
    """A head without responses is calibrated on its own vectors."""
    from earatlas.hrtf.head import Head, MeasuredCues

    layout = ea.CueLayout()
    noisy = Head("n", small_head.directions, MeasuredCues(small_head.cues(), layout))
    held = held_out_statistics(noisy, layout, SyntheticTalkers(layout.rate))
    assert len(held.directions) == 183
    np.testing.assert_array_equal(held.statistics.counts, 1.0)


def test_few_directions_are_heard_several_times(small_head: ea.Head) -> None:
    """At least 60 sounds, the directions one after the other, and no sound twice."""
    few = small_head.subset(np.arange(7))
    held = held_out_statistics(few, ea.CueLayout(), SyntheticTalkers(16_000))
    np.testing.assert_array_equal(held.directions, np.tile(few.directions, (8, 1)))
    assert np.abs(held.statistics.counts[0] - held.statistics.counts[7]).max() > 1


def test_calibration_is_honest_where_the_errors_are_known() -> None:
    """Cues of directions 3.2 degrees beside the truth: the 50 % region holds half of the truths.

    Two models of opposite sides take turns: a sound must be asked of its own.
    """
    rng = np.random.default_rng(0)
    plane = ea.Plane(((-40.0, 40.0), (-40.0, 40.0)))
    x = plane.grid(4.0)
    maps = rng.normal(size=(2, 30))
    left = PPAM.fit(plane, x, x @ maps + 0.1 * rng.normal(size=(len(x), 30)), components=3)
    models = [left, replace(left, A=-left.A, b=-left.b)] * 150
    truths = rng.uniform(-30, 30, size=(300, 2))
    placed = truths + 3.2 * rng.normal(size=(300, 2))
    y = (placed @ maps) * np.tile([1.0, -1.0], 150)[:, None]
    heard = CueStatistics(np.full_like(y, 1e6), 1e6 * y, 1e6 * y**2)
    held = HeldOut(truths, heard, np.ones(30))
    calibration = fit_calibration(models, held)
    levels = np.array(
        [
            calibration.posterior(model, held.statistics[n]).level_of(truth, 300)
            for n, (model, truth) in enumerate(zip(models, truths, strict=True))
        ]
    )
    for level in (0.25, 0.5, 0.75, 0.9):
        assert np.mean(levels <= level) == pytest.approx(level, abs=0.06)
    widths, shares = np.array(calibration.widths), np.array(calibration.shares)
    assert np.sqrt(shares @ widths**2) == pytest.approx((placed - truths).std(), rel=0.03)


def test_a_head_is_no_atlas(tmp_path: Path) -> None:
    """A SOFA file or a table in the place of an atlas: learn it first."""
    for name in ("x.sofa", "x.CSV"):
        with pytest.raises(InputError, match="Check the name"):
            Atlas.load(tmp_path / name)
        (tmp_path / name).write_bytes(b"x")
        with pytest.raises(InputError, match="Learn it first: earatlas learn"):
            Atlas.load(tmp_path / name)
