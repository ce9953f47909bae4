"""Recordings as people have them: odd rates, an offset, clipping. Sounds still add up, and stay."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest

import earatlas as ea

PLACES = [(40.0, 0.0), (-40.0, 0.0)]


def recorded(head: ea.Head, rate: int) -> ea.Audio:
    """Two murmurs of 1.2 s at a rate."""
    sounds = [ea.synthetic_speech(1.2, seed=seed) for seed in (1, 2)]
    mixture = ea.render_scene(head, sounds, PLACES).mixture
    return mixture if rate == mixture.rate else mixture.at_rate(rate)


def without_offset(samples: np.ndarray) -> np.ndarray:
    """Samples of 0 in the mean, which leave room for an offset."""
    level = samples - samples.mean(axis=1, keepdims=True)
    scaled: np.ndarray = 0.4 * level / np.abs(level).max()
    return scaled


def separated(atlas: ea.Atlas, audio: ea.Audio) -> np.ndarray:
    """Sounds (2, 2, n) of two sources."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ea.EaratlasWarning)
        scene = atlas.separate(audio, n_sources=2)
    assert all(source.audio.rate == audio.rate for source in scene.sources)
    return np.stack([source.audio.samples for source in scene.sources])


@pytest.mark.parametrize("rate", [11_025, 22_050, 37_800])
def test_odd_rates_come_back_as_they_went_in(
    atlas: ea.Atlas, atlas_head: ea.Head, rate: int
) -> None:
    """The same rate and number of samples, and sources that add up."""
    audio = recorded(atlas_head, rate)
    sounds = separated(atlas, audio)
    assert sounds.shape[1:] == audio.samples.shape
    np.testing.assert_allclose(sounds.sum(axis=0), audio.samples, atol=1e-7)


@pytest.mark.parametrize("rate", [16_000, 22_050])
def test_an_offset_changes_nothing_but_itself(
    atlas: ea.Atlas, atlas_head: ea.Head, rate: int
) -> None:
    """A tenth of full scale, less in the other ear: shared out, and all else is as without."""
    audio = recorded(atlas_head, rate)
    samples = without_offset(audio.samples)
    offset = np.array([[0.1], [-0.06]])
    clean = separated(atlas, ea.Audio(samples, rate))
    laden = separated(atlas, ea.Audio(samples + offset, rate))
    np.testing.assert_allclose(laden.sum(axis=0), samples + offset, atol=1e-7)
    np.testing.assert_allclose(laden - offset / 2, clean, atol=1e-6)


def test_an_offset_moves_no_direction(atlas: ea.Atlas, atlas_head: ea.Head, tmp_path: Path) -> None:
    """One sound is where it is without the offset, in memory and in a file at another rate."""
    audio = ea.render_scene(atlas_head, [ea.synthetic_speech(1.2, seed=1)], PLACES[:1]).mixture
    samples = without_offset(audio.samples)
    laden = ea.Audio(samples + np.array([[0.1], [-0.06]]), 16_000)
    clean = atlas.localize(ea.Audio(samples, 16_000))
    np.testing.assert_allclose(atlas.localize(laden).direction, clean.direction, atol=1e-4)
    file = laden.at_rate(22_050).write(tmp_path / "laden.wav")
    with pytest.warns(ea.EaratlasWarning, match="taken out before anything"):
        found = atlas.localize_file(file)
    np.testing.assert_allclose(found.direction, clean.direction, atol=0.5)


def test_clipped_sound_is_separated(atlas: ea.Atlas, atlas_head: ea.Head) -> None:
    """A quarter of the peak is cut off: finite, adds up, and neither source is the mixture."""
    audio = recorded(atlas_head, 16_000)
    loud = 2.0 * audio.samples / np.abs(audio.samples).max()
    clipped = ea.Audio(np.clip(loud, -0.5, 0.5), 16_000)
    sounds = separated(atlas, clipped)
    np.testing.assert_allclose(sounds.sum(axis=0), clipped.samples, atol=1e-7)
    shares = (sounds**2).sum(axis=(1, 2)) / (clipped.samples**2).sum()
    assert shares.min() > 0.1
