"""What hearing people measure: interaural errors and STOI, against known cases."""

from __future__ import annotations

import numpy as np
import pytest
from pystoi import stoi as their_stoi

import earatlas as ea
from earatlas.errors import InputError
from earatlas.evaluation.assignment import Assignment
from earatlas.evaluation.intelligibility import intelligibility, stoi
from earatlas.evaluation.interaural import interaural_errors
from earatlas.types import Array

RATE = 16_000


def delayed(x: Array, seconds: float, rate: int = RATE) -> Array:
    """A sound (n,) that comes later, by any fraction of a sample, around the end."""
    n = len(x)
    turn = np.exp(-2j * np.pi * np.fft.rfftfreq(n, 1 / rate) * seconds)
    return np.fft.irfft(np.fft.rfft(x) * turn, n)


@pytest.fixture
def images() -> Array:
    """Two murmurs at both ears (2, 2, n), with time and level differences."""
    voices = [ea.synthetic_speech(2.0, seed=seed) for seed in (1, 2)]
    return np.array([[v, 0.5 * delayed(v, t)] for v, t in zip(voices, (4e-4, -2e-4), strict=True)])


@pytest.mark.parametrize("microseconds", [0.0, 12.0, -75.0, 300.0])
@pytest.mark.parametrize("decibels", [0.0, 0.7, -6.0])
def test_known_errors_are_found(images: Array, microseconds: float, decibels: float) -> None:
    """One ear later and louder than it should be: that much, in every band."""
    found = images.copy()
    found[0, 1] = 10 ** (decibels / 20) * delayed(images[0, 1], 1e-6 * microseconds)
    errors = interaural_errors(images, found, rate=RATE)
    assert errors.itd_microseconds[0] == pytest.approx(abs(microseconds), rel=0.01, abs=1e-6)
    assert errors.ild_db[0] == pytest.approx(abs(decibels), abs=1e-9)
    assert errors.ild_db[1] == 0.0
    assert errors.itd_microseconds[1] < 1e-6
    assert errors.mean().ild_db == pytest.approx(abs(decibels) / 2, abs=1e-9)


def test_what_both_ears_share_is_no_error(images: Array) -> None:
    """A gain, and a filter that is the same in both ears."""
    filtered = 0.1 * np.apply_along_axis(np.convolve, -1, images, [1.0, -0.4, 0.2], "same")
    errors = interaural_errors(images, filtered, rate=RATE)
    assert errors.ild_db.max() < 0.2  # the filter tilts a band's spectrum, alike in both ears
    assert errors.itd_microseconds.max() < 2.0


def test_a_leak_pulls_the_cues_to_the_other_source(images: Array) -> None:
    """The more of it, the farther; the mixture itself is far off."""
    far = [
        interaural_errors(images, images + share * images[::-1], rate=RATE).mean()
        for share in (0.01, 0.1, 1.0)
    ]
    assert far[0].ild_db < far[1].ild_db < far[2].ild_db
    assert far[0].itd_microseconds < far[1].itd_microseconds < far[2].itd_microseconds
    assert far[0].itd_microseconds < 20
    assert far[2].itd_microseconds > 50


def test_high_frequencies_have_levels_but_no_times(images: Array) -> None:
    """An ear that is late above 2 kHz only has no error of time; one that is loud there has one."""
    spectra = np.fft.rfft(images[0, 1])
    f = np.fft.rfftfreq(images.shape[-1], 1 / RATE)
    late, loud = images.copy(), images.copy()
    turn = np.where(f > 2000, np.exp(-2j * np.pi * f * 1e-4), 1.0)
    late[0, 1] = np.fft.irfft(spectra * turn, images.shape[-1])
    loud[0, 1] = np.fft.irfft(spectra * np.where(f > 2000, 2.0, 1.0), images.shape[-1])
    assert interaural_errors(images, late, rate=RATE).itd_microseconds[0] < 1e-6
    assert interaural_errors(images, late, rate=RATE).ild_db[0] < 1e-9
    assert 1.0 < interaural_errors(images, loud, rate=RATE).ild_db[0] < 6.0


def test_missed_and_silent_sources_have_no_errors(images: Array) -> None:
    """NaN, which counts in no mean."""
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


def test_what_cannot_be_compared_is_refused(images: Array) -> None:
    """Other numbers, other lengths, hardly any sound."""
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


def noisy(voice: Array, snr_db: float, seed: int = 0) -> Array:
    """A voice in white noise."""
    noise = np.random.default_rng(seed).normal(size=len(voice))
    level: Array = np.sqrt((voice**2).mean() / 10 ** (snr_db / 10))
    return voice + noise * level


@pytest.mark.parametrize("snr_db", [-10.0, 0.0, 12.0])
def test_stoi_is_that_of_others(snr_db: float) -> None:
    """To rounding at 10 kHz; to what a resampling filter matters at other rates."""
    voice = ea.synthetic_speech(3.0, 10_000, seed=3)
    ours = stoi(voice, noisy(voice, snr_db), rate=10_000)
    assert ours == pytest.approx(their_stoi(voice, noisy(voice, snr_db), 10_000), abs=1e-9)
    voice = ea.synthetic_speech(3.0, seed=4)
    ours = stoi(voice, noisy(voice, snr_db), rate=RATE)
    assert ours == pytest.approx(their_stoi(voice, noisy(voice, snr_db), RATE), abs=0.01)
    assert 0.05 < ours < 0.999


def test_stoi_grows_with_what_can_be_heard(images: Array) -> None:
    """1 for the sound itself at any level; less in noise; each source and ear by itself."""
    voice = images[0, 0]
    values = [stoi(voice, noisy(voice, snr), rate=RATE) for snr in (-10, 0, 10, 30)]
    assert values == sorted(values)
    assert stoi(voice, 0.01 * voice, rate=RATE) == pytest.approx(1.0)
    found = images.copy()
    found[1, 0] = noisy(images[1, 0], 0.0)
    table = intelligibility(images, found, rate=RATE)
    assert table.shape == (2, 2)
    assert table[1, 0] < 0.95
    np.testing.assert_allclose(table[[0, 0, 1], [0, 1, 1]], 1.0)


def test_stoi_of_hardly_anything_is_unknown() -> None:
    """Less than 384 ms that are not silent."""
    voice = ea.synthetic_speech(0.3, seed=1)
    assert np.isnan(stoi(voice, voice, rate=RATE))
    assert np.isnan(stoi(voice[:100], voice[:100], rate=RATE))
