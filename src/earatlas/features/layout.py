"""Cue layout: which interaural cues a vector contains, and which bins count as observed.

`CueLayout` defines the sampling, the STFT and the frequency bands, and with them the frequency and
the kind of every cue. `Threshold` defines which bins are observed. The formulas of level and phase
differences (`level_differences`, `phase_differences`) are defined here once.

    y_d    (D,)     [ILD of its band; cos IPD of its band; sin IPD of its band]
    χ_ft   (F, T)   observed: the power of both ears exceeds a threshold
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from earatlas.errors import InputError
from earatlas.features.stft import squared_magnitude
from earatlas.types import Array, Indices, Spectra

__all__ = ["CueLayout", "Threshold", "level_differences", "phase_differences"]


def level_differences(left_power: Array, right_power: Array, *, out: Array | None = None) -> Array:
    """Return the ILD in dB, right over left, of the powers of both ears; 0 dB for silence."""
    tiny = _tiny(left_power)
    level = np.log10((right_power + tiny) / (left_power + tiny), out=out)
    level *= 10.0
    return level


def phase_differences(
    cross: Spectra, magnitude: Array, *, out: tuple[Array, Array] | None = None
) -> tuple[Array, Array]:
    """Return cosine and sine of the IPD from R L* and its magnitude |R| |L|; 1 and 0 for silence.

    The magnitude is an argument because callers that know the powers need not compute it again.
    """
    cos, sin = out or (np.empty(magnitude.shape), np.empty(magnitude.shape))
    audible = magnitude > _tiny(magnitude)
    np.divide(cross.real, magnitude, out=cos, where=audible)
    np.divide(cross.imag, magnitude, out=sin, where=audible)
    cos[~audible] = 1.0
    sin[~audible] = 0.0
    return cos, sin


def _tiny(power: Array) -> float:
    """Return the floor for the precision of an array: without it, silent bins give log(0)."""
    return 1e-200 if power.dtype == np.float64 else 1e-30


def _span(bins: Indices) -> slice:
    """Return consecutive bins as a slice, which gives a view instead of a copy."""
    return slice(int(bins[0]), int(bins[-1]) + 1) if len(bins) else slice(0, 0)


@dataclass(frozen=True)
class CueLayout:
    """Definition of a cue vector: sampling rate, STFT, and frequency bands of ILD and IPD.

    A cue vector has D = n_cues entries: the level differences (ILD) in dB of one band, then the
    cosines and the sines of the phase differences (IPD) of another band [1]_.

    Parameters
    ----------
    rate : int, default 16000
        Sampling rate in Hz.
    window : int, default 1024
        Length of the STFT window in samples, an even number.
    hop : int, default 128
        Samples between successive frames.
    ild_band_hz : (float, float) or None, default (0.0, 8000.0)
        Band (low, high] of the ILD in Hz; None for no ILD.
    ipd_band_hz : (float, float) or None, default (300.0, 2000.0)
        Band (low, high] of the IPD in Hz; None for no IPD.

    Raises
    ------
    InputError
        If window, hop, rate or a band are out of range, or if no cue remains.

    References
    ----------
    .. [1] A. Deleforge, F. Forbes and R. Horaud, "Acoustic space learning for sound-source
       separation and localization on binaural manifolds", International Journal of Neural
       Systems, 25(1), 2015, section 2.

    Examples
    --------
    >>> import earatlas as ea
    >>> ea.CueLayout()
    CueLayout(D=730: ILD at 512 frequencies, IPD at 109; 16000 Hz, window 1024, hop 128)
    >>> ea.CueLayout.low_ild().n_cues
    128
    """

    rate: int = 16_000  # Hz
    window: int = 1024  # samples
    hop: int = 128  # samples
    ild_band_hz: tuple[float, float] | None = (0.0, 8000.0)  # (low, high], None: no ILD
    ipd_band_hz: tuple[float, float] | None = (300.0, 2000.0)  # (low, high], None: no IPD

    def __post_init__(self) -> None:
        if not 0 < self.rate <= 10**6 or not 4 <= self.window <= 2**16 or self.window % 2:
            raise InputError(
                f"window must be an even number of samples from 4 to 65536 and rate at most 1 MHz, "
                f"got {self.window} at {self.rate} Hz. The default is 1024 at 16000 Hz."
            )
        # A smaller hop takes minutes per second of sound and gives no more information.
        if not self.window <= 256 * self.hop <= 128 * self.window:
            raise InputError(
                f"hop must be between a 256th and half the window, got {self.hop} for a window of "
                f"{self.window}. The default is an eighth of the window."
            )
        for band in (self.ild_band_hz, self.ipd_band_hz):
            if band is not None and not 0 <= band[0] < band[1] <= self.rate / 2:
                raise InputError(
                    f"band must be (low, high) in Hz with 0 <= low < high <= {self.rate / 2:g}, "
                    f"got {band}. Choose frequencies below half the sampling rate."
                )
        if self.n_cues == 0:
            raise InputError(
                f"The bands must contain at least one multiple of {self.rate / self.window:g} Hz, "
                f"got {self.ild_band_hz} and {self.ipd_band_hz}. Widen a band."
            )

    def __repr__(self) -> str:
        ild, ipd = len(self.ild_frequencies), len(self.ipd_frequencies)
        return (
            f"CueLayout(D={self.n_cues}: ILD at {ild} frequencies, IPD at {ipd}; "
            f"{self.rate} Hz, window {self.window}, hop {self.hop})"
        )

    @classmethod
    def low_ild(cls, **sampling: int) -> Self:
        """Return the layout of the paper's low ILD, up to 2 kHz.

        Parameters
        ----------
        **sampling : int
            Any of `rate` in Hz, `window` and `hop` in samples, by default those of `CueLayout`.

        Returns
        -------
        CueLayout
            A layout without IPD.
        """
        return cls(ild_band_hz=(0.0, 2000.0), ipd_band_hz=None, **sampling)

    @classmethod
    def high_ild(cls, **sampling: int) -> Self:
        """Return the layout of the paper's high ILD, from 2 to 8 kHz.

        Parameters
        ----------
        **sampling : int
            Any of `rate` in Hz, `window` and `hop` in samples, by default those of `CueLayout`.

        Returns
        -------
        CueLayout
            A layout without IPD.
        """
        return cls(ild_band_hz=(2000.0, 8000.0), ipd_band_hz=None, **sampling)

    @classmethod
    def low_ipd(cls, **sampling: int) -> Self:
        """Return the layout of the paper's low IPD, from 300 Hz to 2 kHz.

        Parameters
        ----------
        **sampling : int
            Any of `rate` in Hz, `window` and `hop` in samples, by default those of `CueLayout`.

        Returns
        -------
        CueLayout
            A layout without ILD.
        """
        return cls(ild_band_hz=None, ipd_band_hz=(300.0, 2000.0), **sampling)

    @classmethod
    def high_ipd(cls, **sampling: int) -> Self:
        """Return the layout of the paper's high IPD, from 2 to 8 kHz.

        This IPD is too irregular to learn (Fig. 3).

        Parameters
        ----------
        **sampling : int
            Any of `rate` in Hz, `window` and `hop` in samples, by default those of `CueLayout`.

        Returns
        -------
        CueLayout
            A layout without ILD.
        """
        return cls(ild_band_hz=None, ipd_band_hz=(2000.0, 8000.0), **sampling)

    @property
    def n_frequencies(self) -> int:
        """Number of frequencies F = window / 2: the bins of the STFT without 0 Hz."""
        return self.window // 2

    @cached_property
    def frequencies_hz(self) -> Array:
        """Frequencies (F,) in Hz."""
        return np.arange(1.0, self.n_frequencies + 1) * (self.rate / self.window)

    @cached_property
    def ild_frequencies(self) -> Indices:
        """Indices of the frequencies that have an ILD."""
        return self._band_frequencies(self.ild_band_hz)

    @cached_property
    def ipd_frequencies(self) -> Indices:
        """Indices of the frequencies that have an IPD, which gives two cues each."""
        return self._band_frequencies(self.ipd_band_hz)

    @cached_property
    def cue_frequencies(self) -> Indices:
        """Frequency index (D,) of each cue."""
        return np.concatenate([self.ild_frequencies, self.ipd_frequencies, self.ipd_frequencies])

    @cached_property
    def cue_kinds(self) -> NDArray[np.str_]:
        """Kind (D,) of each cue: "ild", "ipd_cos" or "ipd_sin"."""
        counts = (len(self.ild_frequencies), len(self.ipd_frequencies), len(self.ipd_frequencies))
        return np.repeat(np.array(["ild", "ipd_cos", "ipd_sin"]), counts)

    @property
    def n_cues(self) -> int:
        """Number of cues D."""
        return len(self.cue_frequencies)

    def stack(self, left: Spectra, right: Spectra) -> Array:
        """Compute the cue vectors of the spectra of both ears.

        Parameters
        ----------
        left, right : complex ndarray of shape (..., F)
            Spectra at the frequencies of the layout.

        Returns
        -------
        ndarray of shape (..., D)
            Cue vectors, in the precision of the spectra. Silent bins have 0 dB and 0 rad.
        """
        ild, ipd = len(self.ild_frequencies), len(self.ipd_frequencies)
        out = np.empty((*left.shape[:-1], self.n_cues), dtype=left.real.dtype)
        band = _span(self.ild_frequencies)
        level_differences(
            squared_magnitude(left[..., band]),
            squared_magnitude(right[..., band]),
            out=out[..., :ild],
        )
        band = _span(self.ipd_frequencies)
        cross = right[..., band] * left[..., band].conj()
        magnitude = np.sqrt(squared_magnitude(cross))
        phase_differences(cross, magnitude, out=(out[..., ild : ild + ipd], out[..., ild + ipd :]))
        return out

    def indices_in(self, other: CueLayout) -> Indices:
        """Return the positions of the cues in the vectors of a wider layout.

        Parameters
        ----------
        other : CueLayout
            Layout with the same rate and window whose bands contain those of this one.

        Returns
        -------
        ndarray of int, shape (D,)
            Indices with y_self = y_other[indices].

        Raises
        ------
        InputError
            If `other` lacks a cue of this layout.
        """
        positions = {
            (int(f), str(kind)): d
            for d, (f, kind) in enumerate(zip(other.cue_frequencies, other.cue_kinds, strict=True))
        }
        same = (self.rate, self.window) == (other.rate, other.window)
        keys = list(zip(self.cue_frequencies.tolist(), self.cue_kinds.tolist(), strict=True))
        if not same or any(key not in positions for key in keys):
            raise InputError(
                f"layout must lie within the measured one, got {self} for cues measured as "
                f"{other}. Measure again with a wider layout, or request fewer cues."
            )
        return np.array([positions[key] for key in keys], dtype=np.intp)

    def to_dict(self) -> dict[str, Any]:
        """Return the layout as JSON values.

        Returns
        -------
        dict
            One entry per field; `from_dict` is the inverse.
        """
        return {
            "rate": self.rate,
            "window": self.window,
            "hop": self.hop,
            "ild_band_hz": None if self.ild_band_hz is None else list(self.ild_band_hz),
            "ipd_band_hz": None if self.ipd_band_hz is None else list(self.ipd_band_hz),
        }

    @classmethod
    def from_dict(cls, fields: dict[str, Any]) -> Self:
        """Return the layout that `to_dict` described.

        Parameters
        ----------
        fields : dict
            One entry per field; bands are lists [low, high] in Hz, or None.

        Returns
        -------
        CueLayout
            The layout.

        Raises
        ------
        InputError
            If rate, window or hop is not a whole number, or if the layout is invalid.

        Examples
        --------
        >>> import earatlas as ea
        >>> layout = ea.CueLayout(window=512)
        >>> ea.CueLayout.from_dict(layout.to_dict()) == layout
        True
        """
        counts = [fields[key] for key in ("rate", "window", "hop")]
        if not all(isinstance(count, int) for count in counts):
            raise InputError(
                f"rate, window and hop must be whole numbers, got {counts}. Check the file from "
                "which they were read."
            )
        bands = {
            key: None if fields[key] is None else (float(fields[key][0]), float(fields[key][1]))
            for key in ("ild_band_hz", "ipd_band_hz")
        }
        rate, window, hop = counts
        return cls(rate, window, hop, **bands)

    def _band_frequencies(self, band: tuple[float, float] | None) -> Indices:
        """Return the indices of the frequencies within a band (low, high]."""
        if band is None:
            return np.zeros(0, dtype=np.intp)
        f = self.frequencies_hz
        return np.flatnonzero((f > band[0]) & (f <= band[1]))


@dataclass(frozen=True)
class Threshold:
    """Threshold of observed bins: χ_ft = 1 where both ears exceed both levels.

    Parameters
    ----------
    relative_db : float, default -45.0
        Level in dB relative to the strongest bin of either ear in the recording.
    absolute_db : float, default -100.0
        Level in dB relative to a full-scale sine; excludes digital silence and converter noise.

    Raises
    ------
    InputError
        If a level is not between -1000 and 0 dB.

    Examples
    --------
    >>> import earatlas as ea
    >>> ea.Threshold(relative_db=-30.0).floor_db(peak_power=0.01)
    -50
    """

    relative_db: float = -45.0  # dB re the strongest bin of the recording
    absolute_db: float = -100.0  # dB re a full-scale sine

    def __post_init__(self) -> None:
        for name, value in (("relative_db", self.relative_db), ("absolute_db", self.absolute_db)):
            if not -1000 < value <= 0:
                raise InputError(
                    f"{name} must be a number of dB between -1000 and 0, got {value}. "
                    "The defaults are -45 dB re the peak and -100 dB re full scale."
                )

    def floor_db(self, peak_power: float) -> int:
        """Return the level in dB that both ears must reach.

        The level is rounded down to whole dB, so that a stream can sort its bins by level before
        its peak is known.

        Parameters
        ----------
        peak_power : float
            Power of the strongest bin of the recording, relative to a full-scale sine.

        Returns
        -------
        int
            Level in dB relative to a full-scale sine.
        """
        peak_db = 10 * math.log10(peak_power) if peak_power > 0 else -math.inf
        return math.floor(max(peak_db + self.relative_db, self.absolute_db))

    def floor(self, peak_power: float) -> float:
        """Return the level of `floor_db` as a power.

        Parameters
        ----------
        peak_power : float
            Power of the strongest bin of the recording, relative to a full-scale sine.

        Returns
        -------
        float
            Power that both ears must reach, relative to a full-scale sine.
        """
        return float(10 ** (self.floor_db(peak_power) / 10))
