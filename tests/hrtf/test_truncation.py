"""Truncation of room impulse responses to the direct sound."""

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
from earatlas.hrtf.truncation import find_onsets, truncate_to_direct_sound
from earatlas.simulation.random_reverberation import RandomReverberation
from earatlas.types import Array

Run = Callable[..., subprocess.CompletedProcess[str]]
RATE = 48_000


@pytest.fixture(scope="module")
def ring() -> ea.Head:
    """The simulated head with 30 directions on the horizontal circle."""
    return ea.simulated_head([[float(a), 0.0] for a in range(-180, 180, 12)])


@pytest.fixture(scope="module")
def reverberant(ring: ea.Head) -> ea.Head:
    """The same head in a room with reflections after 4 ms, with increasing delays."""
    rng, anechoic = np.random.default_rng(3), ring.responses().samples
    room, even = RandomReverberation(0.4, 80.0, 1.5, 6.0), np.full(len(ring), 1 / len(ring))
    rows = []
    for n in range(len(ring)):
        response = room.response(anechoic, n, RATE, even, rng)
        echoes = response.copy()
        echoes[:, : anechoic.shape[-1]] -= anechoic[n]
        late = np.pad(echoes, ((0, 0), (round(0.004 * RATE), 0)))
        late[:, : anechoic.shape[-1]] += anechoic[n]
        rows.append(np.pad(late, ((0, 0), (100 + 7 * n, 7 * (len(ring) - n)))))
    samples = np.stack(rows)
    samples += 1e-4 * samples.std() * rng.normal(size=samples.shape)
    return replace(ring, name="lab", ears=ImpulseResponses(samples, RATE))


def test_direct_sound_has_the_cues_of_the_anechoic_head(
    ring: ea.Head, reverberant: ea.Head
) -> None:
    """Level and phase equal those of the anechoic head; with the room they differ much."""
    assert reverberant.is_reverberant()
    assert not ring.is_reverberant()
    direct = reverberant.direct()
    assert not direct.is_reverberant()
    levels = ring.ears.cues(ea.CueLayout(ipd_band_hz=None))
    layout = ea.CueLayout(ipd_band_hz=None)
    error = np.abs(direct.cues(layout) - levels)
    assert np.median(error) < 0.2
    assert np.median(np.abs(reverberant.cues(layout) - levels)) > 10 * np.median(error)
    phases = ea.CueLayout(ild_band_hz=None)
    assert np.abs(direct.cues(phases) - ring.cues(phases)).mean() < 0.03
    assert "direct sound: 3 ms" in direct.provenance


def test_interaural_delay_and_level_are_preserved() -> None:
    """Two clicks with a ratio of nine and a delay of 20 samples are unchanged."""
    h = np.zeros((3, 2, 4000))
    for n, start in enumerate((0, 57, 900)):
        h[n, n % 2, start], h[n, 1 - n % 2, start + 20] = 0.9, -0.1
        h[n, :, start + 400] = 0.5  # a reflection 8 ms later
    direct = truncate_to_direct_sound(h, RATE)
    assert direct.shape == (3, 2, 24 + 144)
    for n in range(3):
        near, far = direct[n, n % 2], direct[n, 1 - n % 2]
        i, j = np.flatnonzero(near), np.flatnonzero(far)
        assert (len(i), len(j), j[0] - i[0]) == (1, 1, 20)
        assert near[i[0]] == pytest.approx(0.9, rel=1e-12)
        assert far[j[0]] == pytest.approx(-0.1, rel=1e-12)


@pytest.mark.parametrize("snr_db", [60.0, 30.0, 22.0])
def test_onsets_in_noise(rng: np.random.Generator, snr_db: float) -> None:
    """Neither noise nor a louder reflection changes the onset."""
    h = np.zeros((40, 2, 6000))
    places = rng.integers(0, 3000, 40)
    for n, place in enumerate(places):
        h[n, 0, place], h[n, 1, place + 30] = 1.0, 0.2
        h[n, 1, place + 300] = 1.2
    h += 10 ** (-snr_db / 20) * 12**-0.5 * rng.normal(size=h.shape)  # re the peak of 0.25 ms
    # Averaged over 12 samples, a click begins up to 6 samples before itself.
    assert np.abs(find_onsets(h, RATE) - places + 6).max() <= 6


