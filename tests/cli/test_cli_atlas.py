"""The commands learn, localize and listen, with good and bad input."""

import csv
import json
import pickle
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from head_files import write_responses
from tests_support import refused

import earatlas as ea
from earatlas.cli.console import print_alternatives
from earatlas.cli.localize import print_localization
from earatlas.errors import MissingExtraError, missing_extra
from earatlas.geometry.alternatives import Alternative
from earatlas.geometry.angles import great_circle_error
from earatlas.localization.diagnostics import Doubt, DoubtKind
from earatlas.training.reverberant import ReverberantTrainingSettings

Run = Callable[..., subprocess.CompletedProcess[str]]
DIRECTION = (63.0, 11.0)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, atlas: ea.Atlas) -> Path:
    """A folder with an atlas, a recording, and the same recording as raw samples."""
    folder = tmp_path_factory.mktemp("atlas")
    atlas.save(folder / "head.atlas")
    scene = ea.render_scene(
        ea.simulated_head([DIRECTION]), [ea.synthetic_speech(2.0, seed=5)], [DIRECTION]
    )
    scene.mixture.write(folder / "talker.wav")
    x, rate = scene.mixture.samples, scene.mixture.rate
    ea.Audio(x[:, 8000:11200], rate).write(folder / "short.wav")
    ea.Audio(1e-7 * x, rate).write(folder / "quiet.wav")
    (folder / "head.sofa").write_bytes(b"\x89HDF")
    (scene.mixture.samples.T * 32767).astype("<i2").tofile(folder / "talker.raw")
    return folder


@pytest.mark.usefixtures("fast_learning")
def test_learn_writes_an_atlas(run: Run, tmp_path: Path) -> None:
    """A table of responses on the horizontal plane gives an atlas that loads."""
    ring = ea.simulated_head([[float(a), 0.0] for a in range(-180, 180, 5)])
    write_responses(tmp_path / "ring.csv", ring)
    result = run("learn", tmp_path / "ring.csv", "-o", tmp_path / "r.atlas", "--components", 8,
                 "--json")  # fmt: skip
    answer = json.loads(result.stdout)
    assert (answer["space"], answer["directions"]) == ("circle", 72)
    *_, started, done = result.stderr.splitlines()
    assert started == "started: learning ring, 72 directions."
    assert done.startswith("done: learning ring, 72 directions, in ")
    assert answer["held_out"]["held_out"] == 12
    assert ea.Atlas.load(tmp_path / "r.atlas").space == ea.Circle()
    call = ("learn", tmp_path / "ring.csv", "-o", tmp_path / "r.atlas", "--components", 4)
    refused(run(*call, "--space", "plane"), "space must be the circle")
    text = run(*call).stdout
    assert "median error" in text
    assert "on the circle" in text


def test_localize_prints_text_and_json(run: Run, folder: Path) -> None:
    """One file gives a line of text; several give one JSON object per line."""
    text = run("localize", folder / "head.atlas", folder / "talker.wav").stdout
    assert "azimuth" in text
    assert "left" in text
    files = [folder / "talker.wav"] * 2
    lines = run("localize", folder / "head.atlas", *files, "--json").stdout.splitlines()
    assert len(lines) == 2
    answer = json.loads(lines[0])
    assert {"file", "direction", "mean", "credible_90_area", "observed_share", "seconds"} <= set(
        answer
    )
    assert great_circle_error(answer["direction"], DIRECTION) < 20


def test_bad_recordings_do_not_stop_the_others(run: Run, folder: Path) -> None:
    """The good recordings are localized, the bad ones are named, and the exit code is 1."""
    files = [folder / name for name in ("talker.wav", "gone.wav", "head.sofa", "talker.wav")]
    result = run("localize", folder / "head.atlas", *files, "--json")
    assert result.returncode == 1
    answers = [json.loads(line) for line in result.stdout.splitlines()]
    assert [answer["file"] for answer in answers] == list(map(str, files))
    assert answers[0]["direction"] == answers[3]["direction"]
    assert "existing" in answers[1]["error"]
    assert set(answers[2]) == {"file", "error"}
    errors = [line for line in result.stderr.splitlines() if line.startswith("error: ")]
    assert len(errors) == 3
    assert errors[-1] == "error: 2 of 4 recordings failed."
    text = run("localize", folder / "head.atlas", *files)
    assert text.returncode == 1
    assert text.stdout.count("azimuth") == 2


