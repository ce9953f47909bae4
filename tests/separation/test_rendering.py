"""Spatial filtering: images sum to the mixture, interferers are cancelled, silence stays."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.signal import fftconvolve

import earatlas as ea
from earatlas.evaluation.masks import oracle_masks
from earatlas.evaluation.quality import separation_quality
from earatlas.features.reverberation import UNKNOWN_REVERBERATION, ReverberationEstimate
from earatlas.features.stft import stft
from earatlas.separation.demixing import rendering
from earatlas.separation.demixing.masks import apply_masks
from earatlas.separation.demixing.permutation_alignment import ExpectedCues
from earatlas.types import Array

LAYOUT = ea.CueLayout()


def images_of(M: int, seconds: float = 2.0, seed: int = 0) -> Array:
    """Return images (M, 2, n) of synthetic talkers, each filtered by short responses."""
    rng = np.random.default_rng(seed)
    n = int(seconds * 16_000)
    filters = rng.normal(size=(M, 2, 12)) * np.exp(-np.arange(12) / 3)
    dry = [ea.synthetic_speech(seconds, seed=seed + 10 * m) for m in range(M)]
    return np.array(
        [[np.convolve(d, ear)[:n] for ear in pair] for d, pair in zip(dry, filters, strict=True)]
    )


def masks_of(images: Array, softness: float = 0.1) -> Array:
    """Return true masks (M, F, T), softened."""
    spectra = np.stack([stft(image, LAYOUT.window, LAYOUT.hop) for image in images])
    true = oracle_masks(spectra[:, :, 1:])
    return (1 - softness) * true + softness / len(images)


def separate(
    mixture: Array,
    masks: Array,
    layout: ea.CueLayout,
    reverberation: ReverberationEstimate = UNKNOWN_REVERBERATION,
    expected: ExpectedCues | None = None,
) -> Array:
    """Return the images of `separate_spatially`."""
    return rendering.separate_spatially(
        mixture, masks, layout, reverberation=reverberation, expected=expected
    )[0]


@pytest.mark.parametrize("M", [1, 2, 3])
def test_images_sum_to_the_mixture(M: int) -> None:
    """The sum of all signals is the mixture."""
    images = images_of(M)
    mixture = images.sum(axis=0) + 1e-3 * np.random.default_rng(9).normal(size=images.shape[1:])
    signals = separate(mixture, masks_of(images), LAYOUT)
    assert signals.shape == images.shape
    np.testing.assert_allclose(signals.sum(axis=0), mixture, atol=1e-9 * np.abs(mixture).max())


def test_one_source_is_the_mixture() -> None:
    """A single source is bit-identical to the mixture."""
    images = images_of(1)
    signals = separate(images[0], np.ones((1, 512, 251)), LAYOUT)
    np.testing.assert_array_equal(signals[0], images[0])


def test_filters_exceed_masks_for_two_sources() -> None:
    """Masks reach about 15 dB, filters at least 6 dB more."""
    images = images_of(2)
    mixture, masks = images.sum(axis=0), masks_of(images, softness=0.2)
    spectra = stft(mixture, LAYOUT.window, LAYOUT.hop)
    by_mask = separation_quality(
        images, apply_masks(spectra, masks, LAYOUT, mixture.shape[1])
    ).mean()
    by_filters = separation_quality(images, separate(mixture, masks, LAYOUT)).mean()
    assert by_filters.sdr_db > 20
    assert by_filters.sdr_db > by_mask.sdr_db + 6


def test_filters_exceed_masks_for_three_sources() -> None:
    """Three sources cannot all be cancelled, but filters still gain 4 dB over masks."""
    images = images_of(3)
    mixture, masks = images.sum(axis=0), masks_of(images)
    spectra = stft(mixture, LAYOUT.window, LAYOUT.hop)
    by_mask = separation_quality(
        images, apply_masks(spectra, masks, LAYOUT, mixture.shape[1])
    ).mean()
    by_filters = separation_quality(images, separate(mixture, masks, LAYOUT)).mean()
    # A Wiener filter with steering vectors and powers from the masks alone gains 2.5 dB.
    assert by_filters.sdr_db > by_mask.sdr_db + 4


def test_silent_source_stays_silent() -> None:
    """A source that pauses for two seconds is 30 dB below the other during the pause."""
    images = images_of(2, seconds=5.0)
    silent = slice(int(2.0 * 16_000), int(4.0 * 16_000))
    images[1][:, silent] = 0.0
    masks = masks_of(images, softness=0.01)
    signals = separate(images.sum(axis=0), masks, LAYOUT)
    middle = slice(int(2.4 * 16_000), int(3.6 * 16_000))
    residual = (signals[1][:, middle] ** 2).sum() / (images[0][:, middle] ** 2).sum()
    assert 10 * np.log10(residual) < -30


@pytest.mark.parametrize("gain", [0.6, -0.3])
def test_proportional_ears_give_finite_results(gain: float) -> None:
    """Proportional ears cannot be separated: results are finite and sum to the mixture."""
    rng = np.random.default_rng(3)
    sound = rng.normal(size=24_000) * 0.1
    sound[9_000:13_000] = 0
    samples = np.stack([sound, gain * sound])
    layout = ea.CueLayout()
    mask = rng.uniform(size=(layout.n_frequencies, 24_000 // layout.hop + 1))
    signals = separate(samples, np.stack([mask, 1 - mask]), layout)
    assert np.isfinite(signals).all()
    assert np.abs(signals).max() < 1.0
    np.testing.assert_allclose(signals.sum(axis=0), samples, atol=1e-9)


def test_relabelled_masks_relabel_the_signals() -> None:
    """The order of the sources has no effect, up to single precision."""
    images = images_of(2)
    mixture, masks = images.sum(axis=0), masks_of(images)
    signals = separate(mixture, masks, LAYOUT)
    swapped = separate(mixture, masks[::-1], LAYOUT)
    np.testing.assert_allclose(swapped[::-1], signals, atol=5e-6 * np.abs(mixture).max())


def test_unknown_cues_have_no_effect() -> None:
    """NaN at all frequencies is the same as no expected cues."""
    images = images_of(2)
    mixture, masks = images.sum(axis=0), masks_of(images)
    unknown = ExpectedCues(np.full((2, 512), np.nan), np.full((2, 512), np.nan))
    np.testing.assert_array_equal(
        separate(mixture, masks, LAYOUT, expected=unknown),
        separate(mixture, masks, LAYOUT),
    )


def test_gain_scales_the_result() -> None:
    """A louder recording gives the same signals with the same gain."""
    images = images_of(2)
    mixture, masks = images.sum(axis=0), masks_of(images)
    signals = separate(mixture, masks, LAYOUT)
    louder = separate(100 * mixture, masks, LAYOUT)
    np.testing.assert_allclose(louder, 100 * signals, atol=1e-7 * np.abs(100 * mixture).max())


def test_digital_silence() -> None:
    """Zeros give zeros."""
    signals = separate(np.zeros((2, 8000)), np.full((2, 512, 63), 0.5), LAYOUT)
    assert not signals.any()


def test_wrong_masks_above_2_khz_are_corrected() -> None:
    """Sources that are swapped in a band of frequencies are aligned."""
    images = images_of(2, seconds=3.0)
    mixture, masks = images.sum(axis=0), masks_of(images, softness=0.2)
    right = separation_quality(images, separate(mixture, masks, LAYOUT)).mean()
    masks[:, 128:] = 0.5 + 0.3 * (masks[::-1, 128:] - 0.5)
    wrong = separation_quality(images, separate(mixture, masks, LAYOUT)).mean()
    assert wrong.sdr_db > right.sdr_db - 2


def reverberant_images(M: int, seconds: float = 3.0, t60: float = 0.4) -> Array:
    """Return images (M, 2, n) of synthetic talkers with independent reverberation."""
    rng = np.random.default_rng(12)
    n = int(seconds * 16_000)
    decay = np.exp(-6.9 * np.arange(int(t60 * 16_000)) / (t60 * 16_000))
    images = np.empty((M, 2, n))
    for m, ears in enumerate(images):
        dry = ea.synthetic_speech(seconds, seed=40 + m)
        for ear in ears:
            response = 0.05 * rng.normal(size=len(decay)) * decay
            response[rng.integers(8, 20)] += 1.0
            ear[:] = fftconvolve(dry, response)[:n]
    return images


def room_images(seconds: float, t60: float) -> Array:
    """Return images (2, 2, n) of two synthetic talkers in a room."""
    head = ea.simulated_head()
    sounds = [ea.synthetic_speech(seconds, seed=40 + m) for m in range(2)]
    directions = head.directions[[100, 400]]
    return ea.render_scene(head, sounds, directions, room=ea.Room(t60_seconds=t60)).images


def sdr_at(decay_seconds: float, images: Array) -> float:
    """Return the mean SDR of sources that are separated with this decay time."""
    mixture, masks = images.sum(axis=0), masks_of(images, softness=0.2)
    found = separate(mixture, masks, LAYOUT, reverberation=ReverberationEstimate(decay_seconds))
    np.testing.assert_allclose(found.sum(axis=0), mixture, atol=1e-9 * np.abs(mixture).max())
    return separation_quality(images, found).mean().sdr_db


def test_long_windows_improve_reverberant_mixtures() -> None:
    """Long windows gain 4 dB over anechoic settings; the images still sum up."""
    for images in (room_images(3.0, 0.4), reverberant_images(2, seconds=8.0)):
        assert sdr_at(0.3, images) > sdr_at(0.1, images) + 4


def test_halls_have_longer_windows() -> None:
    """Where sound decays slowly, windows of 1.5 s gain another decibel."""
    images = room_images(6.0, 1.0)
    assert sdr_at(0.5, images) > sdr_at(0.3, images) + 1


@pytest.mark.parametrize(
    ("seconds", "decay_seconds", "expected"),
    [
        (1.0, 0.5, [0.512]),
        (3.5, 0.5, [0.512]),
        (3.7, 0.5, [0.512, 1.024]),
        (5.3, 0.5, [0.512, 1.024]),
        (5.5, 0.5, [0.512, 1.024, 1.536]),
        (5.5, 0.3, [0.512, 1.024]),
        (5.5, np.nan, [0.512, 1.024]),
    ],
)
def test_recordings_have_enough_long_windows(
    seconds: float, decay_seconds: float, expected: list[float]
) -> None:
    """Windows get longer while the recording has enough of them, and longest in halls."""
    settings = rendering.SpatialFilterSettings()
    reverberation = ReverberationEstimate(decay_seconds)
    windows = rendering._long_windows(round(seconds * 16_000), LAYOUT, reverberation, settings)
    np.testing.assert_allclose(np.array(windows) / LAYOUT.rate, expected)


@pytest.mark.parametrize(
    ("decay_seconds", "snr_db", "count"), [(0.41, 15.0, 2), (0.41, 30.0, 3), (0.59, 15.0, 3)]
)
def test_noise_is_no_hall(decay_seconds: float, snr_db: float, count: int) -> None:
    """Noise makes measured decays slower; halls lower the SNR, but their decays are slower yet."""
    settings = rendering.SpatialFilterSettings()
    reverberation = ReverberationEstimate(decay_seconds, snr_db)
    windows = rendering._long_windows(8 * 16_000, LAYOUT, reverberation, settings)
    assert len(windows) == count


def test_long_windows_have_a_duration_in_any_layout() -> None:
    """They are as long in seconds with other windows of the cues, to within half of such a one."""
    layout = ea.CueLayout(rate=44_100, window=2048, hop=256)
    settings, reverberation = rendering.SpatialFilterSettings(), ReverberationEstimate(0.5)
    windows = rendering._long_windows(8 * 44_100, layout, reverberation, settings)
    np.testing.assert_allclose(np.array(windows) / 44_100, [0.512, 1.024, 1.536], atol=0.024)


@pytest.mark.parametrize("is_reverberant", [False, True])
def test_filters_detect_reverberation(is_reverberant: bool) -> None:
    """If it is unknown whether the room is reverberant, the result is that of the right setting."""
    images = reverberant_images(2, seconds=2.0) if is_reverberant else images_of(2)
    mixture, masks = images.sum(axis=0), masks_of(images, softness=0.2)
    right, wrong, detected = (
        separate(mixture, masks, LAYOUT, reverberation=ReverberationEstimate(decay_seconds))
        for decay_seconds in (*((0.4, 0.1) if is_reverberant else (0.1, 0.4)), 0.22)
    )
    np.testing.assert_array_equal(detected, right)
    assert np.abs(detected - wrong).max() > 1e-3 * np.abs(mixture).max()


def test_decision_of_an_earlier_block_is_kept() -> None:
    """The first ratio completes the estimate; more than two sources and silence measure none."""
    images = reverberant_images(2, seconds=2.0)
    mixture, masks = images.sum(axis=0), masks_of(images, softness=0.2)
    uncertain = ReverberationEstimate(0.22)
    _, completed = rendering.separate_spatially(mixture, masks, LAYOUT, reverberation=uncertain)
    assert completed.reverberant
    assert completed == replace(uncertain, diffuse_ratio=completed.diffuse_ratio)
    for decay_seconds, ratio in ((0.4, 0.02), (0.1, 0.002)):
        known = replace(uncertain, diffuse_ratio=ratio)
        found, kept = rendering.separate_spatially(mixture, masks, LAYOUT, reverberation=known)
        assert kept == known
        expected = separate(mixture, masks, LAYOUT, ReverberationEstimate(decay_seconds))
        np.testing.assert_array_equal(found, expected)
    three = images_of(3, seconds=0.5)
    for samples in (three.sum(axis=0), np.zeros_like(three[0])):
        _, unchanged = rendering.separate_spatially(
            samples, masks_of(three), LAYOUT, reverberation=uncertain
        )
        assert unchanged is uncertain
