"""Interaural cues: what the two ears hear differently (paper, section 2).

In: spectra of a two-channel sound, or impulse responses of a head. Out: level differences (ILD)
and phase differences (IPD), stacked into one vector of D cues a frame.

    I     = R / L                      interaural ratio, right over left (paper's I_ft)
    α_ft  = 20 log10 |I_ft|            ILD in dB, > 0 where the right ear is louder
    φ_ft  = exp(j arg I_ft)            IPD as a point (cos, sin) on the unit circle
    χ_ft  observed: both ears' power passes a threshold
    y_dt  (D, T) = [ILD of its band; cos IPD of its band; sin IPD of its band]

`CueLayout` alone knows which frequency and which kind each cue d is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from earatlas.errors import InputError
from earatlas.features.audio import LARGEST_SAMPLE, Audio, resample
from earatlas.features.audio_files import audio_seconds, read_blocks
from earatlas.features.layout import CueLayout, Threshold
from earatlas.features.stft import FrameStream, squared_size, stft
from earatlas.types import Array, Mask, Spectra

__all__ = [
    "Cues",
    "audio_cues",
    "cue_blocks",
    "mean_cues",
    "peak_power",
    "recording_cues",
    "response_cues",
    "rings",
    "spectra_cues",
]

_NOISE_ON_SHARE = 0.05  # -13 dB: well below steady noise, well above any usable background
_SHORT_SHARE, _LATE_SHARE = 0.25, 0.01  # so much of the energy after so much of a window: a room
_TINY = 1e-200  # keeps the logarithm of a silent bin finite; such bins are never observed


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
        """T, how many frames there are."""
        return int(self.values.shape[1])

    @property
    def observed_share(self) -> float:
        """Share of time-frequency bins that are observed."""
        return float(self.observed.mean()) if self.observed.size else 0.0

    @property
    def cue_observed(self) -> Mask:
        """(D, T) χ of each cue's bin."""
        return self.observed[self.layout.cue_frequencies]

    @property
    def ild(self) -> Array:
        """(ILD bins, T) dB, NaN where not observed: for plots and for people."""
        mask = self.observed[self.layout.ild_frequencies]
        return np.where(mask, self.values[: len(mask)], np.nan)

    @property
    def ipd(self) -> Array:
        """(IPD bins, T) radians, NaN where not observed: for plots and for people."""
        mask = self.observed[self.layout.ipd_frequencies]
        cos, sin = np.split(self.values[len(self.layout.ild_frequencies) :], 2)
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


def check_ears(audio: Audio) -> None:
    """An InputError if it is not what two ears heard."""
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


def checked_audio(audio: Audio, layout: CueLayout) -> Audio:
    """The recording at the layout's rate, or an InputError if it can give no cues."""
    check_ears(audio)
    if not np.isfinite(audio.samples).all():
        raise InputError(
            "audio must be finite, got NaN or infinity among its samples. Repair or cut it."
        )
    if np.abs(audio.samples).max(initial=0.0) >= LARGEST_SAMPLE:
        raise InputError(
            f"audio must not be beyond a million times full scale, got "
            f"{np.abs(audio.samples).max():.3g}. Divide it by its full scale."
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


def spectra_blocks(
    blocks: Iterable[Audio], layout: CueLayout, *, single: bool = False
) -> Iterator[Spectra]:
    """Spectra of a recording that comes in blocks: put together, those of the whole."""
    stream, samples = FrameStream(layout.window, layout.hop, single=single), 0
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
    top_hz = float(layout.frequencies_hz[layout.cue_frequencies].max())
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
    mask = cues.cue_observed
    counts = mask.sum(axis=1)
    if not counts.all():
        f = layout.frequencies_hz[layout.cue_frequencies[counts == 0]]
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
    if layout.rate > rate + 1e-9 and max(layout.frequencies_hz[layout.cue_frequencies]) > rate / 2:
        raise InputError(
            f"rate must be at least twice the layout's highest frequency, got {rate:g} Hz. "
            "Choose a layout with bands below half the rate."
        )
    if rings(h, rate, layout):
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


def rings(responses: Array, rate: float, layout: CueLayout) -> bool:
    """Whether responses (N, 2, taps) are those of a room: long, or with much a good while later."""
    if responses.shape[2] / rate > layout.window / layout.rate:
        return True
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
    out = np.empty((len(responses), layout.n_cues))
    for n, pair in enumerate(responses):
        heard = oaconvolve(noise[None], resample(pair, rate, layout.rate), axes=1)
        settled = heard[:, taps : taps + 2 * layout.rate]  # the response's onset is over
        out[n] = mean_cues(Audio(settled, layout.rate), layout)
    return out
