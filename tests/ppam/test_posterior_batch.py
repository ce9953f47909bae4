"""Many posteriors at once are those of one sound after the other."""

from dataclasses import replace

import numpy as np
import pytest

import earatlas as ea
from earatlas.features.statistics import CueStatistics
from earatlas.geometry.angles import to_vectors
from earatlas.ppam.calibration import Calibration
from earatlas.ppam.model import PPAM
from earatlas.ppam.posterior_batch import Posteriors


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
    """Beliefs and misfits to single precision, of sounds that fit and of those that do not."""
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
    assert sum(together.misfits > 1) == 2
    posteriors = together.posteriors(np.arange(5))
    for n, (posterior, misfit) in enumerate(zip(posteriors, together.misfits, strict=True)):
        alone, expected = usual.judged(learned, many[n])
        assert misfit == pytest.approx(expected, rel=1e-4)
        np.testing.assert_allclose(posterior.weights, alone.weights, rtol=1e-3, atol=1e-7)
        np.testing.assert_allclose(posterior.means, alone.means, rtol=1e-3, atol=1e-3)
        np.testing.assert_allclose(posterior.covariances, alone.covariances, rtol=1e-3, atol=1e-5)


def test_charts_are_chosen_by_some_of_the_cues(rng: np.random.Generator) -> None:
    """Of 40 charts few are looked at with all 600 cues; posteriors are those of all charts."""
    space, x = ea.Sphere(), ea.Sphere().grid(10.0)
    bend = rng.normal(size=(3, 600))
    y = 8 * np.sin(2 * to_vectors(x) @ bend) + rng.normal(size=(len(x), 600))
    learned = PPAM.fit(space, x, y, components=40, latent=2)
    usual = Calibration(temperature=14.0, frame_noise=np.full(600, 2.0), misfit=2.0)
    means = y[::50] + rng.normal(scale=0.5, size=(len(x[::50]), 600))
    strange = np.arange(len(means)) % 3 == 0
    means[strange] += rng.normal(scale=9.0, size=means[strange].shape)
    Q = rng.uniform(5.0, 40.0, size=means.shape)
    many = CueStatistics(Q, Q * means, Q * (means**2 + 2.0), frames=50.0)
    posteriors = Posteriors(learned)
    together = posteriors.judged(usual, many)
    assert (together.misfits[strange] > 1).all()
    assert (together.misfits[~strange] < 1).all()
    charts = [len(posteriors.centres) for _, posteriors in together._plain.groups]
    assert charts[0] < 40, "few of them"
    parts: list[int] = []
    for n, posterior in enumerate(together.posteriors(np.arange(len(means)))):
        alone, misfit = usual.judged(learned, many[n])
        assert together.misfits[n] == pytest.approx(misfit, rel=1e-3)
        assert space.distance(posterior.best, alone.best) < 0.01
        heavy = alone.pruned(1e-4)
        parts.append(len(heavy.weights))
        assert len(posterior.pruned(1e-4).weights) == parts[-1]
    assert max(parts) > 1, "some have several charts"
