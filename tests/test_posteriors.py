"""Many posteriors at once are those of one sound after the other."""

from dataclasses import replace

import numpy as np
import pytest

import earatlas as ea
from earatlas.hearing.statistics import CueStatistics
from earatlas.learning.calibration import Calibration
from earatlas.learning.posteriors import Posteriors
from earatlas.learning.ppam import PPAM


def model(space: ea.Space, latent: int, rng: np.random.Generator) -> PPAM:
    """Three charts with 13 cues, maps and noises all of their own."""
    x = space.grid(25.0)
    bend = rng.normal(size=(x.shape[1], 13))
    y = 20 * np.sin(np.radians(x) @ bend) + rng.normal(size=(len(x), 13))
    fitted = PPAM.fit(space, x, y, components=3, latent=latent)
    return replace(fitted, spread=fitted.spread * rng.uniform(0.5, 2.0, size=fitted.spread.shape))


def sounds(rng: np.random.Generator, count: int) -> CueStatistics:
    """Sounds with other cues, and cues that were never observed: there R and E mean nothing."""
    Q = rng.uniform(0.5, 9.0, size=(count, 13))
    means = rng.normal(scale=12.0, size=Q.shape)
    Q[rng.random(Q.shape) < 0.3] = 0.0
    squares = Q * (means**2 + rng.uniform(0.1, 3.0, size=Q.shape))
    return CueStatistics(
        Q, np.where(Q > 0, Q * means, 1e6), np.where(Q > 0, squares, -7.0), frames=11.0
    )


@pytest.mark.parametrize("latent", [0, 2])
@pytest.mark.parametrize("space", [ea.Sphere(), ea.Circle(), ea.Plane()], ids=lambda s: s.name)
def test_they_are_those_of_one_sound_after_the_other(
    space: ea.Space, latent: int, rng: np.random.Generator
) -> None:
    """Beliefs and misfits to nine digits, of sounds that fit and of those that do not."""
    learned, many = model(space, latent, rng), sounds(rng, 5)
    calibration = Calibration(
        temperature=3.0, widths=(0.5, 4.0), shares=(0.7, 0.3), frame_noise=np.full(13, 2.0)
    )
    misfits = [calibration.judged(learned, many[n])[1] for n in range(5)]
    assert misfits == [0.0] * 5, "nothing is usual yet"
    unusual = replace(calibration, misfit=1.0)
    middle = float(np.median([unusual.judged(learned, many[n])[1] for n in range(5)]))
    usual = replace(calibration, misfit=1.01 * middle)
    together = Posteriors(learned).judged(usual, many)
    assert sum(misfit > 1 for _, misfit in together) == 2
    for n, (belief, misfit) in enumerate(together):
        alone, expected = usual.judged(learned, many[n])
        assert misfit == pytest.approx(expected, rel=1e-9)
        np.testing.assert_allclose(belief.weights, alone.weights, rtol=1e-7, atol=1e-12)
        np.testing.assert_allclose(belief.means, alone.means, rtol=1e-7, atol=1e-9)
        np.testing.assert_allclose(belief.covariances, alone.covariances, rtol=1e-7)
