"""Interaural cues of recordings and of impulse responses (paper, section 2).

The inputs are spectra of a two-channel sound, or the impulse responses of a head. The outputs are
level differences (ILD) and phase differences (IPD), stacked into one vector of D cues per frame.

    I_ft  (F, T)   interaural ratio R / L, right over left
    α_ft  (F, T)   ILD in dB, 20 log10 |I_ft|; positive where the right ear is louder
    φ_ft  (F, T)   IPD as a point on the unit circle, exp(j arg I_ft)
    χ_ft  (F, T)   observed: the power of both ears exceeds a threshold
    y_dt  (D, T)   [ILD of its band; cos IPD of its band; sin IPD of its band]

`CueLayout` defines the frequency and the kind of each cue d.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from earatlas.errors import InputError
from earatlas.features.audio import Audio, resample
from earatlas.features.audio_checks import check_audio, check_length
from earatlas.features.audio_files import audio_seconds, read_blocks
from earatlas.features.impulse_responses import responses_are_reverberant, transfer_functions
from earatlas.features.layout import CueLayout, Threshold
from earatlas.features.stft import FrameStream, bin_power, squared_magnitude, stft
from earatlas.numerics import convolve
from earatlas.types import Array, Mask, Spectra

__all__ = [
    "Cues",
    "audio_cues",
    "cue_blocks",
    "mean_cues",
    "peak_power",
    "recording_cues",
    "response_cues",
    "spectra_blocks",
    "spectra_cues",
]


@dataclass(frozen=True, eq=False, slots=True)
class Cues:
    """Cue spectrogram y_dt with the mask χ_ft of observed bins.

    The values of unobserved bins are meaningless.

    Parameters
    ----------
    values : ndarray of shape (D, T)
        Cue vectors of T frames: ILD in dB, then cosines and sines of the IPD.
    observed : bool ndarray of shape (F, T)
        Mask of the time-frequency bins in which the power of both ears exceeds the threshold.
    layout : CueLayout
        Layout of the cue vectors.

    See Also
    --------
    audio_cues : Compute the cues of a recording.

    Examples
    --------
    >>> import numpy as np
    >>> import earatlas as ea
    >>> noise = 0.1 * np.random.default_rng(0).normal(size=16000)
    >>> cues = ea.audio_cues(ea.Audio(np.stack([noise, 2 * noise]), 16000))
    >>> cues
    Cues(D=730, T=126, 99.9 % of bins observed)
    >>> float(np.nanmedian(cues.ild).round(2))
    6.02
    """

    values: Array  # (D, T), dB and (cos, sin)
    observed: Mask  # (F, T), χ
    layout: CueLayout

    def __repr__(self) -> str:
        return (
            f"Cues(D={len(self.values)}, T={self.frames}, {100 * self.observed_share:.1f} % of "
            f"bins observed)"
        )

    @property
    def frames(self) -> int:
        """Number of frames T."""
        return int(self.values.shape[1])

    @property
    def observed_share(self) -> float:
        """Fraction of the time-frequency bins that are observed."""
        return float(self.observed.mean()) if self.observed.size else 0.0

    @property
    def cue_observed(self) -> Mask:
        """Mask (D, T) of the observed cues: χ of the bin of each cue."""
        return self.observed[self.layout.cue_frequencies]

    @property
    def ild(self) -> Array:
        """ILD (bins of its band, T) in dB, NaN where not observed; for display."""
        mask = self.observed[self.layout.ild_frequencies]
        return np.where(mask, self.values[: len(mask)], np.nan)

    @property
    def ipd(self) -> Array:
        """IPD (bins of its band, T) in radians, NaN where not observed; for display."""
        mask = self.observed[self.layout.ipd_frequencies]
        cos, sin = np.split(self.values[len(self.layout.ild_frequencies) :], 2)
        return np.where(mask, np.arctan2(sin, cos), np.nan)


def spectra_cues(
    spectra: Spectra,
    layout: CueLayout,
    *,
    threshold: Threshold | None = None,
    peak: float | None = None,
) -> Cues:
    """Compute the cues of two-channel spectra (2, B, T).

    `peak` is the power of the strongest bin of the whole recording if the spectra are a part of it.
    """
    power = bin_power(spectra, layout.window)
    peak_power = float(power.max(initial=0.0)) if peak is None else peak
    observed = power.min(axis=0) >= (threshold or Threshold()).floor(peak_power)
    left, right = spectra[:, 1:].swapaxes(-1, -2)
    return Cues(layout.stack(left, right).T, observed, layout)


def audio_cues(
    audio: Audio, layout: CueLayout | None = None, *, threshold: Threshold | None = None
) -> Cues:
    """Compute the interaural cues of a recording in memory.

    Parameters
    ----------
    audio : Audio
        Two channels, left and right. It is resampled to the rate of the layout if necessary.
    layout : CueLayout, optional
        Cues to compute. By default, `CueLayout()`.
    threshold : Threshold, optional
        Levels that both ears must exceed in observed bins. By default, `Threshold()`.

    Returns
    -------
    Cues
        Cue vectors of all frames with the mask of observed bins.

    Raises
    ------
    InputError
        If the audio does not have two channels, is silent, not finite, or shorter than a window.

    See Also
    --------
    recording_cues : Cues of a sound file of any length.

    Examples
    --------
    >>> import earatlas as ea
    >>> head = ea.simulated_head([[40.0, 0.0], [-40.0, 0.0]])
    >>> scene = ea.render_scene(head, [ea.synthetic_speech(0.5, seed=1)], [[40.0, 0.0]])
    >>> cues = ea.audio_cues(scene.mixture)
    >>> cues.values.shape, cues.observed.shape
    ((730, 65), (512, 65))
    """
    layout = layout or CueLayout()
    audio = check_audio(audio, layout)
    spectra = stft(audio.samples, layout.window, layout.hop)
    return spectra_cues(spectra, layout, threshold=threshold)


def spectra_blocks(
    blocks: Iterable[Audio], layout: CueLayout, *, single: bool = False
) -> Iterator[Spectra]:
    """Yield spectra (2, B, t) of a recording in blocks; joined, they equal those of `stft`."""
    stream, samples = FrameStream(layout.window, layout.hop, single=single), 0
    for block in blocks:
        if block.rate != layout.rate or block.channels != 2:
            raise InputError(
                f"blocks must have two channels at the {layout.rate} Hz of the layout, got "
                f"{block.channels} at {block.rate} Hz. Use read_blocks(path, rate={layout.rate})."
            )
        samples += block.samples.shape[1]
        yield stream.push(block.samples)
    check_length(samples, layout)
    yield stream.finish()


def peak_power(blocks: Iterable[Audio], layout: CueLayout) -> float:
    """Return the power of the strongest bin of a recording in blocks, re a full-scale sine."""
    parts = spectra_blocks(blocks, layout)
    return max(float(bin_power(part, layout.window).max(initial=0.0)) for part in parts)


def cue_blocks(
    blocks: Iterable[Audio],
    layout: CueLayout | None = None,
    *,
    peak: float,
    threshold: Threshold | None = None,
) -> Iterator[Cues]:
    """Yield the cues of a recording in blocks at the rate of the layout.

    `peak` is the result of `peak_power` in a first pass. Concatenated, the cues equal those of the
    whole recording; only one block is in memory.
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
    """Compute the interaural cues of a sound file of any length, block by block.

    Concatenated, the cues equal those of `audio_cues`. The file is read twice: the first pass finds
    the peak that the relative threshold refers to.

    Parameters
    ----------
    path : str or Path
        WAV, FLAC, OGG or AIFF file with at least two channels.
    layout : CueLayout, optional
        Cues to compute. By default, `CueLayout()`.
    threshold : Threshold, optional
        Levels that both ears must exceed in observed bins. By default, `Threshold()`.
    channels : (int, int), default (0, 1)
        Channels of the left and the right ear, counted from 0.
    progress : callable, optional
        Called as `progress(done, total)` after each block, in seconds of sound of both passes.

    Yields
    ------
    Cues
        Cues of the next block.

    Raises
    ------
    InputError
        If the file cannot be used; see `read_audio`.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> import numpy as np
    >>> import earatlas as ea
    >>> noise = 0.1 * np.random.default_rng(0).normal(size=(2, 16000))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = ea.Audio(noise, 16000).write(pathlib.Path(folder) / "noise.wav")
    ...     sum(cues.frames for cues in ea.recording_cues(path))
    126
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
    """Average the cues of a white-noise recording over time (mean interaural vector, [1]_).

    White noise counts as observed at all frequencies (χ = 1 in the paper) in the frames in which it
    is on; silence before and after it is ignored.

    Parameters
    ----------
    audio : Audio
        White noise recorded at both ears.
    layout : CueLayout, optional
        Cues to compute. By default, `CueLayout()`.

    Returns
    -------
    ndarray of shape (D,)
        Mean interaural vector.

    Raises
    ------
    InputError
        If the audio cannot be used, or has no sound at a frequency of the layout.

    Notes
    -----
    Resampling attenuates the highest frequencies: the last few bins below 8 kHz of a recording at
    48 kHz contain leakage from their neighbours and may be wrong by up to 2 dB.

    References
    ----------
    .. [1] A. Deleforge, F. Forbes and R. Horaud, "Acoustic space learning for sound-source
       separation and localization on binaural manifolds", International Journal of Neural
       Systems, 25(1), 2015, section 2.

    Examples
    --------
    >>> import numpy as np
    >>> import earatlas as ea
    >>> noise = 0.1 * np.random.default_rng(0).normal(size=16000)
    >>> y = ea.mean_cues(ea.Audio(np.stack([noise, 2 * noise]), 16000))
    >>> y.shape, float(y[100].round(2))
    ((730,), 6.02)
    """
    layout = layout or CueLayout()
    top_hz = float(layout.frequencies_hz[layout.cue_frequencies].max())
    if audio.rate < layout.rate and audio.rate / 2 < top_hz:
        raise InputError(
            f"The audio must reach the {top_hz:.0f} Hz of the layout, got a recording at "
            f"{audio.rate} Hz. Record at a higher rate, or choose a layout with lower bands."
        )
    audio = check_audio(audio, layout)
    spectra = stft(audio.samples, layout.window, layout.hop)
    power = bin_power(spectra, layout.window).sum(axis=1).min(axis=0)  # (T,), of the weaker ear
    # Frames above -13 dB contain the noise. Evidence: docs/figures/settings/features.md, "cues".
    on = power > 0.05 * np.quantile(power, 0.95)
    no_threshold = Threshold(relative_db=-180.0, absolute_db=-240.0)
    cues = spectra_cues(spectra[..., on], layout, threshold=no_threshold)
    mask = cues.cue_observed
    counts = mask.sum(axis=1)
    if not counts.all():
        f = layout.frequencies_hz[layout.cue_frequencies[counts == 0]]
        raise InputError(
            f"The audio must have sound at all frequencies of the layout, got none at "
            f"{len(np.unique(f))} bins between {f.min():.0f} and {f.max():.0f} Hz. "
            "Record white noise, or choose a layout with narrower bands."
        )
    mean: Array = np.sum(cues.values, axis=1, where=mask) / counts
    return mean


def response_cues(
    responses: ArrayLike, rate: float, layout: CueLayout | None = None, *, seed: int = 0
) -> Array:
    """Compute the mean interaural vectors of impulse responses.

    Responses that are short compared with the window have the cues of the ratio of their transfer
    functions, evaluated at the frequencies of the layout. This is the limit of `mean_cues` for
    white noise filtered by them. Reverberant responses are convolved with two seconds of white
    noise, whose cues are averaged.

    Parameters
    ----------
    responses : array_like of shape (N, 2, taps)
        Impulse responses of both ears for N directions.
    rate : float
        Sampling rate of the responses in Hz.
    layout : CueLayout, optional
        Cues to compute. By default, `CueLayout()`.
    seed : int, default 0
        Seed of the noise.

    Returns
    -------
    ndarray of shape (N, D)
        One mean interaural vector per direction.

    Raises
    ------
    InputError
        If the shape is wrong, the rate is too low for the layout, or a response is silent at a
        frequency of the layout.

    Examples
    --------
    >>> import numpy as np
    >>> import earatlas as ea
    >>> h = np.zeros((1, 2, 64))
    >>> h[0, 0, 0], h[0, 1, 4] = 1.0, 0.5  # right ear: 4 samples later, 6 dB weaker
    >>> y = ea.response_cues(h, 16000)
    >>> y.shape, float(y[0, 0].round(2))
    ((1, 730), -6.02)
    """
    layout = layout or CueLayout()
    h = np.asarray(responses, dtype=np.float64)
    if h.ndim != 3 or h.shape[1] != 2:
        raise InputError(
            f"responses must be an array of shape (N, 2, taps), got shape {h.shape}. "
            "Pass the responses of both ears for every direction."
        )
    if layout.rate > rate + 1e-9 and max(layout.frequencies_hz[layout.cue_frequencies]) > rate / 2:
        raise InputError(
            f"rate must be at least twice the highest frequency of the layout, got {rate:g} Hz. "
            "Choose a layout with bands below half the rate."
        )
    if responses_are_reverberant(h, rate, layout):
        return _filtered_noise_cues(h, rate, layout, seed)
    left, right = np.moveaxis(transfer_functions(h, rate, layout.frequencies_hz), 1, 0)
    silent = np.minimum(squared_magnitude(left), squared_magnitude(right)) < 1e-200
    if silent.any():
        n, f = np.argwhere(silent)[0]
        raise InputError(
            f"responses must pass every frequency of the layout, got zero at "
            f"{layout.frequencies_hz[f]:.0f} Hz in response {n}. Remove that direction."
        )
    return layout.stack(left, right)


def _filtered_noise_cues(responses: Array, rate: float, layout: CueLayout, seed: int) -> Array:
    """Return the cues (N, D) of two seconds of white noise filtered by responses (N, 2, taps)."""
    taps = int(np.ceil(responses.shape[-1] * layout.rate / rate))
    n_noise = 2 * layout.rate  # two seconds
    noise = np.random.default_rng(seed).normal(size=n_noise + taps)
    out = np.empty((len(responses), layout.n_cues))
    for n, pair in enumerate(responses):
        filtered = convolve(noise, resample(pair, rate, layout.rate))
        steady = filtered[:, taps : taps + n_noise]  # without the build-up of the response
        out[n] = mean_cues(Audio(steady, layout.rate), layout)
    return out
