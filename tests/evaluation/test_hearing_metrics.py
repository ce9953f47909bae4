"""Interaural errors and STOI, compared with known cases."""

from __future__ import annotations

import numpy as np
import pytest
from pystoi import stoi as reference_stoi

import earatlas as ea
from earatlas.errors import InputError
from earatlas.evaluation.assignment import Assignment
from earatlas.evaluation.intelligibility import intelligibility, stoi
from earatlas.evaluation.interaural import interaural_errors
from earatlas.types import Array

RATE = 16_000


def delayed(x: Array, seconds: float, rate: int = RATE) -> Array:
    """Return a signal (n,) delayed circularly by any fraction of a sample."""
    n = len(x)
    turn = np.exp(-2j * np.pi * np.fft.rfftfreq(n, 1 / rate) * seconds)
    return np.fft.irfft(np.fft.rfft(x) * turn, n)


@pytest.fixture
def images() -> Array:
    """Images (2, 2, n) of two synthetic speech signals, with time and level differences."""
    voices = [ea.synthetic_speech(2.0, seed=seed) for seed in (1, 2)]
    return np.array([[v, 0.5 * delayed(v, t)] for v, t in zip(voices, (4e-4, -2e-4), strict=True)])


@pytest.mark.parametrize("microseconds", [0.0, 12.0, -75.0, 300.0])
@pytest.mark.parametrize("decibels", [0.0, 0.7, -6.0])
def test_known_delays_and_gains_are_measured(
    images: Array, microseconds: float, decibels: float
) -> None:
    """A delay and a gain at one ear are measured exactly, in every band."""
    estimates = images.copy()
    estimates[0, 1] = 10 ** (decibels / 20) * delayed(images[0, 1], 1e-6 * microseconds)
    errors = interaural_errors(images, estimates, rate=RATE)
    assert errors.itd_microseconds[0] == pytest.approx(abs(microseconds), rel=0.01, abs=1e-6)
    assert errors.ild_db[0] == pytest.approx(abs(decibels), abs=1e-9)
    assert errors.ild_db[1] == 0.0
    assert errors.itd_microseconds[1] < 1e-6
    assert errors.mean().ild_db == pytest.approx(abs(decibels) / 2, abs=1e-9)


def test_common_gain_and_filter_give_no_error(images: Array) -> None:
    """A gain and a filter that are the same at both ears change no interaural cue."""
    filtered = 0.1 * np.apply_along_axis(np.convolve, -1, images, [1.0, -0.4, 0.2], "same")
    errors = interaural_errors(images, filtered, rate=RATE)
    assert errors.ild_db.max() < 0.2  # the filter tilts the spectrum within a band
    assert errors.itd_microseconds.max() < 2.0


def test_errors_grow_with_leakage(images: Array) -> None:
    """More leakage of the other source gives larger errors, and the mixture has large ones."""
    errors = [
        interaural_errors(images, images + share * images[::-1], rate=RATE).mean()
        for share in (0.01, 0.1, 1.0)
    ]
    assert errors[0].ild_db < errors[1].ild_db < errors[2].ild_db
    assert errors[0].itd_microseconds < errors[1].itd_microseconds < errors[2].itd_microseconds
    assert errors[0].itd_microseconds < 20
    assert errors[2].itd_microseconds > 50


def test_itd_is_ignored_at_high_frequencies(images: Array) -> None:
    """A delay above 2 kHz gives no ITD error; a gain above 2 kHz gives an ILD error."""
    spectra = np.fft.rfft(images[0, 1])
    f = np.fft.rfftfreq(images.shape[-1], 1 / RATE)
    late, loud = images.copy(), images.copy()
    turn = np.where(f > 2000, np.exp(-2j * np.pi * f * 1e-4), 1.0)
    late[0, 1] = np.fft.irfft(spectra * turn, images.shape[-1])
    loud[0, 1] = np.fft.irfft(spectra * np.where(f > 2000, 2.0, 1.0), images.shape[-1])
    assert interaural_errors(images, late, rate=RATE).itd_microseconds[0] < 1e-6
    assert interaural_errors(images, late, rate=RATE).ild_db[0] < 1e-9
    assert 1.0 < interaural_errors(images, loud, rate=RATE).ild_db[0] < 6.0


