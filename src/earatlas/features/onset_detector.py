"""Bins in which sound arrives rather than decays: what a room's direct sound is heard in.

Reverberation is what decays; the direct sound is what rises above it. In: samples of both ears, as
they come. Out: `OnsetBins`, those that rise most above the decaying envelope of what was before and
above the quiet level of their frequency. Memory is constant, and blocks of any size give the same.

    P_ft = |L|² + |R|²                       power of both ears in a bin
    e_ft = max(P_ft, δ e_f,t-1)              envelope that decays by 60 dB in `decay_seconds`
    q_f                                      mean power of noise that has the quietest frames
    rise_ft = P_ft / max(δ e_f,t-1, q_f)     what a bin is chosen by, in dB

Windows are short: one of 64 ms holds the first reflections too, which come after 3 to 20 ms.
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
from earatlas.features.reverberation import DecayStream
from earatlas.features.stft import FrameStream, squared_size
from earatlas.types import Array, Complex, Indices, Mask

__all__ = ["Gate", "OnsetBins", "OnsetStream"]

_LOWEST_DB, _HIGHEST_DB = -160, 80  # of the table of levels; beyond is counted at its ends
_CANDIDATES = 8  # times the bins that are kept: the quiet level is known only at the end
_TINY = 1e-20
_TELLING = 500  # onsets, at most, by which noise is told from its absence
_CLEAR_DB = 18.0  # 19 and more of one talker and of two in the open and in rooms, 13 to 18 in noise
_FRAMES_AT_ONCE = 256  # as many as stay in the cache
_SILENCE_DB = -100.0  # re a full-scale sine
_GROWTH = 12  # decades that single precision has to spare above the power of any sound


@dataclass(frozen=True)
class Gate:
    """Which bins count as onsets; what the settings do: docs/figures.md, rooms."""

    rate: int = 16_000  # Hz
    window: int = 384  # samples: 24 ms
    hop: int = 128
    decay_seconds: float = 0.3  # T60 of the envelope; 0.3 to 0.8 do alike
    low_hz: float = 150.0
    high_hz: float = 7800.0
    below_peak_db: float = 50.0
    quiet_share: float = 0.15  # of a frequency's frames: speech pauses more than that
    snr_db: float = 6.0  # least above the quiet level
    rise_db: float = 3.0  # least above the envelope
    most_bins: int = 500

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
            raise InputError(f"gate must have possible settings, got {self}. Use the defaults.")

    @cached_property
    def rows(self) -> Indices:
        """(F,) rows of the transform between the lowest and the highest frequency."""
        hz = np.arange(self.window // 2 + 1) * (self.rate / self.window)
        return np.flatnonzero((hz >= self.low_hz) & (hz <= self.high_hz))

    @cached_property
    def frequencies_hz(self) -> Array:
        """(F,) their frequencies."""
        return np.asarray(self.rows * (self.rate / self.window), dtype=np.float64)

    @property
    def decay(self) -> float:
        """δ: what is left of the envelope's power after a hop."""
        return float(10 ** (-6 * self.hop / (self.rate * self.decay_seconds)))


