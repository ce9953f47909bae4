"""Source counter: free mixing weights, and the cost of sources on one cone of confusion."""

import numpy as np
import pytest

from earatlas.localization.source_counter import (
    DIFFUSE_WEIGHT,
    MIN_GAIN_NATS,
    SAME_CONE_GAIN_NATS,
    SourceCounter,
)

# Left in front, its mirror image behind, the right, above, and far left.
DIRECTIONS = np.array([[40.0, 0.0], [140.0, 0.0], [-50.0, 10.0], [0.0, 80.0], [85.0, 0.0]])
# The same with all directions on different cones.
ON_OTHER_CONES = np.array([[40.0, 0.0], [-140.0, 0.0], [-85.0, 10.0], [0.0, 80.0], [85.0, 0.0]])


def make_counter(
    shares: dict[int, float], density: float = 4.0, directions: np.ndarray = DIRECTIONS
) -> SourceCounter:
    """Return a counter of 400 bins that each fit one direction well, in the given shares."""
    rng = np.random.default_rng(3)
    source = rng.choice(list(shares), size=400, p=list(shares.values()))
    densities = rng.uniform(0.2, 0.5, size=(400, len(directions)))
    densities[np.arange(400), source] = density
    weights = rng.uniform(0.3, 0.6, 400)
    return SourceCounter(densities.astype(np.float32), weights.astype(np.float32), directions)


def gain(counter: SourceCounter, more: list[int], fewer: list[int]) -> float:
    """Return the log-likelihood per bin that some cells gain over others."""
    fits = [counter._fit_weights(cells) for cells in (more, fewer)]
    return fits[0].log_likelihood - fits[1].log_likelihood


@pytest.mark.parametrize(
    "shares", [{2: 1.0}, {0: 0.7, 2: 0.3}, {4: 0.2, 2: 0.5, 0: 0.3}, {0: 0.3, 3: 0.7}]
)
def test_count_equals_the_number_of_sources(shares: dict[int, float]) -> None:
    """One to three sources on different cones are counted, some with few bins, up to a limit."""
    counter = make_counter(shares)
    assert sorted(counter.count(6)) == sorted(shares)
    assert len(counter.count(1)) == 1


def test_source_on_the_same_cone_must_gain_more() -> None:
    """The same bins are one source with reflections on its cone, and two on different cones."""
    shares = {0: 0.75, 1: 0.25}
    other_cones = make_counter(shares, directions=ON_OTHER_CONES)
    both = gain(other_cones, [0, 1], [0])
    assert MIN_GAIN_NATS[0] < both < MIN_GAIN_NATS[0] + SAME_CONE_GAIN_NATS
    assert sorted(other_cones.count(6)) == [0, 1]
    assert make_counter(shares).count(6) == [0]
    assert sorted(make_counter(shares, density=40.0).count(6)) == [0, 1]


def test_quiet_source_is_preferred_to_a_mirror_image_of_the_loud_one() -> None:
    """It is preferred although the mirror image on the same cone has the larger likelihood."""
    counter = make_counter({0: 0.45, 1: 0.29, 2: 0.26}, density=6.0)
    mirrored, other = (counter._fit_weights(cells).log_likelihood for cells in ([0, 1], [0, 2]))
    assert other < mirrored < other + SAME_CONE_GAIN_NATS
    assert sorted(counter.count(2)) == [0, 2]


def test_next_source_ratio_is_relative_to_the_required_gain() -> None:
    """Off all cones the requirement is MIN_GAIN_NATS, on a cone also SAME_CONE_GAIN_NATS."""
    shares = {0: 0.75, 1: 0.25}
    one_cone, other_cones = make_counter(shares), make_counter(shares, directions=ON_OTHER_CONES)
    gained = gain(one_cone, [0, 1], [0])
    required = MIN_GAIN_NATS[0] + SAME_CONE_GAIN_NATS
    assert one_cone.next_source_ratio([0]) == pytest.approx(gained / required, rel=1e-6)
    assert one_cone.next_source_ratio([0]) < 1
    assert other_cones.next_source_ratio([0]) == pytest.approx(gained / MIN_GAIN_NATS[0], rel=1e-6)
    assert other_cones.next_source_ratio([0]) > 1
    assert other_cones.next_source_ratio([0, 1]) < 0.1


def test_mixing_weights_maximize_the_likelihood() -> None:
    """The likelihood is a weighted mean of logs, and no other weights give a larger one."""
    counter = make_counter({0: 0.6, 2: 0.4})
    fit = counter._fit_weights([0, 2])

    def log_likelihood(mixing_weights: np.ndarray) -> float:
        total = weight = 0.0
        for v, g in zip(counter._v, counter._g, strict=True):
            mixed = mixing_weights[0] * g[0] + mixing_weights[1] * g[2] + mixing_weights[2]
            total, weight = total + v * np.log(mixed), weight + v
        return float(total / weight)

    assert fit.mixing_weights.sum() == pytest.approx(1, abs=1e-6)
    assert fit.log_likelihood == pytest.approx(log_likelihood(fit.mixing_weights), abs=1e-6)
    assert fit.log_likelihood > log_likelihood(np.array([0.45, 0.45, DIFFUSE_WEIGHT])) + 0.01
    for a, b in ((0, 1), (1, 0), (0, 2), (1, 2)):
        changed = fit.mixing_weights.copy()
        changed[a], changed[b] = changed[a] - 0.03, changed[b] + 0.03
        assert log_likelihood(changed) < fit.log_likelihood