def test_missed_and_silent_sources_are_nan(images: Array) -> None:
    """Missed and silent sources have NaN and are left out of means."""
    order = Assignment(np.array([-1, 0]), 1)
    errors = interaural_errors(images, images[1:], rate=RATE, assignment=order)
    assert np.isnan(errors.ild_db[0])
    assert errors.mean() == pytest.approx((0.0, 0.0), abs=1e-6)
    clear = intelligibility(images, images[1:], rate=RATE, assignment=order)
    assert np.isnan(clear[0]).all()
    np.testing.assert_allclose(clear[1], 1.0)
    silent = images.copy()
    silent[1, 0] = 0.0
    assert np.isnan(interaural_errors(images, silent, rate=RATE).itd_microseconds[1])
    assert "means: 0.00 dB, 0 µs" in repr(errors)


def test_invalid_inputs_raise(images: Array) -> None:
    """Different numbers, different lengths and too short signals raise an InputError."""
    with pytest.raises(InputError, match="estimates must be as many as images, got 1 and 2"):
        interaural_errors(images, images[:1], rate=RATE)
    with pytest.raises(InputError, match="estimates must be as long as images"):
        interaural_errors(images, images[..., 1:], rate=RATE)
    with pytest.raises(InputError, match=r"images must be at least 0\.1 s long, got 0\.062 s"):
        interaural_errors(images[..., 9000:10000], images[..., 9000:10000], rate=RATE)
    with pytest.raises(InputError, match="rate must be a positive whole number"):
        interaural_errors(images, images, rate=0)
    with pytest.raises(InputError, match="estimates must be as many as images, got 1 and 2"):
        intelligibility(images, images[:1], rate=RATE)


def add_noise(voice: Array, snr_db: float, seed: int = 0) -> Array:
    """Return a signal with white noise at a given SNR."""
    noise = np.random.default_rng(seed).normal(size=len(voice))
    level: Array = np.sqrt((voice**2).mean() / 10 ** (snr_db / 10))
    return voice + noise * level


@pytest.mark.parametrize("snr_db", [-10.0, 0.0, 12.0])
def test_stoi_agrees_with_pystoi(snr_db: float) -> None:
    """STOI agrees to rounding at 10 kHz, and within the resampling filter at other rates."""
    voice = ea.synthetic_speech(3.0, 10_000, seed=3)
    ours = stoi(voice, add_noise(voice, snr_db), rate=10_000)
    assert ours == pytest.approx(reference_stoi(voice, add_noise(voice, snr_db), 10_000), abs=1e-9)
    voice = ea.synthetic_speech(3.0, seed=4)
    ours = stoi(voice, add_noise(voice, snr_db), rate=RATE)
    assert ours == pytest.approx(reference_stoi(voice, add_noise(voice, snr_db), RATE), abs=0.01)
    assert 0.05 < ours < 0.999


def test_stoi_grows_with_the_snr(images: Array) -> None:
    """STOI is 1 for a scaled copy, less in noise, and computed per source and ear."""
    voice = images[0, 0]
    values = [stoi(voice, add_noise(voice, snr), rate=RATE) for snr in (-10, 0, 10, 30)]
    assert values == sorted(values)
    assert stoi(voice, 0.01 * voice, rate=RATE) == pytest.approx(1.0)
    estimates = images.copy()
    estimates[1, 0] = add_noise(images[1, 0], 0.0)
    values_per_ear = intelligibility(images, estimates, rate=RATE)
    assert values_per_ear.shape == (2, 2)
    assert values_per_ear[1, 0] < 0.95
    np.testing.assert_allclose(values_per_ear[[0, 0, 1], [0, 1, 1]], 1.0)


def test_stoi_of_short_signals_is_nan() -> None:
    """Less than 384 ms of active signal give NaN."""
    voice = ea.synthetic_speech(0.3, seed=1)
    assert np.isnan(stoi(voice, voice, rate=RATE))
    assert np.isnan(stoi(voice[:100], voice[:100], rate=RATE))
