"""Separation and localization of degraded recordings: unusual rates, DC offset, clipping."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest

import earatlas as ea

PLACES = [(40.0, 0.0), (-40.0, 0.0)]


def record_mixture(head: ea.Head, rate: int) -> ea.Audio:
    """Return a mixture of two synthetic talkers of 1.2 s at a sampling rate."""
    sounds = [ea.synthetic_speech(1.2, seed=seed) for seed in (1, 2)]
    mixture = ea.render_scene(head, sounds, PLACES).mixture
    return mixture if rate == mixture.rate else mixture.at_rate(rate)


def without_offset(samples: np.ndarray) -> np.ndarray:
    """Return samples with zero mean, at a level that leaves headroom for an offset."""
    zero_mean = samples - samples.mean(axis=1, keepdims=True)
    scaled: np.ndarray = 0.4 * zero_mean / np.abs(zero_mean).max()
    return scaled


def separate_two(atlas: ea.Atlas, audio: ea.Audio) -> np.ndarray:
    """Separate two sources and return their samples (2, 2, n)."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ea.EaratlasWarning)
        scene = atlas.separate(audio, n_sources=2)
    assert all(source.audio.rate == audio.rate for source in scene.sources)
    return np.stack([source.audio.samples for source in scene.sources])


@pytest.mark.parametrize("rate", [11_025, 22_050, 37_800])
def test_separation_keeps_the_sampling_rate(
    atlas: ea.Atlas, atlas_head: ea.Head, rate: int
) -> None:
    """Sources have the rate and length of the recording and add up to it."""
    audio = record_mixture(atlas_head, rate)
    sounds = separate_two(atlas, audio)
    assert sounds.shape[1:] == audio.samples.shape
    np.testing.assert_allclose(sounds.sum(axis=0), audio.samples, atol=1e-7)


@pytest.mark.parametrize("rate", [16_000, 22_050])
def test_separation_is_invariant_to_dc_offset(
    atlas: ea.Atlas, atlas_head: ea.Head, rate: int
) -> None:
    """Each of two sources contains half of the offset; all else is unchanged."""
    audio = record_mixture(atlas_head, rate)
    samples = without_offset(audio.samples)
    offset = np.array([[0.1], [-0.06]])
    clean = separate_two(atlas, ea.Audio(samples, rate))
    with_offset = separate_two(atlas, ea.Audio(samples + offset, rate))
    np.testing.assert_allclose(with_offset.sum(axis=0), samples + offset, atol=1e-7)
    np.testing.assert_allclose(with_offset - offset / 2, clean, atol=1e-6)


def test_localization_is_invariant_to_dc_offset(
    atlas: ea.Atlas, atlas_head: ea.Head, tmp_path: Path
) -> None:
    """The direction is that without the offset, in memory and in a file at another rate."""
    audio = ea.render_scene(atlas_head, [ea.synthetic_speech(1.2, seed=1)], PLACES[:1]).mixture
    samples = without_offset(audio.samples)
    with_offset = ea.Audio(samples + np.array([[0.1], [-0.06]]), 16_000)
    clean = atlas.localize(ea.Audio(samples, 16_000))
    np.testing.assert_allclose(atlas.localize(with_offset).direction, clean.direction, atol=1e-4)
    file = with_offset.at_rate(22_050).write(tmp_path / "with_offset.wav")
    with pytest.warns(ea.EaratlasWarning, match="removed before the analysis"):
        found = atlas.localize_file(file)
    np.testing.assert_allclose(found.direction, clean.direction, atol=0.5)


def test_clipped_recording_is_separated(atlas: ea.Atlas, atlas_head: ea.Head) -> None:
    """The sources are finite, add up to the mixture, and neither of them is the mixture."""
    audio = record_mixture(atlas_head, 16_000)
    loud = 2.0 * audio.samples / np.abs(audio.samples).max()
    clipped = ea.Audio(np.clip(loud, -0.5, 0.5), 16_000)
    sounds = separate_two(atlas, clipped)
    np.testing.assert_allclose(sounds.sum(axis=0), clipped.samples, atol=1e-7)
    shares = (sounds**2).sum(axis=(1, 2)) / (clipped.samples**2).sum()
    assert shares.min() > 0.1
