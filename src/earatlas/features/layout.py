"""Which cues there are, and which bins count as heard.

`CueLayout` alone knows which frequency and which kind each cue d of a vector is: rate, window, hop
and bands are its fields. `Threshold` says when a bin is observed.

    y_d   (D,) = [ILD of its band; cos IPD of its band; sin IPD of its band]
    χ_ft  observed: both ears' power passes a threshold

What a level and a phase difference are is said here once, for everyone who hears with two ears.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from earatlas.errors import InputError
from earatlas.features.stft import squared_size
from earatlas.types import Array, Indices, Spectra

__all__ = ["CueLayout", "Threshold", "level_differences", "phase_differences"]

# Keeps the logarithm of a silent bin finite; such bins are never observed.
_TINY, _TINY_SINGLE = 1e-200, 1e-30


def level_differences(left_power: Array, right_power: Array, *, out: Array | None = None) -> Array:
    """ILD in dB, right over left, of the two ears' powers; 0 where both are silent.

    The power ratio: no complex division and no square root in the largest array there is.
    """
    tiny = _tiny(left_power)
    level = np.log10((right_power + tiny) / (left_power + tiny), out=out)
    level *= 10.0
    return level


def phase_differences(
    cross: Spectra, size: Array, *, out: tuple[Array, Array] | None = None
) -> tuple[Array, Array]:
    """Cosine and sine of the IPD, from R L* and its size |R| |L|; 1 and 0 where that is 0.

    The size is given because some have the powers already: its square is their product.
    """
    cos, sin = out or (np.empty(size.shape), np.empty(size.shape))
    heard = size > _tiny(size)
    np.divide(cross.real, size, out=cos, where=heard)
    np.divide(cross.imag, size, out=sin, where=heard)
    cos[~heard] = 1.0
    sin[~heard] = 0.0
    return cos, sin


def _tiny(power: Array) -> float:
    return _TINY if power.dtype == np.float64 else _TINY_SINGLE


def _span(bins: Indices) -> slice:
    """A band's bins are consecutive: a slice is a view where an index would copy."""
    return slice(int(bins[0]), int(bins[-1]) + 1) if len(bins) else slice(0, 0)