@dataclass(frozen=True, eq=False)
class OnsetBins:
    """B bins that rise, in order of frequency."""

    f: Indices  # (B,) of the gate's frequencies
    t: Indices  # (B,) frames since the start
    z: Complex  # (B, 2) spectra of the left and the right ear
    rise_db: Array  # (B,)
    snr_db: Array  # (B,) above the quiet level
    frames: float  # heard in all
    decay_seconds: float = (
        math.nan
    )  # of 60 dB, by the fastest decays (`earatlas.features.reverberation`)
    difference: float = math.nan  # of the ears: 0 if one has the other's sound, louder or softer

    def __len__(self) -> int:
        return len(self.f)

    def __getitem__(self, rows: Indices | Mask | slice) -> OnsetBins:
        """Some of the bins, in the same order."""
        return replace(
            self, f=self.f[rows], t=self.t[rows], z=self.z[rows], rise_db=self.rise_db[rows],
            snr_db=self.snr_db[rows],
        )  # fmt: skip

    def __repr__(self) -> str:
        return f"OnsetBins({len(self)} bins of {self.frames:g} frames)"

    @classmethod
    def joined(cls, parts: Sequence[OnsetBins]) -> OnsetBins:
        """The bins of all parts of one sound."""
        return cls._one_after_the_other(parts).by_frequency()

    @classmethod
    def _one_after_the_other(cls, parts: Sequence[OnsetBins]) -> OnsetBins:
        f, t, z, rise, snr = (
            np.concatenate([getattr(part, name) for part in parts])
            for name in ("f", "t", "z", "rise_db", "snr_db")
        )
        return replace(parts[-1], f=f, t=t, z=z, rise_db=rise, snr_db=snr)

    def followed_by(self, later: OnsetBins) -> OnsetBins:
        """The bins of two parts of one sound that are in order of time."""
        return self._one_after_the_other([self, later])

    def by_frequency(self) -> OnsetBins:
        """The same in order of frequency, then time."""
        return self[np.lexsort((self.t, self.f))]

    @classmethod
    def united(cls, parts: Sequence[OnsetBins]) -> tuple[OnsetBins, list[Indices]]:
        """The bins of overlapping parts of one sound, each once, and which (b,) are each part's."""
        every = cls.joined(parts)
        first = np.ones(len(every), dtype=bool)
        first[1:] = (np.diff(every.f) != 0) | (np.diff(every.t) != 0)
        once = every[first]
        frames = int(once.t.max(initial=0)) + 1
        place = once.f * frames + once.t  # ascending, as they are in order of frequency and time
        return once, [np.searchsorted(place, part.f * frames + part.t) for part in parts]

    @cached_property
    def above_quiet_db(self) -> float:
        """How far those that rise most stand above the quiet level: their median; NaN of none."""
        strongest = self.strongest(_TELLING)
        return float(np.median(strongest.snr_db)) if len(self) else math.nan

    @property
    def clear(self) -> bool:
        """Whether there is no noise to speak of: they stand well above what noise leaves."""
        return self.above_quiet_db >= _CLEAR_DB

    def lighter(self) -> OnsetBins:
        """The same in two thirds of the memory: spectra in single precision."""
        return replace(self, z=self.z.astype(np.complex64))

    def strongest(self, count: int) -> OnsetBins:
        """The `count` that rise most."""
        if len(self) <= count:
            return self
        return self[np.sort(np.argsort(-self.rise_db, kind="stable")[:count])]


