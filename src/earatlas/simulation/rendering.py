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

__all__ = ["PEAK", "high_pass", "high_pass_sounds", "source_images", "white_noise"]

PEAK = 0.5  # largest absolute sample of rendered and spoken sounds; full scale is 1


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


def high_pass_sounds(dry: Sequence[Array], rate: float, cutoff_hz: float = 20.0) -> list[Array]:
    """Return the sounds above a cutoff; raise an InputError for a sound without any energy there.

    Evidence: docs/figures/settings/simulation.md, "scene".
    """
    audible = [high_pass(sound, rate, cutoff_hz) for sound in dry]
    for m, (sound, filtered) in enumerate(zip(dry, audible, strict=True)):
        if (filtered**2).sum() < 1e-6 * (sound**2).sum():  # what is left is rounding noise
            raise InputError(
                f"sounds must have energy above {cutoff_hz:g} Hz, got almost none in "
                f"sound {m}. Choose an audible sound."
            )
    return audible


def high_pass(sound: Array, rate: float, cutoff_hz: float = 20.0) -> Array:
    """Return a sound (n,) above a cutoff, filtered as if its first sample had lasted forever."""
    from scipy.signal import butter, sosfilt, sosfilt_zi

    sections = butter(2, cutoff_hz, "high", fs=rate, output="sos")
    audible: Array = sosfilt(sections, sound, zi=sosfilt_zi(sections) * sound[0])[0]
    return audible
