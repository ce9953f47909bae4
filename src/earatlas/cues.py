"""Interaural cues: what the two ears hear differently (paper, section 2).

In: spectra of a two-channel sound, or impulse responses of a head. Out: level differences (ILD)
and phase differences (IPD), stacked into one vector of D channels a frame.

    I     = R / L                      interaural ratio, right over left (paper's I_ft)
    α_ft  = 20 log10 |I_ft|            ILD in dB, > 0 where the right ear is louder
    φ_ft  = exp(j arg I_ft)            IPD as a point (cos, sin) on the unit circle
    χ_ft  observed: both ears' power passes a threshold
    y_dt  (D, T) = [ILD of its band; cos IPD of its band; sin IPD of its band]

`CueLayout` alone knows which frequency bin and which kind each channel d is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from earatlas.audio import (
    Audio,
    FrameStream,
    Spectra,
    audio_seconds,
    read_blocks,
    resample,
    stft,
)
from earatlas.errors import InputError

__all__ = [
    "CueLayout",
    "Cues",
    "Threshold",
    "audio_cues",
    "cue_blocks",
    "mean_cues",
    "peak_power",
    "recording_cues",
    "response_cues",
    "spectra_cues",
]

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

_NOISE_ON_SHARE = 0.05  # -13 dB: well below steady noise, well above any usable background
_SHORT_SHARE, _LATE_SHARE = 0.25, 0.01  # so much of the energy after so much of a window: a room
_TINY = 1e-200  # keeps the logarithm of a silent bin finite; such bins are never observed


def squared_size(spectra: Spectra) -> Array:
    """|s|^2 without the square root that abs() takes: three times as fast."""
    power: Array = spectra.real**2 + spectra.imag**2
    return power


def _span(bins: NDArray[np.intp]) -> slice:
    """A band's bins are consecutive: a slice is a view where an index would copy."""
    return slice(int(bins[0]), int(bins[-1]) + 1) if len(bins) else slice(0, 0)


@dataclass(frozen=True)
class CueLayout:
    """Which cues there are: sampling, window, and the bands (low, high] in Hz of ILD and IPD.

    >>> CueLayout()
    CueLayout(D=730: ILD 512 bins, IPD 109 bins; 16000 Hz, window 1024, hop 128)
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
        if not 0 < self.hop <= self.window // 2:
            raise InputError(
                f"hop must be between 1 and half the window, got {self.hop} for a window of "
                f"{self.window}. An eighth of the window is the default."
            )
        for band in (self.ild_band_hz, self.ipd_band_hz):
            if band is not None and not 0 <= band[0] < band[1] <= self.rate / 2:
                raise InputError(
                    f"band must be (low, high) in Hz with 0 <= low < high <= {self.rate / 2:g}, "
                    f"got {band}. Choose frequencies below half the sampling rate."
                )
        if self.channels == 0:
            raise InputError(
                f"bands must hold at least one bin of {self.rate / self.window:g} Hz, got "
                f"{self.ild_band_hz} and {self.ipd_band_hz}. Widen a band."
            )

    def __repr__(self) -> str:
        return (
            f"CueLayout(D={self.channels}: ILD {len(self.ild_bins)} bins, "
            f"IPD {len(self.ipd_bins)} bins; {self.rate} Hz, window {self.window}, hop {self.hop})"
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
    def bins(self) -> int:
        """F: bins 1 … window / 2, without 0 Hz."""
        return self.window // 2

    @cached_property
    def frequencies_hz(self) -> Array:
        """(F,) frequency of each bin."""
        return np.arange(1.0, self.bins + 1) * (self.rate / self.window)

    @cached_property
    def ild_bins(self) -> NDArray[np.intp]:
        """Indices f of the bins that have an ILD channel."""
        return self._band_bins(self.ild_band_hz)

    @cached_property
    def ipd_bins(self) -> NDArray[np.intp]:
        """Indices f of the bins that have two IPD channels."""
        return self._band_bins(self.ipd_band_hz)

    @cached_property
    def channel_bins(self) -> NDArray[np.intp]:
        """(D,) the bin f of each channel d."""
        return np.concatenate([self.ild_bins, self.ipd_bins, self.ipd_bins])

    @cached_property
    def channel_kinds(self) -> NDArray[np.str_]:
        """(D,) what each channel d is: "ild", "ipd_cos" or "ipd_sin"."""
        counts = (len(self.ild_bins), len(self.ipd_bins), len(self.ipd_bins))
        return np.repeat(np.array(["ild", "ipd_cos", "ipd_sin"]), counts)

    @property
    def channels(self) -> int:
        """D."""
        return len(self.channel_bins)

    def stack(self, left: Spectra, right: Spectra) -> Array:
        """Cue vectors (..., D) of the two ears' spectra (..., F); silent bins: 0 dB, 0 rad."""
        ild, ipd = len(self.ild_bins), len(self.ipd_bins)
        out = np.empty((*left.shape[:-1], self.channels))
        band = _span(self.ild_bins)
        power_left, power_right = (squared_size(s[..., band]) for s in (left, right))
        # The power ratio: no complex division and no square root in the largest array there is.
        np.log10((power_right + _TINY) / (power_left + _TINY), out=out[..., :ild])
        out[..., :ild] *= 10.0
        band = _span(self.ipd_bins)
        cross = right[..., band] * left[..., band].conj()
        size = np.sqrt(squared_size(cross))
        heard = size > _TINY
        np.divide(cross.real, size, out=out[..., ild : ild + ipd], where=heard)
        np.divide(cross.imag, size, out=out[..., ild + ipd :], where=heard)
        out[..., ild : ild + ipd][~heard] = 1.0
        out[..., ild + ipd :][~heard] = 0.0
        return out

    def indices_in(self, other: CueLayout) -> NDArray[np.intp]:
        """Where this layout's channels stand in `other`'s vectors: y_self = y_other[indices]."""
        places = {
            (int(f), str(kind)): d
            for d, (f, kind) in enumerate(zip(other.channel_bins, other.channel_kinds, strict=True))
        }
        same = (self.rate, self.window) == (other.rate, other.window)
        wanted = list(zip(self.channel_bins.tolist(), self.channel_kinds.tolist(), strict=True))
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
        bands = {
            key: None if fields[key] is None else (float(fields[key][0]), float(fields[key][1]))
            for key in ("ild_band_hz", "ipd_band_hz")
        }
        return cls(int(fields["rate"]), int(fields["window"]), int(fields["hop"]), **bands)

    def _band_bins(self, band: tuple[float, float] | None) -> NDArray[np.intp]:
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


