"""Whether two sounds that one was parted into are two voices, or one voice and what a room adds.

In a room, onsets hardly tell two talkers on one cone of confusion from one talker and its
reflections (`earatlas.localization.source_counter`). Their sounds do, once parted: a voice and its echoes
rise and fall together, two voices each by itself. In: two sounds that filters made of one. Out: how
much they do so, where both are heard.

    p_mkt   power of sound m in band k and frame t, of both ears
    ρ       = Σ_sk w_sk corr_{t in s}(log p_1k, log p_2k) / Σ_sk w_sk    stretches s of a second
    w_sk    = min_m Σ_{t in s} p_mkt / Σ_t (p_1kt + p_2kt)

An echo comes later and lasts longer, so that ρ is the greatest of either sound as it is and drawn
out. Over a second alone, since of one who walks the first sound has the beginning and the second
the end, each silent while the other speaks; where both speak, they are alike. For the same reason
the two must be heard together (Σ w). And both must be lively: noise is like no voice.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.signal

from earatlas.features.stft import squared_size, stft
from earatlas.types import Array, Single

__all__ = ["SECONDS", "Voices", "voices"]

SECONDS = 3.0  # of sound that tell it
# Of what filters of a room parted in 3 s: a talker alone (cipic_021 and kemar_full; T60 0.3, 0.5
# and 0.8 s, three times in 9 s, 120 in all) had ρ from 0.62 on, 0.75 and more but at 0.8 s; two on
# one cone or anywhere, or one 8 dB softer (96, after 5 s) at most 0.65, all but two at most 0.51.
_TWO, _ONE = 0.55, 0.75
_CLEARLY_TWO, _CLEARLY_TOGETHER = 0.45, 0.35
# Two talkers 0.19 and more, but for two of the soft; one who walked for a second 0.09 to 0.26.
_TOGETHER = 0.2
# Decibels. Talkers 5.3 and more, noise and a fan beside one 1.7 to 3.9.
_LIVELY = 4.5
_BANDS, _LOWEST, _HIGHEST = 12, 110.0, 7800.0  # Hz, equally wide in pitch
_WINDOW_SECONDS, _STRETCH = 0.032, 62  # frames, half a window apart
_DRAWN_OUT = (0.03, 0.06, 0.1)  # seconds in which it falls by 1/e
_FLOOR = 1e-3  # of the mean power of a band


@dataclass(frozen=True)
class Voices:
    """What two sounds are to each other."""

    alike: float  # ρ
    together: float  # how much of both is heard at once, from 0 to 1
    lively: float  # dB, standard deviation of the level of the one that varies less

    @property
    def two(self) -> bool:
        """Whether they are surely two voices."""
        return self.alike < _TWO and self.together > _TOGETHER and self.lively > _LIVELY

    @property
    def clearly_two(self) -> bool:
        """Whether they are so even if one of them walks, or little was heard."""
        return self.two and self.alike < _CLEARLY_TWO and self.together > _CLEARLY_TOGETHER

    @property
    def one(self) -> bool:
        """Whether they are surely one and its echoes."""
        return self.alike > _ONE and self.together > _TOGETHER and self.lively > _LIVELY


def voices(first: Array | Single, second: Array | Single, rate: int) -> Voices:
    """Two sounds (2, n) of a second and more at this rate."""
    p, q = (_band_powers(sound, rate) for sound in (first, second))
    total = (p + q).sum(axis=1) + 1e-300
    pairs = [(p, q)]
    for seconds in _DRAWN_OUT:
        pairs += [(_drawn_out(p, seconds), q), (p, _drawn_out(q, seconds))]
    alike, weights = zip(*(_alike(one, other, total) for one, other in pairs), strict=True)
    lively = min(float(np.std(10 * np.log10(_floored(s, s)), axis=1).mean()) for s in (p, q))
    return Voices(max(alike), weights[0], lively)


def _band_powers(sound: Array | Single, rate: int) -> Array:
    """p (K, T) of a sound (2, n)."""
    window = 2 * round(_WINDOW_SECONDS * rate / 2)
    power = squared_size(stft(sound.astype(np.float64), window, window // 2)).sum(axis=0)
    hertz = np.arange(len(power)) * (rate / window)
    edges = np.geomspace(_LOWEST, min(_HIGHEST, 0.49 * rate), _BANDS + 1)
    first = np.unique(np.searchsorted(hertz, edges))
    bands: Array = np.add.reduceat(power[: first[-1]], first[:-1], axis=0)
    return bands


def _drawn_out(p: Array, seconds: float) -> Array:
    keeps = float(np.exp(-0.5 * _WINDOW_SECONDS / seconds))
    drawn: Array = scipy.signal.lfilter([1 - keeps], [1, -keeps], p, axis=1)
    return drawn


def _floored(p: Array, beside: Array) -> Array:
    floored: Array = p + _FLOOR * beside.mean(axis=1, keepdims=True) + 1e-300
    return floored


def _alike(p: Array, q: Array, total: Array) -> tuple[float, float]:
    """ρ of powers (K, T) as they are, and how much they are heard together."""
    stretches = range(0, max(p.shape[1] - _STRETCH, 0) + 1, _STRETCH // 2)
    along = weight = held = 0.0
    for begin in stretches:
        own, other = p[:, begin : begin + _STRETCH], q[:, begin : begin + _STRETCH]
        a, b = (np.log(_floored(s, own + other)) for s in (own, other))
        a -= a.mean(axis=1, keepdims=True)
        b -= b.mean(axis=1, keepdims=True)
        correlation = (a * b).sum(axis=1) / np.sqrt((a**2).sum(axis=1) * (b**2).sum(axis=1) + 1e-9)
        shared = np.minimum(own.sum(axis=1), other.sum(axis=1)) / total
        along += float(shared @ correlation)
        weight += float(shared.sum())
        held += float(((own + other).sum(axis=1) / total).sum())
    return along / max(weight, 1e-12), 2 * weight / max(held, 1e-12)
