"""Above the band of the cues: sources add up at any rate, and are told apart there too."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy.signal import firwin, oaconvolve

import earatlas as ea
from earatlas.features.audio import resample
from earatlas.features.audio_files import read_mono
from earatlas.separation.demixing import band_extension
from earatlas.separation.demixing.band_extension import at_full_rate
from earatlas.separation.demixing.rendering import Rendering
from earatlas.separation.demixing.spatial_filtering import separate_band, shares_of
from earatlas.types import Array

LAYOUT = ea.CueLayout()
RATE = 48_000


def images_of(M: int, rate: int = RATE, seconds: float = 2.0) -> Array:
    """Noises (M, 2, n) of all frequencies that come and go, through short filters of their own."""
    rng = np.random.default_rng(M)
    n = int(seconds * rate)
    time = np.arange(n) / rate
    filters = rng.normal(size=(M, 2, 12)) * np.exp(-np.arange(12) / 3)
    images = np.empty((M, 2, n))
    for m in range(M):
        knots = rng.random(int(10 * seconds) + 1) ** 3
        loudness = np.interp(time, np.linspace(0, seconds, len(knots)), knots)
        dry = loudness * rng.normal(size=n)
        images[m] = [np.convolve(dry, ear)[:n] for ear in filters[m]]
    return images


def high(x: Array, rate: int = RATE, hertz: float = 8200.0) -> Array:
    """What is above 8.2 kHz."""
    taps = firwin(1023, hertz, pass_zero=False, fs=rate)
    above: Array = oaconvolve(x, taps.reshape((1,) * (x.ndim - 1) + (-1,)), mode="same", axes=-1)
    return above


def sdr(true: Array, found: Array) -> float:
    """The worst source's ratio to what is wrong in it, in dB."""
    ratios = (true**2).sum(axis=(1, 2)) / ((true - found) ** 2).sum(axis=(1, 2))
    return float(10 * np.log10(ratios.min()))


@pytest.mark.parametrize("rendering", ["spatial", "soft", "binary"])
@pytest.mark.parametrize("rate", [8_000, 22_050, 44_100, 192_000])
def test_sources_add_up_at_any_rate(rate: int, rendering: Rendering) -> None:
    """To rounding, sample by sample, whatever the sources were."""
    rng = np.random.default_rng(0)
    recording = rng.normal(size=(2, int(0.3 * rate) + 1)) + 0.2
    parts = np.array([0.7, 0.2, 0.1])[:, None, None] * resample(recording, rate, LAYOUT.rate)
    sounds = at_full_rate(recording, parts, LAYOUT, rate, rendering)
    assert sounds.shape == (3, *recording.shape)
    np.testing.assert_allclose(sounds.sum(axis=0), recording, atol=1e-13)


def test_one_source_is_the_recording() -> None:
    """To the last bit."""
    recording = images_of(1, seconds=0.2)[0]
    sounds = at_full_rate(recording, recording[None, :, ::3], LAYOUT, RATE, "spatial")
    np.testing.assert_array_equal(sounds[0], recording)


@pytest.mark.parametrize(("M", "least_db"), [(2, 20.0), (3, 3.0)])
def test_what_is_above_the_cues_is_separated(M: int, least_db: float) -> None:
    """From mixtures of about 0 dB; two come apart by filters, three by little more than masks."""
    images = images_of(M)
    mixture = images.sum(axis=0)
    found = at_full_rate(mixture, resample(images, RATE, LAYOUT.rate), LAYOUT, RATE, "spatial")
    by_mask = at_full_rate(mixture, resample(images, RATE, LAYOUT.rate), LAYOUT, RATE, "soft")
    before = sdr(high(images), np.repeat(high(mixture)[None], M, axis=0))
    after = sdr(high(images), high(found))
    assert before < 1
    assert least_db < after < 60
    assert after > sdr(high(images), high(by_mask)) + (6 if M == 2 else 0.5)


