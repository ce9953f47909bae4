"""Where one source is and how it moves, from the onsets that fit places around it.

A patch is a small lattice of places around where a track was, in azimuth (a) and elevation (e).
With S_s (E, A) what the bins of step s say of each place beside the other tracks,

    S_s(x) = Σ_(n in s) w_n log(π g_n(x) + others_n)
    L(x, u) = Σ_s S_s(x - u τ_s)            τ_s seconds before now, u velocity

is how likely the source is at x now and moves by u: a sum of shifted lattices. u = 0 is a source
that stands. Nothing is linear or Gaussian in it, and no start has to be near. Where x - u τ is not
on the lattice, the track is taken to have been where its trail says.

    B bins    P = E A places    s steps, the oldest first    u (azimuth, elevation) degrees a second
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from earatlas.geometry.angles import to_vectors
from earatlas.tracking.onset_buffer import Arrivals
from earatlas.types import Array, Mask, Single

__all__ = ["BETA", "Before", "Fit", "Patch"]

CELL = 2.0  # degrees between places
_WIDE, _HIGH = 10, 3  # places on either side of the middle
_STEEPEST = 75.0  # degrees of elevation; beyond, azimuth is stretched no more
_SPEEDS, _FINER = (-48.0, -32.0, -16.0, 0.0, 16.0, 32.0, 48.0), 8.0  # degrees a second, leftwards
_RISES = (-16.0, -8.0, 8.0, 16.0)  # and upwards
_LONGEST = 1.6  # seconds that are taken for a straight walk
_RISE_NATS = 1.0  # that going up or down must explain more: people walk
BETA = 0.5  # sharpness of what bins tell: they err together
_LEAST_ERROR = 1.5  # degrees, of a measured place
_NOBODY = np.zeros((0, 3))
_OUTSIDE_DEGREES = 4.0  # from the nearest place that was measured


@dataclass(frozen=True, eq=False)
class Fit:
    """A source that stands or walks."""

    place: Array  # (3,) now
    error: float  # degrees
    velocity: Array  # (2,) degrees a second, to the left and upwards
    nats: float  # L
    densities: Single  # (B,) of each bin around where the source was then


@dataclass(frozen=True, eq=False)
class Before:
    """What is known of a walk beforehand."""

    place: Array  # (3,) that is expected
    error: float  # degrees
    speed: float  # degrees a second to the left
    speed_error: float
    lag_seconds: float  # after which a bin counts 1/e

    def of_place(self, vectors: Array) -> Array:
        """Nats (P,) of places."""
        gap = np.degrees(np.arccos(np.clip(vectors @ self.place, -1, 1)))
        nats: Array = -0.5 * (gap / self.error) ** 2
        return nats

    def of_speed(self, speed: float) -> float:
        """Nats of a speed."""
        return float(-0.5 * ((speed - self.speed) / self.speed_error) ** 2)


class Patch:
    """The bins of a stream under places around one."""

    def __init__(
        self,
        arrivals: Arrivals,
        middle: Array,
        *,
        beside: Array = _NOBODY,
        reach_degrees: float = 180.0,
    ) -> None:
        self._arrivals = arrivals
        stretch = 1 / np.cos(np.radians(min(abs(float(middle[1])), _STEEPEST)))
        if arrivals.elevation is None:
            rows = middle[1] + CELL * np.arange(-_HIGH, _HIGH + 1)
        else:
            rows = np.array([arrivals.elevation])
        columns = middle[0] + stretch * CELL * np.arange(-_WIDE, _WIDE + 1)
        azimuth, elevation = np.meshgrid(columns, np.clip(rows, -90, 90))
        self._shape = azimuth.shape
        places = np.stack([(azimuth.ravel() + 180) % 360 - 180, elevation.ravel()], axis=-1)
        self.places, gaps = arrivals.snapped(places)
        self.vectors = to_vectors(self.places)
        own = self.vectors @ to_vectors(middle)
        theirs = (self.vectors @ beside.T).max(axis=1, initial=-1.0)
        far = own < np.cos(np.radians(reach_degrees))
        self._outside: Mask = (gaps > _OUTSIDE_DEGREES) | (theirs > own) | far
        self.densities = arrivals.at(self.places)  # (B, P)

    def fits(
        self, others: Array, own: Array, share: float, since: float, before: Before
    ) -> tuple[Fit, Fit, float]:
        """Standing for `since` seconds, and walking; and what walking explains more, in nats.

        `others` (B,) is what the other tracks explain, `own` (B,) the densities of its trail.
        """
        arrivals = self._arrivals
        mixed = self.densities * np.float32(share)
        mixed += others.astype(np.float32)[:, None]
        logs: Single = np.log(mixed, out=mixed)
        prior = before.of_place(self.vectors)
        stands = self._stands(logs, arrivals.weights * (arrivals.ages <= since), prior)
        weights = arrivals.recent_weights(before.lag_seconds)
        walks, more = self._walks(logs, weights, np.log(share * own + others), before)
        return stands, walks, more

    def _stands(self, logs: Single, weights: Array, prior: Array) -> Fit:
        L = weights @ logs + prior
        place, error, best = self._measured(L)
        return Fit(place, error, np.zeros(2), float(L[best]), self.densities[:, best])

    def _walks(
        self, logs: Single, weights: Array, trail: Array, before: Before
    ) -> tuple[Fit, float]:
        ends = np.cumsum(self._arrivals.lengths)
        begins = ends - self._arrivals.lengths
        taus = self._arrivals.step_ages
        told = np.flatnonzero((taus < _LONGEST) & (ends > begins))
        trail = weights * trail
        sums = []
        for s in told:
            own = slice(begins[s], ends[s])
            sums.append((weights[own] @ logs[own]).reshape(self._shape) - trail[own].sum())
        lattices = np.array(sums).reshape(len(told), *self._shape)
        prior = before.of_place(self.vectors).reshape(self._shape)

        def along(u: float, w: float) -> Array:
            nats = before.of_speed(u) - (_RISE_NATS if w else 0.0)
            return _along(lattices, taus[told], u, w) + prior + nats

        tried = {(u, 0.0): along(u, 0.0) for u in _SPEEDS}
        fastest = self._likeliest(tried)[0]
        tried |= {(u, 0.0): along(u, 0.0) for u in (fastest - _FINER, fastest + _FINER)}
        fastest = self._likeliest(tried)[0]
        if fastest and self._shape[0] > 1:  # who does not walk does not climb
            tried |= {(fastest, w): along(fastest, w) for w in _RISES}
        u, w = self._likeliest(tried)
        L = tried[u, w].ravel()
        place, error, best = self._measured(L)
        more = self._top(tried[u, w]) - self._top(tried[0.0, 0.0])
        densities = self.densities[:, best].copy()
        e, a = divmod(best, self._shape[1])
        for s in told:
            then = self._row(e - round(w * taus[s] / CELL), a - round(u * taus[s] / CELL))
            own = slice(begins[s], ends[s])
            densities[own] = self.densities[own, then]
        return Fit(place, error, np.array([u, w]), float(L[best]), densities), more

    def _row(self, e: int, a: int) -> int:
        E, A = self._shape
        row: int = min(max(e, 0), E - 1) * A + min(max(a, 0), A - 1)
        return row

    def _likeliest(self, tried: dict[tuple[float, float], Array]) -> tuple[float, float]:
        """The velocity whose best place is the likeliest."""
        return max(tried, key=lambda velocity: self._top(tried[velocity]))

    def _top(self, L: Array) -> float:
        return float(np.where(self._outside, -np.inf, L.ravel()).max())

    def _measured(self, L: Array) -> tuple[Array, float, int]:
        """The mean place (3,) by log-likelihoods (P,), its error in degrees, and the best."""
        L = np.where(self._outside, -np.inf, L)
        best = int(L.argmax())
        if not np.isfinite(L[best]):
            best = (
                int(np.flatnonzero(~self._outside)[0]) if not self._outside.all() else len(L) // 2
            )
            return self.vectors[best], _LEAST_ERROR, best
        p = np.exp(2 * BETA * (L - L[best]))
        p /= p.sum()
        mean = p @ self.vectors
        mean /= np.linalg.norm(mean)
        gap = np.degrees(np.arccos(np.clip(self.vectors @ mean, -1, 1)))
        return mean, float(np.hypot(np.sqrt(p @ gap**2 / 2), _LEAST_ERROR)), best


def _along(lattices: Array, taus: Array, u: float, w: float) -> Array:
    """L (E, A) of a source that moves by (u, w): lattices (s, E, A) shifted and summed.

    Lattices are relative to the trail, so that what was outside of them counts 0.
    """
    E, A = lattices.shape[1:]
    out = np.zeros((E, A))
    for lattice, tau in zip(lattices, taus, strict=True):
        a, e = round(u * tau / CELL), round(w * tau / CELL)
        if abs(a) < A and abs(e) < E:
            out[max(e, 0) : E + min(e, 0), max(a, 0) : A + min(a, 0)] += lattice[
                max(-e, 0) : E + min(-e, 0), max(-a, 0) : A + min(-a, 0)
            ]
    return out
