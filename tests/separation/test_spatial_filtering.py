"""Filters that use both ears: they add up, they cancel, and they leave silence silent."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.signal import fftconvolve

import earatlas as ea
from earatlas.evaluation.masks import oracle_masks
from earatlas.evaluation.quality import separation_quality
from earatlas.features.stft import stft
from earatlas.separation.demixing import spatial_filtering, steering_vectors
from earatlas.separation.demixing.masking import render
from earatlas.types import Array

LAYOUT = ea.CueLayout()


def images_of(M: int, seconds: float = 2.0, seed: int = 0) -> Array:
    """SyntheticTalkers (M, 2, n) that reach the ears through short filters of their own."""
    rng = np.random.default_rng(seed)
    n = int(seconds * 16_000)
    filters = rng.normal(size=(M, 2, 12)) * np.exp(-np.arange(12) / 3)
    dry = [ea.synthetic_speech(seconds, seed=seed + 10 * m) for m in range(M)]
    return np.array(
        [[np.convolve(d, ear)[:n] for ear in pair] for d, pair in zip(dry, filters, strict=True)]
    )


def masks_of(images: Array, softness: float = 0.1) -> Array:
    """True masks (M, F, T), not quite sure of themselves."""
    spectra = np.stack([stft(image, LAYOUT.window, LAYOUT.hop) for image in images])
    true = oracle_masks(spectra[:, :, 1:])
    return (1 - softness) * true + softness / len(images)


@pytest.mark.parametrize("M", [1, 2, 3])
def test_sounds_add_up(M: int) -> None:
    """Nothing of the mixture is lost or added."""
    images = images_of(M)
    mixture = images.sum(axis=0) + 1e-3 * np.random.default_rng(9).normal(size=images.shape[1:])
    sounds = spatial_filtering.separate_spatially(mixture, masks_of(images), LAYOUT)
    assert sounds.shape == images.shape
    np.testing.assert_allclose(sounds.sum(axis=0), mixture, atol=1e-9 * np.abs(mixture).max())


def test_one_source_is_the_mixture() -> None:
    """To the last bit."""
    images = images_of(1)
    sounds = spatial_filtering.separate_spatially(images[0], np.ones((1, 512, 251)), LAYOUT)
    np.testing.assert_array_equal(sounds[0], images[0])


def test_two_sources_cancel_each_other() -> None:
    """Where masks reach about 15 dB, filters reach far more."""
    images = images_of(2)
    mixture, masks = images.sum(axis=0), masks_of(images, softness=0.2)
    spectra = stft(mixture, LAYOUT.window, LAYOUT.hop)
    by_mask = separation_quality(images, render(spectra, masks, LAYOUT, mixture.shape[1])).mean()
    by_both = separation_quality(
        images, spatial_filtering.separate_spatially(mixture, masks, LAYOUT)
    ).mean()
    assert by_both.sdr_db > 20
    assert by_both.sdr_db > by_mask.sdr_db + 6


def test_three_sources_gain_too() -> None:
    """Two ears cannot cancel two of three everywhere, but more than masks they can."""
    images = images_of(3)
    mixture, masks = images.sum(axis=0), masks_of(images)
    spectra = stft(mixture, LAYOUT.window, LAYOUT.hop)
    by_mask = separation_quality(images, render(spectra, masks, LAYOUT, mixture.shape[1])).mean()
    by_both = separation_quality(
        images, spatial_filtering.separate_spatially(mixture, masks, LAYOUT)
    ).mean()
    # One Wiener filter with the masks' own columns and powers gains 2.5 dB.
    assert by_both.sdr_db > by_mask.sdr_db + 4


def test_silence_stays_silent() -> None:
    """A source that says nothing for two seconds comes out 30 dB below the other there."""
    images = images_of(2, seconds=5.0)
    silent = slice(int(2.0 * 16_000), int(4.0 * 16_000))
    images[1][:, silent] = 0.0
    masks = masks_of(images, softness=0.01)
    sounds = spatial_filtering.separate_spatially(images.sum(axis=0), masks, LAYOUT)
    middle = slice(int(2.4 * 16_000), int(3.6 * 16_000))
    left = (sounds[1][:, middle] ** 2).sum() / (images[0][:, middle] ** 2).sum()
    assert 10 * np.log10(left) < -30


@pytest.mark.parametrize("gain", [0.6, -0.3])
def test_one_sound_that_is_louder_in_one_ear_stays_finite(gain: float) -> None:
    """Two sources cannot be told apart by ears that are proportional: no NaN, nothing lost."""
    rng = np.random.default_rng(3)
    sound = rng.normal(size=24_000) * 0.1
    sound[9_000:13_000] = 0
    samples = np.stack([sound, gain * sound])
    layout = ea.CueLayout()
    mask = rng.uniform(size=(layout.n_frequencies, 24_000 // layout.hop + 1))
    sounds = spatial_filtering.separate_spatially(samples, np.stack([mask, 1 - mask]), layout)
    assert np.isfinite(sounds).all()
    assert np.abs(sounds).max() < 1.0
    np.testing.assert_allclose(sounds.sum(axis=0), samples, atol=1e-9)


def test_relabelled_masks_relabel_the_sounds() -> None:
    """The order of the sources carries no meaning, to single precision."""
    images = images_of(2)
    mixture, masks = images.sum(axis=0), masks_of(images)
    sounds = spatial_filtering.separate_spatially(mixture, masks, LAYOUT)
    swapped = spatial_filtering.separate_spatially(mixture, masks[::-1], LAYOUT)
    np.testing.assert_allclose(swapped[::-1], sounds, atol=5e-6 * np.abs(mixture).max())


def test_ratios_that_are_not_known_change_nothing() -> None:
    """NaN at all frequencies is as good as no ratios."""
    images = images_of(2)
    mixture, masks = images.sum(axis=0), masks_of(images)
    nothing = np.full((2, 512), np.nan, dtype=np.complex128)
    np.testing.assert_array_equal(
        spatial_filtering.separate_spatially(mixture, masks, LAYOUT, ratios=nothing),
        spatial_filtering.separate_spatially(mixture, masks, LAYOUT),
    )


def test_level_changes_only_the_level() -> None:
    """A louder recording has the same answer, louder."""
    images = images_of(2)
    mixture, masks = images.sum(axis=0), masks_of(images)
    sounds = spatial_filtering.separate_spatially(mixture, masks, LAYOUT)
    louder = spatial_filtering.separate_spatially(100 * mixture, masks, LAYOUT)
    np.testing.assert_allclose(louder, 100 * sounds, atol=1e-7 * np.abs(100 * mixture).max())


def test_wiener_against_matrices() -> None:
    """v_m R_m (Σ v R)⁻¹ x, bin by bin."""
    rng = np.random.default_rng(3)
    M, F, T = 3, 4, 5
    X = rng.normal(size=(2, F, T)) + 1j * rng.normal(size=(2, F, T))
    A = rng.normal(size=(F, 2, M)) + 1j * rng.normal(size=(F, 2, M))
    v = rng.uniform(0.1, 2.0, size=(M, F, T))
    images = steering_vectors.wiener(X, A, v, 0.3)
    for f in range(F):
        for t in range(T):
            R = [np.outer(A[f, :, m], A[f, :, m].conj()) + 0.3 * np.eye(2) for m in range(M)]
            total = sum(v[m, f, t] * R[m] for m in range(M))
            for m in range(M):
                expected = v[m, f, t] * R[m] @ np.linalg.solve(total, X[:, f, t])
                np.testing.assert_allclose(images[m, :, f, t], expected, rtol=1e-9)


def test_pair_is_stationary_for_its_powers() -> None:
    """At the answer, the filters make both weighted covariances diagonal (the IP conditions)."""
    rng = np.random.default_rng(4)
    X = rng.normal(size=(2, 3, 50)) + 1j * rng.normal(size=(2, 3, 50))
    v = rng.uniform(0.2, 3.0, size=(2, 3, 50))
    W = np.linalg.inv(steering_vectors.pair(X, v))
    for f in range(3):
        for m in range(2):
            V = (X[:, f] / v[m, f]) @ X[:, f].conj().T
            cross = W[f, 0] @ V @ W[f, 1].conj()
            size = np.sqrt(np.abs((W[f, 0] @ V @ W[f, 0].conj()) * (W[f, 1] @ V @ W[f, 1].conj())))
            assert abs(cross) < 1e-6 * size


def test_digital_silence_is_no_trouble() -> None:
    """Zeros in, zeros out."""
    sounds = spatial_filtering.separate_spatially(
        np.zeros((2, 8000)), np.full((2, 512, 63), 0.5), LAYOUT
    )
    assert not sounds.any()


def test_masks_that_are_wrong_above_2_khz_do_no_harm() -> None:
    """Sources that are exchanged in a stretch of frequencies are put right."""
    images = images_of(2, seconds=3.0)
    mixture, masks = images.sum(axis=0), masks_of(images, softness=0.2)
    right = separation_quality(
        images, spatial_filtering.separate_spatially(mixture, masks, LAYOUT)
    ).mean()
    masks[:, 128:] = 0.5 + 0.3 * (masks[::-1, 128:] - 0.5)
    wrong = separation_quality(
        images, spatial_filtering.separate_spatially(mixture, masks, LAYOUT)
    ).mean()
    assert wrong.sdr_db > right.sdr_db - 2


def test_spread_is_small_in_the_open_and_large_in_a_room() -> None:
    """ε follows how much of a source comes beside its one ratio."""
    rng = np.random.default_rng(5)
    A = rng.normal(size=(6, 2, 2)) + 1j * rng.normal(size=(6, 2, 2))
    A /= np.sqrt((np.abs(A) ** 2).sum(axis=1, keepdims=True))
    y = rng.normal(size=(2, 6, 400)) + 1j * rng.normal(size=(2, 6, 400))
    y[0, :, ::2], y[1, :, 1::2] = 0, 0  # one at a time
    direct = np.einsum("fam,mft->aft", A, y)
    shares = np.broadcast_to(
        np.stack([np.arange(400) % 2, 1 - np.arange(400) % 2])[:, None], y.shape
    )
    spreads = []
    for diffuse in (1e-3, 1e-2, 1e-1):
        noise = rng.normal(size=direct.shape) + 1j * rng.normal(size=direct.shape)
        spreads.append(
            spatial_filtering.measured_spread(direct + diffuse * noise, A, shares.astype(float))
        )
    assert spreads[0] < spreads[1] < spreads[2] < 0.31
    assert spreads[0] < 1e-5
    assert spreads[2] > 1e-3


def test_powers_are_those_of_the_images() -> None:
    """|a_m y_m|², y = A⁻¹ x, from the formula."""
    rng = np.random.default_rng(6)
    X = rng.normal(size=(2, 3, 5)) + 1j * rng.normal(size=(2, 3, 5))
    A = rng.normal(size=(3, 2, 2)) + 1j * rng.normal(size=(3, 2, 2))
    powers = steering_vectors.powers(X, A)
    for f in range(3):
        y = np.linalg.solve(A[f], X[:, f])
        for m in range(2):
            image = np.outer(A[f, :, m], y[m])
            np.testing.assert_allclose(powers[m, f], (np.abs(image) ** 2).sum(axis=0))


def reverberant(M: int, seconds: float = 3.0, t60: float = 0.4) -> Array:
    """SyntheticTalkers (M, 2, n) that ring in both ears, each in its own way."""
    rng = np.random.default_rng(12)
    n = int(seconds * 16_000)
    decay = np.exp(-6.9 * np.arange(int(t60 * 16_000)) / (t60 * 16_000))
    images = np.empty((M, 2, n))
    for m, ears in enumerate(images):
        dry = ea.synthetic_speech(seconds, seed=40 + m)
        for ear in ears:
            ring = 0.05 * rng.normal(size=len(decay)) * decay
            ring[rng.integers(8, 20)] += 1.0
            ear[:] = fftconvolve(dry, ring)[:n]
    return images


def test_a_room_is_cancelled_in_long_windows() -> None:
    """Filters of half a second hold more of a room's answer; the sum stays whole."""
    images = reverberant(2)
    mixture, masks = images.sum(axis=0), masks_of(images, softness=0.2)
    as_open = spatial_filtering.separate_spatially(mixture, masks, LAYOUT)
    in_room = spatial_filtering.separate_spatially(mixture, masks, LAYOUT, in_room=True)
    np.testing.assert_allclose(in_room.sum(axis=0), mixture, atol=1e-9 * np.abs(mixture).max())
    better = separation_quality(images, in_room).mean().sdr_db
    assert better > separation_quality(images, as_open).mean().sdr_db + 0.8


