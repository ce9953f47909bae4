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

from earatlas.parts import Parts
from earatlas.separation.demixing.permutation_alignment import ExpectedCues
from earatlas.streaming.delay import check_delay
from earatlas.streaming.filterbank import AnalysisFrames, Filterbank, OverlapAdd, crossfade
from earatlas.streaming.fir_demixing import FirDemixer, FirEstimate
from earatlas.streaming.online_demixing import DemixingEstimate, OnlineDemixer
from earatlas.streaming.online_steering import SteeringSettings
from earatlas.types import Array, Complex, Indices

__all__ = [
    "DEFAULT_LATENCY",
    "LatencyProfile",
    "RenderEstimate",
    "StreamRenderer",
    "Windows",
    "latency_profile",
]


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
    refined_fir_hops: int = 0  # longer windows in which they are refined, reverberant; 0: none
    delay_hops: int = 0  # further latency, in which masks and filters follow later sound, too
    steering: SteeringSettings = field(default_factory=SteeringSettings)
    update_bins: int = 800_000  # bins of an update that a hop may process: about 15 ms of CPU time
    replayed_hops: int = 24  # hops of which other windows are computed in one hop

    @property
    def latency_seconds(self) -> float:
        """Latency of the signals, at rates that are multiples of the number of hops per second."""
        return (self.synthesis_hops + self.delay_hops) * self.hop_seconds

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
            delay_hops=self.delay_hops,
        )

    def fir_demixer(
        self, filterbank: Filterbank, mask_frequencies_hz: Array, *, reverberant: bool
    ) -> FirDemixer:
        """Return a new FIR demixer for masks at the given frequencies."""
        hops = self.reverberant_fir_hops if reverberant else self.anechoic_fir_hops
        return FirDemixer(
            filterbank,
            mask_frequencies_hz,
            hops,
            self.steering,
            reverberant=reverberant,
            refined_hops=self.refined_fir_hops if reverberant else 0,
        )


DEFAULT_LATENCY = LatencyProfile(0.016, 7, 16, 7, 32, 8)  # 112 ms
_LOW_LATENCY = LatencyProfile(0.008, 8, 32, 3, 48, 16)  # 24 ms
# Latency from which filters are refined: that of a delay of 0.5 s is up to a hop shorter.
_REFINED_LATENCY_SECONDS, _REFINED_FIR_HOPS = 0.484, 64


def latency_profile(delay_seconds: float, rate: int) -> LatencyProfile:
    """Return the profile for a delay: hops of 16 ms if they fit, and as many as fit in it.

    At some rates hops are shorter than nominal, so that more of them fit.
    """
    seconds = check_delay(delay_seconds) + 1e-9  # a latency itself is not rounded down
    profile, filterbank = DEFAULT_LATENCY, DEFAULT_LATENCY.filterbank(rate)
    if seconds < filterbank.latency_samples / rate:
        profile, filterbank = _LOW_LATENCY, _LOW_LATENCY.filterbank(rate)
    delay_hops = int(seconds / filterbank.hop_seconds) - filterbank.synthesis_hops
    latency_seconds = (filterbank.synthesis_hops + delay_hops) * filterbank.hop_seconds
    refined_hops = _REFINED_FIR_HOPS if latency_seconds >= _REFINED_LATENCY_SECONDS else 0
    return replace(profile, delay_hops=delay_hops, refined_fir_hops=refined_hops)


@dataclass(eq=False, slots=True)
class Windows:
    """Frames and demixers for reverberant or for anechoic sound."""

    reverberant: bool
    filterbank: Filterbank
    frames: AnalysisFrames
    demixer: OnlineDemixer
    fir_demixer: FirDemixer

    def append(self, x: Array) -> None:
        """Append a hop (2, hop)."""
        self.frames.append(x)
        self.demixer.append(self.frames)
        self.fir_demixer.append(x)

    def needs_masks(self, ids: Sequence[int]) -> bool:
        """Return whether an update for these tracks needs masks of the recent frames."""
        return any(part.steering.needs_masks(ids) for part in (self.demixer, self.fir_demixer))

    def n_updates(self, ids: Sequence[int]) -> int:
        """Return the number of filter updates of a pair of tracks; 0 for other numbers."""
        return max(part.steering.n_updates(ids) for part in (self.demixer, self.fir_demixer))

    def retain(self, track_ids: Sequence[int]) -> None:
        """Forget the filters of all other tracks."""
        self.demixer.retain(track_ids)
        self.fir_demixer.retain(track_ids)

    def select_kept(self, frames: Sequence[Complex]) -> Complex:
        """Return the mask frames of the hops whose spectra are kept (2, B, T)."""
        rows: Indices = self.demixer.steering.kept_rows(len(frames))
        return np.concatenate([frames[i] for i in rows], axis=-1)


