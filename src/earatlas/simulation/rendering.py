"""Signals of a scene: high-pass filtered dry sounds, images at their start times, and noise.

M  sources    n  samples of the scene
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import add

import numpy as np

from earatlas.errors import InputError
from earatlas.simulation.placement import PlacedSource
from earatlas.simulation.scene_settings import SceneSettings
from earatlas.types import Array

__all__ = ["high_pass", "high_pass_sounds", "source_images", "white_noise"]

# Evidence: docs/figures/settings/simulation.md, "scene".
_HIGH_PASS_HERTZ = 20.0  # cutoff of the filter for dry sounds
_MIN_AUDIBLE_FRACTION = 1e-6  # fraction of the energy above the cutoff; below, it is rounding noise


def source_images(sources: Sequence[PlacedSource], dry: Sequence[Array], starts: Array) -> Array:
    """Return the image of each dry sound from its start on: (M, 2, n)."""
    begins = [int(start) for start in starts]
    parts = [s.image(x, begin) for s, x, begin in zip(sources, dry, begins, strict=True)]
    images = np.zeros((len(parts), 2, max(map(add, begins, (p.shape[1] for p in parts)))))
    for image, part, begin in zip(images, parts, begins, strict=True):
        image[:, begin : begin + part.shape[1]] = part
    return images


def white_noise(images: Array, settings: SceneSettings) -> Array:
    """Return white noise (2, n), independent in the two ears, at the requested SNR."""
    noise = np.random.default_rng(settings.seed).normal(size=images.shape[1:])
    power = float(np.mean(images.sum(axis=0) ** 2))
    noise *= np.sqrt(power / np.mean(noise**2)) * 10 ** (-settings.snr_db / 20)
    return noise


def high_pass_sounds(dry: Sequence[Array], rate: float) -> list[Array]:
    """Return the sounds above 20 Hz; raise an InputError for a sound without any energy there."""
    audible = [high_pass(sound, rate) for sound in dry]
    for m, (sound, filtered) in enumerate(zip(dry, audible, strict=True)):
        if (filtered**2).sum() < _MIN_AUDIBLE_FRACTION * (sound**2).sum():
            raise InputError(
                f"sounds must have energy above {_HIGH_PASS_HERTZ:g} Hz, got almost none in "
                f"sound {m}. Choose an audible sound."
            )
    return audible


def high_pass(sound: Array, rate: float) -> Array:
    """Return a sound (n,) above 20 Hz, filtered as if its first sample had lasted forever."""
    from scipy.signal import butter, sosfilt, sosfilt_zi

    sections = butter(2, _HIGH_PASS_HERTZ, "high", fs=rate, output="sos")
    audible: Array = sosfilt(sections, sound, zi=sosfilt_zi(sections) * sound[0])[0]
    return audible
