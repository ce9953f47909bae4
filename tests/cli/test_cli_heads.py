"""Heads on the command line: mirrored heads, coverage, and demos without speech synthesis."""

import json
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from head_files import write_sofa
from tests_support import refused

import earatlas as ea
from earatlas.cli import demo
from earatlas.hrtf.diagnosis import format_coverage
from earatlas.hrtf.head import WrongWay
from earatlas.simulation.speech import demo_talkers, synthetic_demo_talkers

Run = Callable[..., subprocess.CompletedProcess[str]]


def flip_azimuths(head: ea.Head) -> ea.Head:
    """Return the head with clockwise azimuths."""
    return ea.Head(head.name, head.directions * (-1.0, 1.0), head.ears)


def test_mirrored_sofa_file(tmp_path: Path, small_head: ea.Head) -> None:
    """The ears are swapped with a warning, or wrong_way names what to correct."""
    path = write_sofa(tmp_path / "x.sofa", flip_azimuths(small_head))
    with pytest.warns(ea.EaratlasWarning, match="azimuths are the wrong way round"):
        by_default = ea.read_sofa(path)
    ears, azimuths = (ea.read_sofa(path, wrong_way=wrong) for wrong in get_args(WrongWay))
    np.testing.assert_array_equal(ears.responses().samples, by_default.responses().samples)
    np.testing.assert_allclose(ears.directions, by_default.directions)
    x = azimuths.directions
    found = small_head.space.nearest(small_head.directions, x)
    np.testing.assert_allclose(
        small_head.space.distance(small_head.directions[found], x), 0, atol=1e-4
    )
    np.testing.assert_array_equal(
        azimuths.responses().samples, small_head.responses().samples[found]
    )
    right = write_sofa(tmp_path / "right.sofa", small_head)
    for wrong in get_args(WrongWay):  # a correct file is not changed
        same = ea.open_head(right, wrong_way=wrong)
        np.testing.assert_array_equal(same.responses().samples, small_head.responses().samples)
        np.testing.assert_allclose(same.directions, small_head.directions, atol=1e-9)
    with pytest.raises(ea.InputError, match=r"wrong_way must be one of ears, azimuths, got 'eyes'"):
        ea.read_sofa(right, wrong_way="eyes")  # type: ignore[arg-type]


@pytest.mark.parametrize("noise", [True, False])
def test_mirrored_table(run: Run, tmp_path: Path, rng: np.random.Generator, noise: bool) -> None:
    """A mirrored table is refused; wrong_way and swapped channels correct it."""
    head = ea.simulated_head([[float(a), e] for a in range(-170, 180, 20) for e in (0.0, 30.0)])
    lines = {sign: ["file,azimuth,elevation"] for sign in (-1, 1)}
    for n, (azimuth, elevation) in enumerate(head.directions):
        signal = head.responses().samples[n]
        if noise:
            signal = np.stack([np.convolve(rng.normal(size=24_000), ear) for ear in signal])
        ea.Audio(0.01 * signal, 48000).write(tmp_path / f"{n}.wav")
        for sign, rows in lines.items():
            rows.append(f"{n}.wav,{sign * azimuth},{elevation}")
    wrong, right = tmp_path / "wrong.csv", tmp_path / "right.csv"
    wrong.write_text("\n".join(lines[-1]))
    right.write_text("\n".join(lines[1]))
    refused(run("info", wrong), "azimuths or the channels", "wrong way round")
    good = ea.read_recordings(right)
    azimuths = ea.read_recordings(wrong, wrong_way="azimuths")
    np.testing.assert_allclose(azimuths.directions, good.directions)
    np.testing.assert_array_equal(azimuths.cues(), good.cues())
    ears = ea.read_recordings(wrong, wrong_way="ears")
    other = ea.read_recordings(wrong, channels=(1, 0))
    np.testing.assert_allclose(ears.directions, other.directions)
    np.testing.assert_allclose(ears.cues(), other.cues(), atol=1e-9)
    for wrong_way in ("azimuths", "ears"):
        answer = run("info", wrong, "--wrong-way", wrong_way, "--json")
        assert json.loads(answer.stdout)["directions"] == len(head)


def test_published_hats_file(run: Run, data: Path, tmp_path: Path) -> None:
    """With corrected azimuths, the file equals the head that was corrected by hand."""
    path = data / "heads" / "hats_as_published.sofa"
    with pytest.warns(ea.EaratlasWarning, match="SOFA verification") as caught:
        head = ea.read_sofa(path, wrong_way="azimuths")
    assert len(caught) == 1, "only that the description of the room is missing"
    with pytest.warns(ea.EaratlasWarning, match="SOFA verification"):
        known = ea.read_sofa(data / "heads" / "hats.sofa")
    a, b = (np.argsort(h.directions[:, 0]) for h in (head, known))
    np.testing.assert_allclose(head.directions[a], known.directions[b], atol=1e-6)
    np.testing.assert_allclose(head.cues()[a], known.cues()[b], atol=1e-9)
    for call in (["info", path], ["learn", path, "-o", tmp_path / "x.atlas", "--no-rooms"]):
        assert "wrong way round" in run(*call).stderr
        assert "wrong way round" not in run(*call, "--wrong-way", "azimuths").stderr
    sound = tmp_path / "s.wav"
    ea.Audio(ea.synthetic_speech(1.0)[None], 16_000).write(sound)
    levels = []
    for wrong_way in ("azimuths", "ears"):
        call = ["simulate", path, "-o", tmp_path / wrong_way, "--sound", f"{sound}:60:0", "--json"]
        image = json.loads(run(*call, "--wrong-way", wrong_way).stdout)["sources"][0]["file"]
        left, right = ea.read_audio(tmp_path / wrong_way / image).samples
        levels.append(10 * np.log10((left**2).sum() / (right**2).sum()))
    assert min(levels) > 3, "the left ear is louder for sounds from the left"
    assert abs(levels[0] - levels[1]) > 0.3, "the ears differ"


