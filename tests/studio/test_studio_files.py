"""Tests of the files of recordings: tables, pictures, stored scenes and ZIP files."""

import csv
import io
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_scenes import make_scene
from studio_pages import Page, studio_page

import earatlas as ea
from earatlas.geometry.alternatives import Alternative
from earatlas.packaged_atlases import EXAMPLE_ATLAS
from earatlas.plotting.tracks import alternative_bands, marginal_bands
from earatlas.separation.result import SceneSummary
from earatlas.studio.archives import archive_chunks, safe_stem, unique_stems
from earatlas.studio.phase_spectrogram import PhaseSettings, phase_spectrogram
from earatlas.studio.safety import Limits
from earatlas.studio.stored_scene import read_scene, write_scene
from earatlas.studio.tables import write_tables
from earatlas.studio.views import map_view, region

PLACES = [[41.0, 1.0], [-64.0, 24.0]]


@pytest.fixture(scope="module")
def mixture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write two synthetic talkers around the simulated head."""
    sounds = [ea.synthetic_speech(1.0, seed=seed) for seed in (1, 2)]
    scene = ea.render_scene(ea.simulated_head(PLACES), sounds, PLACES)
    return scene.mixture.write(tmp_path_factory.mktemp("party") / "party.wav")


@pytest.fixture(scope="module")
def two_recordings(
    mixture: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Page, list[str], list[dict[str, Any]]]]:
    """Return a page, the ids of two separated recordings of one name, and their results."""
    folder = tmp_path_factory.mktemp("studio")
    with studio_page(folder, Limits(workers=1), head=EXAMPLE_ATLAS) as page:
        query = {"name": "a/../party.wav", "n_sources": "2"}
        data = mixture.read_bytes()
        submitted = [page.post("recordings", params=query, content=data).json() for _ in range(2)]
        jobs = [page.wait(one) for one in submitted]
        assert [job["state"] for job in jobs] == ["done", "done"], jobs
        yield page, [one["recording"] for one in submitted], [job["result"] for job in jobs]


def test_archive_of_several_recordings(
    two_recordings: tuple[Page, list[str], list[dict[str, Any]]],
) -> None:
    """A ZIP file has sounds, tables, JSON, report and pictures, in one folder per recording."""
    page, ids, _ = two_recordings
    drawn = page.wait(page.post("pictures", json={"recordings": ids}).json())
    assert drawn["state"] == "done", drawn
    answer = page.get(f"archive?recordings={','.join(ids)}")
    assert answer.headers["content-type"] == "application/zip"
    assert "recordings.zip" in answer.headers["content-disposition"]
    with zipfile.ZipFile(io.BytesIO(answer.content)) as archive:
        assert archive.testzip() is None
        names = set(archive.namelist())
        own = {
            "party.wav", "party_source1.wav", "party_source2.wav", "party_separated.json",
            "party_sources.csv", "party_tracks.csv", "party_report.html",
        }  # fmt: skip
        pictures = {
            f"pictures/{name}.{kind}"
            for name in ("scene", "differences", "source1_direction", "source2_direction")
            for kind in ("png", "svg")
        }
        second = {name.replace("party", "party (2)", 1) for name in own}
        expected = {f"party/{name}" for name in own | pictures}
        assert names == expected | {f"party (2)/{name}" for name in second | pictures}
        served = page.get(f"recordings/{ids[0]}/files/tracks.csv").content
        assert archive.read("party/party_tracks.csv") == served
        for name in ("scene.png", "differences.png"):
            assert archive.read(f"party/pictures/{name}").startswith(b"\x89PNG")
        assert b"<svg" in archive.read("party/pictures/scene.svg")


def test_archive_of_one_recording_has_no_folder(
    two_recordings: tuple[Page, list[str], list[dict[str, Any]]],
) -> None:
    """The archive has the name of the recording; other recordings are not in it."""
    page, ids, _ = two_recordings
    answer = page.get(f"archive?recordings={ids[1]}")
    assert "party.zip" in answer.headers["content-disposition"]
    with zipfile.ZipFile(io.BytesIO(answer.content)) as archive:
        assert "party_source1.wav" in archive.namelist()
        assert not any(name.startswith("party/") for name in archive.namelist())


@pytest.mark.parametrize(
    ("recordings", "status", "message"),
    [
        ([], 400, "1 to 100 different ids"),
        ("recording1", 400, "1 to 100 different ids"),
        ([1], 400, "1 to 100 different ids"),
        (["recording1", "recording1"], 400, "1 to 100 different ids"),
        ([f"recording{n}" for n in range(101)], 400, "got 101 values"),
        (["../../etc"], 404, "does not exist"),
    ],
)
def test_invalid_recordings_are_refused(
    two_recordings: tuple[Page, list[str], list[dict[str, Any]]],
    recordings: Any,
    status: int,
    message: str,
) -> None:
    """Each invalid request is answered with one sentence."""
    answer = two_recordings[0].post("pictures", json={"recordings": recordings})
    assert answer.status_code == status
    assert message in answer.json()["error"]


def test_unfinished_recordings_have_no_archive(
    two_recordings: tuple[Page, list[str], list[dict[str, Any]]],
) -> None:
    """A scene that was only rendered has no results."""
    page, _, _ = two_recordings
    talkers = [{"voice": 0, "azimuth": 0, "elevation": 0}]
    rendered = page.post("scenes", json={"talkers": talkers, "head": "simulated"}).json()
    page.wait(rendered)
    answer = page.get(f"archive?recordings={rendered['recording']}")
    assert answer.status_code == 400
    assert "separated completely" in answer.json()["error"]
    assert page.get("archive").status_code == 400


def test_views_have_maps_and_differences(
    two_recordings: tuple[Page, list[str], list[dict[str, Any]]],
) -> None:
    """A sharp posterior has a close-up around its peak; all images have scales."""
    _, _, (view, _) = two_recordings
    for source in view["sources"]:
        left, right = source["map"]["azimuths"]
        assert (left, right) == pytest.approx((180, -180))
        left, right = source["map"]["close_up"]["azimuths"]
        low, high = source["map"]["close_up"]["elevations"]
        azimuth, elevation = source["direction"]
        assert right < azimuth < left
        assert low < elevation < high
        assert left - right < 200
    images = view["images"]
    assert all(images[kind].startswith("data:image/png") for kind in ("level", "ild", "ipd"))
    assert set(images["scales"]) == {"level", "ild", "ipd"}
    assert images["ipd_range"]["high_hz"] == pytest.approx(2000, rel=0.05)
    assert view["files"]["tables"] == ["sources.csv", "tracks.csv"]


def test_map_of_a_broad_posterior_is_that_of_all_directions() -> None:
    """A close-up would show the same."""
    scene, _ = make_scene(places=((10.0, 0.0),))
    posterior = scene.sources[0].posterior
    broad = replace(posterior, covariances=np.full_like(posterior.covariances, 0) + 9e3 * np.eye(2))
    assert "close_up" in map_view(posterior, "#123456")
    assert "close_up" not in map_view(broad, "#123456")


def moving_scene() -> SceneSummary:
    """Return two sources, of which the second moves and is silent at times."""
    scene, _ = make_scene(places=((30.0, 10.0), (-50.0, -20.0)))
    source = scene.sources[1]
    path = source.track.directions + np.linspace(0, 30, len(source.track.seconds))[:, None]
    path[1] = np.nan
    track = replace(source.track, directions=path, moves=True)
    return replace(scene, sources=(scene.sources[0], replace(source, track=track)))


def test_stored_scene_is_read_again(tmp_path: Path) -> None:
    """Posteriors and tracks are the same numbers; spectrograms are rounded to 32 bits."""
    scene = moving_scene()
    write_scene(tmp_path, scene)
    again = read_scene(tmp_path)
    assert again.free_energies == scene.free_energies
    assert (again.seconds, again.rate) == (scene.seconds, scene.rate)
    for one, other in zip(scene.sources, again.sources, strict=True):
        assert (one.name, one.share, one.moves) == (other.name, other.share, other.moves)
        np.testing.assert_array_equal(one.posterior.covariances, other.posterior.covariances)
        np.testing.assert_array_equal(one.direction, other.direction)
        np.testing.assert_array_equal(one.track.directions, other.track.directions)
    np.testing.assert_allclose(again.spectrogram.masks, scene.spectrogram.masks, rtol=1e-6)


def test_tables(tmp_path: Path) -> None:
    """Tables have the numbers of the scene, empty cells in silence, and no formulas."""
    scene = moving_scene()
    named = replace(scene.sources[0], name="=1+1")
    scene = replace(scene, sources=(named, scene.sources[1]))
    write_tables(tmp_path, scene)
    with (tmp_path / "sources.csv").open(encoding="utf-8", newline="") as file:
        sources = list(csv.DictReader(file))
    assert [row["name"] for row in sources] == ["'=1+1", scene.sources[1].name]
    assert [row["moves"] for row in sources] == ["no", "yes"]
    assert float(sources[0]["azimuth_degrees"]) == pytest.approx(30.0, abs=0.01)
    with (tmp_path / "tracks.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    W = len(scene.sources[0].track.seconds)
    assert len(rows) == 2 * W
    moving = scene.sources[1]
    assert rows[W + 1]["azimuth_degrees"] == ""
    last = int(np.flatnonzero(moving.track.active)[-1])
    assert float(rows[W + last]["elevation_degrees"]) == pytest.approx(
        moving.track.directions[last, 1], abs=0.01
    )
    bands = marginal_bands(moving)[last]
    assert float(rows[W + last]["azimuth_band_90_degrees"]) == pytest.approx(bands[0], abs=0.01)
    unknown = replace(
        named,
        posterior=replace(
            named.posterior,
            covariances=np.zeros_like(named.posterior.covariances) + 9e3 * np.eye(2),
        ),
    )
    write_tables(tmp_path, replace(scene, sources=(unknown,)))
    with (tmp_path / "sources.csv").open(encoding="utf-8", newline="") as file:
        assert next(csv.DictReader(file))["azimuth_degrees"] == ""


def test_phases_agree_with_the_cues(mixture: Path) -> None:
    """With one frame per column the phases are those of the cues; equal ears have none."""
    found = phase_spectrogram(mixture)
    audio = ea.read_audio(mixture)
    layout = ea.CueLayout(window=512, hop=128, ipd_band_hz=(0.0, 2000.0))
    cues = ea.audio_cues(audio, layout)
    B = min(len(found.frequencies_hz), len(cues.ipd))
    expected = cues.ipd[:B, : found.radians.shape[1]]
    both = np.isfinite(expected) & np.isfinite(found.radians[:B, : expected.shape[1]])
    assert both.mean() > 0.3
    difference = np.angle(np.exp(1j * (found.radians[:B, : expected.shape[1]] - expected)))
    assert np.abs(difference[both]).max() < 1e-2
    few = phase_spectrogram(mixture, PhaseSettings(max_columns=10))
    assert few.radians.shape[1] <= 10
    assert few.seconds[-1] < audio.seconds + 0.1


def test_names_are_safe_and_different() -> None:
    """No name leaves its folder, and none is reserved on another system."""
    names = ["../../etc/passwd", "C:\\x\\nul.wav", "a?b*.wav", ".hidden", "x" * 300, "\u202eé.wav"]
    for name in names:
        stem = safe_stem(name)
        assert not set(stem) & set('<>:"/\\|?*')
        assert 0 < len(stem) <= 101
        assert not stem.startswith(".")
        assert stem.isprintable()
    assert safe_stem("C:\\x\\nul.wav") == "_nul"
    stems = unique_stems(["a.wav", "A.wav", "a.flac", "a (2).wav"])
    assert len({stem.lower() for stem in stems}) == 4


def test_archive_is_streamed(tmp_path: Path) -> None:
    """No chunk is much larger than what is read at a time; a missing file is left out."""
    (tmp_path / "big.wav").write_bytes(bytes(3_000_000))
    files = {"big.wav": tmp_path / "big.wav", "gone.wav": tmp_path / "gone.wav"}
    chunks = list(archive_chunks(files))
    assert max(map(len, chunks)) < 400_000
    with zipfile.ZipFile(io.BytesIO(b"".join(chunks))) as archive:
        assert archive.namelist() == ["big.wav"]
        assert len(archive.read("big.wav")) == 3_000_000


def test_bands_of_alternatives() -> None:
    """A probable direction behind widens the band of azimuth; a sharp one has narrow bands."""
    one = Alternative
    front = one(np.array([20.0, 0.0]), 1.0, 4.29)
    alone = alternative_bands(ea.Sphere(), [front])
    np.testing.assert_allclose(alone, 2.0 * 1.645, rtol=0.15)
    mixed = [replace(front, probability=0.6), one(np.array([160.0, 0.0]), 0.4, 4.29)]
    azimuth, elevation = alternative_bands(ea.Sphere(), mixed)
    assert azimuth == pytest.approx(140, abs=5)
    assert elevation == pytest.approx(alone[1], rel=0.25)


def test_broad_region_is_the_credible_region() -> None:
    """A region of many directions is found on one grid, with the same cells as each alone."""
    posterior = ea.DirectionPosterior(
        ea.Sphere(),
        np.array([[40.0, 10.0], [150.0, -30.0], [-90.0, 20.0]]),
        np.array([0.5, 0.3, 0.2]),
        np.array([[1.0, 2.0], [0.0, -3.0], [4.0, 0.0]]),
        np.array([[[900, 80], [80, 700]], [[1400, -120], [-120, 900]], [[800, 0], [0, 600.0]]]),
    )
    found = region(posterior)
    whole, half = (posterior.credible_region(level, 6.0).cells for level in (0.9, 0.5))
    assert found["cell_degrees"] == pytest.approx(4.8)
    np.testing.assert_allclose(found["cells"], whole, atol=0.006)
    assert found["half"] == len(half)
