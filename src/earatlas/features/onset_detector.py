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
from typing import NamedTuple, Unpack

import numpy as np

from earatlas.errors import InputError
from earatlas.features.input_plausibility import (
    FaultFinding,
    InterauralLimits,
    find_input_faults,
)
from earatlas.features.interaural_monitor import InterauralMonitor
from earatlas.features.reverberation import (
    UNKNOWN_REVERBERATION,
    DecayEstimator,
    ReverberationEstimate,
    ReverberationEvidence,
)
from earatlas.features.statistics import NOISE_FLOOR, LevelTable
from earatlas.features.stft import FrameStream, frame_groups, squared_magnitude
from earatlas.numerics import quantile
from earatlas.types import Array, Complex, Indices, Mask

__all__ = [
    "OnsetBins",
    "OnsetDetector",
    "OnsetDetectorSettings",
    "OnsetStatementSettings",
    "detect_onsets",
]

_LOWEST_DB, _HIGHEST_DB = -160, 80  # range of the level table; levels outside count at its ends
_TINY_POWER = 1e-20  # floor of powers: without it, silent bins give log(0)


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
    quiet_share: float = NOISE_FLOOR.quiet_fraction  # quietest fraction of the frames
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


@dataclass(frozen=True, slots=True)
class OnsetStatementSettings:
    """When onsets support statements about a recording.

    Evidence: docs/figures/settings/features.md, "onset_detector".
    """

    min_bins: int = 20  # fewest onsets for any statement
    snr_bins: int = 500  # strongest onsets that tell the signal-to-noise ratio
    clean_snr_db: float = 18.0  # their median SNR in a recording with hardly any noise


_STATEMENTS = OnsetStatementSettings()


@dataclass(frozen=True, eq=False)
class OnsetBins:
    """B onset bins, ordered by frequency."""

    f: Indices  # (B,), index into the frequencies of the detector
    t: Indices  # (B,), frame since the start
    z: Complex  # (B, 2), spectra of the left and the right ear
    rise_db: Array  # (B,), onset strength
    snr_db: Array  # (B,), above the quiet level
    frames: float  # number of frames analysed
    reverberation: ReverberationEstimate = UNKNOWN_REVERBERATION  # of the whole sound
    input_faults: tuple[FaultFinding, ...] = ()  # faults of the two channels

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
        """Concatenate the bins of several parts of a recording, in this order."""
        f, t, z, rise, snr = (
            np.concatenate([getattr(part, name) for part in parts])
            for name in ("f", "t", "z", "rise_db", "snr_db")
        )
        return replace(parts[-1], f=f, t=t, z=z, rise_db=rise, snr_db=snr)

    def by_frequency(self) -> OnsetBins:
        """Return the bins ordered by frequency, then time."""
        return self[np.lexsort((self.t, self.f))]

    @classmethod
    def merge_overlapping(cls, parts: Sequence[OnsetBins]) -> tuple[OnsetBins, list[Indices]]:
        """Return the distinct bins of overlapping parts, and the indices (b,) of each part."""
        bins = cls.concatenate(parts).by_frequency()
        is_first = np.ones(len(bins), dtype=bool)
        is_first[1:] = (np.diff(bins.f) != 0) | (np.diff(bins.t) != 0)
        unique = bins[is_first]
        frames = int(unique.t.max(initial=0)) + 1
        key = unique.f * frames + unique.t  # ascending
        return unique, [np.searchsorted(key, part.f * frames + part.t) for part in parts]

    @cached_property
    def median_snr_db(self) -> float:
        """Median SNR of the strongest onsets in dB; NaN if there are none."""
        rows = self._strongest_rows(_STATEMENTS.snr_bins)
        return quantile(self.snr_db[rows], 0.5) if len(self) else math.nan

    @property
    def is_clean(self) -> bool:
        """Whether the recording has hardly any noise."""
        return self.median_snr_db >= _STATEMENTS.clean_snr_db

    @property
    def enough(self) -> bool:
        """Whether there are enough bins for any statement; hundreds are usual."""
        return len(self) >= _STATEMENTS.min_bins

    def with_reverberation(self, **evidence: Unpack[ReverberationEvidence]) -> OnsetBins:
        """Return the bins with more evidence of reverberation: fields of the estimate."""
        return replace(self, reverberation=replace(self.reverberation, **evidence))

    def to_single_precision(self) -> OnsetBins:
        """Return the bins with spectra in single precision, which saves a third of the memory."""
        return replace(self, z=self.z.astype(np.complex64))

    def strongest(self, count: int) -> OnsetBins:
        """Return the `count` bins with the largest rise, in the same order."""
        return self if len(self) <= count else self[self._strongest_rows(count)]

    def _strongest_rows(self, count: int) -> Indices | slice:
        """Return the indices of these bins, ascending."""
        if len(self) <= count:
            return slice(None)
        return np.sort(np.argsort(-self.rise_db, kind="stable")[:count])