class OnsetStream:
    """Onsets of a sound that comes in pieces, with or without forgetting.

    With `forgetting` = g < 1 a bin counts as if it rose by g^a less after a frames, so that newer
    ones take its place; the peak and the quiet level forget alike. In `single` precision it takes
    half the time. With `stretches` those of each `stretch` can be asked for, too.
    """

    def __init__(
        self, gate: Gate, *, forgetting: float = 1.0, single: bool = False, stretches: bool = False
    ) -> None:
        self._gate, self._forgetting, self._single = gate, forgetting, single
        self._newest: list[_Candidates] | None = [] if stretches else None
        self._frames = FrameStream(gate.window, gate.hop, single=single)
        F = len(gate.rows)
        self._rising = _Rising(gate)
        self._levels = np.zeros((_HIGHEST_DB - _LOWEST_DB + 1, F))
        self._scale = 1.0  # what a frame of now is worth in the table of levels
        self._peak = 0.0
        self._heard = 0.0
        self._kept: list[_Candidates] = []
        self._waiting = 0  # candidates
        first, last = gate.rows[[0, -1]] if len(gate.rows) else (0, -1)
        self._rows = slice(int(first), int(last) + 1)  # a view where an index would copy
        self._decay = DecayStream(gate.frequencies_hz, gate.hop / gate.rate, forgetting=forgetting)
        self._products = np.zeros(3)  # |L|², |R|² and Re L R̄, summed up

    def push(self, samples: Array) -> None:
        """Take in samples (2, n)."""
        self._take_all(self._frames.push(samples))

    def finish(self) -> None:
        """Take in the frames that waited for the end."""
        self._take_all(self._frames.finish())

    def _take_all(self, spectra: Complex) -> None:
        for X in self._cut(spectra):
            self._take(X)

    def _cut(self, spectra: Complex) -> Iterator[Complex]:
        """The gate's frequencies of spectra (2, B, t), frame by frame (2, t, F), some at a time."""
        X = spectra.swapaxes(1, 2)[..., self._rows]
        for start in range(0, X.shape[1], _FRAMES_AT_ONCE):
            yield X[:, start : start + _FRAMES_AT_ONCE]

    def _take(self, X: Complex) -> None:
        g, t = self._forgetting, X.shape[1]
        left, right = squared_size(X)
        P = left + right
        new = self._rising.candidates(X, P)
        self._decay.push(P.T)
        worth = self._scale * g ** -np.arange(1.0, t + 1)
        self._count_levels(P, worth)
        self._scale = float(worth[-1])
        age = g ** np.arange(t - 1.0, -1.0, -1.0)
        self._products *= g**t
        together = X[0].real * X[1].real + X[0].imag * X[1].imag
        # In double precision: whether both ears have one sound hangs on the eighth digit.
        sums = (part.sum(axis=1, dtype=np.float64) for part in (left, right, together))
        self._products += [age @ part for part in sums]
        self._heard = self._heard * g**t + float(age.sum())
        self._peak = max(self._peak * g**t, float((P.max(axis=1) * age).max()))
        self._kept.append(new)
        if self._newest is not None:
            self._newest.append(new)
        self._waiting += len(new.f)
        if self._waiting > 2 * self._most:  # sorting is what a hop takes longest for
            self._kept = [self._best()]
            self._waiting = len(self._kept[0].f)
        if self._scale > 1e100:
            self._levels /= self._scale
            self._scale = 1.0

    def _count_levels(self, P: Array, worth: Array) -> None:
        level = np.log(P + _TINY)
        level *= 10 / np.log(10)
        np.clip(np.floor(level, out=level), _LOWEST_DB, _HIGHEST_DB, out=level)
        add_frames([self._levels], level.astype(np.intp) - _LOWEST_DB, [worth[:, None]])

    def _floor(self) -> float:
        return self._peak * 10 ** (-self._gate.below_peak_db / 10)

    def _quiet(self) -> Array:
        """q (F,): the mean power of noise whose quietest share lies below the level counted."""
        share = self._gate.quiet_share
        below = np.cumsum(self._levels, axis=0)
        row = np.argmax(below >= share * below[-1], axis=0)
        # The powers of noise are exponentially distributed: from their quantile to their mean.
        quiet: Array = 10 ** ((row + _LOWEST_DB + 0.5) / 10) / -np.log(1 - share)
        return quiet

    def bins(self) -> OnsetBins:
        """The bins that rise most, of all that was pushed."""
        good = self._good(self._best())
        fade_db = (self._rising.count - good.t) * (10 * np.log10(self._forgetting))
        order = np.argsort(-(good.rise_db + fade_db), kind="stable")[: self._gate.most_bins]
        return good[order[np.lexsort((good.t[order], good.f[order]))]]

    def arrived(self, since: int) -> OnsetBins:
        """The bins of frames from `since` on that rise, by what is quiet now."""
        parts = takewhile(
            lambda part: not len(part.t) or part.t.max() >= since, reversed(self._kept)
        )
        kept = _Candidates.joined(list(parts))
        new = np.flatnonzero(kept.t >= since)
        new = new[np.lexsort((kept.t[new], kept.f[new]))]
        return self._good(
            _Candidates(kept.f[new], kept.t[new], kept.z[new], kept.power[new], kept.rise_db[new])
        )

    def stretch(self) -> OnsetBins:
        """The bins that rise most since this was asked the last time, by what is quiet now.

        Its `frames` are all until now: where the stretch ends, whether anything rises in it or not.
        """
        kept = _Candidates.joined(self._newest or []).best(self._most, self._rising.count, 1.0)
        self._newest = []
        return self._good(kept).by_frequency().strongest(self._gate.most_bins)

    @property
    def frames(self) -> int:
        """Frames that are complete."""
        return self._rising.count

    @property
    def _most(self) -> int:
        return _CANDIDATES * self._gate.most_bins

    def _best(self) -> _Candidates:
        return _Candidates.joined(self._kept).best(self._most, self._rising.count, self._forgetting)

    def _good(self, kept: _Candidates) -> OnsetBins:
        """Those that rise above the quiet, too."""
        gate = self._gate
        snr = 10 * np.log10((kept.power + _TINY) / (self._quiet()[kept.f] + _TINY))
        rise = np.minimum(kept.rise_db, snr)
        good = (rise > gate.rise_db) & (snr > gate.snr_db) & (kept.power > self._floor())
        every = OnsetBins(
            kept.f, kept.t, kept.z, rise, snr, self._heard,
            decay_seconds=self._decay.seconds(),
            difference=self._difference(),
        )  # fmt: skip
        return every[good]

    def _difference(self) -> float:
        """1 - (Re LR̄)² / |L|²|R|²: what of one ear's sound is not in the other's."""
        left, right, together = self._products
        return float(1 - together**2 / max(left * right, 1e-300))

    def again(self, blocks: Iterable[Array]) -> Iterator[OnsetBins]:
        """All bins that rise, in order of time, of the same sound heard a second time.

        What is quiet is known by then; for each block (2, n), the bins of the frames that it ends.
        """
        gate = self._gate
        frames = FrameStream(gate.window, gate.hop, single=self._single)
        rising = _Rising(gate)

        def arrived(spectra: Complex) -> OnsetBins:
            parts = [rising.candidates(X, squared_size(X).sum(axis=0)) for X in self._cut(spectra)]
            return self._good(_Candidates.joined(parts))

        for block in blocks:
            yield arrived(frames.push(block))
        yield arrived(frames.finish())