@dataclass(frozen=True, eq=False, slots=True)
class RenderEstimate:
    """Result of an update of the filters of tracks, given by id with their rows."""

    tracks: Mapping[int, int]
    demixing: DemixingEstimate | None  # None: the known filters are used
    fir: FirEstimate | None  # None: there are no FIR filters for these tracks


class StreamRenderer:
    """Separates the tracks of a stream, in the STFT domain or with FIR filters.

    While windows for other sound are prepared, the current ones stay in use: `recent_windows_parts`
    computes them from the recent hops, `prepare` begins their use for updates, and the first
    update that is applied ends the use of the others.
    """

    def __init__(
        self,
        rate: int,
        latency: LatencyProfile,
        mask_frequencies_hz: Array,
        n_sources: int,
        *,
        max_phase_hz: float = np.inf,
    ) -> None:
        """Render up to `n_sources`, from masks that rest on phases up to `max_phase_hz`."""
        self._latency, self._n_sources, self._max_phase_hz = latency, n_sources, max_phase_hz
        self._mask_frequencies_hz = mask_frequencies_hz
        self.filterbank = latency.filterbank(rate)  # for anechoic sound
        self._windows = self._new_windows(reverberant=False)
        self._prepared: Windows | None = None  # for other sound, until an update is applied
        self._overlap_add = OverlapAdd(self.filterbank, n_sources)
        self._n_stft_hops = 0  # hops in a row that were separated in the STFT domain
        self._fir_is_current = False  # the FIR filters are those of the rendered tracks
        self._active_fir: FirDemixer | None = None  # source of the output; None: the STFT domain
        # Rows of the two tracks that FIR filters separate; None: the track was deleted
        self._fir_rows: tuple[int | None, int | None] = (None, None)
        count = round(latency.steering.recent_seconds / self.filterbank.hop_seconds)
        self._recent_hops: deque[Array] = deque(maxlen=count + latency.reverberant_fir_hops)
        self._n_hops = 0
        reverberant_fir = self._new_windows(reverberant=True).fir_demixer.steering
        # Cost of the parts of an update per hop: at least an iteration with the longest windows
        self.hop_budget = max(reverberant_fir.max_bins, latency.update_bins)

    @property
    def newest_windows(self) -> Windows:
        """The windows whose filters are updated."""
        return self._prepared or self._windows

    @property
    def needs_frame_masks(self) -> bool:
        """Whether the next hop is separated in the STFT domain, which needs masks."""
        return not self._fir_is_current or self._active_fir is not self._windows.fir_demixer

    @property
    def diffuse_ratio(self) -> float | None:
        """Diffuse-to-direct ratio measured for a pair in anechoic windows; None without one."""
        demixer = self._windows.demixer
        # Two that remain of more tracks have no estimate of their own yet.
        is_measured = demixer.steering.current.pair is not None
        return demixer.diffuse_to_direct if is_measured and not self._windows.reverberant else None

    def push(self, x: Array, masks: Array | None, rows: Sequence[int]) -> Array:
        """Process a hop (2, hop); return signals (n_sources, 2, hop).

        `rows` are the rows of the signals that the masks (M, F) belong to.
        """
        windows = self._windows
        self._recent_hops.append(x)
        self._n_hops += 1
        windows.append(x)
        if self._prepared is not None:
            self._prepared.append(x)
        if self._active_fir is not None and self._active_fir is not windows.fir_demixer:
            self._active_fir.append(x)
        if masks is None:
            self._n_stft_hops = 0
            return self._fir_output()
        spectra = windows.frames.delayed_spectra()
        return self._select_output(self._stft_output(spectra, masks, rows))

    def _select_output(self, stft_output: Array) -> Array:
        """Return the STFT output (n_sources, 2, hop), the FIR output, or a crossfade of the two."""
        if self._fir_is_current:  # change to the current FIR filters
            before = stft_output if self._active_fir is None else self._fir_output()
            self._active_fir = self._windows.fir_demixer
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
            self._overlap_add = OverlapAdd(self._windows.filterbank, self._n_sources)
        self._n_stft_hops += 1
        images = np.zeros((self._n_sources, *spectra.shape), dtype=np.complex128)
        images[list(rows)] = self._windows.demixer.images(spectra, masks)
        return self._overlap_add.push(images)

    def _fir_output(self) -> Array:
        """Return the FIR output: one track of the pair, and the remainder as the other."""
        assert self._active_fir is not None
        first = self._active_fir.output()
        n_late = self.filterbank.latency_hops
        # Before the first hop there is silence.
        x = self._recent_hops[-n_late] if n_late <= len(self._recent_hops) else np.zeros_like(first)
        rest = x - first
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
        self._windows.retain(track_ids)
        if self._prepared is not None:
            self._prepared.retain(track_ids)

    def keep_only(self, track_ids: Sequence[int]) -> None:
        """Render only some of the current tracks, until the next update."""
        self._windows.demixer.steering.keep_only(track_ids)
        self._fir_is_current = False

    def recent_windows_parts(self, *, reverberant: bool) -> Parts[tuple[Windows, int]]:
        """Compute windows for other sound from the recent hops, in parts.

        Returned with the number of hops of the stream that they contain; see `prepare`.
        """
        windows, hops = self._new_windows(reverberant=reverberant), list(self._recent_hops)
        n_hops, n_replayed = self._n_hops, self._latency.replayed_hops

        def parts() -> Parts[tuple[Windows, int]]:
            for first in range(0, len(hops), n_replayed):
                yield self.hop_budget
                for x in hops[first : first + n_replayed]:
                    windows.append(x)
            return windows, n_hops

        return parts()

    def prepare(self, windows: Windows | None, n_hops: int = 0) -> None:
        """Use windows, which contain `n_hops` hops of the stream, for the next updates."""
        self._prepared = windows
        if windows is not None:
            missing = self._n_hops - n_hops
            for x in list(self._recent_hops)[len(self._recent_hops) - missing :]:
                windows.append(x)

    def _new_windows(self, *, reverberant: bool) -> Windows:
        """Return windows without frames."""
        latency, frequencies_hz = self._latency, self._mask_frequencies_hz
        hops = latency.reverberant_window_hops if reverberant else latency.window_hops
        filterbank = replace(self.filterbank, window_hops=hops)
        return Windows(
            reverberant,
            filterbank,
            AnalysisFrames(filterbank),
            OnlineDemixer(
                filterbank,
                frequencies_hz,
                latency.steering,
                reverberant=reverberant,
                max_phase_hz=self._max_phase_hz,
            ),
            latency.fir_demixer(self.filterbank, frequencies_hz, reverberant=reverberant),
        )

    def update_parts(
        self,
        tracks: Mapping[int, int],
        masks: Array | None,
        forgetting: float,
        expected: ExpectedCues | None = None,
    ) -> Parts[RenderEstimate]:
        """Return the parts of an update of the filters for tracks, given by id with their rows.

        The newest windows with their frames so far are used. For the other parameters see
        `OnlineSteeringVectors.begin_update` and `SteeringUpdate.estimate_parts`.
        """
        ids, windows = list(tracks), self.newest_windows
        demixer, fir_demixer = windows.demixer, windows.fir_demixer
        # Filters of another pair, which was rendered before this one, do not count.
        is_current = self._fir_is_current and tuple(tracks.values()) == self._fir_rows
        stft_update = fir_update = refinement = None
        if masks is not None or not is_current or self._prepared is not None:
            stft_update = demixer.steering.begin_update(ids, forgetting)
        if len(ids) == 2 and not self._rows_change(tracks):
            if forgetting > self._latency.steering.static_forgetting:
                fir_demixer.register_motion(forgetting)
            else:
                fir_update = fir_demixer.steering.begin_update(ids, forgetting)
                refinement = fir_demixer.begin_refinement(ids, forgetting)
        known = demixer.steering.vectors

        def parts() -> Parts[RenderEstimate]:
            demixing = fir = None
            vectors = known
            if stft_update is not None:
                demixing = yield from demixer.estimate_parts(stft_update, masks, expected)
                vectors = demixing.steering.vectors
            if fir_update is not None and vectors is not None:
                shorter = stft_update if masks is not None else None
                fir = yield from fir_demixer.estimate_parts(
                    fir_update, shorter, vectors, expected, refinement
                )
            return RenderEstimate(tracks, demixing, fir)

        return parts()

    def _rows_change(self, tracks: Mapping[int, int]) -> bool:
        """Return whether FIR filters separate other rows than those of the tracks.

        Rows change at once, but filters fade: the STFT domain takes over in between.
        """
        is_active = self._active_fir is self._windows.fir_demixer and self._prepared is None
        return is_active and tuple(tracks.values()) != self._fir_rows

    def apply(self, estimate: RenderEstimate) -> None:
        """Use the result of an update, and the windows to which it belongs."""
        if self._prepared is not None:
            self._windows, self._prepared = self._prepared, None
            self._overlap_add = self._overlap_add.with_filterbank(self._windows.filterbank)
        windows, fir = self._windows, estimate.fir
        if estimate.demixing is not None:
            windows.demixer.apply(estimate.demixing)
        self._fir_is_current = False
        # The FIR filters of other rows may have become active since the update began.
        if fir is not None and not self._rows_change(estimate.tracks):
            windows.fir_demixer.apply(fir)
            self._fir_is_current = windows.fir_demixer.ready
            first, second = estimate.tracks.values()
            self._fir_rows = (first, second)
