"""Speaker similarity: whether two separated signals are two talkers, or one talker and its room.

In a reverberant room, onsets hardly distinguish two talkers on one cone of confusion from one
talker and its reflections (`earatlas.localization.source_counter`). Their separated signals do: a
voice and its echoes rise and fall together, two voices do not. Input: two signals that filters have
separated from one mixture. Output: the correlation of their band envelopes, and how much both are
active at once.

    p_mkt   power of signal m in band k and frame t, summed over both ears
    ρ       = Σ_sk w_sk corr_{t in s}(log p_1k, log p_2k) / Σ_sk w_sk     segments s of one second
    w_sk    = min_m Σ_{t in s} p_mkt / Σ_t (p_1kt + p_2kt)

An echo arrives later and lasts longer. ρ is therefore the maximum over either signal as it is and
smoothed in time. The segments are short because of moving talkers: one signal then holds the
beginning and the other the end of the same voice, each silent while the other is active. For the
same reason a minimum temporal overlap (Σ w) is required. Both signals must also have the level
modulation of speech, which stationary noise lacks.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.signal

from earatlas.features.stft import squared_magnitude, stft
from earatlas.types import Array, Single

__all__ = ["SECONDS", "SpeakerSimilarity", "speaker_similarity"]

# Evidence: docs/figures/settings/separation.md, "demixing.speaker_similarity".
SECONDS = 3.0  # duration of the signals that are compared
_MAX_DIFFERENT, _MIN_SAME = 0.55, 0.75  # ρ below which two talkers differ, above which one is same
_CLEARLY_DIFFERENT, _CLEAR_OVERLAP = 0.45, 0.35  # ρ and overlap for a decision on little evidence
_MIN_OVERLAP = 0.2  # temporal overlap below which no decision is made
_MIN_MODULATION_DB = 4.5  # standard deviation of the level in dB; speech has 5.3 dB and more
_N_BANDS, _MIN_HZ, _MAX_HZ = 12, 110.0, 7800.0  # bands, equally wide on a logarithmic scale
_WINDOW_SECONDS = 0.032  # STFT window; the hop is half a window
_SEGMENT_FRAMES = 62  # frames per segment, about one second
_SMOOTHING_SECONDS = (0.03, 0.06, 0.1)  # time constants of the smoothing that imitates echoes
_RELATIVE_FLOOR = 1e-3  # floor over the mean power of a band; without it, log powers follow pauses


@dataclass(frozen=True)
class SpeakerSimilarity:
    """Comparison of two separated signals."""

    correlation: float  # ρ, correlation of the log band envelopes
    overlap: float  # fraction of the energy in which both are active, from 0 to 1
    modulation_db: float  # dB, standard deviation of the level of the less modulated signal

    @property
    def different_speakers(self) -> bool:
        """Whether the signals are two talkers."""
        return (
            self.correlation < _MAX_DIFFERENT
            and self.overlap > _MIN_OVERLAP
            and self.modulation_db > _MIN_MODULATION_DB
        )

    @property
    def clearly_different_speakers(self) -> bool:
        """Whether they are two talkers even if one moves or the signals are short."""
        return (
            self.different_speakers
            and self.correlation < _CLEARLY_DIFFERENT
            and self.overlap > _CLEAR_OVERLAP
        )

    @property
    def same_speaker(self) -> bool:
        """Whether the signals are one talker and its reflections."""
        return (
            self.correlation > _MIN_SAME
            and self.overlap > _MIN_OVERLAP
            and self.modulation_db > _MIN_MODULATION_DB
        )


def speaker_similarity(
    first: Array | Single, second: Array | Single, rate: int
) -> SpeakerSimilarity:
    """Compare two signals (2, n) of at least one second at `rate` Hz."""
    p, q = (_band_powers(signal, rate) for signal in (first, second))
    total = (p + q).sum(axis=1) + 1e-300
    pairs = [(p, q)]
    for seconds in _SMOOTHING_SECONDS:
        pairs += [(_smoothed(p, seconds), q), (p, _smoothed(q, seconds))]
    correlations, overlaps = zip(
        *(_correlation_and_overlap(one, other, total) for one, other in pairs), strict=True
    )
    modulation = min(float(np.std(10 * np.log10(_floored(s, s)), axis=1).mean()) for s in (p, q))
    return SpeakerSimilarity(max(correlations), overlaps[0], modulation)


def _band_powers(signal: Array | Single, rate: int) -> Array:
    """Return the band powers p (K, T) of a signal (2, n)."""
    window = 2 * round(_WINDOW_SECONDS * rate / 2)
    power = squared_magnitude(stft(signal.astype(np.float64), window, window // 2)).sum(axis=0)
    frequencies_hz = np.arange(len(power)) * (rate / window)
    edges = np.geomspace(_MIN_HZ, min(_MAX_HZ, 0.49 * rate), _N_BANDS + 1)
    first = np.unique(np.searchsorted(frequencies_hz, edges))
    bands: Array = np.add.reduceat(power[: first[-1]], first[:-1], axis=0)
    return bands


def _smoothed(p: Array, seconds: float) -> Array:
    """Smooth band powers (K, T) by a first-order recursion with this time constant."""
    decay = float(np.exp(-0.5 * _WINDOW_SECONDS / seconds))
    smoothed: Array = scipy.signal.lfilter([1 - decay], [1, -decay], p, axis=1)
    return smoothed


def _floored(p: Array, reference: Array) -> Array:
    """Add a floor relative to the mean power of the reference (K, T)."""
    floored: Array = p + _RELATIVE_FLOOR * reference.mean(axis=1, keepdims=True) + 1e-300
    return floored


def _correlation_and_overlap(p: Array, q: Array, total: Array) -> tuple[float, float]:
    """Return ρ and the temporal overlap of band powers (K, T)."""
    begins = range(0, max(p.shape[1] - _SEGMENT_FRAMES, 0) + 1, _SEGMENT_FRAMES // 2)
    weighted = weight = energy = 0.0
    for begin in begins:
        own = p[:, begin : begin + _SEGMENT_FRAMES]
        other = q[:, begin : begin + _SEGMENT_FRAMES]
        a, b = (np.log(_floored(s, own + other)) for s in (own, other))
        a -= a.mean(axis=1, keepdims=True)
        b -= b.mean(axis=1, keepdims=True)
        correlation = (a * b).sum(axis=1) / np.sqrt((a**2).sum(axis=1) * (b**2).sum(axis=1) + 1e-9)
        shared = np.minimum(own.sum(axis=1), other.sum(axis=1)) / total
        weighted += float(shared @ correlation)
        weight += float(shared.sum())
        energy += float(((own + other).sum(axis=1) / total).sum())
    return weighted / max(weight, 1e-12), 2 * weight / max(energy, 1e-12)