class _Rising:
    """The envelope that a bin must rise above, and the bins that do."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self._envelope: Array = np.zeros(len(gate.rows))
        self._least_ratio = 10 ** (gate.rise_db / 10)
        # Digital silence is no room: whatever follows it would rise without end.
        self._silence = 10 ** (_SILENCE_DB / 10) * (gate.window / 4) ** 2
        fall = -np.log10(gate.decay)
        self._grown = 10 ** (fall * np.arange(max(int(_GROWTH / fall), 1) + 1.0))  # δ^-t
        self.count = 0  # frames so far

    def candidates(self, X: Complex, P: Array) -> _Candidates:
        """Those of the next frames, with spectra (2, t, F) and powers (t, F), in order of time."""
        before = self._decayed(P)
        np.maximum(before, self._silence, out=before)
        place = np.flatnonzero(self._least_ratio * before < P + _TINY)
        n, f = np.divmod(place, P.shape[1])
        power = P.ravel().take(place)
        rise_db = 10 * np.log10((power + _TINY) / before.ravel().take(place))
        found = _Candidates(f, self.count + n, X[:, n, f].T, power, rise_db)
        self.count += len(P)
        return found

    def _decayed(self, P: Array) -> Array:
        """δ e of the frame before, (t, F), and the envelope moved on.

        Without its decay it is a running maximum: e_t δ^-t = max(P_t δ^-t, e_t-1 δ^-(t-1)).
        """
        grown = self._grown.astype(P.dtype)[:, None]
        out = np.empty_like(P)
        for start in range(0, len(P), len(grown) - 1):
            power = P[start : start + len(grown) - 1]
            t = len(power)
            e = np.concatenate([self._envelope[None], power * grown[1 : t + 1]])
            np.maximum.accumulate(e, axis=0, out=e)
            e /= grown[: t + 1]
            np.multiply(e[:-1], self._gate.decay, out=out[start : start + t])
            self._envelope = e[-1]
        return out


@dataclass(frozen=True, eq=False)
class _Candidates:
    """Bins that may be among those that rise most, once the quiet level is known."""

    f: Indices
    t: Indices
    z: Complex  # (n, 2)
    power: Array
    rise_db: Array  # above the envelope

    @classmethod
    def joined(cls, parts: Sequence[_Candidates]) -> _Candidates:
        if not parts:
            nothing = np.zeros(0, dtype=np.intp)
            pairs = np.zeros((0, 2), dtype=np.complex128)
            return cls(nothing, nothing, pairs, np.zeros(0), np.zeros(0))
        names = ("f", "t", "z", "power", "rise_db")
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))

    def best(self, most: int, now: int, forgetting: float) -> _Candidates:
        """The `most` that rise most, older ones by less."""
        if len(self.f) <= most:
            return self
        merit = self.rise_db + (now - self.t) * (10 * np.log10(forgetting))
        # Ties by time and frequency: what is kept must not hang on how the sound was cut up.
        least = np.partition(merit, -most)[-most]
        above, level = np.flatnonzero(merit > least), np.flatnonzero(merit == least)
        level = level[np.lexsort((self.f[level], self.t[level]))[: most - len(above)]]
        keep = np.sort(np.concatenate([above, level]))
        return _Candidates(
            self.f[keep], self.t[keep], self.z[keep], self.power[keep], self.rise_db[keep]
        )
