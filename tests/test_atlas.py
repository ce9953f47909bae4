"""Tests of the atlas: learning, held-out errors, calibration, and exact files."""

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
from earatlas.features.cues import mean_cues
from earatlas.features.statistics import CueStatistics
from earatlas.geometry.angles import great_circle_error
from earatlas.localization.learned_head import MODEL_ARRAYS, Accuracy
from earatlas.numerics import convolve
from earatlas.packaged_atlases import EXAMPLE_ATLAS
from earatlas.ppam.calibration import (
    HeldOutSounds,
    fit_calibration,
    held_out_statistics,
    relative_responses,
)
from earatlas.ppam.model import PPAM
from earatlas.simulation.synthetic_speech import SyntheticTalkers, synthetic_speech

Change = Callable[[dict[str, Any], dict[str, np.ndarray]], object]


def test_held_out_errors_are_measured(atlas: Atlas) -> None:
    """Errors with 700 directions are far below chance (90 degrees), but not zero as by a leak."""
    accuracy = atlas.accuracy
    assert accuracy is not None
    assert accuracy.held_out == 240
    assert 0.5 < accuracy.median_degrees < 8.0
    assert accuracy.median_degrees <= accuracy.mean_degrees < 15.0
    assert accuracy.beyond_30_share < 0.1


def test_accuracy_of_known_errors() -> None:
    """Three directions with known errors give the expected statistics."""
    true, estimated = np.array([[0.0, 0], [10, 0], [0, 0]]), np.array([[0.0, 2], [14, 0], [40, 0]])
    accuracy = Accuracy.of(true, estimated)
    assert accuracy.median_degrees == pytest.approx(4)
    assert accuracy.beyond_30_share == pytest.approx(1 / 3)
    assert accuracy.mean_azimuth_degrees == pytest.approx(44 / 3)
    assert accuracy.mean_elevation_degrees == pytest.approx(2 / 3)
    assert repr(accuracy) == (
        "Accuracy(held_out=3, median_degrees=4.0, mean_degrees=15.333, beyond_30_share=0.333, "
        "mean_azimuth_degrees=14.667, mean_elevation_degrees=0.667)"
    )


def test_new_directions_are_localized(atlas: Atlas) -> None:
    """Cues of directions between the training directions are localized."""
    x = ea.Sphere().grid(21.0)
    estimated = atlas.model.inverse_map(ea.simulated_head(x).cues())
    assert 0.1 < np.median(great_circle_error(x, estimated)) < 4.0


def test_save_and_load_are_exact(tmp_path: Path, atlas: Atlas) -> None:
    """Parameters, layout, calibration and description are exact, and so are posteriors."""
    loaded = Atlas.load(atlas.save(tmp_path / "x.atlas"))
    assert (loaded.layout, loaded.space) == (atlas.layout, atlas.space)
    assert (loaded.accuracy, loaded.about) == (atlas.accuracy, atlas.about)
    assert loaded.calibration == atlas.calibration
    for name in MODEL_ARRAYS:
        np.testing.assert_array_equal(getattr(atlas.model, name), getattr(loaded.model, name))
    y = CueStatistics.from_vector(atlas.model.b[3])
    np.testing.assert_allclose(loaded.posterior(y).weights, atlas.posterior(y).weights, rtol=1e-9)
    assert (tmp_path / "x.atlas").stat().st_size < 3_000_000


def test_container_without_valid_atlas_is_refused(tmp_path: Path, atlas: Atlas) -> None:
    """Missing arrays, wrong shapes and invalid values are refused."""
    path = atlas.save(tmp_path / "x.atlas")
    about, arrays = read_container(path, "atlas", 3)
    for change in (
        {"arrays": {k: v for k, v in arrays.items() if k != "A"}},
        {"arrays": {**arrays, "b": arrays["b"][:, :-1]}},
        {"about": {**about, "space": {"space": "torus"}}},
        {"about": {**about, "layout": {**about["layout"], "ild_band_hz": [0, 4000]}}},
        {"about": {**about, "accuracy": {"unknown": 1}}},
        {"about": {k: v for k, v in about.items() if k != "calibration"}},
    ):
        parts = {"about": about, "arrays": arrays, **change}
        write_container(path, "atlas", 3, parts["about"], parts["arrays"])
        with pytest.raises(InputError, match="atlas must be a file that earatlas wrote"):
            Atlas.load(path)


@pytest.mark.parametrize("version", [1, 2, 4])
def test_other_versions_are_refused(tmp_path: Path, atlas: Atlas, version: int) -> None:
    """A file of an earlier or later format is refused with the advice to learn the head again."""
    path = atlas.save(tmp_path / "x.atlas")
    write_container(path, "atlas", version, *read_container(path, "atlas", 3))
    with pytest.raises(InputError, match=f"version 3, got {version} in .*: learn the head again"):
        Atlas.load(path)