@dataclass(frozen=True)
class CueLayout:
    """Which cues there are: sampling, window, and the bands (low, high] in Hz of ILD and IPD.

    >>> CueLayout()
    CueLayout(D=730: ILD at 512 frequencies, IPD at 109; 16000 Hz, window 1024, hop 128)
    """

    rate: int = 16_000  # Hz
    window: int = 1024  # samples
    hop: int = 128  # samples
    ild_band_hz: tuple[float, float] | None = (0.0, 8000.0)  # None: no ILD
    ipd_band_hz: tuple[float, float] | None = (300.0, 2000.0)  # None: no IPD

    def __post_init__(self) -> None:
        if not 0 < self.rate <= 10**6 or not 4 <= self.window <= 2**16 or self.window % 2:
            raise InputError(
                f"window must be an even number of samples from 4 to 65536, rate up to 1 MHz, got "
                f"{self.window} at {self.rate} Hz. 1024 at 16000 Hz is the default."
            )
        # With less than a 256th, a second of sound takes minutes, and nothing more is heard.
        if not self.window <= 256 * self.hop <= 128 * self.window:
            raise InputError(
                f"hop must be between a 256th and half the window, got {self.hop} for a window of "
                f"{self.window}. An eighth of the window is the default."
            )
        for band in (self.ild_band_hz, self.ipd_band_hz):
            if band is not None and not 0 <= band[0] < band[1] <= self.rate / 2:
                raise InputError(
                    f"band must be (low, high) in Hz with 0 <= low < high <= {self.rate / 2:g}, "
                    f"got {band}. Choose frequencies below half the sampling rate."
                )
        if self.n_cues == 0:
            raise InputError(
                f"bands must hold at least one multiple of {self.rate / self.window:g} Hz, got "
                f"{self.ild_band_hz} and {self.ipd_band_hz}. Widen a band."
            )

    def __repr__(self) -> str:
        ild, ipd = len(self.ild_frequencies), len(self.ipd_frequencies)
        return (
            f"CueLayout(D={self.n_cues}: ILD at {ild} frequencies, IPD at {ipd}; "
            f"{self.rate} Hz, window {self.window}, hop {self.hop})"
        )

    @classmethod
    def low_ild(cls, **sampling: int) -> Self:
        """The paper's low ILD: up to 2 kHz. `sampling` is rate, window and hop."""
        return cls(ild_band_hz=(0.0, 2000.0), ipd_band_hz=None, **sampling)

    @classmethod
    def high_ild(cls, **sampling: int) -> Self:
        """The paper's high ILD: above 2 kHz."""
        return cls(ild_band_hz=(2000.0, 8000.0), ipd_band_hz=None, **sampling)

    @classmethod
    def low_ipd(cls, **sampling: int) -> Self:
        """The paper's low IPD: 300 Hz to 2 kHz."""
        return cls(ild_band_hz=None, ipd_band_hz=(300.0, 2000.0), **sampling)

    @classmethod
    def high_ipd(cls, **sampling: int) -> Self:
        """The paper's high IPD: above 2 kHz, too irregular to learn (Fig. 3)."""
        return cls(ild_band_hz=None, ipd_band_hz=(2000.0, 8000.0), **sampling)

    @property
    def n_frequencies(self) -> int:
        """F: frequencies 1 … window / 2 of the transform, without 0 Hz."""
        return self.window // 2

    @cached_property
    def frequencies_hz(self) -> Array:
        """(F,) the frequencies themselves."""
        return np.arange(1.0, self.n_frequencies + 1) * (self.rate / self.window)

    @cached_property
    def ild_frequencies(self) -> Indices:
        """Indices f of the frequencies that have an ILD."""
        return self._band_frequencies(self.ild_band_hz)

    @cached_property
    def ipd_frequencies(self) -> Indices:
        """Indices f of the frequencies that have an IPD, two cues each."""
        return self._band_frequencies(self.ipd_band_hz)

    @cached_property
    def cue_frequencies(self) -> Indices:
        """(D,) the frequency f of each cue d."""
        return np.concatenate([self.ild_frequencies, self.ipd_frequencies, self.ipd_frequencies])

    @cached_property
    def cue_kinds(self) -> NDArray[np.str_]:
        """(D,) what each cue d is: "ild", "ipd_cos" or "ipd_sin"."""
        counts = (len(self.ild_frequencies), len(self.ipd_frequencies), len(self.ipd_frequencies))
        return np.repeat(np.array(["ild", "ipd_cos", "ipd_sin"]), counts)

    @property
    def n_cues(self) -> int:
        """D, how many numbers a cue vector has."""
        return len(self.cue_frequencies)

    def stack(self, left: Spectra, right: Spectra) -> Array:
        """Cue vectors (..., D) of the two ears' spectra (..., F); silent bins: 0 dB, 0 rad.

        Spectra in single precision have cues in single precision.
        """
        ild, ipd = len(self.ild_frequencies), len(self.ipd_frequencies)
        out = np.empty((*left.shape[:-1], self.n_cues), dtype=left.real.dtype)
        band = _span(self.ild_frequencies)
        level_differences(
            squared_size(left[..., band]), squared_size(right[..., band]), out=out[..., :ild]
        )
        band = _span(self.ipd_frequencies)
        cross = right[..., band] * left[..., band].conj()
        size = np.sqrt(squared_size(cross))
        phase_differences(cross, size, out=(out[..., ild : ild + ipd], out[..., ild + ipd :]))
        return out

    def indices_in(self, other: CueLayout) -> Indices:
        """Where this layout's cues stand in `other`'s vectors: y_self = y_other[indices]."""
        places = {
            (int(f), str(kind)): d
            for d, (f, kind) in enumerate(zip(other.cue_frequencies, other.cue_kinds, strict=True))
        }
        same = (self.rate, self.window) == (other.rate, other.window)
        wanted = list(zip(self.cue_frequencies.tolist(), self.cue_kinds.tolist(), strict=True))
        if not same or any(key not in places for key in wanted):
            raise InputError(
                f"layout must lie within the measured one, got {self} for cues measured as "
                f"{other}. Measure again with a wider layout, or ask for fewer cues."
            )
        return np.array([places[key] for key in wanted], dtype=np.intp)

    def to_dict(self) -> dict[str, Any]:
        """The fields as JSON values; `from_dict` is the inverse."""
        return {
            "rate": self.rate,
            "window": self.window,
            "hop": self.hop,
            "ild_band_hz": None if self.ild_band_hz is None else list(self.ild_band_hz),
            "ipd_band_hz": None if self.ipd_band_hz is None else list(self.ipd_band_hz),
        }

    @classmethod
    def from_dict(cls, fields: dict[str, Any]) -> Self:
        """The layout that `to_dict` described."""
        counts = [fields[key] for key in ("rate", "window", "hop")]
        if not all(isinstance(count, int) for count in counts):
            raise InputError(
                f"rate, window and hop must be whole numbers, got {counts}. Check the file that "
                "they were read from."
            )
        bands = {
            key: None if fields[key] is None else (float(fields[key][0]), float(fields[key][1]))
            for key in ("ild_band_hz", "ipd_band_hz")
        }
        rate, window, hop = counts
        return cls(rate, window, hop, **bands)

    def _band_frequencies(self, band: tuple[float, float] | None) -> Indices:
        if band is None:
            return np.zeros(0, dtype=np.intp)
        f = self.frequencies_hz
        return np.flatnonzero((f > band[0]) & (f <= band[1]))


@dataclass(frozen=True)
class Threshold:
    """When a bin counts as observed: χ_ft = 1 where both ears pass both thresholds.

    Power is in dB re a full-scale sine. `relative_db` is below the strongest bin of the recording,
    of either ear; `absolute_db` shuts out digital silence and converter noise.
    """

    relative_db: float = -45.0
    absolute_db: float = -100.0

    def __post_init__(self) -> None:
        for name, value in (("relative_db", self.relative_db), ("absolute_db", self.absolute_db)):
            if not -1000 < value <= 0:
                raise InputError(
                    f"{name} must be a number of dB between -1000 and 0, got {value}. "
                    "-45 below the peak and -100 re full scale are the defaults."
                )

    def floor_db(self, peak_power: float) -> int:
        """The level that both ears must pass, given the power of the recording's strongest bin.

        In whole dB, so that a stream can sort its bins by level before it knows its peak.
        """
        peak_db = 10 * math.log10(peak_power) if peak_power > 0 else -math.inf
        return math.floor(max(peak_db + self.relative_db, self.absolute_db))

    def floor(self, peak_power: float) -> float:
        """The same as a power."""
        return float(10 ** (self.floor_db(peak_power) / 10))