class OnsetCandidates(NamedTuple):
    """Bins that rise above the envelope; they are onsets if they also exceed the quiet level."""

    f: Indices  # (n,), index into the frequencies of the detector
    t: Indices  # (n,), frame since the start
    z: Complex  # (n, 2), spectra of the left and the right ear
    power: Array  # (n,), of both ears
    rise_db: Array  # (n,), above the envelope

    def take(self, rows: Indices) -> OnsetCandidates:
        """Return some of the candidates."""
        return OnsetCandidates._make(column[rows] for column in self)

    @classmethod
    def concatenate(cls, parts: Sequence[OnsetCandidates]) -> OnsetCandidates:
        """Concatenate several sets of candidates."""
        if not parts:
            index, pairs = np.zeros(0, dtype=np.intp), np.zeros((0, 2), dtype=np.complex128)
            return cls(index, index, pairs, np.zeros(0), np.zeros(0))
        return cls._make(np.concatenate(columns) for columns in zip(*parts, strict=True))

    def best(self, count: int, now: int, forgetting: float) -> OnsetCandidates:
        """Return the `count` strongest candidates at frame `now`; older ones are discounted."""
        if len(self.f) <= count:
            return self
        merit = self.rise_db + (now - self.t) * (10 * np.log10(forgetting))
        # Ties are resolved by time and frequency, so that the block sizes do not matter.
        limit = np.partition(merit, -count)[-count]
        above, tied = np.flatnonzero(merit > limit), np.flatnonzero(merit == limit)
        tied = tied[np.lexsort((self.f[tied], self.t[tied]))[: count - len(above)]]
        return self.take(np.sort(np.concatenate([above, tied])))


class DecayingEnvelope:
    """Envelope e_ft = max(P_ft, δ e_f,t-1), and the bins that rise above it."""

    def __init__(self, settings: OnsetDetectorSettings) -> None:
        self._decay = settings.decay
        self._envelope: Array = np.zeros(len(settings.rows))
        self._min_ratio = 10 ** (settings.rise_db / 10)
        full_scale_power = (settings.window / 4) ** 2  # of a sine in a bin
        # Without a floor (-100 dB), sound after digital silence would rise by an unlimited amount.
        self._silence = 10 ** (-100 / 10) * full_scale_power
        slope = -np.log10(settings.decay)  # single precision can represent a growth of 12 decades
        self._growth = 10 ** (slope * np.arange(max(int(12 / slope), 1) + 1.0))  # δ^-t
        self.count = 0  # frames so far

    def candidates(self, X: Complex, P: Array) -> OnsetCandidates:
        """Return the candidates of the next frames, spectra (2, t, F) with powers (t, F)."""
        before = self._decayed(P)
        np.maximum(before, self._silence, out=before)
        index = np.flatnonzero(self._min_ratio * before < P + _TINY_POWER)
        n, f = np.divmod(index, P.shape[1])
        power = P.ravel().take(index)
        rise_db = 10 * np.log10((power + _TINY_POWER) / before.ravel().take(index))
        found = OnsetCandidates(f, self.count + n, X[:, n, f].T, power, rise_db)
        self.count += len(P)
        return found

    def _decayed(self, P: Array) -> Array:
        """Return δ e_f,t-1 (t, F) for frames with powers (t, F), and update the envelope.

        Multiplied by δ^-t, the envelope is a running maximum:
        e_t δ^-t = max(P_t δ^-t, e_t-1 δ^-(t-1)).
        """
        growth = self._growth.astype(P.dtype)[:, None]
        out = np.empty_like(P)
        for start in range(0, len(P), len(growth) - 1):
            power = P[start : start + len(growth) - 1]
            t = len(power)
            e = np.concatenate([self._envelope[None], power * growth[1 : t + 1]])
            np.maximum.accumulate(e, axis=0, out=e)
            e /= growth[: t + 1]
            np.multiply(e[:-1], self._decay, out=out[start : start + t])
            self._envelope = e[-1]
        return out


