"""Recordings as people have them: odd rates, an offset, clipping. Sounds still add up, and stay."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import earatlas as ea

PLACES = [(40.0, 0.0), (-40.0, 0.0)]


def recorded(head: ea.Head, rate: int) -> ea.Audio:
    """Two murmurs of 1.2 s at a rate."""
    sounds = [ea.murmur(1.2, seed=seed) for seed in (1, 2)]
    mixture = ea.render_scene(head, sounds, PLACES).mixture
    return mixture if rate == mixture.rate else mixture.at_rate(rate)


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


def test_an_offset_is_shared_out(atlas: ea.Atlas, atlas_head: ea.Head) -> None:
    """A tenth of full scale at 0 Hz: both sources are still there, and add up with it."""
    audio = recorded(atlas_head, 16_000)
    laden = ea.Audio(0.4 * audio.samples / np.abs(audio.samples).max() + 0.1, 16_000)
    sounds = separated(atlas, laden)
    np.testing.assert_allclose(sounds.sum(axis=0), laden.samples, atol=1e-7)
    heard = (sounds - sounds.mean(axis=-1, keepdims=True)).std(axis=(1, 2))
    assert heard.min() > 0.2 * heard.max()


def test_clipped_sound_is_separated(atlas: ea.Atlas, atlas_head: ea.Head) -> None:
    """A quarter of the peak is cut off: finite, adds up, and neither source is the mixture."""
    audio = recorded(atlas_head, 16_000)
    loud = 2.0 * audio.samples / np.abs(audio.samples).max()
    clipped = ea.Audio(np.clip(loud, -0.5, 0.5), 16_000)
    sounds = separated(atlas, clipped)
    np.testing.assert_allclose(sounds.sum(axis=0), clipped.samples, atol=1e-7)
    shares = (sounds**2).sum(axis=(1, 2)) / (clipped.samples**2).sum()
    assert shares.min() > 0.1
