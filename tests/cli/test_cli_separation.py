"""The command separate: files, results, and one sentence for bad input."""

import json
import re
import shutil
import subprocess
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
import soundfile
from made_scenes import make_scene
from rich.console import Console
from tests_support import refused

import earatlas as ea
from earatlas.cli.ground_truth import compare_with_truth, format_comparison
from earatlas.cli.separate import Render, _format_sources
from earatlas.evaluation.ground_truth import GroundTruth
from earatlas.geometry.angles import great_circle_error
from earatlas.separation.demixing.rendering import Rendering
from earatlas.separation.pipeline import SeparationOptions

Run = Callable[..., subprocess.CompletedProcess[str]]
DIRECTIONS = ((63.0, 11.0), (-38.0, -4.0))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, atlas: ea.Atlas) -> Path:
    """An atlas, a scene of two talkers with its truth, and recordings that cannot be used."""
    folder = tmp_path_factory.mktemp("separation")
    atlas.save(folder / "head.atlas")
    voices = [ea.synthetic_speech(2.0, seed=seed) for seed in (5, 8)]
    scene = ea.render_scene(
        ea.simulated_head(DIRECTIONS), voices, DIRECTIONS, names=("Ada", "Hugh"), rate=16_000
    )
    scene.write(folder / "scene")
    mixture = scene.mixture.samples.T
    for name in ("party.wav", "again.wav"):
        soundfile.write(folder / name, mixture, 16_000, "FLOAT")
    (folder / "head.sofa").write_bytes(b"\x89HDF")
    (folder / "taken").write_text("mine")
    soundfile.write(folder / "mono.wav", mixture[:, 0], 16_000)
    soundfile.write(folder / "silent.wav", 0 * mixture, 16_000)
    soundfile.write(folder / "short.wav", mixture[8000:9000], 16_000)
    soundfile.write(folder / "whole.flac", mixture, 16_000)
    whole = (folder / "whole.flac").read_bytes()
    (folder / "broken.flac").write_bytes(whole[: len(whole) // 2])
    (folder / "whole.flac").unlink()
    (folder / "other").mkdir()
    (folder / "empty").mkdir()
    soundfile.write(folder / "other" / "party.flac", mixture, 16_000)
    soundfile.write(folder / "other" / "longer.wav", np.tile(mixture, (2, 1)), 16_000)
    (folder / "other" / "scene.json").write_text('{"sources": [{"name": "Ada"}]}')
    return folder


def test_separate_writes_its_files(run: Run, folder: Path, tmp_path: Path) -> None:
    """Both talkers are near their directions, and the sounds add up to the mixture."""
    before = (folder / "party.wav").read_bytes()
    result = run("separate", folder / "head.atlas", folder / "party.wav", "-n", 2, "-o", tmp_path,
                 "--render", "soft", "--json")  # fmt: skip
    answer = json.loads(result.stdout)
    assert answer["n_sources"] == len(answer["sources"]) == 2
    assert answer["report"] is None
    assert answer["real_time_factor"] == pytest.approx(answer["seconds"] / 2, rel=0.1)
    assert np.isfinite(answer["free_energy"])
    assert sum(source["share"] for source in answer["sources"]) == pytest.approx(1, abs=1e-3)
    found = sorted((source["direction"] for source in answer["sources"]), reverse=True)
    assert (great_circle_error(found, DIRECTIONS) < 15).all()
    assert all(0 < source["credible_90_area"] < 4000 for source in answer["sources"])
    files = [Path(source["file"]) for source in answer["sources"]]
    assert files == [tmp_path / "party_source1.wav", tmp_path / "party_source2.wav"]
    assert sorted(tmp_path.iterdir()) == [tmp_path / "party.json", *files]
    whole = sum(ea.read_audio(file).samples for file in files)
    mixture = ea.read_audio(folder / "party.wav").samples
    np.testing.assert_allclose(whole, mixture, atol=1e-6)
    assert (folder / "party.wav").read_bytes() == before


def test_separate_prints_text(run: Run, folder: Path, tmp_path: Path) -> None:
    """The text has the number of sources, one line per source with its file, and the time."""
    result = run("separate", folder / "head.atlas", folder / "party.wav", "-n", 2, "-o", tmp_path)
    first, head, *sources, last = result.stdout.splitlines()
    assert first == f"{folder / 'party.wav'}: 2 sources in 2.0 s of sound at 16 kHz"
    assert head.split() == ["azimuth", "elevation", "90", "%", "within", "share", "file"]
    assert [line.split()[-1] for line in sources] == [
        str(tmp_path / f"party_source{m}.wav") for m in (1, 2)
    ]
    assert sum(bool(re.search(r" \d+° left, .*front ", line)) for line in sources) == 1
    assert sum(bool(re.search(r" \d+° right, .*front ", line)) for line in sources) == 1
    assert re.search(r"separated in .* s, .*(as the recording|than real time)$", last)
    assert result.stderr == ""


def test_separate_output_rate(run: Run, folder: Path, tmp_path: Path) -> None:
    """The rate and length are those of the recording; --rate changes the rate."""
    party = ea.read_audio(folder / "party.wav").at_rate(22_050)
    party.write(tmp_path / "fast.wav")
    call = ["separate", folder / "head.atlas", tmp_path / "fast.wav", "-n", 2, "-o", tmp_path]
    answer = json.loads(run(*call, "--json").stdout)
    assert answer["rate"] == 22_050
    sounds = [ea.read_audio(source["file"]) for source in answer["sources"]]
    assert {sound.rate for sound in sounds} == {22_050}
    np.testing.assert_allclose(sum(s.samples for s in sounds), party.samples, atol=1e-6)
    result = run(*call, "--rate", 8000)
    assert "2 sources in 2.0 s of sound at 8 kHz" in result.stdout
    assert ea.read_audio(answer["sources"][0]["file"]).rate == 8000
    refused(run(*call, "--rate", 500), "rate must be from 2000 to 384000 Hz", "got 500")


def test_renderings_of_command_and_library_agree() -> None:
    """The command and the library have the same renderings and the same default."""
    assert [render.value for render in Render] == list(get_args(Rendering))
    assert SeparationOptions.rendering == Render.spatial.value


@pytest.mark.parametrize("render", get_args(Rendering))
def test_separate_renders_by_name(
    run: Run, folder: Path, tmp_path: Path, atlas: ea.Atlas, render: Rendering
) -> None:
    """Each rendering gives the sounds of the library."""
    result = run("separate", folder / "head.atlas", folder / "party.wav", "-n", 2, "-o", tmp_path,
                 "--render", render)  # fmt: skip
    assert result.returncode == 0, result.stderr
    audio = ea.read_audio(folder / "party.wav")
    for source in atlas.separate(audio, n_sources=2, rendering=render).sources:
        sound = ea.read_audio(tmp_path / f"party_{source.name}.wav").samples
        np.testing.assert_allclose(sound, source.audio.samples, atol=1e-6)


def test_separate_estimates_the_number_of_sources(run: Run, folder: Path, tmp_path: Path) -> None:
    """Without -n, both sources are found and no more."""
    result = run("separate", folder / "head.atlas", folder / "party.wav", "-o", tmp_path, "--json")
    assert json.loads(result.stdout)["n_sources"] == 2


def test_separate_takes_other_channels(run: Run, folder: Path, tmp_path: Path) -> None:
    """With --channels, the directions are the same."""
    x, rate = soundfile.read(folder / "party.wav")
    soundfile.write(tmp_path / "three.wav", x[:, [1, 0, 1]], rate, "FLOAT")
    result = run("separate", folder / "head.atlas", tmp_path / "three.wav", "-n", 2,
                 "-o", tmp_path / "out", "--channels", 1, 2, "--json")  # fmt: skip
    found = sorted((s["direction"] for s in json.loads(result.stdout)["sources"]), reverse=True)
    assert (great_circle_error(found, DIRECTIONS) < 15).all()


def test_separate_compares_with_the_truth(run: Run, folder: Path, tmp_path: Path) -> None:
    """--truth gives errors, SDR and SIR in text, in JSON and in the report."""
    call = ["separate", folder / "head.atlas", folder / "scene" / "mixture.wav", "-n", 2,
            "-o", tmp_path, "--truth"]  # fmt: skip
    answer = json.loads(run(*call, folder / "scene", "--json", "--report").stdout)
    names = {row["name"]: row for row in answer["truth"]}
    assert list(names) == ["Ada", "Hugh"]
    for row in names.values():
        assert 0 < row["error"] < 15
        assert row["error"] == pytest.approx(
            great_circle_error(row["direction"], row["found"]), abs=0.02
        )
        assert -3 < row["mixture_sdr_db"] < 3
        assert 4 < row["sdr_db"] < 40
        assert row["sir_db"] > row["mixture_sir_db"] + 5
        assert 0 < row["ild_error_db"] < 3
        assert 0 < row["itd_error_microseconds"] < 200
        assert 0.7 < row["stoi"] <= 1  # 0.9996 rounds to 1; a leak would show in the SDR
        assert "early_sdr_db" not in row, "an anechoic scene has no late sound"
    assert {row["source"] for row in names.values()} == {"source1", "source2"}
    page = Path(answer["report"])
    assert page == tmp_path / "mixture.html"
    html = page.read_text()
    assert "SDR before" in html
    assert "Ada" in html
    assert html.count("<audio") == 3
    text = run(*call, folder / "scene" / "scene.json").stdout
    assert f"{names['Ada']['sdr_db']:.1f}" in text
    assert "SIR, dB" in text
    assert f"{names['Ada']['itd_error_microseconds']:.0f} µs" in text
    assert "early SDR" not in text


def test_early_sdr_in_reverberant_scenes(run: Run, folder: Path, tmp_path: Path) -> None:
    """A reverberant scene also has the SDR of the first 50 ms."""
    head = ea.simulated_head(DIRECTIONS)
    ears = head.responses()
    late = (
        0.02 * np.random.default_rng(0).normal(size=(2, 2, 6000)) * np.exp(-np.arange(6000) / 2e3)
    )
    wet = np.concatenate([ears.samples, late], axis=2)
    room = replace(head, ears=replace(ears, samples=wet))
    voices = [ea.synthetic_speech(2.0, seed=seed) for seed in (5, 8)]
    scene = ea.render_scene(room, voices, DIRECTIONS, names=("Ada", "Hugh"))
    assert scene.is_reverberant
    scene.write(tmp_path / "scene")
    call = ["separate", folder / "head.atlas", tmp_path / "scene" / "mixture.wav", "-n", 2,
            "-o", tmp_path / "out", "--truth", tmp_path / "scene"]  # fmt: skip
    answer = json.loads(run(*call, "--json").stdout)
    for row in answer["truth"]:
        assert 0 < row["early_sdr_db"] < row["sdr_db"]
    text = run(*call).stdout
    assert "early SDR, dB" in text
    assert f"{answer['truth'][0]['early_sdr_db']:.1f}" in text


def test_truth_of_another_scene_is_refused(run: Run, folder: Path, tmp_path: Path) -> None:
    """Other talkers at the same directions are refused; gain and delay are not."""
    call = ["separate", folder / "head.atlas", folder / "party.wav", "-n", 2, "-o", tmp_path / "o"]
    for seeds in ((15, 18), (5, 18)):  # no talker in common, or one of two
        voices = [ea.synthetic_speech(2.0, seed=seed) for seed in seeds]
        other = ea.render_scene(ea.simulated_head(DIRECTIONS), voices, DIRECTIONS, rate=16_000)
        other.write(tmp_path / f"other{seeds[0]}")
        refused(
            run(*call, "--truth", tmp_path / f"other{seeds[0]}"), "of this recording", "another"
        )
    assert not (tmp_path / "o").exists()
    x, rate = soundfile.read(folder / "party.wav")
    soundfile.write(tmp_path / "late.flac", np.pad(0.3 * x[:, ::-1], ((700, 0), (0, 0))), rate)
    call[2] = tmp_path / "late.flac"
    changed = run(*call, "--truth", folder / "scene", "--channels", 1, 0)
    assert changed.returncode == 0, "gain, delay and channel order do not matter"


def test_truth_without_an_image_is_refused(run: Run, folder: Path, tmp_path: Path) -> None:
    """An image that scene.json names but that is missing is a file of the truth."""
    shutil.copytree(folder / "scene", tmp_path / "scene")
    image = min((tmp_path / "scene").glob("image1*"))
    image.unlink()
    result = run("separate", folder / "head.atlas", folder / "party.wav", "-o", tmp_path / "o",
                 "--truth", tmp_path / "scene")  # fmt: skip
    refused(result, "truth must have all files", str(image))


def test_swapped_sounds_and_directions_warn() -> None:
    """A source with the sound of one true source and the direction of another gives a warning."""
    scene, images = make_scene(places=DIRECTIONS, seconds=1.0)
    known = [ea.Audio(image, 16_000) for image in images]
    separated = [source.audio for source in scene.sources]
    for directions, swapped in ((DIRECTIONS, False), (DIRECTIONS[::-1], True)):
        truth = GroundTruth(np.array(directions), tuple(known), ("a", "b"))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            compare_with_truth(scene, truth, scene.mixture, separated)
        messages = [str(warning.message) for warning in caught]
        assert any(m.startswith("Sounds and directions are swapped: ") for m in messages) == swapped


def test_long_names_are_shortened_to_the_width(monkeypatch: pytest.MonkeyPatch) -> None:
    """Names have up to 24 characters, fewer on a narrow terminal, whose rows fit."""
    decibels = dict.fromkeys(("sdr_db", "sir_db", "mixture_sdr_db", "mixture_sir_db"), 12.3)
    row = {"name": "x" * 30, "direction": [-150.0, -20.0], "found": [-150.0, -20.0],
           "error": 123.4, "moves": False, **decibels}  # fmt: skip
    assert "  " + "x" * 23 + "… " in format_comparison([row, row])[1]
    for width, length in ((80, 10), (200, 23)):
        terminal = Console(width=width, force_terminal=True)
        monkeypatch.setattr("earatlas.cli.ground_truth.out", terminal)
        lines = format_comparison([row, row])
        assert "  " + "x" * length + "… " in lines[1]
        assert max(map(len, lines)) <= width


def test_one_source_has_no_interference(run: Run, tmp_path: Path, folder: Path) -> None:
    """The text has no SIR without other sources; the JSON keeps its fields."""
    scene = ea.render_scene(
        ea.simulated_head([DIRECTIONS[0]]), [ea.synthetic_speech(2.0)], [DIRECTIONS[0]]
    )
    scene.write(tmp_path / "scene")
    call = ["separate", folder / "head.atlas", tmp_path / "scene" / "mixture.wav", "-n", 1,
            "-o", tmp_path / "out", "--truth", tmp_path / "scene"]  # fmt: skip
    row = next(line for line in run(*call).stdout.splitlines() if "source1  " in line)
    assert row.endswith("–")
    assert row.count("→") == 1
    assert {"sir_db", "mixture_sir_db"} <= set(json.loads(run(*call, "--json").stdout)["truth"][0])


def test_separate_reports_without_truth(run: Run, folder: Path, tmp_path: Path) -> None:
    """--report links to the sounds, and has no SDR without the truth."""
    result = run("separate", folder / "head.atlas", folder / "party.wav", "-n", 2, "-o", tmp_path,
                 "--report")  # fmt: skip
    assert f"report: {tmp_path / 'party.html'}" in result.stdout
    text = (tmp_path / "party.html").read_text()
    assert 'href="./party_source1.wav"' in text
    assert "SDR before" not in text


@pytest.mark.parametrize("jobs", [1, 2])
def test_bad_recordings_do_not_stop_the_others(
    run: Run, run_process: Run, folder: Path, tmp_path: Path, jobs: int
) -> None:
    """The good recordings are separated, the bad ones are named, and the exit code is 1.

    A clipped recording warns once.
    """
    x, rate = soundfile.read(folder / "party.wav")
    soundfile.write(tmp_path / "loud.wav", np.clip(20 * x, -1, 1), rate, "FLOAT")
    files = [folder / name for name in ("party.wav", "short.wav", "gone.wav", "again.wav")]
    files.append(tmp_path / "loud.wav")
    call = run if jobs == 1 else run_process
    result = call("separate", folder / "head.atlas", *files, "-n", 2, "-o", tmp_path / "out",
                  "--jobs", jobs, "--json")  # fmt: skip
    assert result.returncode == 1
    assert result.stderr.count("is clipped") == 1
    answers = {Path(a["file"]).name: a for a in map(json.loads, result.stdout.splitlines())}
    assert set(answers) == {file.name for file in files}
    assert answers["party.wav"]["n_sources"] == answers["again.wav"]["n_sources"] == 2
    assert (
        answers["party.wav"]["sources"][0]["direction"]
        == answers["again.wav"]["sources"][0]["direction"]
    )
    assert "at least one window" in answers["short.wav"]["error"]
    assert "Traceback" not in result.stderr
    errors = [line for line in result.stderr.splitlines() if line.startswith("error: ")]
    assert len(errors) == 3
    assert sum(str(folder / "gone.wav") in line for line in errors) == 1
    assert sum(str(folder / "short.wav") in line for line in errors) == 1
    assert errors[-1] == "error: 2 of 5 recordings failed."
    done = ("party", "again", "loud")
    assert {file.name for file in (tmp_path / "out").iterdir()} == {
        *(f"{stem}_source{m}.wav" for stem in done for m in (1, 2)),
        *(f"{stem}.json" for stem in done),
        "batch.jsonl",
    }


def test_leftovers_of_an_earlier_run_are_named(run: Run, folder: Path, tmp_path: Path) -> None:
    """A third sound and a report of an earlier run are named, and kept."""
    for name in ("party_source3.wav", "party.html", "party_source1.wav"):
        (tmp_path / name).write_text("old")
    call = ["separate", folder / "head.atlas", folder / "party.wav", "-n", 2, "-o", tmp_path]
    result = run(*call, "--force")
    assert result.returncode == 0
    assert result.stderr.count("earlier run") == 2
    assert f"replaced: {tmp_path / 'party_source1.wav'}\n" in result.stderr
    assert (tmp_path / "party_source3.wav").read_text() == "old"
    assert ea.read_audio(tmp_path / "party_source1.wav").seconds > 1.9


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["head.atlas", "party.wav", "-n", "0"], ["from 1 to 6", "got 0"]),
        (["head.atlas", "party.wav", "-n", "7"], ["from 1 to 6", "got 7"]),
        (["head.atlas", "party.wav", "--jobs", "0"], ["jobs must be at least 1"]),
        (["head.atlas", "party.wav", "--channels", "0", "7"], ["between 0 and 1"]),
        (["head.sofa", "party.wav"], ["Learn it first", "-o head.atlas"]),
        (["party.wav", "head.atlas"], ["first argument", "atlas comes first"]),
        (["gone.atlas", "party.wav"], ["Check the name"]),
        (["head.atlas", "gone.wav"], ["existing", "gone.wav"]),
        (["head.atlas", "empty"], ["recordings must be files or a folder", "empty", ".flac"]),
        (["head.atlas", "*.aiff"], ["pattern '*.aiff'", "matches no file"]),
        (["head.atlas", "@gone.txt"], ["list must be an existing file"]),
        (["head.atlas", "party.wav", "--jobs", "2", "--scheduler", "x"], ["without --scheduler"]),
        (["head.atlas", "head.atlas"], ["cannot be read as sound"]),
        (["head.atlas", "mono.wav"], ["Two channels", "mono.wav"]),
        (["head.atlas", "silent.wav"], ["silent"]),
        (["head.atlas", "short.wav"], ["short.wav", "at least one window"]),
        (["head.atlas", "broken.flac"], ["breaks off", "broken.flac"]),
        (["head.atlas", "party.wav", "other/party.flac"], ["overwrite each other", "party.flac"]),
        (["head.atlas", "party.wav", "again.wav", "--truth", "scene"], ["one recording"]),
        (["head.atlas", "party.wav", "--truth", "gone"], ["`earatlas simulate` wrote", "exist"]),
        (["head.atlas", "party.wav", "--truth", "empty"], ["truth must be", "has no scene.json"]),
        (["head.atlas", "party.wav", "--truth", "other"], ["truth must be a scene.json"]),
        (["head.atlas", "party.wav", "--truth", "taken"], ["truth must be a scene.json"]),
        (["head.atlas", "other/longer.wav", "--truth", "scene"], ["of this recording", "4.0 s"]),
    ],
)
def test_bad_input(run: Run, folder: Path, arguments: list[str], words: list[str]) -> None:
    """Bad input gives one sentence and exit code 2; not even the folder is created."""
    before = sorted(folder.iterdir())
    refused(run("separate", *arguments, "-o", "out/deep", cwd=folder), *words)
    assert [file for file in sorted(folder.iterdir()) if file not in before] == []


