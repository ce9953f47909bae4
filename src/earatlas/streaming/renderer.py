"""Rendering of the tracks of a stream: analysis frames, filters and synthesis, one hop at a time.

In a reverberant room, longer analysis windows hold more of the reflections and separate better; in
anechoic sound they are worse (`earatlas.separation.demixing.rendering`). Whether the sound
is reverberant is known only after a while. Both kinds of windows have the same synthesis window,
so that the stream can change between them from one hop to the next; the filters are then estimated
again from the recent hops, which are kept.

Once two static tracks are separated in the STFT domain, long FIR filters are estimated from them
and applied to the samples (`earatlas.streaming.fir_demixing`). While these are active, the STFT
domain renders nothing.

    x (2, hop)        samples
    masks (M, F)      masks of a frame
    signals (M, 2, hop)  separated signals, `latency_samples` later
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from earatlas.separation.demixing.permutation_alignment import ExpectedCues
from earatlas.streaming.filterbank import AnalysisFrames, Filterbank, OverlapAdd, crossfade
from earatlas.streaming.fir_demixing import FirDemixer
from earatlas.streaming.online_demixing import OnlineDemixer, SteeringSettings
from earatlas.types import Array, Complex, Indices

__all__ = ["DEFAULT_LATENCY", "LOW_LATENCY", "LatencyProfile", "StreamRenderer"]


# Evidence: docs/figures/settings/streaming.md, "renderer".
@dataclass(frozen=True, slots=True)
class LatencyProfile:
    """Hop and window lengths for one latency."""

    hop_seconds: float
    window_hops: int  # analysis window for anechoic sound
    reverberant_window_hops: int  # analysis window for reverberant sound
    synthesis_hops: int  # synthesis window: the latency
    reverberant_fir_hops: int  # window from which long filters are estimated, reverberant
    anechoic_fir_hops: int  # the same for anechoic sound
    steering: SteeringSettings = field(default_factory=SteeringSettings)

    @property
    def history_seconds(self) -> float:
        """Input from which filters are estimated."""
        return self.steering.recent_seconds + self.reverberant_fir_hops * self.hop_seconds

    def filterbank(self, rate: int) -> Filterbank:
        """Return the filterbank for anechoic sound at a rate in Hz."""
        return Filterbank.from_seconds(
            rate,
            hop_seconds=self.hop_seconds,
            window_hops=self.window_hops,
            synthesis_hops=self.synthesis_hops,
        )

    def fir_demixer(
        self, filterbank: Filterbank, mask_frequencies_hz: Array, *, reverberant: bool
    ) -> FirDemixer:
        """Return a new FIR demixer for masks at the given frequencies."""
        hops = self.reverberant_fir_hops if reverberant else self.anechoic_fir_hops
        return FirDemixer(
            filterbank, mask_frequencies_hz, hops, self.steering, reverberant=reverberant
        )


DEFAULT_LATENCY = LatencyProfile(0.016, 7, 16, 7, 32, 8)  # 112 ms
LOW_LATENCY = LatencyProfile(0.008, 8, 32, 3, 48, 16)  # 24 ms


class StreamRenderer:
    """Separates the tracks of a stream, in the STFT domain or with FIR filters."""

    def __init__(
        self, rate: int, latency: LatencyProfile, mask_frequencies_hz: Array, n_sources: int
    ) -> None:
        self._latency, self._n_sources = latency, n_sources
        self._mask_frequencies_hz = mask_frequencies_hz
        self.filterbank = latency.filterbank(rate)
        self.reverberant = False
        self._frames = AnalysisFrames(self.filterbank)
        self._overlap_add = OverlapAdd(self.filterbank, n_sources)
        self._n_stft_hops = 0  # hops in a row that were separated in the STFT domain
        self.demixer = self._new_demixer(reverberant=False)
        self._fir_demixer = self._new_fir_demixer(reverberant=False)
        self._fir_is_current = False  # the FIR filters are those of the rendered tracks
        self._active_fir: FirDemixer | None = None  # source of the output; None: the STFT domain
        # Rows of the two tracks that FIR filters separate; None: the track was deleted
        self._fir_rows: tuple[int | None, int | None] = (None, None)
        count = round(latency.steering.recent_seconds / self.filterbank.hop_seconds)
        self._recent_hops: deque[Array] = deque(maxlen=count + latency.reverberant_fir_hops)

    @property
    def needs_frame_masks(self) -> bool:
        """Whether the next hop is separated in the STFT domain, which needs masks."""
        return not self._fir_is_current or self._active_fir is not self._fir_demixer

    @property
    def diffuse_ratio(self) -> float | None:
        """Diffuse-to-direct ratio of a pair in anechoic windows; None without such a pair."""
        steering = self.demixer.steering
        pair = len(steering.track_ids) == 2 and steering.vectors is not None
        return self.demixer.diffuse_to_direct if pair and not self.reverberant else None

    def push(self, x: Array, masks: Array | None, rows: Sequence[int]) -> Array:
        """Process a hop (2, hop); return signals (n_sources, 2, hop).

        `rows` are the rows of the signals that the masks (M, F) belong to.
        """
        self._recent_hops.append(x)
        self._frames.append(x)
        for fir_demixer in _unique(self._fir_demixer, self._active_fir):
            fir_demixer.append(x)
        if masks is None:
            self._n_stft_hops = 0
            if self.demixer.steering.advance():
                self.demixer.steering.append(self._frames.spectra()[:, 1:])
            return self._fir_output()
        spectra = self._frames.spectra()
        self.demixer.append(spectra)
        return self._select_output(self._stft_output(spectra, masks, rows))

    def _select_output(self, stft_output: Array) -> Array:
        """Return the STFT output (n_sources, 2, hop), the FIR output, or a crossfade of the two."""
        if self._fir_is_current:  # change to the current FIR filters
            before = stft_output if self._active_fir is None else self._fir_output()
            self._active_fir = self._fir_demixer
            return crossfade(before, self._fir_output())
        if self._active_fir is None:
            return stft_output
        fir_output = self._fir_output()
        if self._n_stft_hops <= self.filterbank.synthesis_hops:  # overlap-add is not complete yet
            return fir_output
        self._active_fir = None
        return crossfade(fir_output, stft_output)

    def _stft_output(self, spectra: Complex, masks: Array, rows: Sequence[int]) -> Array:
        """Separate a frame (2, F + 1) and return the hop that overlap-add completes."""
        if not self._n_stft_hops:
            self._overlap_add = OverlapAdd(self.filterbank, self._n_sources)
        self._n_stft_hops += 1
        images = np.zeros((self._n_sources, *spectra.shape), dtype=np.complex128)
        images[list(rows)] = self.demixer.images(spectra, masks)
        return self._overlap_add.push(images)

    def _fir_output(self) -> Array:
        """Return the FIR output: one track of the pair, and the remainder as the other."""
        assert self._active_fir is not None
        first = self._active_fir.output()
        rest = self._recent_hops[-self.filterbank.synthesis_hops] - first
        signals = np.zeros((self._n_sources, 2, self.filterbank.hop))
        for row, signal in zip(self._fir_rows, (first, rest), strict=True):
            if row is not None:
                signals[row] = signal
        return signals

    def clear_row(self, row: int) -> None:
        """Clear the pending samples of a row that is reused for another track."""
        self._overlap_add.clear_row(row)
        if row in self._fir_rows:
            first, second = self._fir_rows
            self._fir_rows = (None if first == row else first, None if second == row else second)
            self._fir_is_current = False

    def retain(self, track_ids: Sequence[int]) -> None:
        """Forget the filters of all other tracks."""
        self.demixer.retain(track_ids)
        self._fir_demixer.retain(track_ids)

    def set_reverberant(self, reverberant: bool) -> None:
        """Change to the windows for reverberant or anechoic sound."""
        latency = self._latency
        hops = latency.reverberant_window_hops if reverberant else latency.window_hops
        self.reverberant, self.filterbank = reverberant, replace(self.filterbank, window_hops=hops)
        self._frames = AnalysisFrames(self.filterbank)
        self._overlap_add = self._overlap_add.with_filterbank(self.filterbank)
        self.demixer = self._new_demixer(reverberant=reverberant)
        self._fir_demixer = self._new_fir_demixer(reverberant=reverberant)
        self._fir_is_current = False
        for x in self._recent_hops:
            self.demixer.append(self._frames.push(x))
            self._fir_demixer.append(x)

    def _new_demixer(self, *, reverberant: bool) -> OnlineDemixer:
        """Return a new demixer in the STFT domain."""
        return OnlineDemixer(
            self.filterbank,
            self._mask_frequencies_hz,
            self._latency.steering,
            reverberant=reverberant,
        )

    def _new_fir_demixer(self, *, reverberant: bool) -> FirDemixer:
        """Return a new FIR demixer."""
        return self._latency.fir_demixer(
            self.filterbank, self._mask_frequencies_hz, reverberant=reverberant
        )

    def needs_masks(self, ids: Sequence[int]) -> bool:
        """Return whether an update for these tracks needs masks of the recent frames."""
        return any(part.steering.needs_masks(ids) for part in (self.demixer, self._fir_demixer))

    def n_updates(self, ids: Sequence[int]) -> int:
        """Return the number of filter updates of a pair of tracks; 0 for other numbers."""
        return max(part.steering.n_updates(ids) for part in (self.demixer, self._fir_demixer))

    def select_kept(self, frames: Sequence[Complex]) -> Complex:
        """Return the mask frames of the hops whose spectra are kept (2, B, T)."""
        rows: Indices = self.demixer.steering.kept_rows(len(frames))
        return np.concatenate([frames[i] for i in rows], axis=-1)

    def update(
        self,
        tracks: Mapping[int, int],
        masks: Array | None,
        forgetting: float,
        expected: ExpectedCues | None = None,
    ) -> None:
        """Update the filters for tracks, given by id with their rows.

        See `OnlineDemixer.update` for the other parameters.
        """
        ids, fir_demixer = list(tracks), self._fir_demixer
        # Filters of another pair, which was rendered before this one, do not count.
        was_current = self._fir_is_current and tuple(tracks.values()) == self._fir_rows
        self._fir_is_current = False
        if masks is not None or not was_current:
            self.demixer.update(ids, masks, forgetting, expected)
        if len(ids) != 2:
            return
        rows = (tracks[ids[0]], tracks[ids[1]])
        if self._active_fir is fir_demixer and rows != self._fir_rows:
            return  # rows change at once, filters fade: the STFT domain takes over in between
        if forgetting > self._latency.steering.static_forgetting:
            fir_demixer.retain([])
            fir_demixer.steering.register_motion(forgetting)
        elif self.demixer.steering.vectors is not None:
            shorter = self.demixer.steering if masks is not None else None
            fir_demixer.update(ids, shorter, forgetting, expected)
            self._fir_is_current = fir_demixer.ready
            self._fir_rows = rows


def _unique(*demixers: FirDemixer | None) -> list[FirDemixer]:
    """Return each demixer once, without None."""
    unique: list[FirDemixer] = []
    for demixer in demixers:
        if demixer is not None and demixer not in unique:
            unique.append(demixer)
    return unique
