"""Onset detection: time-frequency bins in which sound arrives rather than decays.

Reverberation decays, and the direct sound rises above it: the cues of onsets are those of the
direct sound (precedence effect). The input is the samples of both ears in blocks of any size. The
output is `OnsetBins`, the bins that rise most above the decaying envelope of the preceding frames
and above the quiet level of their frequency. Memory is constant.

    P_ft = |L|² + |R|²                       power of both ears in a bin
    e_ft = max(P_ft, δ e_f,t-1)              envelope that decays by 60 dB in `decay_seconds`
    q_f                                      mean noise power, from the quietest frames
    rise_ft = P_ft / max(δ e_f,t-1, q_f)     onset strength, in dB

The window is short, because one of 64 ms would include the first reflections, which arrive after 3
to 20 ms.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import takewhile

import numpy as np

from earatlas.errors import InputError
from earatlas.features.level_tables import add_frames
from earatlas.features.onset_candidates import TINY_POWER, DecayingEnvelope, OnsetCandidates
from earatlas.features.reverberation import DecayEstimator
from earatlas.features.stft import FrameStream, squared_magnitude
from earatlas.types import Array, Complex, Indices, Mask

__all__ = ["OnsetBins", "OnsetDetector", "OnsetDetectorSettings"]

# Evidence: docs/figures/settings/features.md, "onset_detector".
_LOWEST_DB, _HIGHEST_DB = -160, 80  # range of the level table; levels outside count at its ends
_CANDIDATES_PER_BIN = 8  # candidates kept per returned bin, until the quiet level is known
_SNR_BINS = 500  # strongest onsets that tell the signal-to-noise ratio
_CLEAN_SNR_DB = 18.0  # minimum median SNR of the onsets of a recording with hardly any noise
_FRAMES_AT_ONCE = 256  # frames processed together, as many as fit into the cache
_MAX_SCALE = 1e100  # scale of the level table at which it is renormalized, to avoid overflow


@dataclass(frozen=True)
class OnsetDetectorSettings:
    """Settings of the onset detector.

    Evidence: docs/guide/rooms.md, and docs/figures/settings/features.md, "onset_detector".
    """

    rate: int = 16_000  # sampling rate in Hz
    window: int = 384  # STFT window in samples (24 ms)
    hop: int = 128  # samples between frames
    decay_seconds: float = 0.3  # T60 of the envelope
    low_hz: float = 150.0  # lowest frequency
    high_hz: float = 7800.0  # highest frequency
    below_peak_db: float = 50.0  # range below the strongest bin
    quiet_share: float = 0.15  # fraction of the frames of a frequency that define its quiet level
    snr_db: float = 6.0  # minimum above the quiet level
    rise_db: float = 3.0  # minimum above the envelope
    most_bins: int = 500  # maximum number of returned bins

    def __post_init__(self) -> None:
        counts = self.rate, self.window, self.hop, self.most_bins
        ranges = (
            4 <= self.window <= 2**16,
            self.window <= 64 * self.hop <= 64 * self.window,
            0 < self.rate <= 10**6,
            0 < self.decay_seconds < math.inf,
            0 <= self.quiet_share <= 1,
            0 < self.most_bins <= 10**6,
            0 <= self.low_hz < self.high_hz,
            all(abs(level) < 1000 for level in (self.below_peak_db, self.snr_db, self.rise_db)),
        )
        if not all(isinstance(count, int) for count in counts) or not all(ranges):
            raise InputError(
                f"The settings of the onset detector must be in range, got {self}. "
                "Use the defaults."
            )

    @cached_property
    def rows(self) -> Indices:
        """Bins (F,) of the STFT between the lowest and the highest frequency."""
        hz = np.arange(self.window // 2 + 1) * (self.rate / self.window)
        return np.flatnonzero((hz >= self.low_hz) & (hz <= self.high_hz))

    @cached_property
    def frequencies_hz(self) -> Array:
        """Frequencies (F,) of these bins in Hz."""
        return np.asarray(self.rows * (self.rate / self.window), dtype=np.float64)

    @property
    def decay(self) -> float:
        """Decay δ of the power of the envelope per hop."""
        return float(10 ** (-6 * self.hop / (self.rate * self.decay_seconds)))


@dataclass(frozen=True, eq=False)
class OnsetBins:
    """B onset bins, ordered by frequency."""

    f: Indices  # (B,), index into the frequencies of the detector
    t: Indices  # (B,), frame since the start
    z: Complex  # (B, 2), spectra of the left and the right ear
    rise_db: Array  # (B,), onset strength
    snr_db: Array  # (B,), above the quiet level
    frames: float  # number of frames analysed
    decay_seconds: float = math.nan  # T60 of the fastest decays (earatlas.features.reverberation)
    interaural_difference: float = math.nan  # 0 if the ears have the same signal up to a gain

    def __len__(self) -> int:
        return len(self.f)

    def __getitem__(self, rows: Indices | Mask | slice) -> OnsetBins:
        """Return some of the bins in the same order."""
        return replace(
            self, f=self.f[rows], t=self.t[rows], z=self.z[rows], rise_db=self.rise_db[rows],
            snr_db=self.snr_db[rows],
        )  # fmt: skip

    def __repr__(self) -> str:
        return f"OnsetBins({len(self)} bins of {self.frames:g} frames)"

    @classmethod
    def concatenate(cls, parts: Sequence[OnsetBins]) -> OnsetBins:
        """Concatenate the bins of all parts of a recording, ordered by frequency."""
        return cls._concatenate_unsorted(parts).by_frequency()

    @classmethod
    def _concatenate_unsorted(cls, parts: Sequence[OnsetBins]) -> OnsetBins:
        f, t, z, rise, snr = (
            np.concatenate([getattr(part, name) for part in parts])
            for name in ("f", "t", "z", "rise_db", "snr_db")
        )
        return replace(parts[-1], f=f, t=t, z=z, rise_db=rise, snr_db=snr)

    def append(self, later: OnsetBins) -> OnsetBins:
        """Return the bins of this and a later part, in this order."""
        return self._concatenate_unsorted([self, later])

    def by_frequency(self) -> OnsetBins:
        """Return the bins ordered by frequency, then time."""
        return self[np.lexsort((self.t, self.f))]

    @classmethod
    def merge_overlapping(cls, parts: Sequence[OnsetBins]) -> tuple[OnsetBins, list[Indices]]:
        """Return the distinct bins of overlapping parts, and the indices (b,) of each part."""
        bins = cls.concatenate(parts)
        is_first = np.ones(len(bins), dtype=bool)
        is_first[1:] = (np.diff(bins.f) != 0) | (np.diff(bins.t) != 0)
        unique = bins[is_first]
        frames = int(unique.t.max(initial=0)) + 1
        key = unique.f * frames + unique.t  # ascending
        return unique, [np.searchsorted(key, part.f * frames + part.t) for part in parts]

    @cached_property
    def median_snr_db(self) -> float:
        """Median SNR of the strongest onsets in dB; NaN if there are none."""
        strongest = self.strongest(_SNR_BINS)
        return float(np.median(strongest.snr_db)) if len(self) else math.nan

    @property
    def is_clean(self) -> bool:
        """Whether the recording has hardly any noise."""
        return self.median_snr_db >= _CLEAN_SNR_DB

    def to_single_precision(self) -> OnsetBins:
        """Return the bins with spectra in single precision, which saves a third of the memory."""
        return replace(self, z=self.z.astype(np.complex64))

    def strongest(self, count: int) -> OnsetBins:
        """Return the `count` bins with the largest rise, in the same order."""
        if len(self) <= count:
            return self
        return self[np.sort(np.argsort(-self.rise_db, kind="stable")[:count])]


class OnsetDetector:
    """Streaming onset detector, with optional exponential forgetting.

    With `forgetting` = g < 1, the rise of a bin is discounted by g^a after a further frames, so
    that newer onsets replace it; the peak and the quiet level are forgotten alike. `single`
    precision takes half the time. `segments` enables `onsets_since_last_call`.
    """

    def __init__(
        self,
        onset_settings: OnsetDetectorSettings,
        *,
        forgetting: float = 1.0,
        single: bool = False,
        segments: bool = False,
    ) -> None:
        self._settings, self._forgetting, self._single = onset_settings, forgetting, single
        self._segment: list[OnsetCandidates] | None = [] if segments else None
        self._stft = FrameStream(onset_settings.window, onset_settings.hop, single=single)
        F = len(onset_settings.rows)
        self._envelope = self._new_envelope()
        self._levels = np.zeros((_HIGHEST_DB - _LOWEST_DB + 1, F))
        self._scale = 1.0  # weight of a new frame in the level table
        self._peak = 0.0
        self._n_frames = 0.0  # with forgetting
        self._candidates: list[OnsetCandidates] = []
        self._n_candidates = 0
        first, last = onset_settings.rows[[0, -1]] if len(onset_settings.rows) else (0, -1)
        self._rows = slice(int(first), int(last) + 1)  # gives a view instead of a copy
        self._decay = DecayEstimator(
            onset_settings.frequencies_hz,
            onset_settings.hop / onset_settings.rate,
            forgetting=forgetting,
        )
        self._products = np.zeros(3)  # sums of |L|², |R|² and Re L R*

    def _new_envelope(self) -> DecayingEnvelope:
        settings = self._settings
        return DecayingEnvelope(
            len(settings.rows),
            decay=settings.decay,
            min_rise_db=settings.rise_db,
            full_scale_power=(settings.window / 4) ** 2,
        )

    def push(self, samples: Array) -> None:
        """Add samples (2, n)."""
        self._add_all(self._stft.push(samples))

    def finish(self) -> None:
        """Add the last frames, which reach beyond the end of the sound."""
        self._add_all(self._stft.finish())

    def _add_all(self, spectra: Complex) -> None:
        for X in self._split(spectra):
            self._add(X)

    def _split(self, spectra: Complex) -> Iterator[Complex]:
        """Yield groups of frames (2, t, F) of spectra (2, B, t) at the frequencies of interest."""
        X = spectra.swapaxes(1, 2)[..., self._rows]
        for start in range(0, X.shape[1], _FRAMES_AT_ONCE):
            yield X[:, start : start + _FRAMES_AT_ONCE]

    def _add(self, X: Complex) -> None:
        """Update all statistics with frames (2, t, F)."""
        g, t = self._forgetting, X.shape[1]
        left, right = squared_magnitude(X)
        P = left + right
        new = self._envelope.candidates(X, P)
        self._decay.push(P.T)
        weight = self._scale * g ** -np.arange(1.0, t + 1)
        self._count_levels(P, weight)
        self._scale = float(weight[-1])
        decay = g ** np.arange(t - 1.0, -1.0, -1.0)
        self._products *= g**t
        cross = X[0].real * X[1].real + X[0].imag * X[1].imag
        # Double precision: the difference of identical ears is of the order of 1e-8.
        sums = (part.sum(axis=1, dtype=np.float64) for part in (left, right, cross))
        self._products += [decay @ part for part in sums]
        self._n_frames = self._n_frames * g**t + float(decay.sum())
        self._peak = max(self._peak * g**t, float((P.max(axis=1) * decay).max()))
        self._candidates.append(new)
        if self._segment is not None:
            self._segment.append(new)
        self._n_candidates += len(new.f)
        if self._n_candidates > 2 * self._max_candidates:  # rarely, because sorting is slow
            self._candidates = [self._best_candidates()]
            self._n_candidates = len(self._candidates[0].f)
        if self._scale > _MAX_SCALE:
            self._levels /= self._scale
            self._scale = 1.0

    def _count_levels(self, P: Array, weight: Array) -> None:
        """Add powers (t, F) with weights (t,) to the level table."""
        level = np.log(P + TINY_POWER)
        level *= 10 / np.log(10)
        np.clip(np.floor(level, out=level), _LOWEST_DB, _HIGHEST_DB, out=level)
        add_frames([self._levels], level.astype(np.intp) - _LOWEST_DB, [weight[:, None]])

    def _floor(self) -> float:
        """Return the minimum power of an onset, relative to the peak."""
        return self._peak * 10 ** (-self._settings.below_peak_db / 10)

    def _noise_power(self) -> Array:
        """Return q (F,), the mean noise power, from the quantile of the quietest frames."""
        fraction = self._settings.quiet_share
        cumulative = np.cumsum(self._levels, axis=0)
        row = np.argmax(cumulative >= fraction * cumulative[-1], axis=0)
        # The powers of noise are exponentially distributed, which relates the quantile to the mean.
        noise: Array = 10 ** ((row + _LOWEST_DB + 0.5) / 10) / -np.log(1 - fraction)
        return noise

    def bins(self) -> OnsetBins:
        """Return the strongest onsets of all frames so far."""
        onsets = self._onsets(self._best_candidates())
        discount_db = (self._envelope.count - onsets.t) * (10 * np.log10(self._forgetting))
        order = np.argsort(-(onsets.rise_db + discount_db), kind="stable")
        order = order[: self._settings.most_bins]
        return onsets[order[np.lexsort((onsets.t[order], onsets.f[order]))]]

    def onsets_since(self, since: int) -> OnsetBins:
        """Return all onsets from frame `since` on, given the current quiet level."""
        parts = takewhile(
            lambda part: not len(part.t) or part.t.max() >= since, reversed(self._candidates)
        )
        candidates = OnsetCandidates.concatenate(list(parts))
        new = np.flatnonzero(candidates.t >= since)
        return self._onsets(candidates[new[np.lexsort((candidates.t[new], candidates.f[new]))]])

    def onsets_since_last_call(self) -> OnsetBins:
        """Return the strongest onsets since the previous call, given the current quiet level.

        The `frames` of the result are the number of all frames so far, the end of the segment.
        """
        candidates = OnsetCandidates.concatenate(self._segment or [])
        candidates = candidates.best(self._max_candidates, self._envelope.count, 1.0)
        self._segment = []
        return self._onsets(candidates).by_frequency().strongest(self._settings.most_bins)

    @property
    def frames(self) -> int:
        """Number of complete frames."""
        return self._envelope.count

    @property
    def _max_candidates(self) -> int:
        return _CANDIDATES_PER_BIN * self._settings.most_bins

    def _best_candidates(self) -> OnsetCandidates:
        candidates = OnsetCandidates.concatenate(self._candidates)
        return candidates.best(self._max_candidates, self._envelope.count, self._forgetting)

    def _onsets(self, candidates: OnsetCandidates) -> OnsetBins:
        """Return the candidates that also rise above the quiet level."""
        settings = self._settings
        noise = self._noise_power()[candidates.f]
        snr = 10 * np.log10((candidates.power + TINY_POWER) / (noise + TINY_POWER))
        rise = np.minimum(candidates.rise_db, snr)
        is_onset = (
            (rise > settings.rise_db) & (snr > settings.snr_db) & (candidates.power > self._floor())
        )
        bins = OnsetBins(
            candidates.f, candidates.t, candidates.z, rise, snr, self._n_frames,
            decay_seconds=self._decay.seconds(),
            interaural_difference=self._interaural_difference(),
        )  # fmt: skip
        return bins[is_onset]

    def _interaural_difference(self) -> float:
        """Return 1 - (Re L R*)² / (|L|² |R|²), which is 0 if the ears differ only by a gain."""
        left, right, cross = self._products
        return float(1 - cross**2 / max(left * right, 1e-300))

    def second_pass(self, blocks: Iterable[Array]) -> Iterator[OnsetBins]:
        """Yield all onsets of the same sound, given the final quiet level.

        For each block (2, n), yield the onsets of the frames that it completes, in order of time.
        """
        stft = FrameStream(self._settings.window, self._settings.hop, single=self._single)
        envelope = self._new_envelope()

        def onsets(spectra: Complex) -> OnsetBins:
            parts = [
                envelope.candidates(X, squared_magnitude(X).sum(axis=0))
                for X in self._split(spectra)
            ]
            return self._onsets(OnsetCandidates.concatenate(parts))

        for block in blocks:
            yield onsets(stft.push(block))
        yield onsets(stft.finish())
