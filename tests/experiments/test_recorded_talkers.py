"""Recorded talkers: mixtures that are sums of binaural recordings, and the converter of tables."""

import json
import runpy
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests_support import refused

import earatlas as ea
from earatlas.experiments import Bench
from earatlas.experiments.recorded_talkers import Mixing, mix_recordings, recorded_speech
from earatlas.experiments.talkers import describe_speech, render_talkers
from earatlas.hrtf.head import Head

Run = Callable[..., subprocess.CompletedProcess[str]]
CONVERTER = Path(__file__).parents[2] / "examples" / "tables_of_recordings.py"
RATE = 16_000


@pytest.fixture(scope="module")
def head() -> Head:
    """Return a coarse head on the paper's plane."""
    return ea.simulated_head(ea.Plane().grid(12.0))


@pytest.fixture(scope="module")
def recorded(head: Head, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Made-up recordings at motor states: a folder of noise, one of speech, and the states."""
    folder = tmp_path_factory.mktemp("robot")
    responses = head.responses().at_rate(RATE)
    rng = np.random.default_rng(0)
    noise = rng.normal(size=3000)
    voices = [ea.synthetic_speech(0.9, seed=m) for m in range(4)]
    lines = ["pan,tilt,speaker"]
    (folder / "noise").mkdir()
    (folder / "speech").mkdir()
    for n, (azimuth, elevation) in enumerate(head.directions):
        for kind, sound in (("noise", noise), ("speech", voices[n % 4])):
            signal = np.stack([np.convolve(sound, ear) for ear in responses[n]])
            # Without leading zeros, an order by name would be 0, 1, 10, 11, … 2.
            ea.Audio(0.05 * signal, RATE).write(folder / kind / f"state{n}.wav")
        lines.append(f"{-azimuth},{-elevation},voice{n % 4}")  # the head turns, not the source
    (folder / "states.csv").write_text("\n".join(lines))
    return folder


@pytest.fixture(scope="module")
def tables(recorded: Path) -> Path:
    """Return the folder with the two tables of the converter."""
    main = runpy.run_path(str(CONVERTER))["main"]
    main([str(recorded / "states.csv"), "--noise", str(recorded / "noise"),
          "--speech", str(recorded / "speech"), "-o", str(recorded)])  # fmt: skip
    return recorded


def test_tables_of_the_converter(tables: Path, head: Head) -> None:
    """Files are in the order of their numbers, and directions are opposite to the motor states."""
    speech = recorded_speech(tables / "speech.csv")
    assert [file.name for file in speech.files[9:12]] == [
        "state9.wav",
        "state10.wav",
        "state11.wav",
    ]
    np.testing.assert_allclose(speech.directions, head.directions)
    assert speech.speakers[:5] == ("voice0", "voice1", "voice2", "voice3", "voice0")
    found = ea.read_recordings(tables / "positions.csv")
    np.testing.assert_allclose(found.directions, head.directions)


def test_converter_refuses_unequal_numbers(recorded: Path, tmp_path: Path) -> None:
    """As many recordings as motor states are required."""
    short = tmp_path / "states.csv"
    short.write_text("pan,tilt\n0,0\n2,0\n")
    main = runpy.run_path(str(CONVERTER))["main"]
    with pytest.raises(SystemExit, match=r"2 motor states, got .* recordings"):
        main([str(short), "--noise", str(recorded / "noise"), "-o", str(tmp_path)])


def test_mixture_is_the_sum_of_recordings(tables: Path, head: Head) -> None:
    """Different speakers at allowed directions, at their recorded levels, 60 % together."""
    speech = recorded_speech(tables / "speech.csv")
    allowed = np.arange(0, len(head), 3)
    mixing = Mixing(2, 5, (0.9, 0.9), RATE)
    scene = mix_recordings(speech, head.directions, allowed, mixing)
    np.testing.assert_allclose(scene.mixture.samples, scene.images.sum(axis=0), atol=1e-12)
    assert scene.settings["overlap"] == pytest.approx(0.6, abs=0.02)
    indices = [int(name.removeprefix("state")) for name in scene.names]
    assert set(indices) <= set(allowed.tolist())
    assert len({speech.speakers[i] for i in indices}) == 2
    np.testing.assert_allclose(scene.directions, head.directions[indices])
    assert ea.great_circle_error(*scene.directions) >= 15
    for m, i in enumerate(indices):
        recording = ea.read_audio(speech.files[i]).samples
        assert (scene.images[m] ** 2).sum() == pytest.approx((recording**2).sum(), rel=0.2)
    again = mix_recordings(speech, head.directions, allowed, mixing)
    np.testing.assert_array_equal(again.mixture.samples, scene.mixture.samples)
    other = mix_recordings(speech, head.directions, allowed, replace(mixing, seed=6))
    assert other.names != scene.names


def test_impossible_mixtures_are_refused(tables: Path, head: Head) -> None:
    """Too few speakers at allowed directions give an InputError, as do missing files."""
    speech = recorded_speech(tables / "speech.csv")
    with pytest.raises(ea.InputError, match=r"2 different speakers.*got 1 recordings"):
        mix_recordings(speech, head.directions, np.array([4]), Mixing(2, 0, (0.5, 0.9), RATE))
    same = np.arange(0, len(head), 4)  # all of one speaker
    with pytest.raises(ea.InputError, match="different speakers"):
        mix_recordings(speech, head.directions, same, Mixing(2, 0, (0.5, 0.9), RATE))
    broken = tables / "broken.csv"
    broken.write_text("file,azimuth,elevation,speaker\nnone.wav,0,0,a\n")
    with pytest.raises(ea.InputError, match=r"1 of 1 missing .*none\.wav"):
        recorded_speech(broken)
    broken.unlink()


def test_recordings_replace_rendered_talkers(tables: Path) -> None:
    """With a table as speech, a head of noise recordings is enough for Table 2."""
    bench = Bench(str(tables), tables / "speech.csv", quick=True)
    _, test = bench.training_set("T2")
    scene = render_talkers(bench, test, 1, 3, seconds=(0.5, 0.9))
    assert scene.images.shape[0] == 1
    description = describe_speech(tables / "speech.csv")
    assert description["speech"] == "speech.csv"
    assert len(description["files"]) == 8


def test_table_2_of_recordings(tables: Path, run: Run, tmp_path: Path) -> None:
    """`reproduce table2` runs on the two tables alone, and localizes the recorded talkers."""
    result = run("reproduce", "table2", "--quick", "--head", tables, "--speech",
                 tables / "speech.csv", "-o", tmp_path)  # fmt: skip
    assert result.returncode == 0, result.stderr
    rows = [
        json.loads(line)
        for line in (tmp_path / "results" / "rows" / "table2.jsonl").read_text().splitlines()
    ]
    found = [r["result"]["errors"] for r in rows if r.get("settings", {}).get("part") == "paper"]
    errors = [methods["PPAM(T1)"]["azimuth"]["mean"] for methods in found]
    assert 0.01 < np.median(errors) < 15
    assert "recordings of the table `speech.csv`" in (tmp_path / "results.md").read_text()
    refused(run("reproduce", "table2", "--speech", tables / "states.csv", "-o", tmp_path),
            "speech must have the columns file, azimuth, elevation, speaker")  # fmt: skip