def _calibrated(**fields: object) -> Change:
    return lambda about, _: about["calibration"].update(fields)


def _array(name: str, index: tuple[int, ...], value: float) -> Change:
    def change(_: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        arrays[name] = arrays[name].copy()
        arrays[name][index] = value

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
        _array("b", (1, 2), 2e4),  # no sound fits: `separate` had no candidates
        _array("latent", (3, 1), 1e11),
        _array("gammas", (1, 0, 1), 1e11),  # the triangle that eigvalsh does not read
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
        lambda about, _: about.pop("rooms"),
    ],
)  # fmt: skip
def test_inconsistent_contents_are_refused(tmp_path: Path, atlas: Atlas, change: Change) -> None:
    """Values that learning cannot produce and unknown arrays are refused."""
    path = atlas.save(tmp_path / "x.atlas")
    about, arrays = read_container(path, "atlas", 3)
    change(about, arrays)
    write_container(path, "atlas", 3, about, arrays)
    with pytest.raises(InputError, match="atlas must be a file that earatlas wrote"):
        Atlas.load(path)


def test_a_calibration_without_directions_is_refused(tmp_path: Path) -> None:
    """Onsets of the calibration that fit no direction would make every fit infinite."""
    about, arrays = read_container(EXAMPLE_ATLAS, "atlas", 3)
    arrays["rooms.features"] = np.zeros_like(arrays["rooms.features"])
    write_container(tmp_path / "x.atlas", "atlas", 3, about, arrays)
    with pytest.raises(InputError, match="calibrated with have no direction"):
        Atlas.load(tmp_path / "x.atlas")


@pytest.mark.parametrize("name", ["level_db", "delay_seconds", "phase_radians", "whiten"])
def test_huge_values_for_rooms_are_refused(tmp_path: Path, name: str) -> None:
    """Values at which indices of tables would overflow are refused, not met by `separate`."""
    about, arrays = read_container(EXAMPLE_ATLAS, "atlas", 3)
    arrays[f"rooms.{name}"] = arrays[f"rooms.{name}"] * 1e30
    write_container(tmp_path / "x.atlas", "atlas", 3, about, arrays)
    with pytest.raises(InputError, match="its parts are inconsistent"):
        Atlas.load(tmp_path / "x.atlas")


@pytest.mark.usefixtures("fast_learning")
@pytest.mark.parametrize("space", [ea.Plane(), ea.Cylinder((-40.0, 40.0)), ea.Circle()], ids=repr)
def test_spaces_restrict_the_directions(space: ea.Space) -> None:
    """Directions outside a plane or cylinder are left out; a circle uses one elevation."""
    directions = [
        [a, e] for e in (-80, -50, -30, -15, 0, 15, 30, 50, 80) for a in range(-180, 180, 12)
    ]
    atlas = learn(ea.simulated_head(directions), space=space, components=4)
    assert atlas.space == space
    kept = atlas.about["directions"]
    inside = {ea.Plane: 7 * 27, ea.Cylinder: 5 * 30, ea.Circle: 30}[type(space)]
    assert kept == inside


def test_learning_from_few_directions() -> None:
    """With 37 directions on a circle each is held out once, and azimuths are localized."""
    ring = ea.simulated_head([[float(a), 0.0] for a in range(-90, 91, 5)])
    atlas = learn(ring, components=6)
    assert atlas.accuracy is not None
    assert atlas.accuracy.held_out == 37
    estimated = atlas.model.inverse_map(ring.cues())
    assert np.median(np.abs(estimated[:, 0] - ring.directions[:, 0])) < 3.0
    np.testing.assert_allclose(estimated[:, 1], 0.0, atol=1e-9)


@pytest.mark.usefixtures("fast_learning")
def test_progress_reaches_its_end() -> None:
    """Progress increases up to its total."""
    calls: list[tuple[float, float]] = []
    head = ea.simulated_head(ea.Sphere().grid(20.0))
    learn(head, components=4, progress=lambda done, total: calls.append((done, total)))
    assert [done for done, _ in calls] == sorted(done for done, _ in calls)
    assert calls[-1][0] == calls[-1][1]


def test_one_elevation_needs_the_circle() -> None:
    """Other spaces are refused for one elevation, and the default space is the circle."""
    ring = ea.simulated_head([[float(a), 20.0] for a in range(-180, 180, 40)])
    for space in (ea.Sphere(), ea.Cylinder(), ea.Plane()):
        message = f"got the {space.name} for directions at 20° only. Omit the space"
        with pytest.raises(InputError, match=message):
            learn(ring, space=space)
    assert learn(ring, rooms=False).space == ea.Circle()


