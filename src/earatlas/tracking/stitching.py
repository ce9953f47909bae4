"""Tracklet stitching: trajectories of a long recording from those of overlapping segments.

Inputs: the onset bins of consecutive blocks, and the directions of the sources if all are static.
Output: one `EstimatedTrajectory` per source over the whole recording if one of them moves; an empty
list otherwise.

A segment is a block with the last seconds of the one before. A trajectory of a segment continues
the track that is nearest to it in the overlap; a track that was silent is assumed to be where it
was last observed. A trajectory outside of all gates starts a new track. The number of sources is
decided at the end, since a source may be silent in a segment.

    segment k    |———————————————|
    segment k+1              |———————————————|      assignment in the overlap
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from earatlas.features.onset_detector import OnsetBins
from earatlas.geometry.angles import cosines_to_degrees
from earatlas.localization.onset_likelihood import DirectSoundModel
from earatlas.numerics import linear_assignment
from earatlas.tracking.offline import (
    EstimatedTrajectory,
    TrajectoryOptions,
    find_moving_trajectories,
    find_trajectories,
)
from earatlas.tracking.trajectory_mixture import TrajectorySettings
from earatlas.types import Array

__all__ = ["stitch_tracks"]


@dataclass(frozen=True, eq=False)
class _Segment:
    """The onset bins of a block and of the end of the one before."""

    first: int  # index of the first window in the recording
    onsets: OnsetBins  # frames counted from the first window
    seconds: float


@dataclass(eq=False)
class _StitchedTrack:
    """One source: its trajectories in the segments where it is active, with first windows."""

    segments: list[tuple[int, EstimatedTrajectory]] = field(default_factory=list)

    @property
    def end(self) -> int:
        """The window after the last one."""
        first, trajectory = self.segments[-1]
        return first + len(trajectory.seconds)

    @property
    def onset_count(self) -> float:
        """Weighted number of onsets of the track."""
        return sum(float(trajectory.weights.sum()) for _, trajectory in self.segments)

    def distance_to(self, first: int, trajectory: EstimatedTrajectory) -> float:
        """Return the mean distance, in degrees, to a trajectory whose first window is `first`.

        It is weighted by onsets over the overlap; without an overlap it is that of the two ends.
        """
        begin, own = self.segments[-1]
        overlap = self.end - first
        if overlap <= 0:
            cosines, onset_count = own.vectors[-1:] @ trajectory.vectors[:1].T, np.ones(1)
        else:
            before, after = slice(first - begin, None), slice(0, overlap)
            cosines = np.einsum("wa,wa->w", own.vectors[before], trajectory.vectors[after])
            # Windows with onsets of either count: a path that leaves the source differs there.
            onset_count = own.weights[before] + trajectory.weights[after] + 1e-6
        degrees = cosines_to_degrees(cosines.ravel())
        return float(degrees @ onset_count / onset_count.sum())

    def stitched(self, n_windows: int, settings: TrajectorySettings) -> EstimatedTrajectory:
        """Return one trajectory over all windows, joined in the middle of each overlap."""
        vectors = np.zeros((n_windows, 3))
        radius, weights = np.zeros(n_windows), np.zeros(n_windows)
        known = np.zeros(n_windows, dtype=bool)
        end = 0
        for first, trajectory in self.segments:
            begin = first + max(end - first, 0) // 2
            end = first + len(trajectory.seconds)
            rows, own = slice(begin, end), slice(begin - first, None)
            vectors[rows], radius[rows] = trajectory.vectors[own], trajectory.radius_90[own]
            weights[rows], known[rows] = trajectory.weights[own], True
        # In a gap the last known direction is held, and before the first segment the first one.
        last = np.maximum.accumulate(np.where(known, np.arange(n_windows), -1))
        last = np.where(last < 0, int(known.argmax()), last)
        onsets = np.array([float(part.weights.sum()) + 1e-9 for _, part in self.segments])
        gains = np.array([part.gain for _, part in self.segments])
        gain = float(gains @ onsets / onsets.sum())
        trajectory = EstimatedTrajectory(
            (np.arange(float(n_windows)) + 0.5) * settings.window_seconds,
            vectors[last],
            radius[last],
            weights,
            moves=True,
            gain=gain,
            onset_bins=sum(part.onset_bins for _, part in self.segments),
        )
        is_static = self._is_static(trajectory, settings.static_degrees)
        return self._made_static(trajectory) if is_static else trajectory

    def _is_static(self, trajectory: EstimatedTrajectory, static_degrees: float) -> bool:
        """Return whether no segment moves and all are near the mean direction."""
        if any(part.moves for _, part in self.segments):
            return False
        cosines = trajectory.vectors @ self._mean_vector(trajectory)
        return bool(cosines.min() > np.cos(np.radians(static_degrees)))

    @staticmethod
    def _mean_vector(trajectory: EstimatedTrajectory) -> Array:
        """Return the mean unit vector (3,), weighted by onsets."""
        mean = (trajectory.weights + 1e-9) @ trajectory.vectors
        mean_vector: Array = mean / np.linalg.norm(mean)
        return mean_vector

    def _made_static(self, trajectory: EstimatedTrajectory) -> EstimatedTrajectory:
        """Return the trajectory with the mean direction in all windows."""
        vectors = np.repeat(self._mean_vector(trajectory)[None], len(trajectory.vectors), axis=0)
        radius = np.full_like(trajectory.radius_90, float(np.median(trajectory.radius_90)))
        return replace(trajectory, vectors=vectors, radius_90=radius, moves=False)


def stitch_tracks(
    sound: DirectSoundModel,
    blocks: Sequence[OnsetBins],
    directions: Array,
    options: TrajectoryOptions,
) -> list[EstimatedTrajectory]:
    """Return the trajectories of all sources if one of them moves, and none otherwise.

    `blocks` are the onset bins of consecutive parts of the recording, `directions` (M, C) those of
    the sources if all are static.
    """
    settings = options.settings
    segments = list(_overlapping_segments(sound, blocks, options))
    # A given number is only an upper bound here: some sources are silent in a segment.
    max_sources = options.n_sources or options.max_sources
    segment_options = [
        TrajectoryOptions(segment.seconds, None, max_sources, settings) for segment in segments
    ]
    moving_trajectories = [
        find_moving_trajectories(sound, segment.onsets, directions, own)
        for segment, own in zip(segments, segment_options, strict=True)
    ]
    if not any(moving_trajectories):
        return []
    found = zip(segments, segment_options, moving_trajectories, strict=True)
    tracks = _linked_tracks(
        (
            (segment.first, known or find_trajectories(sound, segment.onsets, directions, own))
            for segment, own, known in found
        ),
        settings,
    )
    kept = _select_tracks(tracks, options)
    if len(kept) < (options.n_sources or 0):  # as in a short recording: exactly the given number
        counted = (replace(own, n_sources=options.n_sources) for own in segment_options)
        tracks = _linked_tracks(
            (
                (segment.first, find_trajectories(sound, segment.onsets, directions, own))
                for segment, own in zip(segments, counted, strict=True)
            ),
            settings,
        )
        kept = _by_onset_count(tracks)[: options.n_sources]
    n_windows = settings.count_windows(options.seconds)
    trajectories = [track.stitched(n_windows, settings) for track in kept]
    return trajectories if any(trajectory.moves for trajectory in trajectories) else []


def _linked_tracks(
    segments: Iterable[tuple[int, list[EstimatedTrajectory]]], settings: TrajectorySettings
) -> list[_StitchedTrack]:
    """Link the trajectories of all segments, each given with its first window, to tracks."""
    tracks: list[_StitchedTrack] = []
    for first, trajectories in segments:
        _assign(tracks, first, trajectories, settings)
    return tracks


def _select_tracks(
    tracks: list[_StitchedTrack], options: TrajectoryOptions
) -> list[_StitchedTrack]:
    """Return the tracks that are sources, sorted by onsets, at most as many as are allowed.

    With a given number, tracks beyond it are appended to the nearest track that they can continue.
    """
    max_sources = options.n_sources or options.max_sources
    min_count = options.settings.min_onset_fraction * sum(track.onset_count for track in tracks)
    ranked = _by_onset_count(tracks)
    if options.n_sources is None:
        return [track for track in ranked if track.onset_count >= min_count][:max_sources]
    kept = ranked[:max_sources]
    for track in ranked[max_sources:]:
        if track.onset_count >= min_count:
            _append_to_nearest(kept, track)
    return kept


def _by_onset_count(tracks: list[_StitchedTrack]) -> list[_StitchedTrack]:
    """Return the tracks sorted by decreasing number of onsets."""
    return sorted(tracks, key=lambda track: -track.onset_count)


def _append_to_nearest(kept: list[_StitchedTrack], track: _StitchedTrack) -> None:
    """Append a surplus track to the nearest one that ends before it or begins after it."""
    pairs = [(one, track, one) for one in kept if one.segments[-1][0] < track.segments[0][0]]
    pairs += [(track, one, one) for one in kept if track.segments[-1][0] < one.segments[0][0]]
    if pairs:
        before, after, one = min(pairs, key=lambda pair: pair[0].distance_to(*pair[1].segments[0]))
        one.segments = before.segments + after.segments


def _overlapping_segments(
    sound: DirectSoundModel, blocks: Sequence[OnsetBins], options: TrajectoryOptions
) -> Iterator[_Segment]:
    """Yield each block together with the end of the one before."""
    settings, onset_settings = options.settings, sound.onset_settings
    frames_per_window = settings.window_seconds * onset_settings.rate / onset_settings.hop
    n_windows = settings.count_windows(options.seconds)
    overlap = round(settings.overlap_seconds / settings.window_seconds)
    before, end = None, 0
    for number, block in enumerate(blocks):
        first = max(end - overlap, 0)
        # The end follows from the number of frames; there may be no onset near it.
        last = number == len(blocks) - 1
        end = n_windows if last else min(int(np.ceil(block.frames / frames_per_window)), n_windows)
        onsets = block
        if before is not None:
            onsets = OnsetBins.concatenate([before, block]).by_frequency()
        onsets = onsets[np.flatnonzero(onsets.t >= first * frames_per_window)]
        t = np.maximum(onsets.t - round(first * frames_per_window), 0)
        yield _Segment(first, replace(onsets, t=t), (end - first) * settings.window_seconds)
        before = block


def _assign(
    tracks: list[_StitchedTrack],
    first: int,
    trajectories: list[EstimatedTrajectory],
    settings: TrajectorySettings,
) -> None:
    """Assign the trajectories of a segment to tracks with minimal total distance.

    Trajectories that are in no gate start new tracks.
    """
    distance = np.array(
        [[track.distance_to(first, trajectory) for trajectory in trajectories] for track in tracks]
    )
    unassigned = set(range(len(trajectories)))
    if distance.size:
        overlapping = np.array([track.end > first for track in tracks])
        gate = np.where(overlapping, settings.gate_degrees, settings.coasting_gate_degrees)[:, None]
        onsets = np.array([track.onset_count for track in tracks])
        deficit = np.log((onsets.max() + 1e-9) / (onsets + 1e-3 * onsets.max() + 1e-9))
        penalty = np.where(overlapping, 0.0, settings.onset_penalty_degrees * deficit)[:, None]
        # Pairs outside of the gate cost much more than any other, and are not assigned below.
        cost = np.where(distance <= gate, distance + penalty - 1000.0, 0.0)
        for m, k in zip(*linear_assignment(cost), strict=True):
            if distance[m, k] <= gate[m, 0]:
                tracks[m].segments.append((first, trajectories[k]))
                unassigned.discard(int(k))
    tracks.extend(_StitchedTrack([(first, trajectories[k])]) for k in sorted(unassigned))
