"""Band extension: sources sum to the recording at any rate and are separated above the cues."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy.signal import firwin, oaconvolve

import earatlas as ea
from earatlas.features.audio import resample
from earatlas.features.audio_files import read_mono
from earatlas.features.reverberation import ReverberationEstimate
from earatlas.separation.demixing.band_extension import (
    BandExtensionSettings,
    extend_band,
    relative_envelopes,
    separate_band,
)
from earatlas.separation.demixing.rendering import Rendering
from earatlas.types import Array

LAYOUT = ea.CueLayout()
RATE = 48_000


def images_of(M: int, rate: int = RATE, seconds: float = 2.0) -> Array:
    """Return modulated wideband noises (M, 2, n), each filtered by short responses."""
    rng = np.random.default_rng(M)
    n = int(seconds * rate)
    time = np.arange(n) / rate
    filters = rng.normal(size=(M, 2, 12)) * np.exp(-np.arange(12) / 3)
    images = np.empty((M, 2, n))
    for m in range(M):
        knots = rng.random(int(10 * seconds) + 1) ** 3
        envelope = np.interp(time, np.linspace(0, seconds, len(knots)), knots)
        dry = envelope * rng.normal(size=n)
        images[m] = [np.convolve(dry, ear)[:n] for ear in filters[m]]
    return images


def high_pass(x: Array, rate: int = RATE, cutoff_hz: float = 8200.0) -> Array:
    """Return the part above 8.2 kHz."""
    taps = firwin(1023, cutoff_hz, pass_zero=False, fs=rate)
    above: Array = oaconvolve(x, taps.reshape((1,) * (x.ndim - 1) + (-1,)), mode="same", axes=-1)
    return above


def sdr(true: Array, found: Array) -> float:
    """Return the signal-to-distortion ratio of the worst source, in dB."""
    ratios = (true**2).sum(axis=(1, 2)) / ((true - found) ** 2).sum(axis=(1, 2))
    return float(10 * np.log10(ratios.min()))


@pytest.mark.parametrize("rendering", ["spatial", "soft", "binary"])
@pytest.mark.parametrize("rate", [8_000, 22_050, 44_100, 192_000])
def test_sources_sum_to_the_recording_at_any_rate(rate: int, rendering: Rendering) -> None:
    """The sum is exact up to rounding for arbitrary sources."""
    rng = np.random.default_rng(0)
    recording = rng.normal(size=(2, int(0.3 * rate) + 1)) + 0.2
    parts = np.array([0.7, 0.2, 0.1])[:, None, None] * resample(recording, rate, LAYOUT.rate)
    signals = extend_band(recording, parts, LAYOUT, rate, rendering)
    assert signals.shape == (3, *recording.shape)
    np.testing.assert_allclose(signals.sum(axis=0), recording, atol=1e-13)


def test_one_source_is_the_recording() -> None:
    """A single source is bit-identical to the recording."""
    recording = images_of(1, seconds=0.2)[0]
    signals = extend_band(recording, recording[None, :, ::3], LAYOUT, RATE, "spatial")
    np.testing.assert_array_equal(signals[0], recording)


@pytest.mark.parametrize(("M", "min_sdr_db"), [(2, 20.0), (3, 3.0)])
def test_band_above_the_cues_is_separated(M: int, min_sdr_db: float) -> None:
    """Two sources are separated by filters, three gain little over masks; the input is at 0 dB."""
    images = images_of(M)
    mixture = images.sum(axis=0)
    found = extend_band(mixture, resample(images, RATE, LAYOUT.rate), LAYOUT, RATE, "spatial")
    by_mask = extend_band(mixture, resample(images, RATE, LAYOUT.rate), LAYOUT, RATE, "soft")
    before = sdr(high_pass(images), np.repeat(high_pass(mixture)[None], M, axis=0))
    after = sdr(high_pass(images), high_pass(found))
    assert before < 1
    assert min_sdr_db < after < 60
    assert after > sdr(high_pass(images), high_pass(by_mask)) + (6 if M == 2 else 0.5)


@pytest.mark.filterwarnings("ignore:.*not UTF-8")  # warning for the KU100
def test_real_talkers_are_separated_above_8_khz(data: Path) -> None:
    """Two voices with frequencies up to 20 kHz are separated on a measured head."""
    head = ea.read_sofa(data / "heads" / "ku100.sofa")
    voices = [
        read_mono(data / "fullband" / name, rate=RATE)[: 3 * RATE]
        for name in ("talker_a_44k1.wav", "talker_b_48k.wav")
    ]
    scene = ea.render_scene(head, voices, [(50, 0), (-30, 10)], rate=RATE)
    low = resample(scene.images, RATE, LAYOUT.rate)
    found = extend_band(scene.mixture.samples, low, LAYOUT, RATE, "spatial")
    assert 15 < sdr(high_pass(scene.images), high_pass(found)) < 45


def test_reverberant_recordings_use_longer_windows() -> None:
    """Longer windows improve reverberant sources; the ratio of the lower band decides."""
    rng = np.random.default_rng(4)
    tail = rng.normal(size=(2, 2, RATE // 4)) * 10 ** (-3 * np.arange(RATE // 4) / (0.3 * RATE))
    tail[:, :, 0] *= 12
    dry = images_of(2, seconds=3.0)[:, 0]
    images = np.array([[oaconvolve(d, ear)[: len(d)] for ear in pair]
                       for d, pair in zip(dry, tail, strict=True)])  # fmt: skip
    low = resample(images, RATE, LAYOUT.rate)
    ratios = []
    for decay, ratio in ((0.22, 0.05), (0.4, None), (0.1, None), (0.22, 0.001)):
        room = ReverberationEstimate(decay, diffuse_ratio=ratio)
        found = extend_band(images.sum(axis=0), low, LAYOUT, RATE, "spatial", room)
        ratios.append(sdr(high_pass(images), high_pass(found)))
        np.testing.assert_allclose(found.sum(axis=0), images.sum(axis=0), atol=1e-9)
    assert ratios[0] == ratios[1] > ratios[2] + 2
    assert ratios[3] == ratios[2]


def test_lower_band_is_unchanged() -> None:
    """The sources of the lower band are kept, even if they are wrong."""
    images = images_of(2)
    wrong = resample(images[::-1], RATE, LAYOUT.rate)  # swapped on purpose
    found = extend_band(images.sum(axis=0), wrong, LAYOUT, RATE, "spatial")
    taps = firwin(1023, 6800, fs=RATE)[None, None]
    low, expected = (oaconvolve(x, taps, mode="same", axes=-1) for x in (found, images[::-1]))
    inner = slice(1000, -1000)
    assert sdr(expected[..., inner], low[..., inner]) > 60


def test_envelopes_determine_the_order() -> None:
    """Swapped envelopes swap the sources."""
    rng = np.random.default_rng(1)
    envelopes = rng.random((2, 80)) ** 4
    A = rng.normal(size=(2, 60, 2)) + 1j * rng.normal(size=(2, 60, 2))  # source, frequency, ear
    y = rng.normal(size=(2, 60, 80)) + 1j * rng.normal(size=(2, 60, 80))
    true = np.einsum("mfa,mft,mt->maft", A, y, np.sqrt(envelopes))
    X, cutoff_hz = true.sum(axis=0), np.linspace(9000.0, 10_000.0, 60)
    found, swapped = (
        separate_band(
            X,
            order,
            cutoff_hz,
            frames_per_second=60.0,
            reverberant=False,
            settings=BandExtensionSettings(),
        )
        for order in (envelopes, envelopes[::-1])
    )
    np.testing.assert_allclose(found.sum(axis=0), X, atol=1e-9)
    np.testing.assert_allclose(swapped[::-1], found, atol=1e-6)
    error = (np.abs(found - true) ** 2).sum() / (np.abs(true) ** 2).sum()
    assert 1e-6 < error < 0.03


def test_silent_band_stays_silent() -> None:
    """A recording made at 16 kHz has nothing to separate above 8 kHz."""
    X, envelopes = np.zeros((2, 5, 9), complex), np.ones((3, 9))
    band = separate_band(
        X,
        envelopes,
        np.arange(5.0),
        frames_per_second=9,
        reverberant=False,
        settings=BandExtensionSettings(),
    )
    assert band.shape == (3, 2, 5, 9)
    assert not band.any()


def test_relative_envelopes_of_silence_are_equal() -> None:
    """Where all sources are silent, all fractions are equal."""
    fractions = relative_envelopes(np.array([[0.0, 3.0, 0.0], [0.0, 1.0, 2.0]]))
    np.testing.assert_array_equal(fractions, [[0.5, 0.75, 0.0], [0.5, 0.25, 1.0]])
