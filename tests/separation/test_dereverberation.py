"""Dereverberation: late reverberation is reduced, early sound stays, and warnings are given."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from command_line import in_process
from scipy.signal import oaconvolve

import earatlas as ea
from earatlas.errors import EaratlasWarning
from earatlas.separation.demixing import dereverberation
from earatlas.simulation.random_reverberation import RandomReverberation
from earatlas.types import Array

RATE = 16_000
PAIR = np.array([[50.0, 10.0], [-70.0, 0.0]])
ROOM = RandomReverberation(
    t60_seconds=0.5, volume_cubic_metres=80.0, distance_metres=1.5, drop_db=6.0
)


def early_and_whole(
    head: ea.Head, places: Array, *, rate: int = RATE, seconds: float = 2.5
) -> tuple[Array, Array]:
    """Return early images and whole images (M, 2, n) of synthetic talkers in a random room."""
    rng = np.random.default_rng(7)
    h = head.responses().at_rate(rate)
    even = np.append(np.full(len(h), 1 / len(h)), 0.0)
    n, images, early = int(seconds * rate), [], []
    for m, place in enumerate(places):
        direct = ea.simulated_head(place[None]).responses().at_rate(rate)
        wet = ROOM.response(np.concatenate([h, direct]), len(h), rate, even, rng)
        first = int(np.abs(wet).max(axis=0).argmax())
        dry_sound = ea.synthetic_speech(seconds, seed=m, rate=rate)[None]
        images.append(oaconvolve(dry_sound, wet, axes=1)[:, :n])
        early.append(oaconvolve(dry_sound, wet[:, : first + int(0.05 * rate)], axes=1)[:, :n])
    return np.array(early), np.array(images)


def snr_db(true: Array, found: Array) -> float:
    """Return the signal-to-noise ratio in dB."""
    return float(10 * np.log10((true**2).sum() / ((true - found) ** 2).sum()))


@pytest.mark.parametrize("rate", [16_000, 44_100])
def test_late_reverberation_is_reduced(atlas_head: ea.Head, rate: int) -> None:
    """At any rate, the result is closer to the early image than the input."""
    early, images = early_and_whole(atlas_head, PAIR[:1], rate=rate)
    dereverberated = dereverberation.dereverberate(images, rate)
    assert dereverberated.shape == images.shape
    assert snr_db(early, dereverberated) > snr_db(early, images) + 1.5


def test_wpe_against_loops() -> None:
    """G solves the weighted normal equations of each frequency."""
    rng = np.random.default_rng(4)
    F, T = 2, 40
    X = rng.normal(size=(2, F, T)) + 1j * rng.normal(size=(2, F, T))
    settings = dereverberation.DereverberationSettings()
    z = dereverberation.delayed_frames(X, settings.delay, settings.taps)
    for t in range(T):
        for k in range(settings.taps):
            lag = t - settings.delay - k
            expected = X[:, :, lag].T if lag >= 0 else np.zeros((F, 2))
            np.testing.assert_array_equal(z[:, 2 * k : 2 * k + 2, t], expected)
    d = dereverberation.weighted_prediction_error(X, settings)
    # The prediction reduces the energy and cannot change the first frames.
    assert (np.abs(d) ** 2).sum() < (np.abs(X) ** 2).sum()
    np.testing.assert_array_equal(d[:, :, : settings.delay], X[:, :, : settings.delay])


def test_late_echo_is_removed() -> None:
    """Of noise and its echo 5 frames later, the echo is removed and the noise stays."""
    rng = np.random.default_rng(3)
    S = rng.normal(size=(2, 6, 600)) + 1j * rng.normal(size=(2, 6, 600))
    X = S.copy()
    X[:, :, 5:] += 0.5 * S[:, :, :-5]
    settings = dereverberation.DereverberationSettings()
    assert (
        snr_db(np.abs(S), np.abs(dereverberation.weighted_prediction_error(X, settings)))
        > snr_db(np.abs(S), np.abs(X)) + 5
    )


def test_silence_and_short_signals_are_unchanged() -> None:
    """Without earlier frames there is no prediction."""
    assert not dereverberation.dereverberate(np.zeros((2, 2, 4000)), RATE).any()
    short = np.random.default_rng(1).normal(size=(1, 2, 500))
    np.testing.assert_allclose(dereverberation.dereverberate(short, RATE), short, atol=1e-5)


def test_dry_option_in_a_reverberant_room(atlas: ea.Atlas, atlas_head: ea.Head) -> None:
    """Dry signals are closer to the early images and do not sum to the mixture."""
    reverberant_atlas = (
        atlas if atlas.reverberant_localizer is not None else atlas.with_rooms(atlas_head)
    )
    early, images = early_and_whole(atlas_head, PAIR)
    mixture = ea.Audio(0.05 * images.sum(axis=0), RATE)
    regular = reverberant_atlas.separate(mixture, n_sources=2)
    found = reverberant_atlas.separate(mixture, n_sources=2, dry=True)
    assert found.dry
    assert not regular.dry

    def best_snr_db(scene: ea.Scene) -> float:
        signals = np.stack([source.audio.samples for source in scene.sources]) / 0.05
        return max(snr_db(early, signals), snr_db(early, signals[::-1]))

    assert best_snr_db(found) > best_snr_db(regular)
    total = sum(source.audio.samples for source in found.sources)
    assert np.abs(total - mixture.samples).max() > 0.01 * np.abs(mixture.samples).max()


def test_dry_option_in_an_anechoic_recording_warns(
    atlas: ea.Atlas, atlas_head: ea.Head, tmp_path: Path
) -> None:
    """There is a warning, and the signals are bit-identical to those without the option."""
    signals = [ea.synthetic_speech(2.0, seed=m) for m in range(2)]
    mixture = ea.render_scene(atlas_head, signals, PAIR).mixture
    with pytest.warns(EaratlasWarning, match="reverberant|rooms"):
        dry = atlas.separate(mixture, n_sources=2, dry=True)
    assert not dry.dry
    regular = atlas.separate(mixture, n_sources=2)
    for one, other in zip(dry.sources, regular.sources, strict=True):
        np.testing.assert_array_equal(one.audio.samples, other.audio.samples)
    path, file = mixture.write(tmp_path / "anechoic.wav"), atlas.save(tmp_path / "head.atlas")
    result = in_process("separate", file, path, "-n", 2, "-o", tmp_path / "out", "--dry", "--json")
    assert not json.loads(result.stdout)["dry"]
    assert "Dereverberation has no effect" in result.stderr
