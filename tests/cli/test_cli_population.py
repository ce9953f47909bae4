"""Populations on the command line: learn --population, adapt and fit."""

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from subprocess import CompletedProcess

import numpy as np
import pytest
from command_line import in_process
from head_files import write_sofa
from tests_support import refused

import earatlas as ea
from earatlas.cli.adapt import _REMEDIES, _ROOM_REMEDY, _remedy
from earatlas.hrtf.head import ImpulseResponses
from earatlas.hrtf.simulated import (
    LEFT_EAR,
    RIGHT_EAR,
    SimulatedHeadSettings,
    simulated_responses,
)
from earatlas.packaged_atlases import EXAMPLE_ATLAS
from earatlas.population.adaptation_report import Adaptation, AdaptationVerdict
from earatlas.population.learning import PopulationSettings
from earatlas.population.population import Listener

Run = Callable[..., CompletedProcess[str]]

RADII = [0.076, 0.082, 0.088, 0.094, 0.1]
PLACES = [[10, 0], [60, 20], [-45, -10], [80, 30], [-20, 10], [-80, 40], [30, 40], [-60, 0]]


def head_of(radius: float, directions: object) -> ea.Head:
    """Return a simulated head of this radius, whose ears move with its size."""
    shift = 400 * (radius - 0.0875)
    ears = (
        replace(LEFT_EAR, azimuth_degrees=LEFT_EAR.azimuth_degrees + shift),
        replace(RIGHT_EAR, azimuth_degrees=RIGHT_EAR.azimuth_degrees - shift),
    )
    x = np.asarray(directions, dtype=np.float64)
    samples = simulated_responses(x, ears=ears, settings=SimulatedHeadSettings(radius_m=radius))
    return ea.Head(f"r{1000 * radius:g}", x, ImpulseResponses(samples, 48_000.0), "MIT", "made")


@dataclass(frozen=True)
class Files:
    """Files of the tests: heads, the population, and recordings of a head that is not in it."""

    folder: Path
    atlas: Path
    learned: CompletedProcess[str]

    @property
    def day(self) -> Path:
        """Folder of recordings from several directions."""
        return self.folder / "day"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    """Learn a population of five heads on the command line."""
    folder = tmp_path_factory.mktemp("population")
    (folder / "heads").mkdir()
    (folder / "day").mkdir()
    grid = ea.Sphere().grid(5.0)
    # A part of the sphere, which takes less time.
    grid = grid[(np.abs(grid[:, 0]) < 100) & (np.abs(grid[:, 1] - 15) < 35)]
    for radius in RADII:
        head = head_of(radius, grid)
        write_sofa(folder / "heads" / f"{head.name}.sofa", head)
    for number, place in enumerate(PLACES):
        speech = ea.synthetic_speech(2.0, seed=number)
        scene = ea.render_scene(head_of(0.0985, [place]), [speech], [place])
        scene.mixture.write(folder / "day" / f"{number}.wav")
    atlas = folder / "population.atlas"
    command = ["learn", "--population", folder / "heads", "-o", atlas, "--no-rooms", "--json"]
    with pytest.MonkeyPatch.context() as patch:  # the calibration takes most of the time
        few = partial(PopulationSettings, folds=2, sounds_per_head=8)
        patch.setattr("earatlas.population.learning.PopulationSettings", few)
        learned = in_process(*command)
    assert learned.returncode == 0, learned.stderr
    return Files(folder, atlas, learned)


def test_learn_population(files: Files, run: Run) -> None:
    """One atlas is learned from all heads; the answer and info list its members."""
    answer = json.loads(files.learned.stdout)
    assert answer["atlas"] == str(files.atlas)
    assert answer["members"] == ["r100", "r76", "r82", "r88", "r94"]
    assert answer["omitted_heads"] == {}
    assert answer["held_out"]["median_degrees"] < 20
    facts = json.loads(run("info", files.atlas, "--json").stdout)
    assert facts["members"] == answer["members"]
    assert facts["adapted"] is False


def test_adapt(files: Files, run: Run, tmp_path: Path) -> None:
    """The adapted atlas is written with its listener, and says what was gained."""
    out = tmp_path / "me.atlas"
    answer = json.loads(run("adapt", files.atlas, files.day, "-o", out, "--json").stdout)
    assert answer["verdict"] == "adapted"
    assert answer["segments"] == answer["files"] == len(PLACES)
    assert answer["gain_nats"] > 0
    assert answer["fit_after"] < answer["fit_before"]
    facts = json.loads(run("info", out, "--json").stdout)
    assert facts["adapted"] is True
    assert facts["held_out"] is None
    assert facts["adaptation"]["segments"] == len(PLACES)
    described = run("info", out).stdout
    assert "not measured after the adaptation" in described
    assert "too few" not in described
    assert f"({len(PLACES)} segments" in described
    text = run("adapt", files.atlas, files.day, "-o", out).stdout
    assert f"adapted: {len(PLACES)} usable segments of {len(PLACES)} recordings" in text


