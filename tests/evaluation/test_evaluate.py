"""Evaluation of a scene in one call: the measures are those of the functions that compute them."""

import json

import numpy as np
import pytest
from made_scenes import make_scene, with_sources, without_audio

import earatlas as ea
from earatlas.errors import InputError
from earatlas.evaluation.directions import direction_errors
from earatlas.evaluation.intelligibility import intelligibility
from earatlas.evaluation.interaural import interaural_errors
from earatlas.evaluation.score import score
from earatlas.simulation.scene import SimulatedScene

PLACES = np.array([[30.0, 10.0], [-50.0, -20.0]])


@pytest.fixture(scope="module")
def known() -> tuple[ea.Scene, ea.GroundTruth]:
    """Return a scene of two sources, and its truth in the opposite order."""
    scene, images = make_scene(places=PLACES.tolist(), seconds=1.0)
    true = PLACES[::-1] + np.array([2.0, 1.0])
    sounds = tuple(ea.Audio(image, scene.rate) for image in images[::-1])
    return scene, ea.GroundTruth(true, sounds, ("right", "left"), early=sounds)


def test_measures_are_those_of_their_functions(known: tuple[ea.Scene, ea.GroundTruth]) -> None:
    """Each column equals the function that the benchmarks use, in the order of the truth."""
    scene, truth = known
    found = ea.evaluate(scene, truth)
    estimates = np.stack([source.audio.samples for source in scene.sources])
    images = np.stack([image.samples for image in truth.images])
    expected = score(images, estimates, scene.mixture.samples)
    columns = found.to_dict()
    assert columns["name"] == ["right", "left"]
    assert columns["located_as"] == columns["separated_as"] == ["source2", "source1"]
    for name in ("sdr_db", "sir_db", "sar_db", "si_sdr_db"):
        np.testing.assert_allclose(
            columns[name], getattr(expected.quality, name).mean(axis=1), atol=1e-4
        )
    np.testing.assert_allclose(
        columns["mixture_sdr_db"], expected.mixture.sdr_db.mean(axis=1), atol=1e-4
    )
    np.testing.assert_allclose(columns["early_sdr_db"], columns["sdr_db"], atol=1e-4)
    settings = {"rate": scene.rate, "assignment": expected.by_sound}
    stoi = intelligibility(images, estimates, **settings).mean(axis=1)  # type: ignore[arg-type]
    np.testing.assert_allclose(columns["stoi"], stoi, atol=1e-4)
    errors = interaural_errors(images, estimates, **settings)  # type: ignore[arg-type]
    np.testing.assert_allclose(columns["ild_error_db"], errors.ild_db, atol=1e-4)
    angles = direction_errors(truth.directions, scene.directions)  # type: ignore[arg-type]
    np.testing.assert_allclose(columns["error_degrees"], angles.great_circle_degrees, atol=1e-3)
    np.testing.assert_allclose(columns["azimuth_error_degrees"], angles.azimuth_degrees, atol=1e-3)
    assert found.mean("sdr_db") == pytest.approx(expected.quality.mean().sdr_db)
    assert (found.agree, found.missed, found.n_false) == (True, (), 0)
    assert json.loads(json.dumps(columns)) == columns


def test_credible_level_is_that_of_the_posterior(known: tuple[ea.Scene, ea.GroundTruth]) -> None:
    """The level is that of the smallest region with the true direction."""
    scene, truth = known
    found = ea.evaluate(scene, truth).sources[0]
    assert truth.directions is not None
    level = scene.sources[1].posterior.credible_level(truth.directions[0])
    assert found.credible_level == level
    assert found.inside_90 == (level <= 0.9)
    far = ea.evaluate(scene, truth.directions + np.array([40.0, 0.0]))
    assert [source.inside_90 for source in far.sources] == [False, False]


def test_directions_alone(known: tuple[ea.Scene, ea.GroundTruth]) -> None:
    """Without images, or without sounds, only directions are evaluated."""
    scene, truth = known
    for found in (ea.evaluate(scene, PLACES), ea.evaluate(without_audio(scene), truth)):
        assert found.mean("error_degrees") < 3
        assert np.isnan(found.mean("sdr_db"))
        assert found.to_dict()["stoi"] == [None, None]
        assert found.agree is None
    assert "SDR" not in repr(ea.evaluate(scene, PLACES))