@dataclass(frozen=True, eq=False, slots=True)
class Cues:
    """Cue spectrogram y_dt with χ_ft; what stands in unobserved bins means nothing."""

    values: Array  # (D, T) dB and (cos, sin)
    observed: Mask  # (F, T) χ
    layout: CueLayout

    def __repr__(self) -> str:
        return (
            f"Cues(D={len(self.values)}, T={self.frames}, {100 * self.observed_share:.1f} % of "
            f"bins observed)"
        )

    @property
    def frames(self) -> int:
        """T."""
        return int(self.values.shape[1])

    @property
    def observed_share(self) -> float:
        """Share of time-frequency bins that are observed."""
        return float(self.observed.mean()) if self.observed.size else 0.0

    @property
    def channel_observed(self) -> Mask:
        """(D, T) χ of each channel's bin."""
        return self.observed[self.layout.channel_bins]

    @property
    def ild(self) -> Array:
        """(ILD bins, T) dB, NaN where not observed: for plots and for people."""
        mask = self.observed[self.layout.ild_bins]
        return np.where(mask, self.values[: len(mask)], np.nan)

    @property
    def ipd(self) -> Array:
        """(IPD bins, T) radians, NaN where not observed: for plots and for people."""
        mask = self.observed[self.layout.ipd_bins]
        cos, sin = np.split(self.values[len(self.layout.ild_bins) :], 2)
        return np.where(mask, np.arctan2(sin, cos), np.nan)


def bin_power(spectra: Spectra, window: int) -> Array:
    """Power (C, F, T) of the bins 1 … F re a full-scale sine in the middle of a bin."""
    return squared_size(spectra[:, 1:]) * (4.0 / window) ** 2


def spectra_cues(
    spectra: Spectra,
    layout: CueLayout,
    *,
    threshold: Threshold | None = None,
    peak: float | None = None,
) -> Cues:
    """Cues of two-channel spectra (2, B, T); `peak` is the whole recording's if this is a part."""
    power = bin_power(spectra, layout.window)
    strongest = float(power.max(initial=0.0)) if peak is None else peak
    observed = power.min(axis=0) >= (threshold or Threshold()).floor(strongest)
    left, right = spectra[:, 1:].swapaxes(-1, -2)
    return Cues(layout.stack(left, right).T, observed, layout)


