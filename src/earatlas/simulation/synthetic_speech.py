"""Speech-like sound without words: the gaps of speech in time and frequency, and no recordings."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from earatlas.types import Array

__all__ = ["SyntheticTalkers", "synthetic_speech"]

_VOICES, _VOICE_SECONDS = 32, 6.0


@dataclass(frozen=True)
class SyntheticTalkers:
    """Many murmurs for little: stretches of a few long ones, which are made when first asked for.

    A new synthetic_speech for every scene took a sixth of learning a head.
    """

    rate: int  # Hz
    seed: int = 0

    @cached_property
    def voices(self) -> tuple[Array, ...]:
        """The long ones; they let threads begin if asked for before them."""
        rngs = (np.random.default_rng((self.seed, n)) for n in range(_VOICES))
        return tuple(synthetic_speech(_VOICE_SECONDS, self.rate, rng) for rng in rngs)

    def stretch(self, seconds: float, rng: np.random.Generator) -> Array:
        """Samples (n,) of one of them, of at most six seconds."""
        n = int(seconds * self.rate)
        voice = self.voices[rng.integers(len(self.voices))]
        start = int(rng.integers(len(voice) - n + 1))
        return voice[start : start + n]


def synthetic_speech(
    seconds: float, rate: int = 16_000, seed: int | np.random.Generator = 0
) -> Array:
    """A sound (n,) with the gaps of speech: syllables of voiced and hissing sound, and pauses."""
    rng = np.random.default_rng(seed)
    n = int(seconds * rate)
    time = np.arange(n) / rate
    sound = np.zeros(n)
    start = 0.0
    base = rng.uniform(90, 220)  # Hz, the talker's pitch
    while start < seconds:
        length = rng.uniform(0.08, 0.25)
        span = slice(*np.searchsorted(time, (start, start + length)))
        t = time[span] - start
        if len(t) > 8:
            rise = np.minimum(t, length - t) / 0.03
            gate = np.minimum(np.maximum(rise, 0.0), 1.0)
            sound[span] += gate * (_hiss if rng.random() < 0.18 else _voice)(t, rate, base, rng)
        start += length + (rng.uniform(0.1, 0.4) if rng.random() < 0.2 else 0.0)
    return sound


def _voice(t: Array, rate: int, base: float, rng: np.random.Generator) -> Array:
    """A pulse train of gliding pitch under three formants and a falling spectrum."""
    pitch = base * rng.uniform(0.85, 1.2) * (1 + rng.uniform(-0.5, 0.5) * t)
    pulses = np.diff(np.floor(np.cumsum(pitch) / rate), prepend=0.0)
    f = np.fft.rfftfreq(len(t), 1 / rate)
    formants = rng.uniform([300, 800, 2200], [800, 2200, 3400])
    shape = sum(1 / (1 + ((f - p) / (60 + 0.05 * p)) ** 2) for p in formants)
    level = (shape + 0.01) * (np.maximum(f, 80) / 200) ** -1.5 * (f > 50)
    voiced: Array = np.fft.irfft(np.fft.rfft(pulses) * level, len(t)) * np.sqrt(len(t))
    return voiced


def _hiss(t: Array, rate: int, _: float, rng: np.random.Generator) -> Array:
    """Noise around a random high frequency, as of s and f."""
    noise = np.fft.rfft(rng.normal(size=len(t)))
    f = np.fft.rfftfreq(len(t), 1 / rate)
    middle = rng.uniform(2500, 6000)
    return np.fft.irfft(noise * np.exp(-(((f - middle) / 1500) ** 2)), len(t)) * 0.25
