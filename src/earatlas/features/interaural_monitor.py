"""Long-term interaural statistics of a recording or a stream, from which broken input is found.

Input: samples of both channels, in blocks of any size. Output: `InterauralStatistics`, sums over
frames of half a second, in constant memory. `earatlas.features.input_plausibility` compares them
with what a head can do.

    P_ek = Σ_t |X_ekt|²             power of ear e at frequency k
    C_k  = Σ_t R_kt L̄_kt            cross spectrum
    r(τ) = Re Σ_k C_k / √(P_Lk P_Rk) exp(j 2π f_k τ) / K
                                    cross-correlation, whitened by the mean spectra (SCOT)

    K  frequencies of a frame    F  bands    T  delays of the right channel
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from earatlas.features.stft import FrameStream, squared_magnitude
from earatlas.types import Array, Complex

__all__ = ["InterauralMonitor", "InterauralStatistics", "MonitorSettings"]


# Evidence: docs/figures/settings/features.md, "interaural_monitor".
@dataclass(frozen=True, slots=True)
class MonitorSettings:
    """Frames of the monitor, and gaps in the signal."""

    frame_seconds: float = 0.512  # delays between the channels are found up to about half of it
    low_hz: float = 150.0  # lowest frequency
    high_hz: float = 7800.0  # highest frequency
    active_ratio: float = 1e-3  # power of a frame with sound, relative to the loudest so far
    dead_ratio: float = 1e-4  # power of a dead channel, relative to the other one
    gap_slot_seconds: float = 1e-3  # resolution of gaps
    gap_ratio: float = 1e-4  # power within a gap, relative to the sound before and after it
    edge_ratio: float = 0.03  # power from which sound is present again
    max_edge_slots: int = 2  # slots within which a gap begins or ends
    max_gap_slots: int = 30  # longer gaps are pauses


@dataclass(frozen=True, eq=False)
class InterauralStatistics:
    """Sums over the frames of a recording."""

    rate: float  # samples per second
    frame_samples: int
    frequencies_hz: Array  # (K,)
    powers: Array  # (2, K) of the left and the right channel
    cross: Complex  # (K,) right times conjugate left
    active_frames: float  # frames with sound
    dead_frames: Array  # (2,) of these, frames in which only the other channel has sound
    gaps: float  # gaps of a few milliseconds in both channels

    def band_sums(self, band_hz: float) -> tuple[Array, Array, Complex]:
        """Return frequencies (F,), powers (2, F) and cross spectra (F,) of bands of equal width."""
        hz = self.frequencies_hz
        step = max(round(band_hz / (hz[1] - hz[0])), 1)
        starts = np.arange(0, len(hz), step)
        cross: Complex = np.add.reduceat(self.cross, starts)
        return hz[starts], np.add.reduceat(self.powers, starts, axis=1), cross

    def sums_around(self, centres_hz: Array, band_hz: float) -> tuple[Array, Complex]:
        """Return powers (2, F) and cross spectra (F,) of bands around frequencies (F,)."""
        low, high = (
            np.searchsorted(self.frequencies_hz, centres_hz + side * band_hz / 2)
            for side in (-1, 1)
        )
        powers, cross = (
            np.concatenate([np.zeros((*x.shape[:-1], 1)), x.cumsum(axis=-1)], axis=-1)
            for x in (self.powers, self.cross)
        )
        cross_sums: Complex = cross[high] - cross[low]
        return np.maximum(powers[:, high] - powers[:, low], 0.0), cross_sums

    @property
    def whitened(self) -> Complex:
        """Cross spectrum (K,) over the root of both powers; its magnitude is the coherence."""
        # The floor prevents 0 / 0 where a channel is silent.
        scale = np.maximum(np.sqrt(self.powers.prod(axis=0)), np.finfo(np.float64).tiny)
        whitened: Complex = self.cross / scale
        return whitened

    def correlation(self) -> Array:
        """Return r by lag in samples; the lags of a late left channel are at the end."""
        spectrum = np.zeros(self.frame_samples // 2 + 1, dtype=np.complex128)
        rows = np.round(self.frequencies_hz * self.frame_samples / self.rate).astype(np.intp)
        spectrum[rows] = self.whitened
        r: Array = np.fft.irfft(spectrum, self.frame_samples)
        return r * (self.frame_samples / 2 / max(len(rows), 1))

    def correlation_at(self, delays_seconds: Array, max_hz: float) -> Array:
        """Return r (T,) of the frequencies up to `max_hz` at some delays."""
        hz = self.frequencies_hz[self.frequencies_hz <= max_hz]
        waves = np.exp(2j * np.pi * np.multiply.outer(hz, delays_seconds))
        r: Array = (self.whitened[: len(hz)] @ waves).real / max(len(hz), 1)
        return r


class InterauralMonitor:
    """Accumulates `InterauralStatistics`, with optional exponential forgetting.

    `forgetting` is the weight of sound after one second.
    """

    def __init__(
        self, rate: float, *, forgetting: float = 1.0, settings: MonitorSettings | None = None
    ) -> None:
        self._settings = settings or MonitorSettings()
        self._rate = rate
        self._frame_samples = 2 * round(self._settings.frame_seconds * rate / 2)
        hop = self._frame_samples // 2
        self._forgetting = forgetting ** (hop / rate)
        self._stream = FrameStream(self._frame_samples, hop)
        hz = np.arange(hop + 1, dtype=np.float64) * (rate / self._frame_samples)
        low, high = np.searchsorted(hz, (self._settings.low_hz, self._settings.high_hz))
        self._rows = slice(int(low), int(high))
        self._frequencies_hz = hz[self._rows]
        self._powers = np.zeros((2, int(high - low)))
        self._cross = np.zeros(int(high - low), dtype=np.complex128)
        self._active, self._dead, self._loudest = 0.0, np.zeros(2), 0.0
        self._gaps = _GapCounter(rate, self._settings, forgetting)

    def push(self, samples: Array) -> None:
        """Add samples (2, n)."""
        self._gaps.push(samples)
        self._add(self._stream.push(samples))

    def finish(self) -> None:
        """Add the last frames, which reach beyond the end of the sound."""
        self._add(self._stream.finish())

    def _add(self, spectra: Complex) -> None:
        """Add frames (2, B, t)."""
        g, settings = self._forgetting, self._settings
        for X in np.moveaxis(spectra[:, self._rows], -1, 0):
            power = squared_magnitude(X)
            each, total = power.sum(axis=1), float(power.sum())
            self._powers = g * self._powers + power
            self._cross = g * self._cross + X[1] * X[0].conj()
            self._loudest = max(g * self._loudest, total)
            active = total > settings.active_ratio * self._loudest
            self._active = g * self._active + float(active)
            self._dead = g * self._dead + (active & (each < settings.dead_ratio * each[::-1]))

    def statistics(self) -> InterauralStatistics:
        """Return the statistics of all frames so far."""
        return InterauralStatistics(
            self._rate,
            self._frame_samples,
            self._frequencies_hz,
            self._powers,
            self._cross,
            self._active,
            self._dead,
            self._gaps.count,
        )


@dataclass(slots=True)
class _Gap:
    """A gap that has begun and not ended."""

    level: float  # power of a slot before it
    slots: int = 0
    rising_slots: int = 0  # slots at the end in which the sound begins again


@dataclass(slots=True)
class _GapCounter:
    """Counts gaps of a few milliseconds that begin and end abruptly, as lost packets do."""

    rate: float
    settings: MonitorSettings
    forgetting: float  # per second
    count: float = 0.0
    _remainder: Array = field(default_factory=lambda: np.zeros((2, 0)))
    _before: Array = field(default_factory=lambda: np.zeros(2))  # powers of the last slots
    _gap: _Gap | None = None

    def push(self, samples: Array) -> None:
        """Add samples (2, n)."""
        settings = self.settings
        slot = max(round(settings.gap_slot_seconds * self.rate), 1)
        x = np.concatenate([self._remainder, samples], axis=1)
        n = x.shape[1] // slot
        x, self._remainder = x[:, : n * slot], x[:, n * slot :].copy()
        powers = (x**2).sum(axis=0).reshape(n, slot).sum(axis=1)
        history = np.concatenate([self._before, powers])
        before = np.maximum(history[:-2], history[1:-1])
        self._before = history[-2:]
        self.count *= self.forgetting ** (n * slot / self.rate)
        low = np.flatnonzero(powers < settings.gap_ratio * before)
        position = 0
        while self._gap is not None or len(low):
            if self._gap is None:
                position, low = int(low[0]) + 1, low[1:]
                self._gap = _Gap(float(before[position - 1]))
            while self._gap is not None and position < n:
                self._continue(self._gap, float(powers[position]))
                position += 1
            if self._gap is not None:
                return
            low = low[low >= position]

    def _continue(self, gap: _Gap, power: float) -> None:
        """Add a slot to a gap; the gap ends with sound, or as a pause."""
        settings = self.settings
        if power >= settings.edge_ratio * gap.level:
            self.count += 1
            self._gap = None
            return
        quiet = power < settings.gap_ratio * gap.level
        gap.slots += 1
        gap.rising_slots = 0 if quiet else gap.rising_slots + 1
        if gap.slots > settings.max_gap_slots or gap.rising_slots > settings.max_edge_slots:
            self._gap = None
