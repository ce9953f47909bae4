"""A head without the room that it was measured in: the direct sound of its responses."""

import json
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests_support import refused

import earatlas as ea
from earatlas.hrtf.head import ImpulseResponses, MeasuredCues
from earatlas.hrtf.truncation import direct_responses, onsets
from earatlas.simulation.random_reverberation import OwnRoom
from earatlas.types import Array

Run = Callable[..., subprocess.CompletedProcess[str]]
RATE = 48_000


@pytest.fixture(scope="module")
def ring() -> ea.Head:
    """The simulated head, 30 directions on the horizontal circle."""
    return ea.simulated_head([[float(a), 0.0] for a in range(-180, 180, 12)])


@pytest.fixture(scope="module")
def in_room(ring: ea.Head) -> ea.Head:
    """The same in a room whose reflections come after 4 ms, each response later than the last."""
    rng, heard = np.random.default_rng(3), ring.responses().samples
    room, even = OwnRoom(0.4, 80.0, 1.5, 6.0), np.full(len(ring), 1 / len(ring))
    rows = []
    for n in range(len(ring)):
        response = room.response(heard, n, RATE, even, rng)
        echoes = response.copy()
        echoes[:, : heard.shape[-1]] -= heard[n]
        late = np.pad(echoes, ((0, 0), (round(0.004 * RATE), 0)))
        late[:, : heard.shape[-1]] += heard[n]
        rows.append(np.pad(late, ((0, 0), (100 + 7 * n, 7 * (len(ring) - n)))))
    samples = np.stack(rows)
    samples += 1e-4 * samples.std() * rng.normal(size=samples.shape)
    return replace(ring, name="lab", ears=ImpulseResponses(samples, RATE))


def test_the_direct_sound_is_the_head(ring: ea.Head, in_room: ea.Head) -> None:
    """Level and phase of the head in the open come back; with the room they are far off."""
    assert in_room.rings()
    assert not ring.rings()
    direct = in_room.direct()
    assert not direct.rings()
    levels = ring.ears.cues(ea.CueLayout(ipd_band_hz=None))
    layout = ea.CueLayout(ipd_band_hz=None)
    off = np.abs(direct.cues(layout) - levels)
    assert np.median(off) < 0.2
    assert np.median(np.abs(in_room.cues(layout) - levels)) > 10 * np.median(off)
    phases = ea.CueLayout(ild_band_hz=None)
    assert np.abs(direct.cues(phases) - ring.cues(phases)).mean() < 0.03
    assert "direct sound: 3 ms" in direct.provenance


def test_delay_and_level_between_the_ears_stay() -> None:
    """Two clicks, one a ninth of the other and 20 samples later: so they come out."""
    h = np.zeros((3, 2, 4000))
    for n, start in enumerate((0, 57, 900)):
        h[n, n % 2, start], h[n, 1 - n % 2, start + 20] = 0.9, -0.1
        h[n, :, start + 400] = 0.5  # a wall, 8 ms later
    kept = direct_responses(h, RATE, 0.003)
    assert kept.shape == (3, 2, 24 + 144)
    for n in range(3):
        near, far = kept[n, n % 2], kept[n, 1 - n % 2]
        i, j = np.flatnonzero(near), np.flatnonzero(far)
        assert (len(i), len(j), j[0] - i[0]) == (1, 1, 20)
        assert near[i[0]] == pytest.approx(0.9, rel=1e-12)
        assert far[j[0]] == pytest.approx(-0.1, rel=1e-12)


@pytest.mark.parametrize("snr_db", [60.0, 30.0, 22.0])
def test_onsets_in_noise(rng: np.random.Generator, snr_db: float) -> None:
    """Noise before the sound, and a reflection that is louder than it, move no onset."""
    h = np.zeros((40, 2, 6000))
    places = rng.integers(0, 3000, 40)
    for n, place in enumerate(places):
        h[n, 0, place], h[n, 1, place + 30] = 1.0, 0.2
        h[n, 1, place + 300] = 1.2
    h += 10 ** (-snr_db / 20) * 12**-0.5 * rng.normal(size=h.shape)  # re the peak of 0.25 ms
    # Averaged over 12 samples, a click begins up to 6 samples before itself.
    assert np.abs(onsets(h, RATE) - places + 6).max() <= 6