def test_sounds_of_files(known: tuple[ea.Scene, ea.GroundTruth]) -> None:
    """Sounds of a scene that was written to files are given with the mixture."""
    scene, truth = known
    sounds = [source.audio for source in scene.sources]
    found = ea.evaluate(without_audio(scene), truth, sounds=sounds, mixture=scene.mixture)
    assert found.to_dict() == ea.evaluate(scene, truth).to_dict()


def test_sounds_at_another_rate_are_resampled(known: tuple[ea.Scene, ea.GroundTruth]) -> None:
    """Sounds at twice the rate have nearly the same measures."""
    scene, truth = known
    sounds = [source.audio.at_rate(2 * scene.rate) for source in scene.sources]
    found = ea.evaluate(without_audio(scene), truth, sounds=sounds, mixture=scene.mixture)
    expected = ea.evaluate(scene, truth)
    assert found.mean("sir_db") == pytest.approx(expected.mean("sir_db"), abs=1.0)
    assert found.mean("stoi") == pytest.approx(expected.mean("stoi"), abs=0.02)


def test_sounds_must_be_those_of_the_scene(known: tuple[ea.Scene, ea.GroundTruth]) -> None:
    """Sounds without a mixture, and another number of them, are refused."""
    scene, truth = known
    sounds = [source.audio for source in scene.sources]
    with pytest.raises(InputError, match="mixture must be given with sounds"):
        ea.evaluate(without_audio(scene), truth, sounds=sounds)
    with pytest.raises(InputError, match=r"one entry per source of the scene \(2\), got 1"):
        ea.evaluate(scene, truth, sounds=sounds[:1], mixture=scene.mixture)


def test_images_alone(known: tuple[ea.Scene, ea.GroundTruth]) -> None:
    """Without directions, sounds are evaluated."""
    scene, truth = known
    found = ea.evaluate(scene, ea.GroundTruth(images=truth.images))
    assert found.to_dict()["separated_as"] == ["source2", "source1"]
    assert np.isnan(found.mean("error_degrees"))
    assert np.isfinite(found.mean("sdr_db"))


def test_missed_and_false_sources(known: tuple[ea.Scene, ea.GroundTruth]) -> None:
    """A missed source has no measures; a false one is counted."""
    scene, truth = known
    found = ea.evaluate(with_sources(scene, [0]), truth)
    assert found.missed == ("right",)
    assert found.to_dict()["located_as"] == [None, "source1"]
    assert found.to_dict()["sdr_db"][0] is None
    assert ea.evaluate(scene, PLACES[:1]).n_false == 1
    nothing = ea.evaluate(with_sources(scene, []), truth)
    assert nothing.missed == ("right", "left")


def test_swapped_sounds_are_reported(known: tuple[ea.Scene, ea.GroundTruth]) -> None:
    """If sounds and directions are assigned differently, the repr says so."""
    scene, truth = known
    assert truth.directions is not None
    swapped = ea.GroundTruth(truth.directions[::-1], truth.images)
    found = ea.evaluate(scene, swapped)
    assert found.agree is False
    assert "assigned differently" in repr(found)


def test_simulated_scene_is_its_own_truth(known: tuple[ea.Scene, ea.GroundTruth]) -> None:
    """A scene that `render_scene` made is accepted as truth."""
    scene, truth = known
    images = np.stack([image.samples for image in truth.images])
    simulated = SimulatedScene(
        mixture=scene.mixture, images=images, early=images, noise=np.zeros_like(images[0]),
        directions=np.asarray(truth.directions), starts_seconds=np.zeros(2),
        names=truth.names, trajectories=(None, None), settings={},
    )  # fmt: skip
    found = ea.evaluate(scene, simulated).to_dict()
    expected = ea.evaluate(scene, truth).to_dict()
    assert {**found, "early_sdr_db": 0} == {**expected, "early_sdr_db": 0}


def test_unknown_measure(known: tuple[ea.Scene, ea.GroundTruth]) -> None:
    """The error names the measures."""
    with pytest.raises(InputError, match="must be one of error_degrees"):
        ea.evaluate(*known).mean("name")


def test_swapped_arguments_are_refused(known: tuple[ea.Scene, ea.GroundTruth]) -> None:
    """The truth in place of the scene is named in one sentence."""
    scene, _ = known
    with pytest.raises(InputError, match="must be a separated scene, got ndarray"):
        ea.evaluate(PLACES, scene)  # type: ignore[arg-type]