def test_unwritable_folder(run: Run, folder: Path) -> None:
    """A file in place of the folder, or of its parent, is refused."""
    for output in ("taken", "taken/out"):
        refused(run("separate", "head.atlas", "party.wav", "-o", output, cwd=folder), "writable")
    assert (folder / "taken").read_text() == "mine"


def test_no_recording_is_overwritten(run: Run, folder: Path, tmp_path: Path) -> None:
    """A recording with the name of an output is refused, also through links."""
    names = ["party.wav", "party_source2.wav"]
    for name in names:
        (tmp_path / name).write_bytes((folder / "party.wav").read_bytes())
    (tmp_path / "link").symlink_to(tmp_path)
    for source, output in ((tmp_path, "."), (Path(), tmp_path), (Path("link"), "."), (".", "link")):
        files = [Path(source, name) for name in names]
        refused(run("separate", folder / "head.atlas", *files, "-o", output, cwd=tmp_path),
                "overwritten")  # fmt: skip
    assert sorted(file.name for file in tmp_path.iterdir()) == ["link", *names]


def test_moving_sources_in_tables() -> None:
    """A moving source has both ends of its track and the median radius along it."""
    track = [
        {"time": 0.1, "direction": [80.0, 0.0], "radius_90": 3.0, "level_db": -20.0},
        {"time": 0.4, "direction": None, "radius_90": None, "level_db": -90.0},
        {"time": 0.6, "direction": [-70.0, 10.0], "radius_90": 5.0, "level_db": -20.0},
    ]
    moving = {"direction": [5.0, 4.0], "radius_90": 90.0, "share": 0.5, "file": "a.wav",
              "moves": True, "track": track}  # fmt: skip
    _, one, other = _format_sources([moving, moving | {"moves": False}], ea.Sphere())
    for words in ("moves", "80° left", "70° right", " 4.0° "):
        assert words in one
    assert "90.0°" in other
    assert "moves" not in other
    row = {"name": "m", "direction": [5.0, 0.0], "found": [60.0, 0.0], "error": 1.0, "sdr_db": 9.0,
           "mixture_sdr_db": 0.0, "sir_db": 9.0, "mixture_sir_db": 0.0}  # fmt: skip
    assert "60.0°" in "".join(format_comparison([row | {"moves": False}]))
    lines = format_comparison([row | {"moves": True}])
    assert "60.0°" not in "".join(lines)
    assert "along its trajectory" in lines[-1]
    unknown = moving | {"moves": False, "radius_90": 163.0}
    line = _format_sources([unknown], ea.Sphere())[1]
    assert "direction unknown" in line
    assert "163" not in line
    assert "5.0°" not in line


