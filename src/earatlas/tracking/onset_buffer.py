"""Buffer of the onset bins of the last seconds: the observations of the online tracker.

Inputs: onset bins (`earatlas.features.onset_detector`), one step at a time, and the head's yaw at
each bin. Output: densities around room directions, relative to diffuse sound
(`earatlas.localization.onset_likelihood`), log-likelihoods of directions, and which directions
belong to a track: its gate, and its cone of confusion.

Only the bins with the largest rise of each step are kept, equally many in loud and in quiet steps:
the first word after a silence rises above all others and would dominate the buffer for seconds.

Directions are relative to the room. A bin that was recorded at yaw ψ has the density around
direction x that a head at yaw 0 has around x - ψ. Two directions from which sound arrives with
about the same interaural level and time difference are on one cone of confusion around the
interaural axis, which follows the head's yaw.

    B, b  bins in the buffer, bins of one step     G  coarse directions, over the whole space
    F, C  frequencies, direction coordinates       P  fine directions, around a track
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np

from earatlas.features.onset_detector import OnsetBins
from earatlas.geometry.angles import FRONT_PRIOR, to_directions, to_vectors
from earatlas.localization.onset_likelihood import (
    DirectionLogLikelihood,
    DirectSoundModel,
    OnsetPoints,
    best_cells,
    bin_weights,
)
from earatlas.localization.onset_mixture import (
    OnsetMixture,
    SourceMixture,
    source_log_likelihoods,
)
from earatlas.tracking.online_track import OnlineTrack
from earatlas.tracking.settings import OnsetBufferSettings
from earatlas.types import Array, Indices, Mask, Single

__all__ = ["OnsetBuffer"]


@dataclass(frozen=True, eq=False)
class _Step:
    """The onset bins of one step."""

    points: OnsetPoints  # (b,)
    yaws: Array  # (b,) degrees
    ages: Array  # (b,) seconds before the end of the step
    snr_db: Array  # (b,) above the noise floor
    densities: Single  # (b, G)


class OnsetBuffer:
    """The onset bins of the last steps."""

    def __init__(self, sound: DirectSoundModel, settings: OnsetBufferSettings) -> None:
        from scipy.spatial import cKDTree

        self._sound, self._settings = sound, settings
        self._frame_seconds = sound.onset_settings.hop / sound.onset_settings.rate
        self.directions = sound.grid[sound.cells[0]]  # (G, C)
        self.vectors = to_vectors(self.directions)
        elevations = np.unique(self.directions[:, 1])
        # The elevation of all directions if they have the same one, else None
        self.elevation = float(elevations[0]) if len(elevations) == 1 else None
        self._tree = cKDTree(to_vectors(sound.grid))
        self._gate_cosine = float(np.cos(np.radians(settings.gate_degrees)))
        self.set_yaw(0.0)
        self.max_steps = settings.max_steps
        self._steps: deque[_Step] = deque(maxlen=settings.max_steps)
        self._concatenate(0.0)

    def add(self, new: OnsetBins, yaws: Array, n_frames: int, seconds: float) -> None:
        """Append the bins of a step that lasts `seconds`, with the head's yaw (b,) at each bin.

        The bins are sorted by frequency; `n_frames` is the number of frames up to the end of the
        step.
        """
        order = np.sort(np.argsort(-new.rise_db, kind="stable")[: self._settings.max_bins_per_step])
        new, yaws = new[order], yaws[order]
        points = self._sound.observed(new)
        ages = self._frame_seconds * (n_frames - new.t).astype(np.float64)
        densities = self._densities(points, yaws, self.directions)
        self._steps.append(_Step(points, yaws, ages, new.snr_db, densities))
        self._concatenate(seconds)

    def _concatenate(self, seconds: float) -> None:
        """Concatenate all steps, the oldest first."""
        steps = list(self._steps)
        self.bins_per_step = np.array([len(step.points) for step in steps], dtype=np.intp)
        self._points = OnsetPoints.concatenate(step.points for step in steps)
        self._yaws = np.concatenate([np.zeros(0), *(s.yaws for s in steps)])
        self._snr_db = np.concatenate([np.zeros(0), *(s.snr_db for s in steps)])
        blank = np.zeros((0, len(self.directions)), dtype=np.float32)
        self.densities: Single = np.concatenate([blank, *(s.densities for s in steps)])  # (B, G)
        offsets = seconds * np.arange(len(steps) - 1, -1, -1.0)
        self.step_ages = offsets + seconds / 2  # centre of each step, seconds before now
        self.ages = np.concatenate(
            [np.zeros(0), *(s.ages + b for s, b in zip(steps, offsets, strict=True))]
        )
        # v (B,): the bins of one frequency share about one vote
        self.weights = bin_weights(self.frequencies)

    def __len__(self) -> int:
        return len(self._points)

    @property
    def frequencies(self) -> Indices:
        """Index (B,) of the frequency of each bin."""
        return self._points.f

    @property
    def newest(self) -> slice:
        """The bins of the last step."""
        begin = len(self) - int(self.bins_per_step[-1]) if len(self.bins_per_step) else 0
        return slice(begin, len(self))

    def bins_since(self, seconds: float) -> slice:
        """Return the bins of the steps of the last `seconds`."""
        old = self.bins_per_step[: int((self.step_ages > seconds).sum())]
        return slice(int(old.sum()), len(self))

    def recent_weights(self, seconds: float) -> Array:
        """Return weights v (B,) that decay with time constant `seconds` (1/e)."""
        recent = np.exp(-self.ages / seconds)
        f = self.frequencies
        weights: Array = recent / (1.0 + np.bincount(f, recent)[f])
        return weights

    def snap_to_grid(self, directions: Array) -> tuple[Array, Array]:
        """Return the nearest grid directions (P, C) and their distances (P,) in degrees."""
        chord, rows = self._tree.query(to_vectors(directions))
        snapped: Array = self._sound.grid[rows]
        return snapped, np.degrees(2 * np.arcsin(np.clip(chord / 2, 0, 1)))

    def densities_at(self, directions: Array, rows: slice = slice(None)) -> Single:
        """Return densities (B, P) around fine directions (P, C); `rows` selects bins."""
        return self._densities(self._points[rows], self._yaws[rows], directions)

    def _densities(self, bins: OnsetPoints, yaws: Array, directions: Array) -> Single:
        """Return densities (b, P) of bins around room directions (P, C), given the head's yaws."""
        out = np.empty((len(bins), len(directions)), dtype=np.float32)
        for own, yaw in self._group_by_yaw(yaws):
            out[own] = self._sound.densities_at(bins[own], self._template_points(directions, yaw))
        return out

    def _template_points(self, directions: Array, yaw: float) -> Single:
        """Return the template points (F, 3, P) of room directions for a head at a yaw."""
        if directions is self.directions and not yaw:
            return self._sound.coarse_points
        relative = self._sound.space.rotated(directions, -yaw) if yaw else directions
        rows = np.asarray(self._tree.query(to_vectors(relative))[1], dtype=np.intp)
        return self._sound.points(rows)

    def _group_by_yaw(self, yaws: Array) -> list[tuple[Indices, float]]:
        """Group rows with about the same yaw; return the rows and the mean yaw of each group."""
        group = np.round(yaws / self._settings.yaw_group_degrees)
        groups = (np.flatnonzero(group == n) for n in np.unique(group))
        return [(own, float(np.mean(yaws[own]))) for own in groups]

    # --- likelihoods ------------------------------

    def log_likelihoods(
        self, v: Array, other_likelihoods: Array, weight: float, rows: slice = slice(None)
    ) -> Single:
        """Return L (G,) = Σ_n v_n log(weight g_n(x) + other_likelihoods_n) for each direction x.

        `weight` is the mixing weight of the source, `rows` selects bins; `v` and
        `other_likelihoods` (B,) are those of the selected bins.
        """
        return source_log_likelihoods(self.densities[rows], v, other_likelihoods, weight)

    def direction_log_likelihood(
        self, components: SourceMixture, m: int, seconds: float = np.inf
    ) -> DirectionLogLikelihood | None:
        """Return the log-likelihood of the direction of static source m, given the others.

        Bins older than `seconds` are not used. None if there are no bins within `seconds`.
        """
        used = np.flatnonzero(self.ages <= seconds)
        if not len(used):
            return None
        components = components.subset(used, bin_weights(self.frequencies[used]))
        L = components.log_likelihoods(m, self.densities[used])
        fine = np.flatnonzero(best_cells(L, self._settings.fine_cells)[self._sound.cells[1]])
        g = self.densities_at(self._sound.grid[fine])[used]
        best = int(components.log_likelihoods(m, g).argmax())
        return components.relocated(m, g[:, best]).direction_log_likelihood(
            m, self._sound, (fine, g), self.densities[used], self._snr_db[used]
        )

    def best_pair(self) -> Array | None:
        """Return the two directions (2, C) that explain the bins best, on any cone.

        Without bins, return None.
        """
        if not len(self):
            return None
        mixture = OnsetMixture(self.densities, self.weights, self.vectors, self._settings.mixture)
        best: Array = self.directions[mixture.search(2)[-1].cells[:, 0]]
        return best

    # --- histories of tracks ------------------------------

    def history_at(self, vector: Array) -> deque[Single]:
        """Return the density history of a track that has always been at a unit vector (3,)."""
        return self.split_by_step(self.densities_at(to_directions(vector)[None])[:, 0])

    def split_by_step(self, densities: Single) -> deque[Single]:
        """Split densities (B,) of all bins into one array per step."""
        parts = np.split(densities, np.cumsum(self.bins_per_step)[:-1])
        return deque(parts, maxlen=self.max_steps)

    def rewrite_history(self, track: OnlineTrack, densities: Single, seconds: float) -> None:
        """Replace the last `seconds` of a track's density history by densities (B,) of all bins."""
        for s, part in enumerate(self.split_by_step(densities)):
            if self.step_ages[s] <= seconds:
                track.density_history[s] = part

    # --- gates and cones of confusion ------------------------------

    def is_in_gate(self, track: OnlineTrack, vector: Array) -> bool:
        """Return whether a unit vector (3,) is in the gate of a track."""
        return bool(track.vector @ vector > self._gate_cosine)

    def gate_mask(self, track: OnlineTrack) -> Mask:
        """Return the mask (G,) of directions in the gate of a track."""
        in_gate: Mask = self.vectors @ track.vector > self._gate_cosine
        return in_gate

    def path_mask(self, track: OnlineTrack) -> Mask:
        """Return the mask (G,) of directions in the gates along the recent path of a track."""
        cosines: Array = self.vectors @ np.stack(track.vector_history).T
        return np.asarray((cosines > self._gate_cosine).any(axis=1))

    def set_yaw(self, yaw: float) -> None:
        """Set the head's yaw in degrees, which turns the cones of confusion."""
        self.yaw = yaw
        self._axis = to_vectors(np.array([yaw + 90.0, 0.0]))  # towards the left ear
        front = self.vectors @ to_vectors(np.array([yaw, 0.0]))
        self.log_prior = FRONT_PRIOR.log_density(front)  # (G,) of front before rear

    def lateral_angle(self, vectors: Array) -> Array:
        """Return the lateral angles (...) of unit vectors (..., 3), degrees, for this yaw."""
        angles: Array = np.degrees(np.arcsin(np.clip(vectors @ self._axis, -1, 1)))
        return angles

    def is_on_cone(self, track: OnlineTrack, vector: Array) -> bool:
        """Return whether a unit vector (3,) is on the cone of confusion of a track."""
        gap = abs(self.lateral_angle(vector) - self.lateral_angle(track.vector))
        return bool(gap < self._settings.mixture.cone_degrees)

    def cone_mask(self, track: OnlineTrack) -> Mask:
        """Return the mask (G,) of directions on the cone of confusion of a track."""
        gaps = np.abs(self.lateral_angle(self.vectors) - self.lateral_angle(track.vector))
        on_cone: Mask = gaps < self._settings.mixture.cone_degrees
        return on_cone
