"""Results as arrays, sequences, tables and files."""

import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from made_scenes import make_scene, posterior_at, with_sources

import earatlas as ea
from earatlas.errors import MissingExtraError
from earatlas.localization.diagnostics import Doubt, DoubtKind


def make_track() -> ea.Track:
    """Return a track of three windows, of which the second is silent."""
    places = ((30, 10), (40, 20), (50, -30))
    windows = tuple(
        ea.Localization(posterior_at(ea.Sphere(), place), share, 0.5)
        for place, share in zip(places, (0.5, 0.0, 0.25), strict=True)
    )
    return ea.Track(np.array([0.2, 0.4, 0.6]), windows)


def test_audio_is_an_array() -> None:
    """numpy functions accept a sound; `copy` and `dtype` are respected."""
    audio = ea.Audio(np.arange(6.0).reshape(2, 3), 8000)
    assert np.asarray(audio) is audio.samples
    assert np.array(audio) is not audio.samples
    assert np.asarray(audio, dtype=np.float32).dtype == np.float32
    assert np.mean(audio) == 2.5
    with pytest.raises(ValueError, match="copy"):
        np.array(audio, dtype=np.float32, copy=False)


def test_track_is_a_sequence() -> None:
    """A track has the items of its windows; a slice is a track."""
    track = make_track()
    assert isinstance(track, Sequence)
    assert track[0] is track.windows[0]
    assert track[-1] is track.windows[-1]
    assert list(track) == list(track.windows)
    assert list(reversed(track)) == list(track.windows[::-1])
    assert track.index(track.windows[1]) == 1
    part = track[1:]
    assert isinstance(part, ea.Track)
    assert part.times.tolist() == [0.4, 0.6]
    with pytest.raises(IndexError):
        track[3]


def test_track_as_columns_and_table() -> None:
    """The columns of a track are equally long and JSON values; silent windows have no place."""
    pandas = pytest.importorskip("pandas", reason="pandas is an extra")
    track = make_track()
    columns = track.to_dict()
    assert json.loads(json.dumps(columns)) == columns
    assert columns["azimuth"] == [30.0, None, 50.0]
    assert columns["elevation"] == [10.0, None, -30.0]
    table = track.to_pandas()
    assert list(table.columns) == list(columns)
    assert table["time"].tolist() == [0.2, 0.4, 0.6]
    assert pandas.isna(table["azimuth"]).tolist() == [False, True, False]
    assert ea.Track(np.zeros(0), ()).to_pandas().empty


def test_scene_as_values_and_table() -> None:
    """The table of a scene has one row per source and time, with the values of its tracks."""
    pytest.importorskip("pandas", reason="pandas is an extra")
    scene, _ = make_scene()
    values = scene.to_dict()
    assert json.loads(json.dumps(values)) == values
    assert [source["name"] for source in values["sources"]] == ["source1", "source2"]
    table = scene.to_pandas()
    assert len(table) == sum(len(source.track.seconds) for source in scene.sources)
    second = table[table["source"] == "source2"]
    np.testing.assert_allclose(second["azimuth"], scene.sources[1].track.directions[:, 0])
    np.testing.assert_allclose(second["level_db"], scene.sources[1].track.level_db)
    pixels, _ = make_scene(ea.Plane(((0, 640), (0, 480))), ((100, 50), (600, 400)))
    assert list(pixels.to_pandas().columns)[2:4] == ["x1", "x2"]
    assert with_sources(scene, ()).to_pandas().empty


def test_table_needs_pandas(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without pandas the error names the extra to install."""
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(MissingExtraError, match=r"earatlas\[pandas\]"):
        make_track().to_pandas()


def test_scene_is_written_and_read(tmp_path: Path) -> None:
    """`write` stores signals and values; a second call replaces its files and no others."""
    scene, _ = make_scene()
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "other.txt").touch()
    files = scene.write(tmp_path / "out", name="party")
    assert [file.name for file in files] == [
        "party_source1.wav", "party_source2.wav", "party.json",
    ]  # fmt: skip
    for file, source in zip(files, scene.sources, strict=False):
        np.testing.assert_allclose(ea.read_audio(file).samples, source.audio.samples, atol=1e-6)
    values = json.loads(files[-1].read_text())
    assert [source["file"] for source in values["sources"]] == [file.name for file in files[:2]]
    assert scene.write(tmp_path / "out", name="party") == files
    assert len(list((tmp_path / "out").iterdir())) == 4


@pytest.mark.parametrize("name", ["", "a/b", "../x"])
def test_scene_is_written_only_into_its_folder(tmp_path: Path, name: str) -> None:
    """A name that is a path is refused."""
    with pytest.raises(ea.InputError, match="first part of a file name"):
        make_scene()[0].write(tmp_path, name=name)


def test_report_of_a_scene(tmp_path: Path) -> None:
    """The report is written under the given name and has it as title."""
    page = make_scene()[0].report(tmp_path / "party.html")
    assert "<title>party</title>" in page.read_text()


def test_reprs_show_radius_and_doubts() -> None:
    """The repr of a source, a scene and a track shows directions, radii and kinds of doubts."""
    scene, _ = make_scene()
    source = scene.sources[0]
    doubt = Doubt(DoubtKind.NOISY, "measured", 1.0)
    doubted = replace(source, doubts=(doubt, doubt))
    assert f"radius_90 {source.radius_90:.1f}" in repr(source)
    assert "doubts" not in repr(source)
    assert repr(doubted).endswith("doubts: noisy)")
    assert f"(30, 10) ± {source.radius_90:.0f}" in repr(scene)
    assert repr(make_track()).startswith("Track(3 windows from 0.2 to 0.6 s, 2 with sound, median")
    assert "radius_90" in repr(source.posterior)
