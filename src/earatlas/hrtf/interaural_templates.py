"""What a head does to each direction, in a form that can be interpolated between directions.

In: a head's impulse responses. Out: `Templates`: level difference in dB, delay between the ears,
and the phase that is left without it. All three change slowly from direction to direction; the
phase itself turns by up to 0.4 rad a degree at 8 kHz: its cosine and sine cannot be interpolated.

    r_xf = R_xf / L_xf = 10^(level_xf / 20) · phase_xf · exp(-j 2π f delay_x)

    N  directions that were measured    G  others    F  frequencies    k  neighbours
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from earatlas.features.cues import transfer_functions
from earatlas.geometry.angles import to_vectors
from earatlas.geometry.spaces import Space
from earatlas.hrtf.head import Head
from earatlas.types import Array, Complex, Indices

__all__ = ["Interpolation", "Templates"]

_LONGEST_DELAY = 1.1e-3  # seconds: a head is not wider
_DELAY_HERTZ = 1800.0  # the delay is that of the low frequencies, a Gaussian of this width
_FINER = 8  # steps of the delay a sample
_RIDGE = 0.005  # keeps slopes of few neighbours on a line at 0


@dataclass(frozen=True, eq=False)
class Interpolation:
    """Values at G points from those at measured ones: v(x_g) = Σ_j weights[g, j] v[rows[g, j]]."""

    rows: Indices  # (G, k)
    weights: Array  # (G, k) sum to 1 over j

    @classmethod
    def of(
        cls, space: Space, known: Array, wanted: Array, *, neighbours: int, spacing: float
    ) -> Interpolation:
        """A line fitted to the nearest directions, by distance, and read off at each wanted one."""
        from scipy.spatial import cKDTree

        k = min(neighbours, len(known))
        chord, rows = cKDTree(to_vectors(known)).query(to_vectors(wanted), k=k)
        chord, rows = chord.reshape(-1, k), rows.reshape(-1, k)
        degrees = np.degrees(2 * np.arcsin(np.minimum(chord / 2, 1.0)))
        width = np.maximum(0.6 * spacing, 0.75 * degrees[:, :1])
        w = np.exp(-0.5 * (degrees / width) ** 2) + 1e-9
        u = space.log(wanted[:, None], known[rows]) / width[..., None]  # (G, k, L)
        A = np.concatenate([np.ones((*w.shape, 1)), u], axis=-1)
        M = np.einsum("gk,gka,gkb->gab", w, A, A)
        slopes = np.arange(1, A.shape[-1])
        M[:, slopes, slopes] += _RIDGE * w.sum(axis=1)[:, None]
        M += 1e-9 * np.eye(A.shape[-1])
        value = np.linalg.inv(M)[:, 0]  # (G, L + 1) the row that gives the value at the point
        return cls(rows.astype(np.intp), np.einsum("ga,gka,gk->gk", value, A, w))

    def __getitem__(self, rows: slice | Indices) -> Interpolation:
        return Interpolation(self.rows[rows], self.weights[rows])


@dataclass(frozen=True, eq=False)
class Templates:
    """Both ears' ratio at N directions and F frequencies, in three parts."""

    directions: Array  # (N, C) degrees
    frequencies_hz: Array  # (F,)
    level_db: Array  # (N, F) right over left
    delay_seconds: Array  # (N,) right after left
    phase_radians: Array  # (N, F) what the delay leaves

    @classmethod
    def of(cls, head: Head, frequencies_hz: Array) -> Templates:
        """Those of a head's responses."""
        ears = head.responses()
        left, right = np.moveaxis(transfer_functions(ears.samples, ears.rate, frequencies_hz), 1, 0)
        ratio = right / left
        delay = _delays(ears.samples, ears.rate)
        phase = np.angle(ratio * np.exp(2j * np.pi * frequencies_hz * delay[:, None]))
        level = 20 * np.log10(np.abs(ratio))
        return cls(head.directions, frequencies_hz, level, delay, phase)

    @cached_property
    def _turns(self) -> Complex:
        """The phases (N, F) on the unit circle."""
        turns: Complex = np.exp(1j * self.phase_radians)
        return turns

    def ratios(self, at: Interpolation) -> Complex:
        """r (G, F) at other directions."""
        rows, w = at.rows, at.weights
        level = np.einsum("gk,gkf->gf", w, self.level_db[rows])
        delay = np.einsum("gk,gk->g", w, self.delay_seconds[rows])
        mean = np.angle(np.einsum("gk,gkf->gf", np.maximum(w, 0.0), self._turns[rows]))
        # Phases are near each other: as turns from their mean they can be summed.
        turn = self.phase_radians[rows] - mean[:, None]
        turn -= 2 * np.pi * np.rint(turn / (2 * np.pi))
        angle = mean + np.einsum("gk,gkf->gf", w, turn)
        angle -= 2 * np.pi * self.frequencies_hz * delay[:, None]
        ratios: Complex = 10 ** (level / 20) * np.exp(1j * angle)
        return ratios


def _delays(responses: Array, rate: float) -> Array:
    """Delay (N,) of the right ear after the left: the peak of their low-passed correlation."""
    n = 4 * responses.shape[-1]
    H = np.fft.rfft(responses, n)
    f = np.fft.rfftfreq(n, 1 / rate)
    cross = H[:, 1] * H[:, 0].conj()
    # Half-way to a phase transform: a peak that neither resonances nor noise alone decide.
    cross /= np.sqrt(np.maximum(np.abs(cross), 1e-9))
    cross *= np.exp(-0.5 * (f / _DELAY_HERTZ) ** 2) * (f > 100)
    correlation = np.fft.irfft(cross, _FINER * n)
    most = int(_LONGEST_DELAY * rate * _FINER)
    near = np.concatenate([correlation[:, -most:], correlation[:, : most + 1]], axis=1)
    delays: Array = (np.argmax(near, axis=1) - most) / (rate * _FINER)
    return delays