@pytest.mark.parametrize("is_room", [False, True])
def test_where_it_is_not_told_the_filters_tell_a_room(is_room: bool) -> None:
    """What they miss is little in the open and much in a room: the same sounds as if told."""
    images = reverberant(2, seconds=2.0) if is_room else images_of(2)
    mixture, masks = images.sum(axis=0), masks_of(images, softness=0.2)
    told, other, found = (
        spatial_filtering.separate_spatially(mixture, masks, LAYOUT, in_room=in_room)
        for in_room in (is_room, not is_room, None)
    )
    np.testing.assert_array_equal(found, told)
    assert np.abs(found - other).max() > 1e-3 * np.abs(mixture).max()


def test_moments_are_those_of_single_bins() -> None:
    """Covariances and powers from four numbers a bin, against loops over bins."""
    rng = np.random.default_rng(8)
    M, F, T = 2, 3, 5
    X = rng.normal(size=(2, F, T)) + 1j * rng.normal(size=(2, F, T))
    A = rng.normal(size=(F, 2, M)) + 1j * rng.normal(size=(F, 2, M))
    weights = rng.uniform(0.1, 2.0, size=(M, F, T))
    moments = steering_vectors.Moments.of(X)
    found, powers = moments.covariances(weights), moments.powers(A)
    for m in range(M):
        for f in range(F):
            expected = sum(
                weights[m, f, t] * np.outer(X[:, f, t], X[:, f, t].conj()) for t in range(T)
            )
            np.testing.assert_allclose(found[m, f], expected, rtol=1e-9)
            y = np.linalg.inv(A[f]) @ X[:, f]
            image = A[f][:, m, None] * y[m]
            np.testing.assert_allclose(powers[m, f], (np.abs(image) ** 2).sum(axis=0), rtol=1e-9)