@pytest.mark.parametrize("name", ["gone.wav", "head.sofa"])
@pytest.mark.parametrize("more", [[], ["--track", "t.csv"], ["-o", "answers"]])
def test_single_bad_recording(
    run: Run, folder: Path, tmp_path: Path, name: str, more: list[str]
) -> None:
    """A single bad recording gives one JSON line, the same message, and exit code 2."""
    options = [option if option.startswith("-") else tmp_path / option for option in more]
    result = run("localize", folder / "head.atlas", folder / name, "--json", *options)
    assert result.returncode == 2
    (answer,) = map(json.loads, result.stdout.splitlines())
    assert answer["file"] == str(folder / name)
    assert result.stderr.strip() == f"error: {answer['error']}"
    assert not (tmp_path / "t.csv").exists()


def test_credible_radius_in_text_json_and_track(run: Run, folder: Path, tmp_path: Path) -> None:
    """The radius agrees with the area of the 90 % region in all outputs."""
    call = ["localize", folder / "head.atlas", folder / "talker.wav"]
    answer = json.loads(run(*call, "--json", "--track", tmp_path / "t.csv").stdout)
    assert answer["radius_90"] == pytest.approx(np.sqrt(answer["credible_90_area"] / np.pi), 0.2)
    (radius,) = re.findall(r"90 % within (\S+)°,", run(*call).stdout)
    assert float(radius) == pytest.approx(answer["radius_90"], abs=0.5)
    rows = list(csv.DictReader((tmp_path / "t.csv").read_text().splitlines()))
    assert list(rows[0])[:5] == ["time", "azimuth", "elevation", "credible_90_area",
                                 "observed_share"]  # fmt: skip
    assert list(rows[0])[-1] == "radius_90"
    for row in rows:
        assert bool(row["radius_90"]) == bool(row["azimuth"])
        if row["azimuth"]:
            area = float(row["credible_90_area"])
            assert float(row["radius_90"]) > 0.8 * np.sqrt(area / np.pi)


def test_alternatives_are_printed_on_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    """The line is indented, fits into 80 columns, and is missing if there is one alternative."""
    both = [Alternative(np.array([a, -12.0]), 0.5, 9.0) for a in (-165.0, -15.0)]
    print_alternatives(ea.Sphere(), both, 80.0, label="source 2: ")
    line = capsys.readouterr().out
    assert line == "  source 2: or 15° right, 12° down, front (50 %)\n"
    print_alternatives(ea.Sphere(), both[:1], 80.0)
    assert capsys.readouterr().out == ""


def test_unknown_direction_is_not_printed_as_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    """A posterior over most of the sphere is "direction unknown", without angles and radius."""
    centre = np.zeros((1, 2))
    for variance, unknown in ((1e6, True), (1.0, False)):
        posterior = ea.DirectionPosterior(
            ea.Sphere(), centre, np.ones(1), centre, variance * np.eye(2)[None]
        )
        localization = ea.Localization(posterior, 0.5, 1.0)
        print_localization("x.wav", localization)
        line = capsys.readouterr().out
        assert (line == "x.wav: direction unknown, 50 % of the bins observed\n") == unknown
        assert ("azimuth" in line) == ("90 % within" in line) == (not unknown)
        where = "direction unknown" if unknown else "(0.0, 0.0) degrees, radius_90 2.1"
        assert repr(localization) == f"Localization({where}, 50 % observed)"
        doubt = Doubt(DoubtKind.NOISY, "it is", 1.0)
        doubted = repr(replace(localization, doubts=(doubt,)))
        assert doubted == f"Localization({where}, 50 % observed, doubts: noisy)"


def test_warning_is_shown_once(run: Run, folder: Path, tmp_path: Path) -> None:
    """A recording that is read twice, for the track and the result, warns once."""
    audio = ea.read_audio(folder / "talker.wav")
    ea.Audio(np.clip(20 * audio.samples, -1, 1), audio.rate).write(tmp_path / "loud.wav")
    result = run("localize", folder / "head.atlas", tmp_path / "loud.wav",
                 "--track", tmp_path / "t.csv")  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert result.stderr.count("is clipped") == 1
    again = run("localize", folder / "head.atlas", tmp_path / "loud.wav")
    assert again.stderr.count("is clipped") == 1, "once per command"


