"""Online masks: VESSL made causal, one frame at a time.

Inputs: spectra of both ears at the head's rate, one frame at a time, and the directions of the
tracks. Output: a mask per track. The cues of each track are inferred from time to time, from
decaying statistics of its bins and from its direction, which counts as a few observed frames
(prior statistics, as in a long recording: `earatlas.separation.vessl`).

    q_mft ∝ λ_mbt p(y_ft | s_m)

    M, F, T     tracks, frequencies, frames
    q (M, F, T) masks
    λ_mbt       mixing weights in band b of frame t
    s_m         cues of track m
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import scipy.fft

from earatlas.features.layout import Threshold
from earatlas.features.statistics import CueStatistics
from earatlas.features.stft import bin_power, hann_window
from earatlas.features.tf_bins import ObservedBins
from earatlas.parts import Parts, complete
from earatlas.separation.bin_assignment import CueDensities, WeightCells, responsibilities
from earatlas.separation.demixing.permutation_alignment import ExpectedCues
from earatlas.separation.separator import Separator
from earatlas.separation.source_model import SourcePosterior
from earatlas.separation.vessl import VESSL, cue_moments
from earatlas.streaming.online_steering import SteeringSettings
from earatlas.types import Array, Complex, Indices, Mask

__all__ = ["CueEstimate", "OnlineMaskSettings", "OnlineMasks"]


# Evidence: docs/figures/settings/streaming.md, "online_masks".
@dataclass(frozen=True, slots=True)
class OnlineMaskSettings:
    """Settings of the masks of a stream."""

    weight_iterations: int = 3  # EM iterations of the mixing weights
    weight_prior_bins: float = 4.0  # weight of equal mixing weights in a band, bins
    memory_seconds: float = 6.0  # time constant (1/e) of the cue statistics of a track
    direction_prior_frames: float = 5.0  # weight of the cues expected at a track's direction
    restart_stride_seconds: float = 0.032  # time between the frames that are used if a track is new
    restart_steps: int = 3  # EM iterations from the directions, if a track is new
    # With more forgetting between updates, tracks are moving
    static_forgetting: float = SteeringSettings().static_forgetting
    full_search_interval: int = 8  # updates from one with all charts to the next
    direction_tolerance_degrees: float = 1.0  # larger changes renew the expected cues
    min_cue_frames: float = 2.0  # observed frames from which on cues determine a direction
    max_cue_radius_degrees: float = 10.0  # largest radius of such a direction
    peak_seconds: float = 10.0  # time constant (1/e) of the loudest bin


@dataclass(frozen=True, eq=False, slots=True)
class CueEstimate:
    """Result of an update: the cues of the tracks."""

    noise: Array  # (D,) residual variances
    statistics: Mapping[int, CueStatistics]  # (D,), by track id
    sources: Mapping[int, SourcePosterior]
    n_frames: int  # frames since the last update
    is_restart: bool  # from recent frames alone


class OnlineMasks:
    """Cues of the tracks of a stream, and the masks that follow from them."""

    def __init__(
        self,
        separator: Separator,
        frame_seconds: float,
        settings: OnlineMaskSettings | None = None,
    ) -> None:
        self._settings = settings or OnlineMaskSettings()
        self._model, self._layout = separator.source_model, separator.layout
        self.separator = separator
        self._frame_seconds = frame_seconds
        self._noise = self._model.noise
        self._statistics: dict[int, CueStatistics] = {}
        self._sources: dict[int, SourcePosterior] = {}
        self._frames: list[Complex] = []  # since the last update
        self._peak = 0.0
        self._updates = 0
        self._n_frames = 0  # of the stream
        self._static_since_frame = 0  # frame at which the last motion ended
        self._is_restart_due = False  # a track was added: the cues of the others contain its sound
        self._priors: dict[int, tuple[Array, CueStatistics]] = {}

    def use_separator(self, separator: Separator) -> None:
        """Continue with the source model of another head, which has the same cues."""
        self.separator, self._model = separator, separator.source_model
        self._priors = {}

    def append(self, samples: Array) -> None:
        """Append the frame of the last window of samples (2, n)."""
        window = self._layout.window
        spectra = scipy.fft.rfft(samples[:, -window:] * hann_window(window), axis=-1)[..., None]
        self._frames.append(spectra)
        self._n_frames += 1
        self._peak = max(
            self._peak * float(np.exp(-self._frame_seconds / self._settings.peak_seconds)),
            float(bin_power(spectra, window).max()),
        )

    @property
    def latest_frame(self) -> Complex:
        """Spectra (2, B, 1) of the last frame."""
        return self._frames[-1]

    def masks_at_directions(self, spectra: Complex, directions: Array) -> Array:
        """Return the masks (M, F, T) of earlier frames for sources at directions (M, C)."""
        trial = copy.copy(self)
        trial._statistics, trial._sources, trial._priors = {}, {}, {}
        trial._frames, trial._updates = [spectra], 0
        trial.apply(complete(trial.update_parts(dict(enumerate(directions)), {})))
        return trial.masks_of(spectra, range(len(directions)))

    def masks_of(self, spectra: Complex, ids: Sequence[int]) -> Array:
        """Return the masks (M, F, T) of frames (2, B, T), with the current cues."""
        M, F, T = len(ids), self._layout.n_frequencies, spectra.shape[-1]
        if M <= 1:
            return np.ones((M, F, T))
        f, t = (index.ravel() for index in np.indices((F, T)))
        bins = ObservedBins.at(spectra, self._model.layout, f, t)
        cues, squares = cue_moments([self._sources[i] for i in ids])
        logs = CueDensities.from_moments(cues, squares, self._noise).of_bins(bins)
        audible = bins.level_db >= Threshold().floor_db(self._peak)
        cells = WeightCells(F, T, self._model.settings.weight_bands)
        return self._assign(logs, cells, cells.of(f, t), audible).reshape(M, F, T)

    def _assign(self, logs: Array, cells: WeightCells, cell: Indices, audible: Mask) -> Array:
        """Return masks q (M, N) from log-likelihoods (M, N), with mixing weights per cell.

        Bin n is in `cell` n; the weights are estimated from the audible bins.
        """
        M, prior_bins = len(logs), self._settings.weight_prior_bins / len(logs)
        log_weights = np.full((M, len(cells)), -np.log(M))
        for _ in range(self._settings.weight_iterations):
            q, _ = responsibilities(logs + log_weights[:, cell])
            log_weights = np.log(cells.mean(audible * q, cell, prior_bins))
        return responsibilities(logs + log_weights[:, cell])[0]

    def update_parts(
        self,
        directions: Mapping[int, Array],
        forgetting: Mapping[int, float],
        recent: Sequence[Complex] = (),
    ) -> Parts[CueEstimate]:
        """Return the parts of an update of the cues from the frames since the last update.

        `directions` are relative to the head, by track id; `forgetting` (0 to 1) is the part of the
        statistics that the motion of a track voids. After a track was added, cues are inferred
        again from the `recent` frames (2, B, 1) since the last motion, once there are any.
        """
        for removed in set(self._statistics) - set(directions):
            for known in (self._statistics, self._sources, self._priors):
                known.pop(removed, None)
        ids = list(directions)
        for track_id in set(ids) - set(self._statistics):
            self._add_track(track_id, directions[track_id])
            self._is_restart_due = True
        self._is_restart_due &= len(ids) > 1
        if max(forgetting.values(), default=0.0) > self._settings.static_forgetting:
            self._static_since_frame = self._n_frames
        priors = [self._direction_prior(i, directions[i]) for i in ids]
        n_static = self._n_frames - self._static_since_frame
        static = recent[max(len(recent) - n_static, 0) :]
        if self._is_restart_due and self._frames and static:
            return self._restart_parts(ids, priors, static)
        return self._step_parts(ids, priors, forgetting)

    def apply(self, estimate: CueEstimate) -> None:
        """Use the result of an update."""
        del self._frames[: estimate.n_frames]
        self._is_restart_due &= not estimate.is_restart
        self._noise = estimate.noise
        self._statistics.update(estimate.statistics)
        self._sources.update(estimate.sources)

    def _step_parts(
        self, ids: Sequence[int], priors: Sequence[CueStatistics], forgetting: Mapping[int, float]
    ) -> Parts[CueEstimate]:
        """Infer the cues from decaying statistics and the frames since the last update."""
        frames, model, noise = list(self._frames), self._model, self._noise
        if not ids or not frames:
            return CueEstimate(noise, {}, {}, len(frames), is_restart=False)
        settings, spectra = self._settings, np.concatenate(frames, axis=-1)
        decay = float(np.exp(-spectra.shape[-1] * self._frame_seconds / settings.memory_seconds))
        past = CueStatistics.stack([self._statistics[i] for i in ids]).scaled(
            np.array([decay * (1 - forgetting.get(i, 0.0)) for i in ids])
        )
        sources = tuple(self._sources[i] for i in ids)
        # Usually only the nearby charts are evaluated; now and then all of them.
        self._updates += 1
        full_search = self._updates % settings.full_search_interval == 0
        separator, floor_db = self.separator, Threshold().floor_db(self._peak)
        yield 1.0
        bins = separator.coherent_bins(spectra, floor_db)
        vessl = VESSL(model, bins, prior_statistics=past + CueStatistics.stack(list(priors)))
        state = vessl.initialize_from(sources, noise)
        state = vessl.step(
            replace(state, sources=sources, free_energies=(0.0,)), all_charts=full_search
        )
        statistics = past + bins.statistics(state.assignments)
        return CueEstimate(
            state.noise,
            {i: statistics[m] for m, i in enumerate(ids)},
            dict(zip(ids, state.sources, strict=True)),
            len(frames),
            is_restart=False,
        )

    def _restart_parts(
        self, ids: Sequence[int], priors: Sequence[CueStatistics], recent: Sequence[Complex]
    ) -> Parts[CueEstimate]:
        """Infer the cues from recent frames (2, B, 1), beginning with those of the directions.

        Before a track was added, its sound was assigned to the others: their cues contain it, and
        the noise is large. Masks from such cues hardly separate, and would not recover.
        """
        settings, model, separator = self._settings, self._model, self.separator
        n_frames, floor_db = len(self._frames), Threshold().floor_db(self._peak)
        stride = max(round(settings.restart_stride_seconds / self._frame_seconds), 1)
        spectra = np.concatenate(recent[::-stride][::-1], axis=-1)
        sources: tuple[SourcePosterior, ...] = ()
        for prior in priors:
            yield 1.0
            sources += (model.posterior(prior, model.noise),)
        yield 1.0
        bins = separator.coherent_bins(spectra, floor_db)
        vessl = VESSL(model, bins, prior_statistics=CueStatistics.stack(list(priors)))
        state = vessl.initialize_from(sources, model.noise)
        state = replace(state, sources=sources, free_energies=(0.0,))
        for step in range(settings.restart_steps):
            yield 1.0
            state = vessl.step(state, all_charts=step == settings.restart_steps - 1)
        statistics = bins.statistics(state.assignments).scaled(np.full(len(ids), float(stride)))
        return CueEstimate(
            state.noise,
            {i: statistics[m] for m, i in enumerate(ids)},
            dict(zip(ids, state.sources, strict=True)),
            n_frames,
            is_restart=True,
        )

    def expected_cues(self, ids: Sequence[int]) -> ExpectedCues:
        """Return the cues that the head predicts for tracks at their directions."""
        layout = self._model.layout
        level, cosine, sine = (np.full((len(ids), layout.n_frequencies), np.nan) for _ in range(3))
        for kind, values in (("ild", level), ("ipd_cos", cosine), ("ipd_sin", sine)):
            is_kind = layout.cue_kinds == kind
            for row, i in zip(values, ids, strict=True):
                statistics = self._priors[i][1]
                known = is_kind & (statistics.counts > 0)
                means = statistics.sums[known] / statistics.counts[known]
                row[layout.cue_frequencies[known]] = means
        return ExpectedCues(level, np.arctan2(sine, cosine))

    def statistics(self) -> dict[int, CueStatistics]:
        """Return the statistics (D,) of the head's cues, by track id."""
        learned = self._model.learned
        return {
            i: _without_negligible(one.counts[learned], one.sums[learned], one.squares[learned])
            for i, one in self._statistics.items()
        }

    def cue_directions(self) -> dict[int, Array]:
        """Return the directions, relative to the head, of tracks whose cues determine them."""
        directions = {}
        for track_id, statistics in self._statistics.items():
            if float(np.mean(statistics.counts)) >= self._settings.min_cue_frames:
                posterior = self._model.posterior(statistics, self._noise).posterior
                if posterior.radius_90 <= self._settings.max_cue_radius_degrees:
                    directions[track_id] = posterior.best
        return directions

    def _add_track(self, track_id: int, direction: Array) -> None:
        """Begin with the cues expected at a direction."""
        zeros = np.zeros(self._model.layout.n_cues)
        self._statistics[track_id] = CueStatistics(zeros, zeros, zeros, 0.0)
        prior = self._direction_prior(track_id, direction)
        self._sources[track_id] = self._model.posterior(prior, self._noise)

    def _direction_prior(self, track_id: int, direction: Array) -> CueStatistics:
        """Return the prior statistics of a track's direction, cached until the track moves."""
        cached, distance = self._priors.get(track_id), self._model.model.space.distance
        tolerance = self._settings.direction_tolerance_degrees
        if cached is None or distance(cached[0], direction) > tolerance:
            cached = self._priors[track_id] = (direction, self._prior_at(direction[None])[0])
        return cached[1]

    def _prior_at(self, directions: Array) -> CueStatistics:
        """Return the statistics expected at directions (M, C), as of a few observed frames."""
        means, variances = self._model.model.expected_cues(directions)
        counts, sums, squares = (
            np.zeros((len(directions), self._model.layout.n_cues)) for _ in range(3)
        )
        learned, frames = self._model.learned, self._settings.direction_prior_frames
        counts[:, learned] = frames
        sums[:, learned] = frames * means
        squares[:, learned] = frames * (means**2 + variances)
        return CueStatistics(counts, sums, squares, frames)


def _without_negligible(counts: Array, sums: Array, squares: Array) -> CueStatistics:
    """Return statistics (D,) in which cues with a negligible count are not observed."""
    observed = counts > 1e-6  # the inverse of a smaller count may overflow
    counts, sums, squares = (np.where(observed, each, 0.0) for each in (counts, sums, squares))
    return CueStatistics(counts, sums, squares, float(counts.max(initial=0.0)))
