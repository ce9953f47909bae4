"""Alternatives: the peaks of a posterior with their probabilities."""

import numpy as np
import pytest

import earatlas as ea
from earatlas.geometry.alternatives import Alternative, AlternativeSettings, find_alternatives
from earatlas.geometry.angles import FrontPrior, apply_front_prior
from earatlas.geometry.direction_posterior import DirectionPosterior
from earatlas.geometry.posterior_summary import summarize_posteriors
from earatlas.localization.result import Localization


def mixture(centres: list[list[float]], weights: list[float], degrees: float) -> DirectionPosterior:
    """Return a posterior with isotropic peaks of one width."""
    K = len(weights)
    return DirectionPosterior(
        ea.Sphere(),
        np.array(centres, dtype=np.float64),
        np.array(weights),
        np.zeros((K, 2)),
        np.tile(degrees**2 * np.eye(2), (K, 1, 1)),
    )


def test_front_and_back_are_two_alternatives() -> None:
    """Separate peaks have their own probability and radius, and the most probable is first."""
    posterior = mixture([[0.0, 5.0], [180.0, 5.0]], [0.3, 0.7], 4.0)
    first, second = find_alternatives(posterior, posterior.sample(500))
    assert ea.great_circle_error(first.direction, [180, 5]) < 1e-6  # the best direction itself
    assert ea.great_circle_error(second.direction, [0, 5]) < 3
    assert first.probability == pytest.approx(0.7, abs=0.07)
    assert first.probability + second.probability == pytest.approx(1.0)
    # 90 % of an isotropic Gaussian lie within 2.15 standard deviations.
    assert first.radius_90 == pytest.approx(2.15 * 4.0, rel=0.15)


def test_one_peak_is_one_alternative_whose_radius_is_that_of_the_posterior() -> None:
    """A posterior with one peak has no alternatives, however wide it is."""
    for degrees in (2.0, 25.0):
        posterior = mixture([[40.0, 10.0]], [1.0], degrees)
        (only,) = find_alternatives(posterior, posterior.sample(500))
        assert only.probability > 0.9
        assert only.radius_90 == pytest.approx(posterior.radius_90, rel=0.2)


def test_improbable_peaks_are_left_out() -> None:
    """A peak below the smallest probability is no alternative."""
    posterior = mixture([[30.0, 0.0], [150.0, 0.0]], [0.95, 0.05], 3.0)
    points = posterior.sample(500)
    assert len(find_alternatives(posterior, points)) == 1
    both = find_alternatives(posterior, points, AlternativeSettings(min_probability=0.01))
    assert len(both) == 2


def test_json_values_are_rounded() -> None:
    """An alternative is stored as plain numbers."""
    posterior = mixture([[30.0, 0.0]], [1.0], 3.0)
    (only,) = find_alternatives(posterior, posterior.sample(200))
    assert only.to_dict()["direction"] == [30.0, 0.0]
    assert set(only.to_dict()) == {"direction", "probability", "radius_90"}
    assert Alternative.from_dict(only.to_dict()).to_dict() == only.to_dict()


def test_direction_is_the_most_probable_peak_and_not_the_highest() -> None:
    """A sharp peak of little probability has the highest density; the other one is reported."""
    sharp, wide = mixture([[0.0, 5.0]], [1.0], 1.0), mixture([[170.0, 5.0]], [1.0], 6.0)
    posterior = DirectionPosterior(
        ea.Sphere(),
        np.concatenate([sharp.centres, wide.centres]),
        np.array([0.3, 0.7]),
        np.zeros((2, 2)),
        np.concatenate([sharp.covariances, wide.covariances]),
    )
    assert posterior.best == pytest.approx([0, 5])
    assert posterior.direction == pytest.approx([170, 5])
    first, second = posterior.alternatives
    assert first.direction is posterior.direction
    assert second.direction == pytest.approx([0, 5])
    assert posterior.credible_radius(0.6) < 15  # around the reported direction
    assert posterior.radius_90 > 100