@pytest.mark.filterwarnings("ignore:.*not UTF-8")  # of the KU100
def test_real_talkers_come_apart_above_8_khz(data: Path) -> None:
    """Two voices with sound up to 20 kHz, at two places of a measured head."""
    head = ea.read_sofa(data / "heads" / "ku100.sofa")
    voices = [
        read_mono(data / "fullband" / name, rate=RATE)[: 3 * RATE]
        for name in ("talker_a_44k1.wav", "talker_b_48k.wav")
    ]
    scene = ea.render_scene(head, voices, [(50, 0), (-30, 10)], rate=RATE)
    low = resample(scene.images, RATE, LAYOUT.rate)
    found = at_full_rate(scene.mixture.samples, low, LAYOUT, RATE, "spatial")
    assert 15 < sdr(high(scene.images), high(found)) < 45


def test_rooms_have_longer_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reverberation that no short window holds: ε tells, and the sources are better for it."""
    rng = np.random.default_rng(4)
    tail = rng.normal(size=(2, 2, RATE // 4)) * 10 ** (-3 * np.arange(RATE // 4) / (0.3 * RATE))
    tail[:, :, 0] *= 12
    dry = images_of(2, seconds=3.0)[:, 0]
    images = np.array([[oaconvolve(d, ear)[: len(d)] for ear in pair]
                       for d, pair in zip(dry, tail, strict=True)])  # fmt: skip
    low = resample(images, RATE, LAYOUT.rate)
    ratios = []
    for most in (band_extension._MOST_SPREAD, 1.0):
        monkeypatch.setattr(band_extension, "_MOST_SPREAD", most)
        found = at_full_rate(images.sum(axis=0), low, LAYOUT, RATE, "spatial")
        ratios.append(sdr(high(images), high(found)))
        np.testing.assert_allclose(found.sum(axis=0), images.sum(axis=0), atol=1e-9)
    assert ratios[0] > ratios[1] + 2


def test_what_is_below_stays_as_it_was() -> None:
    """The sources of the lower band are handed on, whatever they are."""
    images = images_of(2)
    wrong = resample(images[::-1], RATE, LAYOUT.rate)  # exchanged, as if by mistake
    found = at_full_rate(images.sum(axis=0), wrong, LAYOUT, RATE, "spatial")
    taps = firwin(1023, 6800, fs=RATE)[None, None]
    low, expected = (oaconvolve(x, taps, mode="same", axes=-1) for x in (found, images[::-1]))
    inner = slice(1000, -1000)
    assert sdr(expected[..., inner], low[..., inner]) > 60


def test_envelopes_tell_who_is_who() -> None:
    """Exchanged envelopes exchange the sources; nothing else says which is the first."""
    rng = np.random.default_rng(1)
    envelopes = rng.random((2, 80)) ** 4
    A = rng.normal(size=(2, 60, 2)) + 1j * rng.normal(size=(2, 60, 2))  # source, frequency, ear
    y = rng.normal(size=(2, 60, 80)) + 1j * rng.normal(size=(2, 60, 80))
    true = np.einsum("mfa,mft,mt->maft", A, y, np.sqrt(envelopes))
    X, hertz = true.sum(axis=0), np.linspace(9000.0, 10_000.0, 60)
    found, spread = separate_band(X, envelopes, hertz, frames_a_second=60.0)
    other, same = separate_band(X, envelopes[::-1], hertz, frames_a_second=60.0)
    assert spread == pytest.approx(same, rel=1e-3)
    np.testing.assert_allclose(found.sum(axis=0), X, atol=1e-9)
    np.testing.assert_allclose(other[::-1], found, atol=1e-6)
    error = (np.abs(found - true) ** 2).sum() / (np.abs(true) ** 2).sum()
    assert 1e-6 < error < 0.03


def test_a_silent_band_stays_silent() -> None:
    """A recording that was made at 16 kHz has nothing to share out above 8."""
    X, envelopes = np.zeros((2, 5, 9), complex), np.ones((3, 9))
    band, _ = separate_band(X, envelopes, np.arange(5.0), frames_a_second=9)
    assert band.shape == (3, 2, 5, 9)
    assert not band.any()


def test_shares_of_silence_are_alike() -> None:
    """Where no source is heard, none has more."""
    shares = shares_of(np.array([[0.0, 3.0, 0.0], [0.0, 1.0, 2.0]]))
    np.testing.assert_array_equal(shares, [[0.5, 0.75, 0.0], [0.5, 0.25, 1.0]])