def checked_audio(audio: Audio, layout: CueLayout) -> Audio:
    """The recording at the layout's rate, or an InputError if it can give no cues."""
    if not isinstance(audio, Audio):
        raise InputError(
            f"audio must be an Audio, got {type(audio).__name__}. Use read_audio(path), or "
            "Audio(samples, rate) for an array of shape (2, n)."
        )
    if audio.channels != 2:
        raise InputError(
            f"audio must have two channels (left, right), got {audio.channels}. "
            "A mono sound carries no interaural cues."
        )
    if not np.isfinite(audio.samples).all():
        raise InputError(
            "audio must be finite, got NaN or infinity among its samples. Repair or cut it."
        )
    if not audio.samples.any():
        raise InputError("audio must not be silent, got only zeros. Check the recording.")
    audio = audio.at_rate(layout.rate)
    check_length(audio.samples.shape[1], layout)
    return audio


def nothing_heard() -> InputError:
    """What to raise where a recording has no bin above the thresholds."""
    return InputError(
        "audio must have sound that both ears hear above the thresholds, got none. "
        "Record louder, or lower the threshold."
    )


def check_length(samples: int, layout: CueLayout) -> None:
    """Refuse what is shorter than a window."""
    if samples < layout.window:
        raise InputError(
            f"audio must be at least one window long ({1000 * layout.window / layout.rate:.0f} ms),"
            f" got {1000 * samples / layout.rate:.1f} ms. Record longer."
        )


def audio_cues(
    audio: Audio, layout: CueLayout | None = None, *, threshold: Threshold | None = None
) -> Cues:
    """Cue spectrogram of a recording, resampled to the layout's rate where needed."""
    layout = layout or CueLayout()
    audio = checked_audio(audio, layout)
    spectra = stft(audio.samples, layout.window, layout.hop)
    return spectra_cues(spectra, layout, threshold=threshold)


def spectra_blocks(blocks: Iterable[Audio], layout: CueLayout) -> Iterator[Spectra]:
    """Spectra of a recording that comes in blocks: put together, those of the whole."""
    stream, samples = FrameStream(layout.window, layout.hop), 0
    for block in blocks:
        if block.rate != layout.rate or block.channels != 2:
            raise InputError(
                f"blocks must have two channels at the layout's {layout.rate} Hz, got "
                f"{block.channels} at {block.rate} Hz. Use read_blocks(path, rate={layout.rate})."
            )
        samples += block.samples.shape[1]
        yield stream.push(block.samples)
    check_length(samples, layout)
    yield stream.finish()


def peak_power(blocks: Iterable[Audio], layout: CueLayout) -> float:
    """Power of the strongest bin of a recording that comes in blocks."""
    parts = spectra_blocks(blocks, layout)
    return max(float(bin_power(part, layout.window).max(initial=0.0)) for part in parts)


def cue_blocks(
    blocks: Iterable[Audio],
    layout: CueLayout | None = None,
    *,
    peak: float,
    threshold: Threshold | None = None,
) -> Iterator[Cues]:
    """Cues of a recording in blocks, at the layout's rate; `peak` comes from a first `peak_power`.

    Put together they are the cues of the whole, however long: memory holds one block.
    """
    layout = layout or CueLayout()
    for spectra in spectra_blocks(blocks, layout):
        yield spectra_cues(spectra, layout, threshold=threshold, peak=peak)


def recording_cues(
    path: str | Path,
    layout: CueLayout | None = None,
    *,
    threshold: Threshold | None = None,
    channels: tuple[int, int] = (0, 1),
    progress: Callable[[float, float], None] | None = None,
) -> Iterator[Cues]:
    """Cues of a recording of any length, block by block: together those of `audio_cues`.

    Two passes, the first for the peak that thresholds refer to. `progress(done, total)` is called
    with seconds.
    """
    layout = layout or CueLayout()
    total = 2 * audio_seconds(path)
    done = 0.0

    def blocks(warn: bool) -> Iterator[Audio]:
        nonlocal done
        for block in read_blocks(path, channels=channels, rate=layout.rate, warn=warn):
            yield block
            done += block.seconds
            if progress is not None:
                progress(done, total)

    peak = peak_power(blocks(warn=True), layout)
    yield from cue_blocks(blocks(warn=False), layout, peak=peak, threshold=threshold)


