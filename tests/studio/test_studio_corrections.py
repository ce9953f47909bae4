"""Tests of options, selections, names and given directions of recordings in the studio."""

import io
import json
import zipfile
from base64 import b64decode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from made_scenes import make_scene
from studio_pages import Page, studio_page

import earatlas as ea
from earatlas.evaluation.ground_truth import GroundTruth
from earatlas.packaged_atlases import EXAMPLE_ATLAS
from earatlas.plotting.palette import COLOURS
from earatlas.studio.identity import SourceLabels, identified_scene
from earatlas.studio.safety import Limits
from earatlas.studio.views import scene_view

PLACES = [[41.0, 1.0], [-64.0, 24.0]]
RATE = 16_000


@pytest.fixture(scope="module")
def mixture() -> np.ndarray:
    """Return the samples (2, n) of two synthetic talkers around the simulated head."""
    sounds = [ea.synthetic_speech(1.6, seed=seed) for seed in (1, 2)]
    return ea.render_scene(ea.simulated_head(PLACES), sounds, PLACES).mixture.samples


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    """Open a page of a studio that starts with the simulated head."""
    folder = tmp_path_factory.mktemp("studio")
    with studio_page(folder, Limits(workers=1), head=EXAMPLE_ATLAS) as opened:
        yield opened


