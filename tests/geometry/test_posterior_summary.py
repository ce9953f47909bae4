"""What is told of many posteriors at once is what each says by itself."""

import numpy as np
import pytest

from earatlas.geometry.direction_posterior import DirectionPosterior
from earatlas.geometry.posterior_summary import told_of
from earatlas.geometry.spaces import Sphere


def posterior(
    rng: np.random.Generator, parts: int, widths: tuple[float, float]
) -> DirectionPosterior:
    """Leaning Gaussians beside their centres, most of the weight on a few of them."""
    centres = np.stack([rng.uniform(-180, 180, parts), rng.uniform(-80, 80, parts)], axis=1)
    centres[1::2] = centres[0] + rng.uniform(-9, 9, size=(len(centres[1::2]), 2))
    weights = rng.dirichlet(np.full(parts, 0.4))
    roots = np.zeros((parts, 2, 2))
    roots[:, 0, 0], roots[:, 1, 1] = rng.uniform(*widths, size=(2, parts))
    roots[:, 1, 0] = rng.uniform(-0.7, 0.7, size=parts) * roots[:, 0, 0]
    means = rng.uniform(-6, 6, size=(parts, 2))
    return DirectionPosterior(Sphere(), centres % 360, weights, means, roots @ roots.mT)


@pytest.fixture
def posteriors(rng: np.random.Generator) -> list[DirectionPosterior]:
    """Of all sizes, in no order; from sharp to as broad as the sphere."""
    sizes = [1, 40, 2, 7, 300, 1, 15, 3, 90, 6]
    widths = [(0.4, 2.0), (1.0, 6.0), (0.5, 30.0), (20.0, 90.0)]
    return [posterior(rng, n, widths[i % 4]) for i, n in enumerate(sizes * 2)]


def test_they_say_what_each_says(posteriors: list[DirectionPosterior]) -> None:
    """Directions to a hundredth of a degree, radii to 1 %, areas to 15 % (half of them to 5 %)."""
    areas = []
    for told, one in zip(told_of(posteriors), posteriors, strict=True):
        assert Sphere().distance(told.best, one.best) < 0.01
        assert Sphere().distance(told.mean, one.mean) < 0.01
        assert told.radius_90 == pytest.approx(one.radius_90, rel=0.01)
        areas.append(told.area_90 / one.credible_area(0.9) - 1)
    assert np.abs(areas).max() < 0.15
    assert np.median(np.abs(areas)) < 0.05
    assert len({round(told.radius_90, 3) for told in told_of(posteriors)}) == len(posteriors)


def test_what_is_known_is_not_found_out_again(posteriors: list[DirectionPosterior]) -> None:
    """A posterior that knows its sizes says these, and computes those at other levels."""
    told, one = told_of(posteriors[:1])[0], posteriors[0]
    other = one.credible_radius(0.5)
    one.know(told)
    assert (one.radius_90, one.credible_area(0.9)) == (told.radius_90, told.area_90)
    assert one.best is told.best
    assert one.mean is told.mean
    assert one.credible_radius(0.5) == pytest.approx(other, rel=1e-5)
