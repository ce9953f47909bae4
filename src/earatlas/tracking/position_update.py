"""Position of a track: search on a local grid of directions, and on its cone of confusion.

**Local search** (`PositionUpdate`). Inputs: the likelihood of each bin under the other tracks and
the diffuse component, and under the track itself. Output: the track's direction, velocity, error
and density history, changed in place.
A motion is accepted if it explains the recent bins better than rest by a threshold, and, for a
track that was static until now, better than a second source would.

The grid is a lattice of cells around the track's last direction, in azimuth (a) and elevation (e).
With S_s (E, A) the log-likelihood of each cell given the bins of step s and the other tracks,

    S_s(x) = Σ_(n in s) w_n log(π g_n(x) + others_n)
    L(x, u) = Σ_s S_s(x - u τ_s)

is the log-likelihood of a source that is at x now and has velocity u: a sum of shifted lattices. A
static source has u = 0. The search needs no linearization and no initial value. Where x - u τ_s is
outside of the lattice, the density along the track's history is used.

**Cone of confusion** (`ConeDisambiguation`). Onsets determine the lateral angle of a source well,
and its position on the cone of confusion much worse. Therefore the whole cone is searched
repeatedly: for a settled track with all that was observed of it, for a moving one with the most
recent bins and only while it is new. In anechoic sound the cues of long windows determine the
position better than onsets; they are applied unless the onsets contradict them.

    B    onset bins              P    cells, E · A
    s    steps, oldest first     τ_s  age of step s, seconds
    π    mixing weight           u    velocity (left, up), degrees per second
    G    coarse directions       M    tracks
    L    (G,) log-likelihood of each direction, nats; for decisions on a cone with the prior of
         front before rear (`earatlas.geometry.angles`)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from earatlas.geometry.angles import cosines_to_degrees, to_vectors
from earatlas.localization.onset_mixture import SourceMixture
from earatlas.tracking.online_track import OnlineTrack, parallel_scale
from earatlas.tracking.onset_buffer import OnsetBuffer
from earatlas.tracking.settings import LocalSearchSettings, TrackerSettings
from earatlas.types import Array, Mask, Single

__all__ = [
    "ConeDisambiguation",
    "LocalFit",
    "LocalSearchGrid",
    "MotionPrior",
    "PositionUpdate",
]


class PositionUpdate:
    """Updates the position and the velocity of tracks."""

    def __init__(self, buffer: OnsetBuffer, settings: TrackerSettings) -> None:
        self._buffer, self._settings, self._search = buffer, settings.motion, settings.search
        self._signal_seconds = settings.confirmation.signal_seconds

    def update(
        self, tracks: Sequence[OnlineTrack], mixture: SourceMixture, m: int, now: float
    ) -> None:
        """Update track m, given the mixture of all tracks along their histories."""
        track, settings = tracks[m], self._settings
        others, weight = mixture.without(m), mixture.weight(m)
        densities = mixture.densities[:, m]
        max_innovation = 180.0
        if track.moving:
            grown = settings.innovation_degrees_per_second * track.coasting_seconds
            max_innovation = settings.max_innovation_degrees + grown
        grid = LocalSearchGrid(
            self._buffer,
            track.direction,
            self._search,
            competitors=_competitors(tracks, track, now),
            max_innovation_degrees=max_innovation,
        )
        static_seconds = now - track.static_since
        prior = self._motion_prior(track)
        # The history of a static track is not used: a motion must explain all recent bins.
        # Otherwise a short fluctuation of the newest bins would already count as motion.
        history = densities if track.moving else np.zeros(len(densities))
        static, motion, gain = grid.fit(others, history, weight, static_seconds, prior)
        is_motion = gain > self._motion_threshold(track, now) and not track.crossing
        if is_motion and (
            track.moving or gain > self._second_source_gain(others, densities, weight)
        ):
            self._apply_fit(track, motion, settings.rewrite_seconds)
            track.static_since = now
        else:
            if track.moving:
                track.static_since = now - settings.memory_seconds
                static, _, _ = grid.fit(others, history, weight, settings.memory_seconds, prior)
            self._apply_fit(track, static, now - track.static_since)

    def _motion_threshold(self, track: OnlineTrack, now: float) -> float:
        """Return the gain of motion over rest, in nats, from which on a track is moving."""
        settings = self._settings
        if track.moving:
            return settings.keep_moving_nats
        confirmed = track.is_confirmed_by_signal(now, self._signal_seconds)
        return settings.start_moving_nats * (settings.signal_confirmed_factor if confirmed else 1.0)

    def _second_source_gain(self, others: Array, densities: Array, weight: float) -> float:
        """Return the gain, in nats, of a second source beside a static track over one source.

        A talker that begins elsewhere while this one pauses looks like a motion towards it.
        """
        memory = self._settings.memory_seconds
        buffer = self._buffer
        recent = buffer.bins_since(3 * memory)
        v = buffer.recent_weights(memory)[recent]
        with_track = others[recent] + 0.5 * weight * densities[recent]
        one = buffer.log_likelihoods(v, others[recent], weight, recent).max()
        two = buffer.log_likelihoods(v, with_track, 0.5 * weight, recent).max()
        return float(two - one)

    def _motion_prior(self, track: OnlineTrack) -> MotionPrior:
        """Return the prior of the motion: constant velocity for a moving track, flat otherwise."""
        settings = self._settings
        memory = settings.memory_seconds
        if not track.moving:
            return MotionPrior(track.vector, np.inf, 0.0, np.inf, memory)
        error = float(np.hypot(track.error_degrees, settings.position_noise_degrees))
        speed = float(track.velocity[0])
        speed_error = settings.speed_noise_degrees_per_second
        return MotionPrior(track.vector, error, speed, speed_error, memory)

    def _apply_fit(self, track: OnlineTrack, fit: LocalFit, seconds: float) -> None:
        """Set position and velocity, and rewrite the last `seconds` of the density history."""
        velocity_gain = self._settings.velocity_gain if track.moving and fit.velocity.any() else 1.0
        track.velocity = track.velocity + velocity_gain * (fit.velocity - track.velocity)
        track.vector, track.error_degrees = fit.vector, fit.error_degrees
        self._buffer.rewrite_history(track, fit.densities, seconds)


def _competitors(tracks: Sequence[OnlineTrack], track: OnlineTrack, now: float) -> Array:
    """Return the unit vectors (K, 3) of the other confirmed, active tracks.

    A direction that is nearer to one of them does not belong to the track.
    """
    vectors = [
        other.vector
        for other in tracks
        if other is not track and other.confirmed and other.is_active(now)
    ]
    return np.array(vectors).reshape(-1, 3)


@dataclass(frozen=True, eq=False)
class LocalFit:
    """Position and velocity of a source with the largest posterior, static or moving."""

    vector: Array  # (3,) unit vector of the current direction
    error_degrees: float  # standard error of the direction
    velocity: Array  # (2,) left, up; degrees per second
    densities: Single  # (B,) density of each bin around the direction at its time


@dataclass(frozen=True, eq=False)
class MotionPrior:
    """Gaussian prior of the position and the speed of a track, from its prediction."""

    vector: Array  # (3,) predicted unit vector
    error_degrees: float  # standard deviation of the position
    speed: float  # predicted speed towards the left, degrees per second
    speed_error: float  # standard deviation of the speed, degrees per second
    memory_seconds: float  # time constant (1/e) of the weights of bins

    def position_log_prior(self, vectors: Array) -> Array:
        """Return the log prior (P,) of unit vectors (P, 3), in nats, up to a constant."""
        distance = cosines_to_degrees(vectors @ self.vector)
        log_prior: Array = -0.5 * (distance / self.error_degrees) ** 2
        return log_prior

    def speed_log_prior(self, speed: float) -> float:
        """Return the log prior of a speed, in nats, up to a constant."""
        return float(-0.5 * ((speed - self.speed) / self.speed_error) ** 2)


class LocalSearchGrid:
    """Densities of the buffered bins on a lattice of directions around a centre.

    Cells are excluded if they are nearer to one of the `competitors` (K, 3) than to the centre, if
    they are farther than `max_innovation_degrees` from it, or if the head was not measured there.
    """

    def __init__(
        self,
        buffer: OnsetBuffer,
        centre: Array,
        settings: LocalSearchSettings,
        *,
        competitors: Array | None = None,
        max_innovation_degrees: float = 180.0,
    ) -> None:
        self._buffer, self._settings = buffer, settings
        stretch = 1 / parallel_scale(float(centre[1]))
        if buffer.elevation is None:
            steps = np.arange(-settings.elevation_cells, settings.elevation_cells + 1)
            elevations = centre[1] + settings.cell_degrees * steps
        else:
            elevations = np.array([buffer.elevation])
        steps = np.arange(-settings.azimuth_cells, settings.azimuth_cells + 1)
        azimuths = centre[0] + stretch * settings.cell_degrees * steps
        azimuth, elevation = np.meshgrid(azimuths, np.clip(elevations, -90, 90))
        self._shape = azimuth.shape
        directions = np.stack([(azimuth.ravel() + 180) % 360 - 180, elevation.ravel()], axis=-1)
        self.directions, snap_degrees = buffer.snap_to_grid(directions)
        self.vectors = to_vectors(self.directions)
        own = self.vectors @ to_vectors(centre)  # cosines
        others = np.zeros((0, 3)) if competitors is None else competitors
        rival = (self.vectors @ others.T).max(axis=1, initial=-1.0)
        far = own < np.cos(np.radians(max_innovation_degrees))
        self._excluded: Mask = (snap_degrees > settings.max_snap_degrees) | (rival > own) | far
        self.densities = buffer.densities_at(self.directions)  # (B, P)

    def fit(
        self,
        other_likelihoods: Array,
        history: Array,
        weight: float,
        static_seconds: float,
        prior: MotionPrior,
    ) -> tuple[LocalFit, LocalFit, float]:
        """Fit a static and a moving source; return both and the gain of motion over rest in nats.

        `other_likelihoods` (B,) are the likelihoods of the bins without the source, `history` (B,)
        the densities along the track's history, `weight` the mixing weight. The static source uses
        the bins of the last `static_seconds`.
        """
        buffer = self._buffer
        mixed = self.densities * np.float32(weight)
        mixed += other_likelihoods.astype(np.float32)[:, None]
        logs: Single = np.log(mixed, out=mixed)
        weights = buffer.weights * (buffer.ages <= static_seconds)
        log_posterior = weights @ logs + prior.position_log_prior(self.vectors)
        vector, error_degrees, best = self._posterior_mean(log_posterior)
        static = LocalFit(vector, error_degrees, np.zeros(2), self.densities[:, best])
        weights = buffer.recent_weights(prior.memory_seconds)
        moving, gain = self._fit_moving(
            logs, weights, np.log(weight * history + other_likelihoods), prior
        )
        return static, moving, gain

    def _fit_moving(
        self, logs: Single, weights: Array, history: Array, prior: MotionPrior
    ) -> tuple[LocalFit, float]:
        """Fit a moving source; return it and its gain over rest. `history` (B,) is in nats."""
        settings = self._settings
        ends = np.cumsum(self._buffer.bins_per_step)
        begins = ends - self._buffer.bins_per_step
        ages = self._buffer.step_ages
        recent = np.flatnonzero((ages < settings.max_motion_seconds) & (ends > begins))
        weighted_history = weights * history
        sums = []
        for s in recent:
            bins = slice(begins[s], ends[s])
            L_step = (weights[bins] @ logs[bins]).reshape(self._shape)
            sums.append(L_step - weighted_history[bins].sum())
        lattices = np.array(sums).reshape(len(recent), *self._shape)
        position_prior = prior.position_log_prior(self.vectors).reshape(self._shape)

        def shifts(u: float, w: float) -> list[tuple[int, int]]:
            cells = ages[recent] / settings.cell_degrees
            return [(round(w * tau), round(u * tau)) for tau in cells]

        def log_likelihood(u: float, w: float) -> Array:
            speed_prior = prior.speed_log_prior(u) - (settings.vertical_motion_nats if w else 0.0)
            return _shift_and_sum(lattices, shifts(u, w)) + position_prior + speed_prior

        tried = {(u, 0.0): log_likelihood(u, 0.0) for u in settings.horizontal_degrees_per_second}
        best_speed = self._best_velocity(tried)[0]
        offset = settings.refinement_degrees_per_second
        for u in (best_speed - offset, best_speed + offset):
            tried[u, 0.0] = log_likelihood(u, 0.0)
        best_speed = self._best_velocity(tried)[0]
        if best_speed and self._shape[0] > 1:  # vertical motion only together with horizontal
            for w in settings.vertical_degrees_per_second:
                tried[best_speed, w] = log_likelihood(best_speed, w)
        u, w = self._best_velocity(tried)
        vector, error_degrees, best = self._posterior_mean(tried[u, w].ravel())
        gain = self._maximum(tried[u, w]) - self._maximum(tried[0.0, 0.0])
        densities = self.densities[:, best].copy()
        e, a = divmod(best, self._shape[1])
        E, A = self._shape
        for s, (up, left) in zip(recent, shifts(u, w), strict=True):
            cell = int(np.clip(e - up, 0, E - 1)) * A + int(np.clip(a - left, 0, A - 1))
            bins = slice(begins[s], ends[s])
            densities[bins] = self.densities[bins, cell]
        return LocalFit(vector, error_degrees, np.array([u, w]), densities), gain

    def _best_velocity(self, tried: dict[tuple[float, float], Array]) -> tuple[float, float]:
        """Return the velocity with the largest log-likelihood over all cells."""
        return max(tried, key=lambda velocity: self._maximum(tried[velocity]))

    def _maximum(self, L: Array) -> float:
        """Return the largest log-likelihood over the cells that are not excluded."""
        return float(np.where(self._excluded, -np.inf, L.ravel()).max())

    def _posterior_mean(self, L: Array) -> tuple[Array, float, int]:
        """Return the mean vector (3,) for L (P,), its standard error, and the best cell."""
        L = np.where(self._excluded, -np.inf, L)
        best = int(L.argmax())
        if not np.isfinite(L[best]):
            allowed = np.flatnonzero(~self._excluded)
            best = int(allowed[0]) if len(allowed) else len(L) // 2
            return self.vectors[best], self._settings.min_error_degrees, best
        p = np.exp(L - L[best])
        p /= p.sum()
        mean = p @ self.vectors
        mean /= np.linalg.norm(mean)
        distance = cosines_to_degrees(self.vectors @ mean)
        error = np.hypot(np.sqrt(p @ distance**2 / 2), self._settings.min_error_degrees)
        return mean, float(error), best


def _shift_and_sum(lattices: Array, shifts: Sequence[tuple[int, int]]) -> Array:
    """Return L (E, A): lattices (s, E, A), each shifted by cells (up, left), and summed.

    Lattices are relative to the track's history, so that shifts from outside of them add 0.
    """
    E, A = lattices.shape[1:]
    out = np.zeros((E, A))
    for lattice, (e, a) in zip(lattices, shifts, strict=True):
        if abs(a) < A and abs(e) < E:
            out[max(e, 0) : E + min(e, 0), max(a, 0) : A + min(a, 0)] += lattice[
                max(-e, 0) : E + min(-e, 0), max(-a, 0) : A + min(-a, 0)
            ]
    return out


class ConeDisambiguation:
    """Moves tracks to better positions on their cones of confusion."""

    def __init__(self, buffer: OnsetBuffer, settings: TrackerSettings) -> None:
        self._buffer, self._settings = buffer, settings

    def search_cone(
        self, tracks: Sequence[OnlineTrack], m: int, mixture: SourceMixture, *, settled: bool
    ) -> None:
        """Move track m if another direction on its cone has a higher likelihood.

        `mixture` is that of all tracks; `settled` says whether the track has been static for long.
        """
        track, buffer, settings = tracks[m], self._buffer, self._settings
        if not settled:
            track.cone_memory *= 0
        established = not settled and track.hits > settings.motion.established_hits
        unobserved = track.misses > settings.motion.max_update_misses
        if track.located_by_cues or track.crossing or established or unobserved:
            return
        v, other_likelihoods = mixture.weights, mixture.without(m)
        share = v @ mixture.responsibilities(m) / v.sum()
        weight = float(np.clip(share, settings.buffer.mixture.min_weight, 1.0))
        if settled:
            likelihood = self._static_log_likelihoods(
                track, len(tracks), v, other_likelihoods, weight
            )
        else:
            likelihood = self._moving_log_likelihoods(other_likelihoods, weight)
        L = likelihood + buffer.log_prior
        own_gate = L[buffer.gate_mask(track)]
        allowed = buffer.cone_mask(track) if track.confirmed else np.ones(len(L), dtype=bool)
        for other in tracks:
            allowed &= ~buffer.gate_mask(other)
        L = np.where(allowed, L, -np.inf)
        best = int(L.argmax())
        min_gain = settings.cone.jump_nats if settled else settings.cone.moving_jump_nats
        if len(own_gate) and L[best] < own_gate.max() + min_gain:
            return
        vector, densities = buffer.vectors[best], buffer.densities[:, best]
        if settled:
            track.reset(vector)
            track.density_history = buffer.split_by_step(densities)
        else:
            track.move_on_cone(vector)
            buffer.rewrite_history(track, densities, settings.motion.memory_seconds)

    def _static_log_likelihoods(
        self, track: OnlineTrack, M: int, v: Array, other_likelihoods: Array, weight: float
    ) -> Single:
        """Return L (G,) for a settled track, one of M, from the buffered bins and its memory."""
        L = self._buffer.log_likelihoods(v, other_likelihoods, weight)
        L -= L.max()
        steps = M * self._settings.initiation.interval_steps  # between two searches of a track
        rate = steps / self._buffer.max_steps
        decay = np.exp(-steps / self._settings.cone.memory_steps)
        with_memory: Single = L + decay * track.cone_memory
        track.cone_memory = rate * L + decay * track.cone_memory
        return with_memory

    def _moving_log_likelihoods(self, other_likelihoods: Array, weight: float) -> Single:
        """Return L (G,) for a moving track, from the most recent bins."""
        buffer, memory = self._buffer, self._settings.motion.memory_seconds
        v, recent = buffer.recent_weights(memory), buffer.bins_since(2 * memory)
        return buffer.log_likelihoods(v[recent], other_likelihoods[recent], weight, recent)

    def apply_cue_directions(
        self, tracks: Sequence[OnlineTrack], directions: Mapping[int, Array]
    ) -> None:
        """Move tracks to directions (C,), by track id, that were estimated from long-window cues.

        A direction is applied if it is on the cone of the track, in no other track's gate, and if
        the onsets support it at least half as much as the current direction.
        """
        for track in tracks:
            vector = to_vectors(directions[track.id]) if track.id in directions else None
            track.located_by_cues = vector is not None and self._is_unoccupied(
                tracks, track, vector
            )
            if vector is None or not track.located_by_cues or track.moving:
                continue
            if self._buffer.is_in_gate(track, vector):
                continue
            history = self._buffer.history_at(vector)
            here, there = self._onset_gain(track.density_history), self._onset_gain(history)
            # Without onsets there is evidence neither for nor against the direction.
            ratio = self._settings.cone.cue_support_ratio
            track.located_by_cues = len(self._buffer) > 0 and there >= min(here, ratio * here)
            if track.located_by_cues:
                track.reset(vector)
                track.density_history = history

    def _onset_gain(self, history: Sequence[Single]) -> float:
        """Return the gain, in nats, of one source with a density history over diffuse sound."""
        g, weight = np.concatenate(list(history)), self._settings.initiation.first_weight
        mixing_weights = np.array([[weight], [1 - weight]])
        return SourceMixture(g[:, None], mixing_weights, self._buffer.weights).log_likelihood

    def _is_unoccupied(
        self, tracks: Sequence[OnlineTrack], track: OnlineTrack, vector: Array
    ) -> bool:
        """Return whether a unit vector (3,) is on a track's cone and in no other track's gate."""
        return self._buffer.is_on_cone(track, vector) and not any(
            self._buffer.is_in_gate(other, vector) for other in tracks if other is not track
        )