def test_spaces_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sphere and the circle can be named; anything else is refused."""
    head = ea.simulated_head([[0.0, 0.0]])
    spaces: list[object] = []

    def note_space(_: ea.Head, *, space: object, **__: object) -> None:
        spaces.append(space)
        raise KeyError

    monkeypatch.setattr("earatlas.training.learn_head.learn_head", note_space)
    given: Any
    for given in ("sphere", "circle", None):
        with pytest.raises(KeyError):
            learn(head, space=given)
    assert list(map(repr, spaces)) == ["Sphere()", "Circle()", "None"]
    for given in ("plane", 3):
        with pytest.raises(InputError, match=rf"space must be a Space .*, got {given!r}"):
            learn(head, space=given)


def test_paths_are_strings_or_paths(atlas: Atlas) -> None:
    """A number instead of a path is refused by all readers and writers."""
    anything: Any
    scene = ea.render_scene(ea.simulated_head([[0.0, 0.0]]), [synthetic_speech(0.1)], [[0.0, 0.0]])
    for anything in (ea.read_audio, ea.open_head, ea.read_sofa, Atlas.load, atlas.save,
                     scene.write, scene.mixture.write):  # fmt: skip
        with pytest.raises(InputError, match="path must be a string or a path, got 3"):
            anything(3)


def test_durations_of_synthetic_speech_are_checked() -> None:
    """A negative or infinite duration, and text, are refused."""
    seconds: Any
    for seconds in (-1, np.nan, np.inf, "1"):
        with pytest.raises(InputError, match="seconds must be a finite number of at least 0"):
            synthetic_speech(seconds)
    assert synthetic_speech(0).shape == (0,)


def test_space_without_directions_is_refused() -> None:
    """A plane that contains none of the directions of the head is refused."""
    head = ea.simulated_head([[170.0, 0.0], [175.0, 5.0]])
    with pytest.raises(InputError, match="got none of 2"):
        learn(head, space=ea.Plane())


def test_synthetic_speech_is_sparse(small_head: ea.Head, rng: np.random.Generator) -> None:
    """4 to 30 % of the bins are observed, mostly at low frequencies; a seed fixes the sound."""
    scene = ea.render_scene(small_head, [synthetic_speech(3.0, 16000, rng)], [[30.0, 0.0]])
    cues = ea.audio_cues(scene.mixture)
    assert 0.04 < cues.observed_share < 0.3
    assert cues.observed[:128].mean() > 3 * cues.observed[256:].mean()
    a, b = (synthetic_speech(0.5, 16000, np.random.default_rng(3)) for _ in range(2))
    np.testing.assert_array_equal(a, b)


def test_held_out_statistics_of_a_noise_head(small_head: ea.Head) -> None:
    """Without impulse responses the held-out sounds are talkers with the measured cues.

    They have the gaps, the frames and the errors of those that are rendered with responses.
    """
    from earatlas.hrtf.head import Head, MeasuredCues

    layout, head = ea.CueLayout(), small_head.subset(np.arange(0, 183, 2))
    noisy = Head("n", head.directions, MeasuredCues(head.cues(), layout))
    talkers = SyntheticTalkers(layout.rate)
    held_out, rendered = (held_out_statistics(h, layout, talkers) for h in (noisy, head))
    np.testing.assert_array_equal(held_out.directions, rendered.directions)
    Q, Q_rendered = (sounds.statistics.counts for sounds in (held_out, rendered))
    assert np.corrcoef(Q.sum(axis=1), Q_rendered.sum(axis=1))[0, 1] > 0.9
    assert 0.5 < Q.sum() / Q_rendered.sum() < 2
    ild = layout.cue_kinds == "ild"
    ratio = held_out.frame_noise / rendered.frame_noise
    assert 0.5 < np.median(ratio[ild]) < 2
    assert 0.3 < np.median(ratio[~ild]) < 3


@pytest.mark.parametrize(
    "layout", [ea.CueLayout(), ea.CueLayout(ipd_band_hz=None), ea.CueLayout.low_ipd()]
)
def test_relative_responses_have_the_measured_cues(
    layout: ea.CueLayout, small_head: ea.Head, rng: np.random.Generator
) -> None:
    """White noise that passes them has the mean cues of the head."""
    head = small_head.subset(np.arange(0, 183, 40))
    cues = head.cues(layout)
    for wanted, pair in zip(cues, relative_responses(cues, layout), strict=True):
        noise = convolve(rng.normal(size=layout.rate), pair)[:, layout.window : -layout.window]
        error = np.abs(mean_cues(ea.Audio(noise, layout.rate), layout) - wanted)
        ild = layout.cue_kinds == "ild"
        assert not ild.any() or np.median(error[ild]) < 0.1
        assert ild.all() or np.median(error[~ild]) < 0.02


def test_few_directions_are_repeated(small_head: ea.Head) -> None:
    """Few directions are repeated with different sounds, up to about 60."""
    few = small_head.subset(np.arange(7))
    held_out = held_out_statistics(few, ea.CueLayout(), SyntheticTalkers(16_000))
    np.testing.assert_array_equal(held_out.directions, np.tile(few.directions, (8, 1)))
    assert np.abs(held_out.statistics.counts[0] - held_out.statistics.counts[7]).max() > 1


def test_calibration_with_known_errors() -> None:
    """With errors of 3.2 degrees the 50 % region contains half of the true directions.

    Two models with opposite signs alternate, so each sound must be evaluated by its own model.
    """
    rng = np.random.default_rng(0)
    plane = ea.Plane(((-40.0, 40.0), (-40.0, 40.0)))
    x = plane.grid(4.0)
    maps = rng.normal(size=(2, 30))
    positive = PPAM.fit(plane, x, x @ maps + 0.1 * rng.normal(size=(len(x), 30)), components=3)
    models = [positive, replace(positive, A=-positive.A, b=-positive.b)] * 150
    truths = rng.uniform(-30, 30, size=(300, 2))
    displaced = truths + 3.2 * rng.normal(size=(300, 2))
    y = (displaced @ maps) * np.tile([1.0, -1.0], 150)[:, None]
    statistics = CueStatistics(np.full_like(y, 1e6), 1e6 * y, 1e6 * y**2)
    held_out = HeldOutSounds(truths, statistics, np.ones(30))
    calibration = fit_calibration(models, held_out)
    levels = np.array(
        [
            calibration.calibrated_posterior(model, held_out.statistics[n])[0].credible_level(
                truth, 300
            )
            for n, (model, truth) in enumerate(zip(models, truths, strict=True))
        ]
    )
    for level in (0.25, 0.5, 0.75, 0.9):
        assert np.mean(levels <= level) == pytest.approx(level, abs=0.06)
    widths, weights = np.array(calibration.kernel_widths), np.array(calibration.kernel_weights)
    assert np.sqrt(weights @ widths**2) == pytest.approx((displaced - truths).std(), rel=0.03)


def test_loading_a_head_is_refused(tmp_path: Path) -> None:
    """A SOFA file or a table instead of an atlas must be learned first."""
    for name in ("x.sofa", "x.CSV"):
        with pytest.raises(InputError, match="Check the name"):
            Atlas.load(tmp_path / name)
        (tmp_path / name).write_bytes(b"x")
        with pytest.raises(InputError, match="Learn it first: earatlas learn"):
            Atlas.load(tmp_path / name)


@pytest.mark.usefixtures("fast_learning")
@pytest.mark.parametrize("convert", [str, Path])
def test_learn_accepts_a_path(
    tmp_path: Path, rng: np.random.Generator, convert: Callable[[Path], str | Path]
) -> None:
    """A path to a table of recordings is opened as `open_head` does."""
    rows = ["file,azimuth,elevation"]
    for azimuth in range(-90, 91, 30):
        name = f"{azimuth}.wav"
        noise = rng.normal(size=16_000)
        left, right = (1 + 0.5 * np.sin(np.radians(sign * azimuth)) for sign in (1, -1))
        other = 0.1 * rng.normal(size=16_000)
        samples = 0.05 * np.stack([left * noise, right * noise + other])
        ea.Audio(samples, 16_000).write(tmp_path / name)
        rows.append(f"{name},{azimuth},0")
    table = tmp_path / "head.csv"
    table.write_text("\n".join(rows))
    atlas = learn(convert(table), components=2, rooms=False)
    expected = learn(ea.open_head(table), components=2, rooms=False)
    assert atlas.digest == expected.digest


@pytest.mark.parametrize("head", [None, 3, np.zeros((2, 2)), ["ku100.sofa"]])
def test_learn_refuses_what_is_not_a_head(head: Any) -> None:
    """Anything but a head or a path is an input error that names the type."""
    with pytest.raises(InputError, match=rf"head must be a Head.* of type {type(head).__name__}"):
        learn(head)


def test_learn_refuses_a_missing_file() -> None:
    """A missing SOFA file is an input error."""
    with pytest.raises(InputError, match=r"ku100\.sofa"):
        learn("no_folder/ku100.sofa")
