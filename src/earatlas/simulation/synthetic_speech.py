"""Synthetic speech: random syllables with the temporal and spectral sparsity of speech.

Input: a duration, a sample rate and a seed. Output: a mono sound. No recordings are needed.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from numbers import Real

import numpy as np

from earatlas.errors import InputError
from earatlas.features.audio import check_rate
from earatlas.types import Array

__all__ = ["SyntheticTalkers", "synthetic_speech"]


# Evidence: docs/figures/settings/simulation.md, "synthetic_speech".
@dataclass(frozen=True)
class SyntheticTalkers:
    """Excerpts of a few long synthetic speech signals, which are generated on first use."""

    rate: int  # samples per second
    seed: int = 0
    n_voices: int = 32  # long signals that excerpts are taken from
    voice_seconds: float = 6.0  # length of each

    @cached_property
    def voices(self) -> tuple[Array, ...]:
        """The long signals. Access them once before threads take excerpts of them."""
        rngs = (np.random.default_rng((self.seed, n)) for n in range(self.n_voices))
        return tuple(synthetic_speech(self.voice_seconds, self.rate, rng) for rng in rngs)

    def excerpt(self, seconds: float, rng: np.random.Generator) -> Array:
        """Return an excerpt (n,) of a random signal, of at most `voice_seconds`."""
        n = int(seconds * self.rate)
        voice = self.voices[rng.integers(len(self.voices))]
        start = int(rng.integers(len(voice) - n + 1))
        return voice[start : start + n]


def synthetic_speech(
    seconds: float, rate: int = 16_000, seed: int | np.random.Generator = 0
) -> Array:
    """Return synthetic speech: a sequence of voiced syllables, fricatives and pauses.

    Voiced syllables are pulse trains with a gliding pitch, filtered by three random formants;
    fricatives are bands of noise. The sound has the sparsity of speech but no words.

    Parameters
    ----------
    seconds : float
        Duration.
    rate : int, default 16000
        Samples per second.
    seed : int or numpy.random.Generator, default 0
        Seed of the random talker and syllables.

    Returns
    -------
    ndarray of shape (n,)
        Samples, with n = int(seconds * rate).

    Raises
    ------
    InputError
        If `seconds` is negative or not finite, or `rate` is not a positive whole number.

    Examples
    --------
    >>> import earatlas as ea
    >>> ea.synthetic_speech(0.5, rate=16_000, seed=3).shape
    (8000,)

    """
    if not isinstance(seconds, Real) or not 0 <= seconds < np.inf:
        raise InputError(
            f"seconds must be a finite number of at least 0, got {seconds!r}. Try 2.0."
        )
    rate, rng = check_rate(rate), np.random.default_rng(seed)
    n = int(seconds * rate)
    time = np.arange(n) / rate
    sound = np.zeros(n)
    start = 0.0
    base = rng.uniform(90, 220)  # fundamental frequency of the talker in Hz
    while start < seconds:
        length = rng.uniform(0.08, 0.25)
        span = slice(*np.searchsorted(time, (start, start + length)))
        t = time[span] - start
        if len(t) > 8:
            rise = np.minimum(t, length - t) / 0.03
            envelope = np.minimum(np.maximum(rise, 0.0), 1.0)
            syllable = _fricative if rng.random() < 0.18 else _voiced
            sound[span] += envelope * syllable(t, rate, base, rng)
        start += length + (rng.uniform(0.1, 0.4) if rng.random() < 0.2 else 0.0)
    return sound


def _voiced(t: Array, rate: int, base: float, rng: np.random.Generator) -> Array:
    """Return a pulse train with gliding pitch, three formants and a falling spectrum."""
    pitch = base * rng.uniform(0.85, 1.2) * (1 + rng.uniform(-0.5, 0.5) * t)
    pulses = np.diff(np.floor(np.cumsum(pitch) / rate), prepend=0.0)
    f = np.fft.rfftfreq(len(t), 1 / rate)
    formants = rng.uniform([300, 800, 2200], [800, 2200, 3400])
    shape = sum(1 / (1 + ((f - p) / (60 + 0.05 * p)) ** 2) for p in formants)
    level = (shape + 0.01) * (np.maximum(f, 80) / 200) ** -1.5 * (f > 50)
    voiced: Array = np.fft.irfft(np.fft.rfft(pulses) * level, len(t)) * np.sqrt(len(t))
    return voiced


def _fricative(t: Array, rate: int, _: float, rng: np.random.Generator) -> Array:
    """Return noise around a random high frequency, as in the sounds s and f."""
    noise = np.fft.rfft(rng.normal(size=len(t)))
    f = np.fft.rfftfreq(len(t), 1 / rate)
    centre = rng.uniform(2500, 6000)
    return np.fft.irfft(noise * np.exp(-(((f - centre) / 1500) ** 2)), len(t)) * 0.25