def test_what_has_no_direct_sound(ring: ea.Head, in_room: ea.Head) -> None:
    """Noise, windows that fit no head or no response, and heads that are known by noise."""
    noise = np.random.default_rng(0).normal(size=(30, 2, 9000))
    noise[:2] = in_room.responses().samples[:2, :, :9000]
    hissing = replace(ring, ears=ImpulseResponses(noise, RATE))
    with pytest.raises(ea.InputError, match=r"clear onset .* none in 28 of 30, first response 2"):
        hissing.direct()
    silent = replace(ring, ears=ImpulseResponses(0 * noise, RATE))
    with pytest.raises(ea.InputError, match="clear onset"):
        silent.direct()
    for window in (0.0009, 0.0, -1.0, float("nan")):
        with pytest.raises(ea.InputError, match="at least 1 ms"):
            in_room.direct(window)
    with pytest.raises(ea.InputError, match="no longer than the responses"):
        ring.direct(1.0)
    layout = ea.CueLayout()
    recorded = replace(ring, ears=MeasuredCues(ring.cues(layout), layout))
    with pytest.raises(ea.InputError, match="impulse responses to keep their direct sound"):
        recorded.direct()


def write_table(folder: Path, head: ea.Head, samples: Array) -> Path:
    """A table of recordings, one a direction."""
    lines = ["file,azimuth,elevation"]
    for n, (azimuth, elevation) in enumerate(head.directions):
        ea.Audio(samples[n] / np.abs(samples).max(), RATE).write(folder / f"{n}.wav")
        lines.append(f"{n}.wav,{azimuth},{elevation}")
    table = folder / "lab.csv"
    table.write_text("\n".join(lines))
    return table


@pytest.mark.usefixtures("learned_quickly")
def test_learn_direct_on_the_command_line(run: Run, tmp_path: Path, in_room: ea.Head) -> None:
    """A room's responses are told and their direct sound is learned; the options say otherwise."""
    table, atlas = write_table(tmp_path, in_room, in_room.responses().samples), tmp_path / "x.atlas"
    result = run("learn", table, "-o", atlas, "--json")
    assert "holds a room's responses: the first 3 ms" in result.stderr
    automatic = json.loads(result.stdout)
    assert automatic["direct_ms"] == 3
    assert "direct sound: 3 ms" in run("info", atlas).stdout
    wished = run("learn", table, "-o", atlas, "--direct-ms", 2.5, "--json")
    assert "note" not in wished.stderr
    assert json.loads(wished.stdout)["direct_ms"] == 2.5
    assert "direct sound: 2.5 ms" in ea.Atlas.load(atlas).about["provenance"]
    result = run("learn", table, "-o", atlas, "--in-room", "--json")
    assert "note" not in result.stderr
    with_room = json.loads(result.stdout)
    assert with_room["direct_ms"] is None
    assert "direct sound" not in run("info", atlas).stdout
    errors = [a["held_out"]["mean_azimuth_degrees"] for a in (automatic, with_room)]
    assert errors[0] < errors[1]


def test_bad_wishes_on_the_command_line(run: Run, tmp_path: Path, in_room: ea.Head) -> None:
    """One sentence, exit code 2."""
    table = write_table(tmp_path, in_room, in_room.responses().samples)
    learn = ("learn", table, "-o", tmp_path / "x.atlas")
    refused(run(*learn, "--direct", "--in-room"), "--in-room must go without")
    refused(run(*learn, "--direct-ms", 3, "--in-room"), "got --direct-ms too")
    refused(run(*learn, "--direct-ms", 0.5), "at least 1 ms")
    refused(run(*learn, "--direct-ms", 5000), "no longer than the responses")
    noise = 0.1 * np.random.default_rng(0).normal(size=(len(in_room), 2, 24_000))
    write_table(tmp_path, in_room, noise)
    refused(run(*learn, "--kind", "responses", "--wrong-way", "ears"), "clear onset")
    refused(run(*learn, "--kind", "noise", "--direct", "--wrong-way", "ears"), "impulse responses")


@pytest.mark.parametrize("name", ["room_a", "room_d"])
def test_measured_rooms_without_the_room(data: Path, name: str) -> None:
    """High up, where a room bends levels most, most of what it does is gone."""
    with pytest.warns(ea.EaratlasWarning, match="SOFA verification"):
        opened = ea.read_sofa(data / "heads" / "hats.sofa")
    room = ea.read_recordings(data / "rooms" / name / "positions.csv", kind="responses")
    layout = ea.CueLayout(ild_band_hz=(4000.0, 8000.0), ipd_band_hz=None)
    a, b, c = (
        head.subset(np.argsort(head.directions[:, 0])[::3]).cues(layout)
        for head in (opened, room.direct(), room)
    )
    assert np.median(np.abs(b - a)) < 0.5 * np.median(np.abs(c - a))