class OnsetDetector:
    """Streaming onset detector, with optional exponential forgetting.

    With `forgetting` = g < 1, the rise of a bin is discounted by g^a after a further frames, so
    that newer onsets replace it; the peak and the quiet level are forgotten alike. `single`
    precision takes half the time. `segments` enables `onsets_since_last_call`. `limits`: what
    the head can do, to which the input is compared; None: it is not checked.
    """

    def __init__(
        self,
        onset_settings: OnsetDetectorSettings,
        *,
        forgetting: float = 1.0,
        single: bool = False,
        segments: bool = False,
        limits: InterauralLimits | None = None,
    ) -> None:
        self._settings, self._forgetting, self._single = onset_settings, forgetting, single
        self._segment: list[OnsetCandidates] | None = [] if segments else None
        self._stft = FrameStream(onset_settings.window, onset_settings.hop, single=single)
        F = len(onset_settings.rows)
        self._envelope = DecayingEnvelope(onset_settings)
        self._levels = LevelTable(_HIGHEST_DB - _LOWEST_DB + 1, F, forgetting=forgetting)
        self._peak = 0.0
        self._n_frames = 0.0  # with forgetting
        self._candidates: list[OnsetCandidates] = []
        self._max_candidates = 8 * onset_settings.most_bins  # until the quiet level is known
        self._n_candidates = 0
        first, last = onset_settings.rows[[0, -1]] if len(onset_settings.rows) else (0, -1)
        self._rows = slice(int(first), int(last) + 1)  # gives a view instead of a copy
        self._decay = DecayEstimator(
            onset_settings.frequencies_hz,
            onset_settings.hop / onset_settings.rate,
            forgetting=forgetting,
        )
        self._monitor, self._limits = None, limits
        if limits is not None:
            per_second = forgetting ** (onset_settings.rate / onset_settings.hop)
            self._monitor = InterauralMonitor(onset_settings.rate, forgetting=per_second)

    def push(self, samples: Array) -> None:
        """Add samples (2, n)."""
        if self._monitor is not None:
            self._monitor.push(samples)
        for X in self._split(self._stft.push(samples)):
            self._add(X)

    def finish(self) -> None:
        """Add the last frames, which reach beyond the end of the sound."""
        if self._monitor is not None:
            self._monitor.finish()
        for X in self._split(self._stft.finish()):
            self._add(X)

    def _split(self, spectra: Complex) -> Iterator[Complex]:
        """Return groups of frames (2, t, F) of spectra (2, B, t) at the frequencies of interest."""
        return frame_groups(spectra.swapaxes(1, 2)[..., self._rows], axis=1)

    def _add(self, X: Complex) -> None:
        """Update all statistics with frames (2, t, F)."""
        g, t = self._forgetting, X.shape[1]
        P = squared_magnitude(X).sum(axis=0)
        new = self._envelope.candidates(X, P)
        self._decay.push(P.T)
        self._count_levels(P)
        decay = g ** np.arange(t - 1.0, -1.0, -1.0)
        self._n_frames = self._n_frames * g**t + float(decay.sum())
        self._peak = max(self._peak * g**t, float((P.max(axis=1) * decay).max()))
        self._candidates.append(new)
        if self._segment is not None:
            self._segment.append(new)
        self._n_candidates += len(new.f)
        if self._n_candidates > 2 * self._max_candidates:  # rarely, because sorting is slow
            self._candidates = [self._best_candidates()]
            self._n_candidates = len(self._candidates[0].f)

    def _count_levels(self, P: Array) -> None:
        """Add powers (t, F) to the level table."""
        level = np.log(P + _TINY_POWER)
        level *= 10 / np.log(10)
        np.clip(np.floor(level, out=level), _LOWEST_DB, _HIGHEST_DB, out=level)
        self._levels.add(level.astype(np.intp) - _LOWEST_DB, np.ones((len(P), 1)))

    def _noise_power(self) -> Array:
        """Return q (F,), the mean noise power, from the quantile of the quietest frames."""
        fraction = self._settings.quiet_share
        cumulative = np.cumsum(self._levels.sums[0], axis=0)
        row = np.argmax(cumulative >= fraction * cumulative[-1], axis=0)
        # The powers of noise are exponentially distributed, which relates the quantile to the mean.
        noise: Array = 10 ** ((row + _LOWEST_DB + 0.5) / 10) / -np.log(1 - fraction)
        return noise

    def bins(self) -> OnsetBins:
        """Return the strongest onsets of all frames so far."""
        onsets = self._onsets(self._best_candidates())
        discount_db = (self._envelope.count - onsets.t) * (10 * np.log10(self._forgetting))
        order = np.argsort(-(onsets.rise_db + discount_db), kind="stable")
        bins = onsets[order[: self._settings.most_bins]].by_frequency()
        estimate = ReverberationEstimate(self._decay.seconds(), bins.median_snr_db)
        return replace(bins, reverberation=estimate, input_faults=self.input_faults())

    def input_faults(self) -> tuple[FaultFinding, ...]:
        """Return the faults of the input so far."""
        if self._monitor is None:
            return ()
        return find_input_faults(self._monitor.statistics(), self._limits)

    def onsets_since(self, since: int) -> OnsetBins:
        """Return all onsets from frame `since` on, given the current quiet level."""
        parts = takewhile(
            lambda part: not len(part.t) or part.t.max() >= since, reversed(self._candidates)
        )
        candidates = OnsetCandidates.concatenate(list(parts))
        new = np.flatnonzero(candidates.t >= since)
        return self._onsets(candidates.take(new)).by_frequency()

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

    def _best_candidates(self) -> OnsetCandidates:
        candidates = OnsetCandidates.concatenate(self._candidates)
        return candidates.best(self._max_candidates, self._envelope.count, self._forgetting)

    def _onsets(self, candidates: OnsetCandidates) -> OnsetBins:
        """Return the candidates that also rise above the quiet level."""
        settings = self._settings
        noise = self._noise_power()[candidates.f]
        snr = 10 * np.log10((candidates.power + _TINY_POWER) / (noise + _TINY_POWER))
        rise = np.minimum(candidates.rise_db, snr)
        floor = self._peak * 10 ** (-settings.below_peak_db / 10)
        is_onset = (rise > settings.rise_db) & (snr > settings.snr_db) & (candidates.power > floor)
        bins = OnsetBins(candidates.f, candidates.t, candidates.z, rise, snr, self._n_frames)
        return bins[is_onset]

    def second_pass(self, blocks: Iterable[Array]) -> Iterator[OnsetBins]:
        """Yield all onsets of the same sound, given the final quiet level.

        For each block (2, n), yield the onsets of the frames that it completes, in order of time.
        """
        stft = FrameStream(self._settings.window, self._settings.hop, single=self._single)
        envelope, whole = DecayingEnvelope(self._settings), self.bins()

        def onsets(spectra: Complex) -> OnsetBins:
            parts = [
                envelope.candidates(X, squared_magnitude(X).sum(axis=0))
                for X in self._split(spectra)
            ]
            found = self._onsets(OnsetCandidates.concatenate(parts))
            return replace(
                found, reverberation=whole.reverberation, input_faults=whole.input_faults
            )

        for block in blocks:
            yield onsets(stft.push(block))
        yield onsets(stft.finish())


def detect_onsets(samples: Array, onset_settings: OnsetDetectorSettings) -> OnsetBins:
    """Detect the onset bins of a whole recording (2, n)."""
    detector = OnsetDetector(onset_settings)
    detector.push(samples)
    detector.finish()
    return detector.bins()