def test_responses_without_direct_sound_are_rejected(ring: ea.Head, reverberant: ea.Head) -> None:
    """Noise, invalid windows, and heads measured with noise are errors."""
    noise = np.random.default_rng(0).normal(size=(30, 2, 9000))
    noise[:2] = reverberant.responses().samples[:2, :, :9000]
    noisy = replace(ring, ears=ImpulseResponses(noise, RATE))
    with pytest.raises(
        ea.InputError, match=r"28 of 30 .* no clear onset \(the first is response 2\)"
    ):
        noisy.direct()
    silent = replace(ring, ears=ImpulseResponses(0 * noise, RATE))
    with pytest.raises(ea.InputError, match="clear onset"):
        silent.direct()
    for window in (0.0009, 0.0, -1.0, float("nan")):
        with pytest.raises(ea.InputError, match="at least 1 ms"):
            reverberant.direct(window)
    with pytest.raises(ea.InputError, match="no longer than the responses"):
        ring.direct(1.0)
    layout = ea.CueLayout()
    recorded = replace(ring, ears=MeasuredCues(ring.cues(layout), layout))
    with pytest.raises(
        ea.InputError, match="impulse responses to be truncated to the direct sound"
    ):
        recorded.direct()


def write_table(folder: Path, head: ea.Head, samples: Array) -> Path:
    """Write a table with one recording per direction."""
    lines = ["file,azimuth,elevation"]
    for n, (azimuth, elevation) in enumerate(head.directions):
        ea.Audio(samples[n] / np.abs(samples).max(), RATE).write(folder / f"{n}.wav")
        lines.append(f"{n}.wav,{azimuth},{elevation}")
    table = folder / "lab.csv"
    table.write_text("\n".join(lines))
    return table


@pytest.mark.usefixtures("fast_learning")
def test_learn_direct_on_the_command_line(run: Run, tmp_path: Path, reverberant: ea.Head) -> None:
    """Reverberant responses are recognized and truncated, unless options say otherwise."""
    table, atlas = (
        write_table(tmp_path, reverberant, reverberant.responses().samples),
        tmp_path / "x.atlas",
    )
    learn = ("learn", table, "-o", atlas, "--json")
    result = run(*learn, "--no-rooms")
    assert "are reverberant: only the first 3 ms" in result.stderr
    automatic = json.loads(result.stdout)
    assert automatic["direct_ms"] == 3
    assert "direct sound: 3 ms" in run("info", atlas).stdout
    chosen = run(*learn, "--no-rooms", "--direct-ms", 2.5)
    assert "note" not in chosen.stderr
    assert json.loads(chosen.stdout)["direct_ms"] == 2.5
    assert "direct sound: 2.5 ms" in ea.Atlas.load(atlas).about["provenance"]
    result = run(*learn, "--in-room")
    assert "note" not in result.stderr
    with_room = json.loads(result.stdout)
    assert with_room["direct_ms"] is None
    assert "direct sound" not in run("info", atlas).stdout
    errors = [a["held_out"]["mean_azimuth_degrees"] for a in (automatic, with_room)]
    assert errors[0] < errors[1]


def test_invalid_options_of_learn(run: Run, tmp_path: Path, reverberant: ea.Head) -> None:
    """Each invalid option gives a one-line error and exit code 2."""
    table = write_table(tmp_path, reverberant, reverberant.responses().samples)
    learn = ("learn", table, "-o", tmp_path / "x.atlas")
    refused(run(*learn, "--direct", "--in-room"), "--in-room must be used without")
    refused(run(*learn, "--direct-ms", 3, "--in-room"), "got --direct-ms")
    refused(run(*learn, "--direct-ms", 0.5), "at least 1 ms")
    refused(run(*learn, "--direct-ms", 5000), "no longer than the responses")
    noise = 0.1 * np.random.default_rng(0).normal(size=(len(reverberant), 2, 24_000))
    write_table(tmp_path, reverberant, noise)
    refused(run(*learn, "--kind", "responses", "--wrong-way", "ears"), "clear onset")
    refused(run(*learn, "--kind", "noise", "--direct", "--wrong-way", "ears"), "impulse responses")


@pytest.mark.parametrize("name", ["room_a", "room_d"])
def test_truncated_responses_of_measured_rooms(data: Path, name: str) -> None:
    """Above 4 kHz, truncation removes most of the effect of the room."""
    with pytest.warns(ea.EaratlasWarning, match="SOFA verification"):
        anechoic = ea.read_sofa(data / "heads" / "hats.sofa")
    room = ea.read_recordings(data / "rooms" / name / "positions.csv", kind="responses")
    layout = ea.CueLayout(ild_band_hz=(4000.0, 8000.0), ipd_band_hz=None)
    a, b, c = (
        head.subset(np.argsort(head.directions[:, 0])[::3]).cues(layout)
        for head in (anechoic, room.direct(), room)
    )
    assert np.median(np.abs(b - a)) < 0.5 * np.median(np.abs(c - a))