def test_learning_a_mirrored_head_warns(run: Run, tmp_path: Path) -> None:
    """The warnings are those of `info`, on standard error and in JSON."""
    x = ea.Sphere().grid(30.0)
    ears = ea.simulated_head(np.vstack([x, x * (-1, 1)])).responses()
    n = len(x)
    # The right ear is the mirrored left one.
    samples = np.stack([ears.samples[:n, 0], ears.samples[n:, 0]], axis=1)
    head = ea.Head("mirrored", x, type(ears)(samples, ears.rate))
    path = write_sofa(tmp_path / "mirrored.sofa", head)
    messages = json.loads(run("info", path, "--json").stdout)["warnings"]
    assert any("median plane" in text for text in messages)
    result = run("learn", path, "-o", tmp_path / "x.atlas", "--json")
    assert json.loads(result.stdout)["warnings"] == messages
    for text in messages:
        assert result.stderr.count(f"warning: {text}\n") == 1


def test_kemar_warns_once_per_problem(run: Run) -> None:
    """The result reports the mirrored ears, and no further warning is printed."""
    if find_spec("slab") is None:
        pytest.skip("slab is an extra")
    with pytest.warns(ea.EaratlasWarning, match="one ear mirrored"):
        ea.kemar()
    result = run("info", "kemar")
    assert result.stderr == ""
    assert result.stdout.count("warning:") == 2


@pytest.mark.parametrize(
    ("azimuths", "words"),
    [
        (range(-180, 180, 5), "azimuth all round"),
        (range(-180, 180, 30), "azimuth all round"),
        (range(-90, 91, 5), "azimuth 90° … -90°"),
        (range(-150, 151, 5), "azimuth 150° … -150°"),
    ],
)
def test_coverage_in_words(run: Run, tmp_path: Path, azimuths: range, words: str) -> None:
    """A full circle is not described as 180 to -175 degrees."""
    head = ea.simulated_head([[float(a), 0.0] for a in azimuths])
    text = run("info", write_sofa(tmp_path / "x.sofa", head)).stdout
    assert words in " ".join(text.split())
    assert "elevation 0°," in " ".join(text.split())


def test_coverage_of_the_back() -> None:
    """The range goes from left to right across the back."""
    behind = np.array(
        [[a, e] for a in (120.0, 150.0, 180.0, -150.0, -120.0) for e in (-20.0, 40.0)]
    )
    words = format_coverage(ea.Sphere(), behind, 30.0)
    assert words.startswith("azimuth -120° … -240°, elevation -20° … 40°, largest gap ")


def test_coverage_of_the_right_side() -> None:
    """The right half is 0° … -180°, because 0° … 180° would be the left half."""
    right = np.array([[a, 0.0] for a in (*range(-170, 1, 10), 180)], dtype=float)
    assert format_coverage(ea.Circle(), right, 10.0).startswith("azimuth 0° … -180°")


def test_simulate_without_speech_synthesis(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`simulate` uses synthetic speech and prints a note; the rest is the same."""
    monkeypatch.setitem(sys.modules, "espeakng_loader", None)
    result = run("simulate", "simulated", "-o", tmp_path, "--talkers", 3, "--json")
    assert result.returncode == 0, result.stderr
    assert result.stderr.count("\n") == 1
    assert "synthetic speech" in result.stderr
    assert "earatlas[speech]" in result.stderr
    names = [source["name"] for source in json.loads(result.stdout)["sources"]]
    assert names == ["Ada", "Hugh", "Robin"]
    sounds = [sound for _, sound in synthetic_demo_talkers(3)]
    assert len({sound.tobytes() for sound in sounds}) == 3
    with pytest.raises(ea.InputError, match="speech"):
        demo_talkers(1)


@pytest.mark.usefixtures("cached_learning")
def test_demo_without_extras(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two talkers with synthetic speech are separated without optional packages."""
    for extra in ("espeakng_loader", "pyroomacoustics", "sklearn", "slab", "sounddevice"):
        monkeypatch.setitem(sys.modules, extra, None)
    separate = demo._separate
    results: list[Any] = []

    def separate_once(*arguments: Any) -> Any:
        """Separate in the first run; the second one, whose messages are tested, reuses it."""
        results[:] = results or [separate(*arguments)]
        return results[0]

    monkeypatch.setattr(demo, "_separate", separate_once)
    result = run("demo", "-o", tmp_path / "demo", "--json")
    assert result.returncode == 0, result.stderr
    assert "synthetic speech" in result.stderr
    answer = json.loads(result.stdout)
    assert answer["n_sources"] == 2
    for row in answer["truth"]:
        assert 0 < row["error"] < 10
        assert 7 < row["sdr_db"] < 40
    again = run("demo", "-o", tmp_path / "demo", "--json")
    assert again.returncode == 0
    assert str(tmp_path / "demo" / "mixture.wav") in again.stderr.split("replaced: ")[1]
