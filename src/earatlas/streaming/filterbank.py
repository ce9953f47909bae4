"""Low-delay filterbank: STFT of a stream and overlap-add synthesis with a short latency.

In each hop a window of the last N samples is analysed, but only its last S samples are synthesized,
so that the latency is S samples and not N:

    Σ_k wa(n - k hop) ws(n - k hop) = 1

With a delay of D hops, the window that is synthesized ended D hops ago: masks and filters of that
time are then estimated from the sound that followed, too, and the latency is S + D hop samples.

    wa (N,)  analysis window
    ws (S,)  synthesis window; wa ws is a squared Hann window over the last S samples

Long windows resolve harmonics and reflections, while the latency is that of the short window.

References
----------
D. Mauler and R. Martin, A low delay, variable resolution, perfect reconstruction spectral
analysis-synthesis system, EUSIPCO 2007.

"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.fft

from earatlas.numerics import fast_fft_length
from earatlas.types import Array, Complex

__all__ = ["AnalysisFrames", "Filterbank", "OverlapAdd", "crossfade"]


@dataclass(frozen=True)
class Filterbank:
    """Hop and windows of a stream at one rate."""

    rate: int  # Hz
    hop: int  # samples
    window_hops: int  # length of the analysis window
    synthesis_hops: int  # length of the synthesis window
    delay_hops: int = 0  # hops since the end of the window that is synthesized

    @classmethod
    def from_seconds(
        cls,
        rate: int,
        *,
        hop_seconds: float,
        window_hops: int,
        synthesis_hops: int,
        delay_hops: int = 0,
    ) -> Filterbank:
        """Return a filterbank with the longest hop up to `hop_seconds` that suits the FFT."""
        hop = max(int(hop_seconds * rate), 2)
        while fast_fft_length(hop) != hop:
            hop -= 1
        return cls(rate, hop, window_hops, synthesis_hops, delay_hops)

    @property
    def window(self) -> int:
        """Length N of the analysis window in samples."""
        return self.window_hops * self.hop

    @property
    def synthesis_samples(self) -> int:
        """Length S of the synthesis window in samples."""
        return self.synthesis_hops * self.hop

    @property
    def latency_hops(self) -> int:
        """Latency in hops: the synthesis window and the delay."""
        return self.synthesis_hops + self.delay_hops

    @property
    def latency_samples(self) -> int:
        """Latency in samples."""
        return self.latency_hops * self.hop

    @property
    def hop_seconds(self) -> float:
        """Time from one frame to the next."""
        return self.hop / self.rate

    @property
    def frequencies_hz(self) -> Array:
        """Frequencies (F,) of the spectra, from 0 Hz on."""
        frequencies_hz: Array = np.arange(self.window // 2 + 1.0) * (self.rate / self.window)
        return frequencies_hz

    def windows(self) -> tuple[Array, Array]:
        """Return the analysis window wa (N,) and the synthesis window ws (S,)."""
        S = self.synthesis_samples
        product = _hann(S) ** 2 / (0.375 * self.synthesis_hops)
        fall = _hann(S)[S // 2 :]
        rise = self.window - len(fall)
        analysis = np.concatenate([_hann(2 * rise)[:rise], fall])
        return analysis, product / analysis[-S:]


def crossfade(first: Array, second: Array) -> Array:
    """Return a linear crossfade from the first to the second signal (..., hop) over a hop."""
    fade_in = (np.arange(first.shape[-1]) + 0.5) / first.shape[-1]
    faded: Array = (1 - fade_in) * first + fade_in * second
    return faded


def _hann(n: int) -> Array:
    """Return a Hann window (n,), symmetric and without zeros at the ends."""
    window: Array = 0.5 - 0.5 * np.cos(2 * np.pi * (np.arange(n) + 0.5) / n)
    return window


class AnalysisFrames:
    """Ring buffer of the last samples of a stream, and spectra of the windows in it."""

    def __init__(self, filterbank: Filterbank) -> None:
        delay = filterbank.delay_hops * filterbank.hop
        self._samples = np.zeros((2, filterbank.window + delay))
        self._window = filterbank.windows()[0]
        self._spectra: Complex | None = None  # of these samples, once they are known

    def append(self, samples: Array) -> None:
        """Append a hop (2, hop)."""
        n = samples.shape[1]
        self._samples = np.concatenate([self._samples[:, n:], samples], axis=1)
        self._spectra = None

    def spectra(self) -> Complex:
        """Return the spectra (2, F) of the last N samples."""
        if self._spectra is None:
            self._spectra = self._transform(self._samples[:, -len(self._window) :])
        return self._spectra

    def delayed_spectra(self) -> Complex:
        """Return the spectra (2, F) of the window that is synthesized."""
        if self._samples.shape[1] == len(self._window):
            return self.spectra()
        return self._transform(self._samples[:, : len(self._window)])

    def _transform(self, samples: Array) -> Complex:
        """Return the spectra (2, F) of a window of samples (2, N)."""
        return np.asarray(scipy.fft.rfft(samples * self._window, axis=-1))

    def push(self, samples: Array) -> Complex:
        """Append a hop (2, hop) and return the spectra (2, F)."""
        self.append(samples)
        return self.spectra()


class OverlapAdd:
    """Synthesizes signals (M, 2, hop) from spectra (M, 2, F), with a latency of S samples."""

    def __init__(self, filterbank: Filterbank, n_sources: int) -> None:
        self._filterbank = filterbank
        self._window = filterbank.windows()[1]
        self._sum = np.zeros((n_sources, 2, filterbank.synthesis_samples))

    def push(self, spectra: Complex) -> Array:
        """Add a frame; return the oldest hop (M, 2, hop), which no later frame changes."""
        filterbank = self._filterbank
        frames = scipy.fft.irfft(spectra, n=filterbank.window, axis=-1)
        self._sum += frames[..., -filterbank.synthesis_samples :] * self._window
        output = self._sum[..., : filterbank.hop].copy()
        self._sum[..., : -filterbank.hop] = self._sum[..., filterbank.hop :]
        self._sum[..., -filterbank.hop :] = 0.0
        return output

    def with_filterbank(self, filterbank: Filterbank) -> OverlapAdd:
        """Return a copy that continues with other windows of the same synthesis length."""
        continued = OverlapAdd(filterbank, len(self._sum))
        continued._sum = self._sum.copy()
        return continued

    def clear_row(self, row: int) -> None:
        """Clear the pending samples of a row that is reused for another track."""
        self._sum[row] = 0.0