def test_adapt_with_labels(files: Files, run: Run, tmp_path: Path) -> None:
    """A table of directions changes the listener; rows of other files are refused."""
    table = files.day / "known.csv"
    rows = [f"{n}.wav,{azimuth},{elevation}" for n, (azimuth, elevation) in enumerate(PLACES)]
    table.write_text("\n".join(["file,azimuth,elevation", *rows[:5]]))
    out = tmp_path / "me.atlas"
    result = run("adapt", files.atlas, files.day, "-o", out, "--labels", table)
    assert result.returncode == 0, result.stderr
    unlabelled = tmp_path / "u.atlas"
    run("adapt", files.atlas, files.day, "-o", unlabelled)
    assert ea.Atlas.load(out).digest != ea.Atlas.load(unlabelled).digest
    mirrored = [f"{n}.wav,{-azimuth},{elevation}" for n, (azimuth, elevation) in enumerate(PLACES)]
    table.write_text("\n".join(["file,azimuth,elevation", *mirrored]))
    failed = run("adapt", files.atlas, files.day, "-o", tmp_path / "x.atlas", "--labels", table)
    refused(failed, "left and right exchanged")
    table.write_text("file,azimuth,elevation\ngone.wav,0,0\n")
    failed = run("adapt", files.atlas, files.day, "-o", tmp_path / "x.atlas", "--labels", table)
    refused(failed, "labels must name recordings", "gone.wav", "line 2")
    table.write_text("file,azimuth,elevation\n0.wav,left,0\n")
    failed = run("adapt", files.atlas, files.day, "-o", tmp_path / "x.atlas", "--labels", table)
    refused(failed, "labels must have numbers")
    assert not (tmp_path / "x.atlas").exists()


def test_adapt_refuses(files: Files, run: Run, tmp_path: Path) -> None:
    """Silence, noise, one direction, few recordings and single heads: one sentence, no file."""
    out = tmp_path / "x.atlas"
    for name in ("few", "same", "silent", "noise"):
        (tmp_path / name).mkdir()
    shutil.copy(files.day / "0.wav", tmp_path / "few" / "0.wav")
    rng = np.random.default_rng(0)
    for number in range(6):
        scene = ea.render_scene(
            head_of(0.0985, PLACES[:1]), [ea.synthetic_speech(2.0, seed=20 + number)], PLACES[:1]
        )
        scene.mixture.write(tmp_path / "same" / f"{number}.wav")
        ea.Audio(np.zeros((2, 32_000)), 16_000).write(tmp_path / "silent" / f"{number}.wav")
        noise = ea.Audio(0.1 * rng.normal(size=(2, 32_000)), 16_000)
        noise.write(tmp_path / "noise" / f"{number}.wav")
    refused(run("adapt", files.atlas, tmp_path / "few", "-o", out), "too few", "1 usable segment")
    refused(run("adapt", files.atlas, tmp_path / "same", "-o", out), "one direction")
    refused(run("adapt", files.atlas, tmp_path / "silent", "-o", out), "is silent")
    refused(run("adapt", files.atlas, tmp_path / "noise", "-o", out), "refusal")
    refused(run("adapt", EXAMPLE_ATLAS, files.day, "-o", out), "must be of many heads")
    refused(run("adapt", files.atlas, files.day, "-o", tmp_path / "x.wav"), "Name it x.atlas")
    assert not out.exists()


def test_every_refusal_has_a_remedy() -> None:
    """A refused adaptation ends with what to do, whatever the reason, as in the guide."""
    assert set(_REMEDIES) == set(AdaptationVerdict) - {AdaptationVerdict.ADAPTED}
    guide = Path(__file__).parents[2] / "docs" / "guide" / "unmeasured-head.md"
    lines = guide.read_text(encoding="utf-8").replace("`", "").splitlines()
    in_guide = dict(line[2:-2].split(" | ") for line in lines if line.count(" | ") == 1)
    given = {str(verdict): in_guide.get(str(verdict)) for verdict in _REMEDIES}
    assert given == {str(verdict): remedy for verdict, remedy in _REMEDIES.items()}
    assert f"*{_ROOM_REMEDY}*" in "\n".join(lines)