def test_info_of_an_atlas(run: Run, folder: Path, atlas: ea.Atlas, tmp_path: Path) -> None:
    """An atlas is described in text and in JSON, whatever its name is."""
    facts = json.loads(run("info", folder / "head.atlas", "--json").stdout)
    assert (facts["head"], facts["space"]) == ("simulated", "sphere")
    assert facts["components"] == 48
    assert facts["directions"] == atlas.about["directions"]
    assert facts["held_out"] == vars(atlas.accuracy)
    assert facts["cues"]["n_cues"] == atlas.layout.n_cues
    assert facts["cues"]["rate"] == 16_000
    assert facts["version"] == 3
    assert facts["coverage"].startswith("azimuth all round, elevation -")
    assert facts["bytes"] == (folder / "head.atlas").stat().st_size
    (tmp_path / "head").write_bytes((folder / "head.atlas").read_bytes())
    text = run("info", tmp_path / "head").stdout
    assert atlas.accuracy is not None
    for words in ("simulated", "sphere", "48", "coverage", "licence", "730", "8000 Hz",
                  "format version 3",
                  f"median error {atlas.accuracy.median_degrees:.2f}°"):  # fmt: skip
        assert words in text
    refused(
        run("info", folder / "head.atlas", "--plot", tmp_path / "x.png"), "--plot must be used with"
    )
    (tmp_path / "text.atlas").write_text("no atlas")
    refused(run("info", tmp_path / "text.atlas"), "atlas must be a file that earatlas wrote")


@pytest.mark.parametrize(
    ("problem", "words"),
    [
        (ImportError("no module"), ["package sounddevice", "earatlas[live]"]),
        (OSError("PortAudio library not found"), ["library PortAudio", "libportaudio2", "--stdin"]),
    ],
)
def test_listen_without_sounddevice_or_portaudio(
    run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch, problem: Exception, words: list[str]
) -> None:
    """A missing package and a missing library have different remedies."""

    class Finder:
        def find_spec(self, name: str, *_: object) -> None:
            if name == "sounddevice":
                raise problem

    monkeypatch.delitem(sys.modules, "sounddevice", raising=False)
    monkeypatch.setattr(sys, "meta_path", [Finder(), *sys.meta_path])
    result = run("listen", folder / "head.atlas")
    refused(result, *words)
    assert ("earatlas[live]" in result.stderr) == isinstance(problem, ImportError)


def test_missing_extras_are_import_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    """Code that tests for optional packages can catch ImportError; the message has the remedy."""
    error = missing_extra("rooms", "pyroomacoustics")
    assert isinstance(error, MissingExtraError)
    assert isinstance(error, ea.InputError)
    assert error.name == "pyroomacoustics"
    restored = pickle.loads(pickle.dumps(error))
    assert (str(restored), restored.name) == (str(error), error.name)
    monkeypatch.setitem(sys.modules, "slab", None)
    with pytest.raises(ImportError, match=r"pip install 'earatlas\[kemar\]'"):
        ea.kemar()


