"""The recording's own rate: what is above the band of the cues is separated too.

In: a recording (2, n') at any rate, and its sources (M, 2, n) as they were separated at the rate of
the cues. Out: the sources (M, 2, n') at the recording's rate; they add up to it.

    recording = Σ_m up(source_m) + rest

`up` changes the rate, so the rest is what the rate of the cues cannot carry: nearly all of it lies
above half that rate. No cue was learned there, but a voice that hisses above 8 kHz is heard between
4 and 8 kHz at the same time: how strong each source is when, in the band below, tells the filters
of a band whose they are (`spatial.separate_band`). Bands go upward, each told by the one below it,
one at a time: memory does not grow with the number of bands. In the open responses are short, and
so are the windows; in a room, which ε of the first band tells, windows four times as long hold more
of its answer.

The last source is what the others leave: filters add up to 1, so that is what its own would give.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import scipy.fft

from earatlas.features.audio import resample
from earatlas.features.layout import CueLayout
from earatlas.features.stft import istft, squared_size, stft
from earatlas.separation.demixing.masking import binary_masks
from earatlas.separation.demixing.rendering import Rendering
from earatlas.separation.demixing.spatial_filtering import separate_band, shares_of
from earatlas.types import Array, Complex, Spectra

__all__ = ["at_full_rate"]

# Two talkers of 2 to 4 s, SDR above 8 kHz in dB, with windows of 64, 128 and 256 ms: in the open
# 25.7, 24.7, 22.4 (six pairs of places of the KU100), in a room of T60 0.3 s 4.0, 6.2, 9.0.
# 8 hops instead of 4 gain 0.1 in both, and take twice as long.
_HOPS = 4  # a window
_OPEN, _ROOM = 1, 4  # the length of a window in those of the cues (64 ms)
_MOST_SPREAD = 0.02  # ε of the open: it was up to 0.002 there, and 0.05 to 0.08 in that room
_TOLD_FROM = 0.5  # of the band of the cues: envelopes from 4, 2 or 6 kHz on are within 0.1 dB
_REST_FROM = 0.875  # of it: resampling passes all that is below 0.91 of it


def at_full_rate(
    recording: Array, sounds: Array, layout: CueLayout, rate: int, rendering: Rendering
) -> Array:
    """Sources (M, 2, n') at `rate` that add up to the recording (2, n'), from those of the layout.

    `sounds` (M, 2, n) are at the layout's rate, and begin when the recording does.
    """
    M, n = len(sounds), recording.shape[1]
    if M == 1:
        return recording[None]
    out = _fitted(resample(sounds, layout.rate, rate), n)
    rest = recording - out.sum(axis=0)
    edge = min(rate, layout.rate) / 2  # Hz up to which the sources are known
    for longer in (_OPEN, _ROOM):
        parts = _parts(rest, out, _Grid.of(layout, rate, longer), edge, rendering)
        if parts is not None:
            out[:-1] += parts
            break
    out[-1] = recording - out[:-1].sum(axis=0)
    return out


@dataclass(frozen=True)
class _Grid:
    """The frames and frequencies of a transform at the rate of the recording."""

    rate: int  # Hz
    hop: int  # samples
    longer: int  # windows, in those of the cues

    @classmethod
    def of(cls, layout: CueLayout, rate: int, longer: int) -> _Grid:
        """Windows so many times as long as the layout's, but for a size that is fast."""
        hop = round(longer * layout.window * rate / (layout.rate * _HOPS))
        return cls(rate, scipy.fft.next_fast_len(max(hop, 2), True), longer)

    @property
    def window(self) -> int:
        """In samples."""
        return _HOPS * self.hop

    def spectra(self, sound: Array) -> Spectra:
        """(2, B, T) of a sound (2, n)."""
        return stft(sound, self.window, self.hop)


def _parts(
    rest: Array, sounds: Array, grid: _Grid, edge: float, rendering: Rendering
) -> Array | None:
    """What all sources but the last have of the rest: (M - 1, 2, n).

    None if windows are those of the open, and it is a room.
    """
    M, spectra = len(sounds), grid.spectra(rest)
    hertz = np.arange(spectra.shape[1]) * grid.rate / grid.window
    told = slice(*np.searchsorted(hertz, [_TOLD_FROM * edge, edge]))
    envelopes = _envelopes(
        np.stack([squared_size(grid.spectra(sound)[:, told]).sum(axis=0) for sound in sounds])
    )
    # Below the first band there is only rounding, and what the ends of a block leave.
    images = np.repeat(spectra[None] / M, M - 1, axis=0)
    in_room = grid.longer == _ROOM
    for number, band in enumerate(_bands(hertz, edge)):
        X = spectra[:, band]
        if rendering == "spatial":
            frames = grid.rate / grid.hop
            own, spread = separate_band(
                X, envelopes, hertz[band], frames_a_second=frames, in_room=in_room
            )
            if number == 0 and not in_room and spread > _MOST_SPREAD:
                return None
        else:
            own = _masked(X, envelopes, binary=rendering == "binary")
        images[:, :, band] = own[:-1]
        envelopes = _envelopes(squared_size(own).sum(axis=1))
    n = rest.shape[1]
    return np.stack([istft(image, grid.window, grid.hop, n) for image in images])


def _fitted(sounds: Array, n: int) -> Array:
    """Sounds (M, 2, n): there and back again a rate may gain or lose a sample at the end."""
    fitted = np.zeros((*sounds.shape[:-1], n))
    length = min(n, sounds.shape[-1])
    fitted[..., :length] = sounds[..., :length]
    return fitted


def _bands(hertz: Array, edge: float) -> Iterator[slice]:
    """The frequencies that hold the rest, in bands as wide as that of the cues."""
    count = max(int(np.ceil(hertz[-1] / edge)), 2)
    edges = [_REST_FROM * edge, *(edge * np.arange(2, count)), np.inf]
    for begin, end in pairwise(np.searchsorted(hertz, edges)):
        if end > begin:
            yield slice(int(begin), int(end))


def _envelopes(powers: Array) -> Array:
    """How strong each source is in each frame (M, T), of powers (M, F, T): all F count alike."""
    level = powers.sum(axis=0).mean(axis=1)
    level = np.maximum(level, max(1e-9 * float(level.max(initial=0.0)), 1e-300))  # of silent ones
    envelopes: Array = (powers / level[:, None]).mean(axis=1)
    return envelopes


def _masked(X: Spectra, envelopes: Array, *, binary: bool) -> Complex:
    """Images (M, 2, F, T) by the same mask at all frequencies of a frame."""
    masks = shares_of(envelopes)
    masks = binary_masks(masks) if binary else masks
    images: Complex = masks[:, None, None] * X
    return images