@pytest.mark.parametrize("verdict", _REMEDIES)
def test_remedy_in_rooms(verdict: AdaptationVerdict) -> None:
    """Half of the recordings must be reverberant, and the reason one that rooms can cause."""
    listener = Listener(np.zeros(2), np.eye(2))
    refusals = [Adaptation(verdict, listener, 16, 0.0, 0.5, 0.5, n) for n in (0, 7, 8, 16)]
    refusals.append(replace(refusals[0], recordings=0))
    named = [_ROOM_REMEDY in _remedy(one) for one in refusals]
    assert all(_remedy(one).endswith(_REMEDIES[verdict]) for one in refusals)
    independent = {"TOO_FEW", "ONE_DIRECTION", "MIRRORED_LABELS", "WRONG_LABELS"}
    assert named == [False, False, *[verdict.name not in independent] * 2, False]


def test_localize_adapts_to_all_recordings(files: Files, run: Run, tmp_path: Path) -> None:
    """All recordings adapt the atlas, which is saved beside the results; few leave it as it is."""
    out = tmp_path / "out"
    result = run("localize", files.atlas, files.day, "--adapt", "-o", out, "--json")
    assert result.returncode == 0, result.stderr
    assert f"adapted: {len(PLACES)} usable segments" in result.stderr
    answers = [json.loads(line) for line in result.stdout.splitlines()]
    assert {answer["adaptation"] for answer in answers} == {"adapted"}
    saved = ea.Atlas.load(out / "listener.atlas")
    for answer in answers:
        expected = saved.localize_file(answer["file"]).to_dict()["direction"]
        assert answer["direction"] == pytest.approx(expected, abs=0.02)
    few = run("localize", files.atlas, files.day / "0.wav", "--adapt", "--json")
    assert "not adapted: too few" in few.stderr
    answer = json.loads(few.stdout)
    assert answer["adaptation"] == "too_few"
    expected = ea.Atlas.load(files.atlas).localize_file(files.day / "0.wav").to_dict()
    assert answer["direction"] == expected["direction"]
    refused(run("localize", EXAMPLE_ATLAS, files.day, "--adapt"), "must be of many heads")
    separated = tmp_path / "sounds"
    separation = run("separate", files.atlas, files.day / "0.wav", "-n", 1, "--adapt", "--json",
                     "-o", separated)  # fmt: skip
    assert json.loads(separation.stdout)["adaptation"] == "too_few"
    assert not (separated / "listener.atlas").exists()


def test_fit(files: Files, run: Run, tmp_path: Path) -> None:
    """The atlas of the head that made the recording comes first; the last line concludes."""
    speech = ea.synthetic_speech(3.0, seed=9)
    scene = ea.render_scene(ea.simulated_head([[50, 10]]), [speech], [[50, 10]])
    talker = scene.mixture.write(tmp_path / "talker.wav")
    answer = json.loads(run("fit", talker, "people", EXAMPLE_ATLAS, "--json").stdout)
    assert [row["atlas"] for row in answer["atlases"]] == [str(EXAMPLE_ATLAS), "people"]
    assert answer["any_fits"] is answer["atlases"][0]["fits"]
    assert answer["atlases"][0]["fit"] < answer["atlases"][1]["fit"]
    lines = run("fit", talker, "people", EXAMPLE_ATLAS).stdout.splitlines()
    assert lines[1].startswith(str(EXAMPLE_ATLAS))
    assert lines[-1] == f"{EXAMPLE_ATLAS} fits best."
    noise = ea.Audio(0.1 * np.random.default_rng(1).normal(size=(2, 48_000)), 16_000)
    shown = run("fit", noise.write(tmp_path / "noise.wav"), EXAMPLE_ATLAS).stdout
    assert shown.splitlines()[-1].startswith("No atlas fits")


def test_fit_refuses(run: Run, tmp_path: Path) -> None:
    """Unreadable atlases and different layouts are one sentence."""
    talker = ea.Audio(np.random.default_rng(1).normal(size=(2, 16_000)), 16_000)
    file = talker.write(tmp_path / "talker.wav")
    refused(run("fit", file, "gone.atlas"), "gone.atlas")
    refused(run("fit", EXAMPLE_ATLAS, file), "The recording comes first, atlases after it.")
    layout = replace(ea.example_atlas().layout, ild_band_hz=(0.0, 4000.0))
    grid = ea.Sphere().grid(20.0)
    other = ea.learn(ea.simulated_head(grid), layout=layout, components=8, rooms=False)
    other.save(tmp_path / "other.atlas")
    refused(run("fit", file, EXAMPLE_ATLAS, tmp_path / "other.atlas"), "same layout of cues")


def test_population_refuses(run: Run, files: Files, tmp_path: Path) -> None:
    """One head is no population, and options of single heads are refused."""
    one = files.folder / "heads" / "r76.sofa"
    out = tmp_path / "x.atlas"
    refused(run("learn", "--population", one, "-o", out), "heads must be at least 3")
    refused(
        run("learn", "--population", one, "-o", out, "--components", 3),
        "--components must be used without --population",
    )
    assert not out.exists()
