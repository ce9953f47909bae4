"""Local search: position and velocity of one source, static or moving."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from earatlas.geometry.angles import great_circle_error, to_directions, to_vectors
from earatlas.localization.onset_likelihood import bin_weights
from earatlas.tracking.onset_buffer import OnsetBuffer
from earatlas.tracking.position_update import LocalSearchGrid, MotionPrior, _shift_and_sum
from earatlas.tracking.settings import LocalSearchSettings
from earatlas.types import Array, Single

SETTINGS = LocalSearchSettings()
FLAT_PRIOR = MotionPrior(np.array([1.0, 0.0, 0.0]), np.inf, 0.0, np.inf, 0.6)


def test_motion_likelihood_is_a_sum_of_shifted_lattices() -> None:
    """L(x, u) = Σ_s S_s(x - u τ_s), with S = 0 outside of the lattice: against loops."""
    rng = np.random.default_rng(3)
    lattices, taus = rng.normal(size=(4, 3, 7)), np.array([0.45, 0.25, 0.125, 0.05])
    for u, w in ((0, 0), (16, 0), (-8, 8), (48, -16)):
        shifts = [(round(w * tau), round(u * tau)) for tau in taus]
        expected = np.zeros((3, 7))
        for lattice, (up, left) in zip(lattices, shifts, strict=True):
            for e in range(3):
                for a in range(7):
                    then = e - up, a - left
                    if 0 <= then[0] < 3 and 0 <= then[1] < 7:
                        expected[e, a] += lattice[then]
        np.testing.assert_allclose(_shift_and_sum(lattices, shifts), expected, rtol=1e-12)


@dataclass
class FakeOnsetBuffer:
    """Bins around the path of one source: 6 per step, 12 steps, with an error of 1.5 degrees."""

    path: Array  # (12, 2) degrees, per step

    def __post_init__(self) -> None:
        rng = np.random.default_rng(5)
        self.elevation = None
        self.bins_per_step = np.full(12, 6)
        self.step_ages = 0.128 * np.arange(11.5, 0, -1)
        self.ages = np.repeat(self.step_ages, 6)
        self.frequencies = np.tile(np.arange(6), 12)
        self.weights = bin_weights(self.frequencies)
        self._observed = np.repeat(self.path, 6, axis=0) + rng.normal(scale=1.5, size=(72, 2))

    def recent_weights(self, seconds: float) -> Array:
        """As in OnsetBuffer."""
        return OnsetBuffer.recent_weights(self, seconds)  # type: ignore[arg-type]

    def snap_to_grid(self, directions: Array) -> tuple[Array, Array]:
        """Every direction is on the grid."""
        return directions, np.zeros(len(directions))

    def densities_at(self, directions: Array) -> Single:
        """Gaussian densities around the observed directions."""
        distances = great_circle_error(self._observed[:, None], directions[None])
        return (30 * np.exp(-0.5 * (distances / 4) ** 2)).astype(np.float32)


@pytest.mark.parametrize("speed", [0.0, 16.0, -24.0])
def test_local_search_distinguishes_static_and_moving_sources(speed: float) -> None:
    """Position and velocity are found, and each bin is explained at its time."""
    ages = 0.128 * np.arange(11.5, 0, -1)
    path = np.stack([30.0 - speed * ages, np.full(12, 6.0)], axis=-1)
    grid = LocalSearchGrid(FakeOnsetBuffer(path), np.array([27.0, 4.0]), SETTINGS)  # type: ignore[arg-type]
    history = np.full(72, 9.0)  # used where the path is outside of the lattice
    static, moving, gain = grid.fit(np.full(72, 0.1), history, 0.5, 9.0, FLAT_PRIOR)
    assert (gain > 3) == (speed != 0)
    fit = moving if speed else static
    assert 0 <= great_circle_error([30.0, 6.0], to_directions(fit.vector)) < 1.5
    np.testing.assert_array_equal(fit.velocity, [speed, 0.0])
    recent = slice(36, None)
    assert moving.densities[recent].mean() > 15
    assert (static.densities[recent].mean() > 15) == (speed == 0)


def test_motion_prior_is_gaussian() -> None:
    """Deviations from the prediction cost their squared z-score over 2."""
    prior = MotionPrior(to_vectors([10.0, 0.0]), 4.0, -8.0, 10.0, 0.6)
    nats = prior.position_log_prior(to_vectors(np.array([[10.0, 0.0], [18.0, 0.0]])))
    np.testing.assert_allclose(nats, [0.0, -2.0], atol=1e-9)
    assert prior.speed_log_prior(12.0) == pytest.approx(-2.0)


def test_local_search_excludes_competitors_and_large_innovations() -> None:
    """Bins nearer to a competitor, or too far away, do not move the track."""
    buffer = FakeOnsetBuffer(np.repeat([[30.0, 6.0]], 12, axis=0))
    others, history = np.full(72, 0.1), np.full(72, 9.0)

    def azimuths(**bounds: Any) -> Array:
        grid = LocalSearchGrid(buffer, np.array([18.0, 6.0]), SETTINGS, **bounds)  # type: ignore[arg-type]
        fits = grid.fit(others, history, 0.5, 9.0, FLAT_PRIOR)
        return np.array([to_directions(fit.vector)[0] for fit in fits[:2]])

    np.testing.assert_allclose(azimuths(), 30.0, atol=1.5)
    competitors = to_vectors(np.array([[34.0, 6.0], [-90.0, 0.0]]))
    assert (azimuths(competitors=competitors) < 26.5).all()
    assert (azimuths(max_innovation_degrees=5.0) < 23.5).all()


def test_static_fit_uses_the_motion_prior() -> None:
    """The static fit of a moving track uses the predicted position, as the moving fit does."""
    buffer = FakeOnsetBuffer(np.repeat([[30.0, 6.0]], 12, axis=0))
    grid = LocalSearchGrid(buffer, np.array([27.0, 6.0]), SETTINGS)  # type: ignore[arg-type]
    prior = MotionPrior(to_vectors([20.0, 6.0]), 0.05, 0.0, 6.0, 0.6)
    static, _, _ = grid.fit(np.full(72, 0.1), np.full(72, 9.0), 0.5, 9.0, prior)
    assert to_directions(static.vector)[0] == pytest.approx(21, abs=1.5)  # nearest cell
