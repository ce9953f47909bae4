"""Position and velocity of one source, by exhaustive search on a local grid of directions.

The grid is a lattice of cells around the track's last direction, in azimuth (a) and elevation (e).
With S_s (E, A) the log-likelihood of each cell given the bins of step s and the other tracks,

    S_s(x) = Σ_(n in s) w_n log(π g_n(x) + others_n)
    L(x, u) = Σ_s S_s(x - u τ_s)

is the log-likelihood of a source that is at x now and has velocity u: a sum of shifted lattices. A
static source has u = 0. The search needs no linearization and no initial value. Where x - u τ_s is
outside of the lattice, the density along the track's history is used.

    B    onset bins              P    cells, E · A
    s    steps, oldest first     τ_s  age of step s, seconds
    π    mixing weight           u    velocity (left, up), degrees per second
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from earatlas.geometry.angles import to_vectors
from earatlas.tracking.onset_buffer import OnsetBuffer
from earatlas.types import Array, Mask, Single

__all__ = ["INVERSE_TEMPERATURE", "LocalFit", "LocalSearchGrid", "MotionPrior"]

# Evidence: docs/figures/settings/tracking.md, "local_search".
CELL_DEGREES = 2.0  # distance of neighbouring cells
_AZIMUTH_CELLS, _ELEVATION_CELLS = 10, 3  # cells on either side of the centre
_MAX_STRETCH_ELEVATION = 75.0  # degrees; azimuth is not stretched further above it
_HORIZONTAL_DEGREES_PER_SECOND = (-48.0, -32.0, -16.0, 0.0, 16.0, 32.0, 48.0)  # leftward speeds
_REFINEMENT_DEGREES_PER_SECOND = 8.0  # offset of the second search from the best of them
_VERTICAL_DEGREES_PER_SECOND = (-16.0, -8.0, 8.0, 16.0)  # upward speeds
_MAX_MOTION_SECONDS = 1.6  # duration that is modelled as motion at constant velocity
_VERTICAL_MOTION_NATS = 1.0  # penalty of vertical motion: talkers mostly move horizontally
INVERSE_TEMPERATURE = 0.5  # β of the posterior ∝ exp(2 β L): the errors of bins are correlated
_MIN_ERROR_DEGREES = 1.5  # smallest standard error of an estimated position
_NO_COMPETITORS = np.zeros((0, 3))  # unit vectors of no other tracks
_MAX_SNAP_DEGREES = 4.0  # farther from the nearest measured direction, a cell is not used


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
    motion_memory_seconds: float  # time constant (1/e) of the weights of bins

    def position_log_prior(self, vectors: Array) -> Array:
        """Return the log prior (P,) of unit vectors (P, 3), in nats, up to a constant."""
        distance = np.degrees(np.arccos(np.clip(vectors @ self.vector, -1, 1)))
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
        *,
        competitors: Array = _NO_COMPETITORS,
        max_innovation_degrees: float = 180.0,
    ) -> None:
        self._buffer = buffer
        stretch = 1 / np.cos(np.radians(min(abs(float(centre[1])), _MAX_STRETCH_ELEVATION)))
        if buffer.elevation is None:
            steps = np.arange(-_ELEVATION_CELLS, _ELEVATION_CELLS + 1)
            elevations = centre[1] + CELL_DEGREES * steps
        else:
            elevations = np.array([buffer.elevation])
        steps = np.arange(-_AZIMUTH_CELLS, _AZIMUTH_CELLS + 1)
        azimuths = centre[0] + stretch * CELL_DEGREES * steps
        azimuth, elevation = np.meshgrid(azimuths, np.clip(elevations, -90, 90))
        self._shape = azimuth.shape
        directions = np.stack([(azimuth.ravel() + 180) % 360 - 180, elevation.ravel()], axis=-1)
        self.directions, snap_degrees = buffer.snap_to_grid(directions)
        self.vectors = to_vectors(self.directions)
        own = self.vectors @ to_vectors(centre)  # cosines
        rival = (self.vectors @ competitors.T).max(axis=1, initial=-1.0)
        far = own < np.cos(np.radians(max_innovation_degrees))
        self._excluded: Mask = (snap_degrees > _MAX_SNAP_DEGREES) | (rival > own) | far
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
        log_prior = prior.position_log_prior(self.vectors)
        static = self._fit_static(logs, buffer.weights * (buffer.ages <= static_seconds), log_prior)
        weights = buffer.recent_weights(prior.motion_memory_seconds)
        moving, gain = self._fit_moving(
            logs, weights, np.log(weight * history + other_likelihoods), prior
        )
        return static, moving, gain

    def _fit_static(self, logs: Single, weights: Array, log_prior: Array) -> LocalFit:
        """Fit a static source to log-likelihoods (B, P) with weights (B,)."""
        vector, error_degrees, best = self._posterior_mean(weights @ logs + log_prior)
        return LocalFit(vector, error_degrees, np.zeros(2), self.densities[:, best])

    def _fit_moving(
        self, logs: Single, weights: Array, history: Array, prior: MotionPrior
    ) -> tuple[LocalFit, float]:
        """Fit a moving source; return it and its gain over rest. `history` (B,) is in nats."""
        ends = np.cumsum(self._buffer.bins_per_step)
        begins = ends - self._buffer.bins_per_step
        ages = self._buffer.step_ages
        recent = np.flatnonzero((ages < _MAX_MOTION_SECONDS) & (ends > begins))
        weighted_history = weights * history
        sums = []
        for s in recent:
            bins = slice(begins[s], ends[s])
            L_step = (weights[bins] @ logs[bins]).reshape(self._shape)
            sums.append(L_step - weighted_history[bins].sum())
        lattices = np.array(sums).reshape(len(recent), *self._shape)
        position_prior = prior.position_log_prior(self.vectors).reshape(self._shape)

        def log_likelihood(u: float, w: float) -> Array:
            speed_prior = prior.speed_log_prior(u) - (_VERTICAL_MOTION_NATS if w else 0.0)
            return _shift_and_sum(lattices, ages[recent], u, w) + position_prior + speed_prior

        tried = {(u, 0.0): log_likelihood(u, 0.0) for u in _HORIZONTAL_DEGREES_PER_SECOND}
        best_speed = self._best_velocity(tried)[0]
        refined = (
            best_speed - _REFINEMENT_DEGREES_PER_SECOND,
            best_speed + _REFINEMENT_DEGREES_PER_SECOND,
        )
        tried |= {(u, 0.0): log_likelihood(u, 0.0) for u in refined}
        best_speed = self._best_velocity(tried)[0]
        if best_speed and self._shape[0] > 1:  # vertical motion only together with horizontal
            tried |= {
                (best_speed, w): log_likelihood(best_speed, w) for w in _VERTICAL_DEGREES_PER_SECOND
            }
        u, w = self._best_velocity(tried)
        vector, error_degrees, best = self._posterior_mean(tried[u, w].ravel())
        gain = self._maximum(tried[u, w]) - self._maximum(tried[0.0, 0.0])
        densities = self.densities[:, best].copy()
        e, a = divmod(best, self._shape[1])
        for s in recent:
            cell = self._cell_index(
                e - round(w * ages[s] / CELL_DEGREES), a - round(u * ages[s] / CELL_DEGREES)
            )
            bins = slice(begins[s], ends[s])
            densities[bins] = self.densities[bins, cell]
        return LocalFit(vector, error_degrees, np.array([u, w]), densities), gain

    def _cell_index(self, e: int, a: int) -> int:
        """Return the index of cell (e, a), clipped to the lattice."""
        E, A = self._shape
        index: int = min(max(e, 0), E - 1) * A + min(max(a, 0), A - 1)
        return index

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
            return self.vectors[best], _MIN_ERROR_DEGREES, best
        p = np.exp(2 * INVERSE_TEMPERATURE * (L - L[best]))
        p /= p.sum()
        mean = p @ self.vectors
        mean /= np.linalg.norm(mean)
        distance = np.degrees(np.arccos(np.clip(self.vectors @ mean, -1, 1)))
        return mean, float(np.hypot(np.sqrt(p @ distance**2 / 2), _MIN_ERROR_DEGREES)), best


def _shift_and_sum(lattices: Array, ages: Array, u: float, w: float) -> Array:
    """Return L (E, A) of a source with velocity (u, w): lattices (s, E, A), shifted and summed.

    Lattices are relative to the track's history, so that shifts from outside of them add 0.
    """
    E, A = lattices.shape[1:]
    out = np.zeros((E, A))
    for lattice, tau in zip(lattices, ages, strict=True):
        a, e = round(u * tau / CELL_DEGREES), round(w * tau / CELL_DEGREES)
        if abs(a) < A and abs(e) < E:
            out[max(e, 0) : E + min(e, 0), max(a, 0) : A + min(a, 0)] += lattice[
                max(-e, 0) : E + min(-e, 0), max(-a, 0) : A + min(-a, 0)
            ]
    return out