def test_name_that_leaves_no_room_for_results(run: Run, tmp_path: Path) -> None:
    """A recording with a very long name is refused in one sentence, and nothing is written."""
    recording = ea.example_recording().write(tmp_path / f"{'x' * 245}.wav")
    result = run("separate", "people", recording, "-o", tmp_path / "out")
    assert result.returncode == 2
    assert "at most 255 bytes" in result.stderr
    assert "with 257" in result.stderr
    assert not (tmp_path / "out").exists()


def test_given_directions(run: Run, folder: Path, tmp_path: Path) -> None:
    """The sources have the directions of `--at`, in their order; the sidecar records them."""
    at = ("--at", "-38:-4", "--at", "63:11")
    options = ("-o", tmp_path, "--render", "soft", "--json")
    result = run("separate", folder / "head.atlas", folder / "party.wav", *options, *at)
    answer = json.loads(result.stdout)
    assert [source["direction"] for source in answer["sources"]] == [[-38.0, -4.0], [63.0, 11.0]]
    assert all(source["given"] for source in answer["sources"])
    recorded = json.loads((tmp_path / "party.json").read_text())
    assert "[[-38.0, -4.0], [63.0, 11.0]]" in json.dumps(recorded)
    again = run("separate", folder / "head.atlas", folder / "party.wav", *options, *at, "--resume")
    assert json.loads(again.stdout)["free_energy"] == answer["free_energy"]
    lines = _format_sources(answer["sources"], ea.Sphere())
    assert "given" in lines[1]


@pytest.mark.parametrize("at", ["left", "10:x", "10:95", "10"])
def test_invalid_given_direction(run: Run, folder: Path, tmp_path: Path, at: str) -> None:
    """A direction that is no direction is refused with one sentence."""
    result = run(
        "separate", folder / "head.atlas", folder / "party.wav", "-o", tmp_path, "--at", at
    )
    refused(result)
    assert "AZIMUTH:ELEVATION" in result.stderr or at == "10:95"
    assert "party.wav" not in result.stderr  # refused before the first recording
