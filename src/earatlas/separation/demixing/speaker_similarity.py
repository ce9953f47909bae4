"""Speaker similarity: whether two separated signals are two talkers, or one talker and its room.

In a reverberant room, onsets hardly distinguish two talkers on one cone of confusion from one
talker and its reflections (`earatlas.localization.onset_mixture`). Their separated signals do: a
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
from itertools import pairwise

import numpy as np

from earatlas.features.stft import squared_magnitude, stft
from earatlas.types import Array, Single

__all__ = ["SimilaritySettings", "SpeakerSimilarity", "speaker_similarity"]


# Evidence: docs/figures/settings/separation.md, "demixing.speaker_similarity".
@dataclass(frozen=True, slots=True)
class SimilaritySettings:
    """Settings of the comparison of two separated signals."""

    seconds: float = 3.0  # compared in streams; shortest recording whose first block is compared
    max_different: float = 0.55  # ρ below which two talkers differ
    min_same: float = 0.75  # ρ above which the talker is the same
    clearly_different: float = 0.45  # ρ for a decision on little evidence
    clear_overlap: float = 0.35  # temporal overlap for a decision on little evidence
    min_overlap: float = 0.2  # temporal overlap below which no decision is made
    min_modulation_db: float = 4.5  # standard deviation of the level; speech has 5.3 dB and more
    n_bands: int = 12  # bands, equally wide on a logarithmic scale
    band_hz: tuple[float, float] = (110.0, 7800.0)  # their lowest and highest frequency
    window_seconds: float = 0.032  # STFT window; the hop is half a window
    segment_seconds: float = 1.0
    echo_seconds: tuple[float, ...] = (0.03, 0.06, 0.1)  # smoothing that imitates echoes


@dataclass(frozen=True, slots=True)
class SpeakerSimilarity:
    """Comparison of two separated signals."""

    correlation: float  # ρ, correlation of the log band envelopes
    overlap: float  # fraction of the energy in which both are active, from 0 to 1
    modulation_db: float  # dB, standard deviation of the level of the less modulated signal
    settings: SimilaritySettings

    @property
    def _decidable(self) -> bool:
        """Whether both signals are active at once, with the modulation of speech."""
        enough_overlap = self.overlap > self.settings.min_overlap
        return enough_overlap and self.modulation_db > self.settings.min_modulation_db

    @property
    def different_speakers(self) -> bool:
        """Whether the signals are two talkers."""
        return self._decidable and self.correlation < self.settings.max_different

    @property
    def clearly_different_speakers(self) -> bool:
        """Whether they are two talkers even if one moves or the signals are short."""
        return (
            self.different_speakers
            and self.correlation < self.settings.clearly_different
            and self.overlap > self.settings.clear_overlap
        )

    @property
    def same_speaker(self) -> bool:
        """Whether the signals are one talker and its reflections."""
        return self._decidable and self.correlation > self.settings.min_same


def speaker_similarity(
    first: Array | Single, second: Array | Single, rate: int, settings: SimilaritySettings
) -> SpeakerSimilarity:
    """Compare two signals (2, n) of at least one second at `rate` Hz."""
    p, q = (_band_powers(signal, rate, settings) for signal in (first, second))
    total = (p + q).sum(axis=1) + 1e-300
    hop_seconds = settings.window_seconds / 2
    n = int(settings.segment_seconds / hop_seconds)
    pairs = [(p, q)]
    for seconds in settings.echo_seconds:
        decay = float(np.exp(-hop_seconds / seconds))
        pairs += [(_smoothed(p, decay), q), (p, _smoothed(q, decay))]
    correlations, overlaps = zip(
        *(_correlation_and_overlap(one, other, total, n) for one, other in pairs), strict=True
    )
    modulation = min(float(np.std(10 * np.log10(_floored(s, s)), axis=1).mean()) for s in (p, q))
    return SpeakerSimilarity(max(correlations), overlaps[0], modulation, settings)


def _band_powers(signal: Array | Single, rate: int, settings: SimilaritySettings) -> Array:
    """Return the band powers p (K, T) of a signal (2, n)."""
    window = 2 * round(settings.window_seconds * rate / 2)
    power = squared_magnitude(stft(signal.astype(np.float64), window, window // 2)).sum(axis=0)
    frequencies_hz = np.arange(len(power)) * (rate / window)
    lowest, highest = settings.band_hz
    edges = np.geomspace(lowest, min(highest, 0.49 * rate), settings.n_bands + 1)
    first = np.unique(np.searchsorted(frequencies_hz, edges))
    bands: Array = np.add.reduceat(power[: first[-1]], first[:-1], axis=0)
    return bands


def _smoothed(p: Array, decay: float) -> Array:
    """Smooth band powers (K, T) by a first-order recursion."""
    smoothed = (1 - decay) * p  # scipy.signal.lfilter is faster, but takes 0.4 s to import
    for before, now in pairwise(smoothed.T):
        now += decay * before
    return smoothed


def _floored(p: Array, reference: Array) -> Array:
    """Add a floor to band powers (K, T); without it, log powers follow the pauses."""
    floored: Array = p + 1e-3 * reference.mean(axis=1, keepdims=True) + 1e-300
    return floored


def _correlation_and_overlap(p: Array, q: Array, total: Array, n: int) -> tuple[float, float]:
    """Return ρ and the temporal overlap of band powers (K, T), in segments of n frames."""
    weighted = weight = energy = 0.0
    for begin in range(0, max(p.shape[1] - n, 0) + 1, n // 2):
        own, other = p[:, begin : begin + n], q[:, begin : begin + n]
        a, b = (np.log(_floored(s, own + other)) for s in (own, other))
        a -= a.mean(axis=1, keepdims=True)
        b -= b.mean(axis=1, keepdims=True)
        correlation = (a * b).sum(axis=1) / np.sqrt((a**2).sum(axis=1) * (b**2).sum(axis=1) + 1e-9)
        shared = np.minimum(own.sum(axis=1), other.sum(axis=1)) / total
        weighted += float(shared @ correlation)
        weight += float(shared.sum())
        energy += float(((own + other).sum(axis=1) / total).sum())
    return weighted / max(weight, 1e-12), 2 * weight / max(energy, 1e-12)