@pytest.fixture(scope="module")
def uploaded(page: Page, mixture: np.ndarray, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Upload four channels of which the last two are the right and the left ear."""
    path = tmp_path_factory.mktemp("party") / "party.wav"
    samples = np.stack([0.01 * mixture[0], 0.01 * mixture[1], mixture[1], mixture[0]])
    soundfile.write(path, samples.T, RATE, "FLOAT")
    query = {"name": "party.wav", "n_sources": "1", "rendering": "soft"}
    submitted = page.post("recordings", params=query, content=path.read_bytes()).json()
    view = page.wait(submitted)["result"]
    assert view["n_channels"] == 4
    return str(submitted["recording"])


def separate(page: Page, recording: str, **options: Any) -> dict[str, Any]:
    """Separate a recording again and return its view."""
    options = {"rendering": "soft", "channels": [3, 2], **options}
    job = page.wait(page.post(f"recordings/{recording}/separate", json=options).json())
    assert job["state"] == "done", job
    view: dict[str, Any] = job["result"]
    return view


def samples_of(page: Page, recording: str, name: str, folder: Path) -> tuple[np.ndarray, int]:
    """Return the samples (2, n) and the rate of a file of a recording."""
    path = folder / "one.wav"
    path.write_bytes(page.get(f"recordings/{recording}/files/{name}").content)
    samples, rate = soundfile.read(path)
    return samples.T, rate


def test_channels_and_rate(page: Page, uploaded: str, mixture: np.ndarray, tmp_path: Path) -> None:
    """The chosen channels are the ears, in the chosen order."""
    view = separate(page, uploaded, n_sources=2, rate=8000)
    assert view["settings"]["channels"] == [3, 2]
    played, rate = samples_of(page, uploaded, "mixture.wav", tmp_path)
    assert rate == RATE  # that of the recording; the separated sounds have the requested one
    assert np.abs(played - mixture).max() < 1e-3
    assert samples_of(page, uploaded, "mixture_source1.wav", tmp_path)[1] == 8000
    swapped = separate(page, uploaded, n_sources=2, channels=[2, 3])
    played, _ = samples_of(page, uploaded, "mixture.wav", tmp_path)
    assert np.abs(played - mixture[::-1]).max() < 1e-3
    assert swapped["settings"]["channels"] == [2, 3]
    facts = separate(page, uploaded, n_sources=1, dry=True)["warnings"]
    assert any("not reverberant" in text or "too few onsets" in text for text in facts)


def test_given_directions_and_names(page: Page, uploaded: str) -> None:
    """The sources are at the given directions in their order, with the given names."""
    options = {"directions": PLACES[::-1], "names": ["Hugh", ""]}
    view = separate(page, uploaded, **options)
    assert [source["direction"] for source in view["sources"]] == PLACES[::-1]
    assert [source["label"] for source in view["sources"]] == ["Hugh", ""]
    assert [source["uncertainty"] for source in view["sources"]] == ["given by hand"] * 2
    assert "2 sources at given directions" in view["facts"]
    assert view["settings"]["directions"] == PLACES[::-1]
    saved = page.get(f"recordings/{uploaded}/files/separated.json").json()
    assert [source["name"] for source in saved["sources"]] == ["Hugh", "source2"]
    assert "Hugh" in page.get(f"recordings/{uploaded}/files/report.html").text


def test_sources_are_renamed(page: Page, uploaded: str) -> None:
    """A name is kept for the reloaded page, and is that of the saved file."""
    separate(page, uploaded, n_sources=2)
    drawn = page.wait(page.post("pictures", json={"recordings": [uploaded]}).json())
    assert drawn["state"] == "done"
    answer = page.post(f"recordings/{uploaded}/names", json={"names": ["Ada", "../x\ny"]}).json()
    assert answer["names"] == ["Ada", "xy"]
    assert page.wait(answer)["state"] == "done"
    report = page.get(f"recordings/{uploaded}/files/report.html").text
    assert "Ada" in report
    assert "</span>Ada</h2>" in report
    assert "</span>source1</h2>" not in report
    tables = [page.get(f"recordings/{uploaded}/files/{n}.csv").text for n in ("sources", "tracks")]
    assert all(",Ada," in table and ",source1," not in table for table in tables)
    saved = page.get(f"recordings/{uploaded}/files/separated.json").json()
    assert [source["name"] for source in saved["sources"]] == ["Ada", "xy"]
    assert (
        page.wait(page.post("pictures", json={"recordings": [uploaded]}).json())["state"] == "done"
    )
    archive = page.get(f"archive?recordings={uploaded}").content
    with zipfile.ZipFile(io.BytesIO(archive)) as files:
        assert "pictures/Ada_direction.svg" in files.namelist()
        assert "pictures/source1_direction.svg" not in files.namelist()
    job = page.get("recordings").json()["recordings"][0]["job"]
    labels = [one["label"] for one in page.get(f"jobs/{job}").json()["result"]["sources"]]
    assert labels == ["Ada", "xy"]
    saved = page.get(f"recordings/{uploaded}/files/mixture_source1.wav").headers
    assert saved["content-disposition"] == 'attachment; filename="party_Ada.wav"'
    for names in (["Ada"], "Ada", [1, 2], ["a"] * 7, None):
        refused = page.post(f"recordings/{uploaded}/names", json={"names": names})
        assert refused.status_code == 400
        assert refused.json()["error"].startswith("names must be")


def test_removed_source_leaves_the_colours_of_the_others(page: Page, uploaded: str) -> None:
    """Report and pictures have the number and the colour of the page."""
    view = separate(page, uploaded, directions=PLACES[1:], names=[""], numbers=[2])
    assert view["sources"][0]["colour"] == COLOURS[1]
    report = page.get(f"recordings/{uploaded}/files/report.html").text
    assert '<span class="badge">2</span>source2' in report
    assert f'stroke="{COLOURS[1]}"' in report
    assert COLOURS[0] not in report.replace(f"stroke:{COLOURS[0]}", "")
    assert (
        page.wait(page.post("pictures", json={"recordings": [uploaded]}).json())["state"] == "done"
    )
    archive = page.get(f"archive?recordings={uploaded}").content
    with zipfile.ZipFile(io.BytesIO(archive)) as files:
        picture = files.read("pictures/source2_direction.svg").decode()
    assert COLOURS[1] in picture
    assert COLOURS[0] not in picture


def test_selection(page: Page, uploaded: str, mixture: np.ndarray, tmp_path: Path) -> None:
    """A part is a recording of its own, and a part of it is counted in the whole recording."""
    options = {"n_sources": 1, "rendering": "soft", "channels": [3, 2]}
    chosen = {**options, "start": 0.25, "end": 1.25}
    one = page.post(f"recordings/{uploaded}/selection", json=chosen).json()
    assert one["name"] == "party (0.25 to 1.25 s).wav"
    assert page.wait(one)["state"] == "done"
    played, rate = samples_of(page, one["recording"], "mixture.wav", tmp_path)
    assert np.abs(played - mixture[:, 4000:20000]).max() < 1e-3
    inner = {**options, "start": 0.1, "end": 0.9}
    two = page.post(f"recordings/{one['recording']}/selection", json=inner).json()
    assert two["name"] == "party (0.35 to 1.15 s).wav"
    page.client.delete(page.at(f"recordings/{one['recording']}"))  # the part does not need it
    view = page.wait(two)["result"]
    assert view["seconds"] == pytest.approx(0.8, abs=0.01)
    played, _ = samples_of(page, two["recording"], "mixture.wav", tmp_path)
    assert np.abs(played - mixture[:, round(0.35 * rate) : round(1.15 * rate)]).max() < 1e-3
    late = page.post(f"recordings/{uploaded}/selection", json={"start": 50, "end": 60}).json()
    assert "must begin before the end" in page.wait(late)["error"]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"rate": 100}, "rate must be a number from 2000 to 384000"),
        ({"rate": "fast"}, "rate must be a number"),
        ({"dry": "yes"}, "dry must be true or false"),
        ({"channels": [1, 1]}, "channels must be two different ones"),
        ({"channels": [0, 0.5]}, "channels must be two different ones"),
        ({"channels": [0]}, "channels must be a number"),
        ({"channels": [0, -1]}, "channels must be a number"),
        ({"directions": []}, "directions must be 1 to 6, got 0"),
        ({"directions": [[0, 0]] * 7}, "directions must be 1 to 6, got 7"),
        ({"directions": "left"}, "directions must be 1 to 6, got none"),
        ({"directions": [[0, 91]]}, "elevation must be a number from -90 to 90"),
        ({"directions": [[200, 0]]}, "azimuth must be a number from -180 to 180"),
        ({"directions": [[0]]}, "azimuth must be a number"),
        ({"names": {"a": 1}}, "names must be a list"),
        ({"numbers": [1, 1]}, "numbers must be at most 6 different ones"),
        ({"numbers": [0]}, "numbers must be a number from 1 to 99"),
    ],
)
def test_invalid_options(page: Page, uploaded: str, values: dict[str, Any], message: str) -> None:
    """Every field of a request is checked, with one sentence that says what to do."""
    answer = page.post(f"recordings/{uploaded}/separate", json=values)
    assert answer.status_code == 400
    assert answer.json()["error"].startswith(message)
    assert answer.json()["error"].endswith(".")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({}, "start must be a number"),
        ({"start": 1.0, "end": 1.0}, "end must be after start"),
        ({"start": -1.0, "end": 1.0}, "start must be a number"),
        ({"start": 0.0, "end": "all"}, "end must be a number"),
        ({"start": 0.0, "end": 1.0, "dry": 7}, "dry must be"),
    ],
)
def test_invalid_selection(page: Page, uploaded: str, values: dict[str, Any], message: str) -> None:
    """A selection without both ends, or with another order, is refused."""
    before = len(page.session.recordings)
    answer = page.post(f"recordings/{uploaded}/selection", json=values)
    assert (answer.status_code, answer.json()["error"][: len(message)]) == (400, message)
    assert len(page.session.recordings) == before
    assert page.post("recordings/none/selection", json={}).status_code == 404


def test_channel_that_the_file_does_not_have(page: Page, uploaded: str) -> None:
    """The error names the user's file."""
    options = {"channels": [0, 9]}
    job = page.wait(page.post(f"recordings/{uploaded}/separate", json=options).json())
    assert "between 0 and 3 for 'party.wav'" in job["error"]


def test_head_the_wrong_way_round(page: Page) -> None:
    """What to correct in a head is checked, and reaches the reader of the head."""
    answer = page.post("heads", params={"name": "x.sofa", "wrong_way": "up"}, content=b"x")
    assert answer.json()["error"].startswith("wrong_way must be one of azimuths, ears")
    added = page.post("heads", params={"name": "x.sofa", "wrong_way": "ears"}, content=b"x").json()
    assert page.session.jobs[added["job"]].request["wrong_way"] == "ears"
    page.wait(added)


def test_sources_have_the_numbers_of_their_talkers() -> None:
    """Number, colour and name of a source are those of the talker at its direction."""
    scene, _ = make_scene()
    places = np.stack([source.direction for source in scene.sources])
    truth = GroundTruth(places[::-1], names=("Ada", "Hugh", "Vera")[: len(places)])
    found, identities, order = identified_scene(scene, truth)
    assert order == list(range(len(places)))[::-1]
    assert [source.name for source in found.sources] == list(truth.names)
    np.testing.assert_array_equal(found.spectrogram.masks, scene.spectrogram.masks[::-1])
    view = scene_view(found, identities)
    np.testing.assert_allclose([s["direction"] for s in view["sources"]], places[::-1], atol=0.01)
    assert [source["colour"] for source in view["sources"]] == list(COLOURS[: len(places)])
    missing = GroundTruth(np.array([[0.0, -80.0], *places[:1]]), names=("Ada", "Hugh"))
    _, identities, _ = identified_scene(scene, missing, SourceLabels(("", "mine")))
    assert {identity.label for identity in identities} >= {"Hugh"}
    _, identities, _ = identified_scene(scene, None, SourceLabels(("same",), (5, 2)))
    assert [identity.number for identity in identities] == [1, 4]  # in the order of the numbers
    same = SourceLabels(("a", "a"))
    names = [source.name for source in identified_scene(scene, None, same)[0].sources]
    assert len(set(names)) == len(names)


def test_levels_of_the_spectrogram() -> None:
    """The page gets the level of each cell within a quarter of a dB, for its read-out."""
    scene, _ = make_scene()
    levels = scene_view(scene)["spectrogram"]["levels"]
    steps = np.frombuffer(b64decode(levels["data"]), dtype=np.uint8)
    found = levels["low_db"] + levels["step_db"] * steps.reshape(levels["rows"], levels["columns"])
    expected = np.maximum(scene.spectrogram.level_db, levels["low_db"])
    np.testing.assert_allclose(found, expected, atol=0.2501)
    json.dumps(levels)