def test_missing_extras_on_the_command_line(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing extra gives one sentence and exit code 2."""
    monkeypatch.setitem(sys.modules, "slab", None)
    refused(run("info", "kemar"), "package slab", "pip install 'earatlas[kemar]'")


def test_localize_plots_and_tracks(run: Run, folder: Path, tmp_path: Path) -> None:
    """--plot writes a picture; --track writes the same windows as CSV or JSON."""
    for ending in ("csv", "json"):
        result = run(
            "localize", folder / "head.atlas", folder / "talker.wav",
            "--plot", tmp_path / "p.png", "--track", tmp_path / f"t.{ending}",
        )  # fmt: skip
        assert result.returncode == 0, result.stderr
        line = f"t.{ending} (one row every 0.096 s, from windows of 0.48 s)"
        assert line in result.stdout, "whole frames of 8 ms"
    assert (tmp_path / "p.png").stat().st_size > 10_000
    rows = list(csv.DictReader((tmp_path / "t.csv").read_text().splitlines()))
    objects = json.loads((tmp_path / "t.json").read_text())
    assert len(rows) == len(objects) > 10
    assert float(rows[1]["time"]) - float(rows[0]["time"]) == pytest.approx(0.096, abs=1e-6)
    observed = [row for row in rows if row["azimuth"]]
    assert np.median([float(row["azimuth"]) for row in observed]) == pytest.approx(63, abs=15)


def test_listen_to_standard_input(run: Run, folder: Path) -> None:
    """Raw samples on standard input give results at regular intervals."""
    with (folder / "talker.raw").open("rb") as raw:
        result = run("listen", folder / "head.atlas", "--stdin", "--rate", 16000, "--json",
                     stdin=raw)  # fmt: skip
    answers = [json.loads(line) for line in result.stdout.splitlines()]
    assert [a["time"] for a in answers[:3]] == [0.5, 1.0, 1.5]
    assert great_circle_error(answers[-1]["direction"], DIRECTION) < 25


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["learn", "simulated", "-o", "no/x.atlas"], ["folder that exists"]),
        (["learn", "simulated", "-o", "."], ["folder that exists"]),
        (["learn", "simulated", "-o", "x.atlas", "--components", "99999"], ["between 1 and"]),
        (["learn", "nothing.sofa", "-o", "x.atlas"], ["existing"]),
        (["localize", "gone.atlas", "talker.wav"], ["Check the name"]),
        (["localize", "talker.wav", "head.atlas"], ["first argument", "atlas comes first"]),
        (["localize", "head.atlas"], ["recordings must be named after the atlas", "head.atlas"]),
        (["localize", "head.sofa", "talker.wav"], ["Learn it first", "-o head.atlas"]),
        (["localize", "head.atlas", "gone.wav"], ["existing"]),
        (["localize", "head.atlas", "head.atlas"], ["cannot be read as sound"]),
        (["localize", "head.atlas", "talker.wav", "--track", "x.txt"], [".csv or .json"]),
        (
            ["localize", "head.atlas", "talker.wav", "--track", "x.csv", "--hop", "2"],
            ["--hop must be", "at most --window, got 2.0 and 0.5"],
        ),
        (
            ["localize", "head.atlas", "talker.wav", "--track", "x.csv", "--window", "-1"],
            ["--window must be at least a frame", "got -1.0"],
        ),
        (
            ["separate", "head.atlas", "talker.wav", "-o", "out", "--sources", "9"],
            ["--sources must be from 1 to 6", "got 9", "hardly separate more"],
        ),
        (
            ["separate", "head.atlas", "talker.wav", "-o", "out", "--sources", "0"],
            ["--sources must be from 1 to 6, got 0. Leave it out"],
        ),
        (["localize", "head.atlas", "talker.wav", "talker.wav", "--plot", "x.png"], ["once"]),
        (["localize", "head.atlas", "talker.wav", "--channels", "0", "7"], ["between 0 and 1"]),
        (["localize", "head.atlas", "quiet.wav"], ["too quiet", "(in Python: threshold=)."]),
        (["listen", "head.atlas", "--stdin", "--every", "0"], ["every must be between"]),
        (["listen", "head.atlas", "--stdin"], ["got nothing"]),
        (
            ["listen", "head.atlas", "--from", "short.wav", "--fast"],
            ["'short.wav' is too short to be analysed: 0.2 s. Use at least 0.5 s."],
        ),
        (
            ["listen", "head.atlas", "--from", "quiet.wav", "--fast"],
            ["'quiet.wav' is too quiet", "higher level"],
        ),
        (["listen", "head.atlas", "--stdin", "--memory", "0.001"], ["at least one window"]),
        (["localize", "head.atlas", "talker.wav", "--plot", "x.gif"], [".png"]),
        (["localize", "head.atlas", "talker.wav", "--track", "x.csv", "--hop", "0"], ["a frame"]),
    ],
)
def test_bad_input(run: Run, folder: Path, arguments: list[str], words: list[str]) -> None:
    """Bad input gives one sentence and exit code 2, and nothing is written."""
    before = sorted(folder.iterdir())
    refused(run(*arguments, cwd=folder, stdin=subprocess.DEVNULL), *words)
    assert sorted(folder.iterdir()) == before


@pytest.mark.usefixtures("fast_learning")
def test_learn_for_rooms(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By default an atlas is ready for reverberant rooms; with --no-rooms it is not."""
    monkeypatch.setattr(
        "earatlas.training.reverberant.TRAINING_SETTINGS", ReverberantTrainingSettings(scenes=40)
    )
    ring = ea.simulated_head([[float(a), 0.0] for a in range(-180, 180, 12)])
    write_responses(tmp_path / "ring.csv", ring)
    for options, ready in ((("--no-rooms",), False), ((), True)):
        result = run("learn", tmp_path / "ring.csv", "-o", tmp_path / "r.atlas", "--json", *options)
        assert result.returncode == 0, result.stderr
        assert json.loads(result.stdout)["rooms"] is ready
        facts = json.loads(run("info", tmp_path / "r.atlas", "--json").stdout)
        assert facts["rooms"] is ready
        assert (ea.Atlas.load(tmp_path / "r.atlas").reverberant_localizer is not None) is ready
    assert "ready for reverberant rooms" in run("info", tmp_path / "r.atlas").stdout