def test_narrow_posterior_is_not_searched() -> None:
    """Below the smallest radius there is one alternative, of probability 1."""
    posterior = mixture([[30.0, 0.0], [30.0, 21.0]], [0.95, 0.05], 2.0)
    (only,) = posterior.alternatives
    assert (only.probability, only.radius_90) == (1.0, posterior.radius_90)
    assert only.direction is posterior.best


def test_coordinates_that_are_no_directions_have_one_alternative() -> None:
    """Degrees of links mean nothing for pixels."""
    pixels = ea.Plane(((0, 640), (0, 480)))
    both = mixture([[100.0, 40.0], [500.0, 40.0]], [0.5, 0.5], 9.0)
    posterior = DirectionPosterior(pixels, both.centres, both.weights, both.means, both.covariances)
    assert len(posterior.alternatives) == 1
    assert apply_front_prior(posterior) is posterior


def test_first_alternative_of_a_batch_is_the_direction_of_the_batch() -> None:
    """Batches report the highest density, so that its peak is first even if it is improbable."""
    posterior = mixture([[180.0, 5.0]] * 3 + [[0.0, 5.0]], [0.25, 0.33, 0.35, 0.07], 8.0)
    covariances = posterior.covariances.copy()
    covariances[3] = np.eye(2)
    posterior = DirectionPosterior(
        posterior.space, posterior.centres, posterior.weights, posterior.means, covariances
    )
    assert posterior.direction == pytest.approx([180, 5])
    batch = DirectionPosterior(
        posterior.space, posterior.centres, posterior.weights, posterior.means, covariances
    )
    batch.cache_summary(summarize_posteriors([batch])[0])
    assert batch.direction == pytest.approx([0, 5], abs=1e-3)
    assert batch.alternatives[0].direction == pytest.approx([0, 5], abs=1e-3)
    assert batch.alternatives[1].probability > batch.alternatives[0].probability


def test_prior_has_the_odds_of_front_over_rear() -> None:
    """Equal peaks get the odds, in proportion to the front component on a logarithmic scale."""
    posterior = mixture([[0.0, 0.0], [180.0, 0.0], [60.0, 0.0], [-120.0, 0.0]], [0.25] * 4, 5.0)
    w = apply_front_prior(posterior, FrontPrior(odds=3.0)).weights
    assert w.sum() == pytest.approx(1.0)
    assert w[0] / w[1] == pytest.approx(3.0)
    assert w[2] / w[3] == pytest.approx(np.sqrt(3.0))  # the front components are ±1/2
    undone = apply_front_prior(apply_front_prior(posterior), FrontPrior(1 / FrontPrior().odds))
    assert undone.weights == pytest.approx(posterior.weights, rel=1e-12)


def test_prior_decides_ties_but_not_evidence() -> None:
    """A tie is reported in front; a rear peak with more evidence than the odds stays the first."""
    tie = mixture([[180.0, 10.0], [0.0, 10.0]], [0.51, 0.49], 6.0)
    assert tie.direction == pytest.approx([180, 10])
    assert apply_front_prior(tie).direction == pytest.approx([0, 10])
    assert len(apply_front_prior(tie).alternatives) == 2
    evident = mixture([[180.0, 10.0], [0.0, 10.0]], [0.8, 0.2], 6.0)
    assert apply_front_prior(evident).direction == pytest.approx([180, 10])


def test_a_localization_shows_its_alternatives() -> None:
    """JSON values, the repr and the rows of a track."""
    posterior = mixture([[0.0, 0.0], [180.0, 0.0]], [0.6, 0.4], 5.0)
    found = Localization(posterior, 0.5, 2.0)
    fields = found.to_dict()
    assert [one["direction"] for one in fields["alternatives"]] == [[0.0, 0.0], [180.0, 0.0]]
    assert fields["alternatives"][0]["direction"] == fields["direction"]
    assert "direction unknown, or (0.0, 0.0) 60 % or (180.0, 0.0) 40 %" in repr(found)
    assert not {"alternatives", "lateral_angle"} & set(found.to_row(1.0))
    certain = Localization(mixture([[20.0, 0.0]], [1.0], 2.0), 0.5, 2.0)
    assert len(certain.to_dict()["alternatives"]) == 1
    assert " or " not in repr(certain)