def mean_cues(audio: Audio, layout: CueLayout | None = None) -> Array:
    """Temporal mean (D,) of a white-noise recording's cues: the paper's mean interaural vector.

    White noise is taken as observed at all frequencies (paper: χ = 1), in the frames in which it
    is on: silence before and after it does not count. A resampler leaves little of it close to
    half its rate; the last few bins below 8 kHz of a recording at 48 kHz hold some leakage of
    their neighbours and are off by up to 2 dB.
    """
    layout = layout or CueLayout()
    top_hz = float(layout.frequencies_hz[layout.channel_bins].max())
    if audio.rate < layout.rate and audio.rate / 2 < top_hz:
        raise InputError(
            f"audio must reach the layout's {top_hz:.0f} Hz, got a recording at {audio.rate} Hz. "
            "Record at a higher rate, or choose a layout with lower bands."
        )
    audio = checked_audio(audio, layout)
    spectra = stft(audio.samples, layout.window, layout.hop)
    loudness = bin_power(spectra, layout.window).sum(axis=1).min(axis=0)  # (T,) of the weaker ear
    on = loudness > _NOISE_ON_SHARE * np.quantile(loudness, 0.95)
    everything = Threshold(relative_db=-180.0, absolute_db=-240.0)
    cues = spectra_cues(spectra[..., on], layout, threshold=everything)
    mask = cues.channel_observed
    counts = mask.sum(axis=1)
    if not counts.all():
        f = layout.frequencies_hz[layout.channel_bins[counts == 0]]
        raise InputError(
            f"audio must have sound at all frequencies of the layout, got none at "
            f"{len(np.unique(f))} bins between {f.min():.0f} and {f.max():.0f} Hz. "
            "Record white noise, or choose a layout with narrower bands."
        )
    mean: Array = np.sum(cues.values, axis=1, where=mask) / counts
    return mean


def response_cues(
    responses: ArrayLike, rate: float, layout: CueLayout | None = None, *, seed: int = 0
) -> Array:
    """Mean interaural vectors (N, D) of impulse responses (N, 2, taps) at `rate`.

    Responses that are over in a fraction of the window: the ratio of their transfer functions at
    the bins' own frequencies, at any sampling rate (the limit of the noise mean for responses much
    shorter than the window). Longer ones (rooms): two seconds of white noise heard through them.
    """
    layout = layout or CueLayout()
    h = np.asarray(responses, dtype=np.float64)
    if h.ndim != 3 or h.shape[1] != 2:
        raise InputError(
            f"responses must be an array of shape (N, 2, taps), got shape {h.shape}. "
            "Give both ears of every direction."
        )
    if layout.rate > rate + 1e-9 and max(layout.frequencies_hz[layout.channel_bins]) > rate / 2:
        raise InputError(
            f"rate must be at least twice the layout's highest frequency, got {rate:g} Hz. "
            "Choose a layout with bands below half the rate."
        )
    if h.shape[2] / rate > layout.window / layout.rate or _rings(h, rate, layout):
        return _noise_cues(h, rate, layout, seed)
    left, right = np.moveaxis(transfer_functions(h, rate, layout.frequencies_hz), 1, 0)
    silent = (squared_size(left) < _TINY) | (squared_size(right) < _TINY)
    if silent.any():
        n, f = np.argwhere(silent)[0]
        raise InputError(
            f"responses must pass every frequency of the layout, got nothing at "
            f"{layout.frequencies_hz[f]:.0f} Hz in response {n}. Remove that direction."
        )
    return layout.stack(left, right)


def _rings(responses: Array, rate: float, layout: CueLayout) -> bool:
    """Whether much of what responses (N, 2, taps) hold comes a good part of a window later."""
    power = (responses**2).mean(axis=(0, 1))
    if not power.any():
        return False
    first = int(np.argmax(power > 1e-4 * power.max()))
    late = power[first + round(_SHORT_SHARE * layout.window / layout.rate * rate) :].sum()
    return bool(late > _LATE_SHARE * power.sum())


def transfer_functions(responses: Array, rate: float, frequencies_hz: Array) -> Spectra:
    """Fourier transforms (..., F) of responses (..., taps) at any frequencies."""
    phase = (-2 * np.pi / rate) * np.arange(responses.shape[-1])[:, None] * frequencies_hz
    rows = responses.reshape(-1, responses.shape[-1])
    out = np.empty((len(rows), len(frequencies_hz)), dtype=np.complex128)
    out.real, out.imag = rows @ np.cos(phase), rows @ np.sin(phase)  # two real products: BLAS
    return out.reshape(*responses.shape[:-1], -1)


def _noise_cues(responses: Array, rate: float, layout: CueLayout, seed: int) -> Array:
    """Cues (N, D) of two seconds of white noise heard through long responses (N, 2, taps)."""
    from scipy.signal import oaconvolve

    taps = int(np.ceil(responses.shape[-1] * layout.rate / rate))
    noise = np.random.default_rng(seed).normal(size=2 * layout.rate + taps)
    out = np.empty((len(responses), layout.channels))
    for n, pair in enumerate(responses):
        heard = oaconvolve(noise[None], resample(pair, rate, layout.rate), axes=1)
        settled = heard[:, taps : taps + 2 * layout.rate]  # the response's onset is over
        out[n] = mean_cues(Audio(settled, layout.rate), layout)
    return out
