"""How many sounds: shares that are free, and the cones of those that are known."""

import numpy as np
import pytest

from earatlas.localization.source_counter import NOWHERE, SAME_CONE_WORTH, WORTH, Counting

# Left in front, its mirror image behind, the right, above, and far left.
PLACES = np.array([[40.0, 0.0], [140.0, 0.0], [-50.0, 10.0], [0.0, 80.0], [85.0, 0.0]])
ELSEWHERE = np.array([[40.0, 0.0], [-140.0, 0.0], [-85.0, 10.0], [0.0, 80.0], [85.0, 0.0]])


def made(shares: dict[int, float], sharp: float = 4.0, places: np.ndarray = PLACES) -> Counting:
    """400 bins of uneven weight: each fits one place well, in these shares, and others badly."""
    rng = np.random.default_rng(3)
    whose = rng.choice(list(shares), size=400, p=list(shares.values()))
    densities = rng.uniform(0.2, 0.5, size=(400, len(places)))
    densities[np.arange(400), whose] = sharp
    weights = rng.uniform(0.3, 0.6, 400)
    return Counting(densities.astype(np.float32), weights.astype(np.float32), places)


@pytest.mark.parametrize(
    "shares", [{2: 1.0}, {0: 0.7, 2: 0.3}, {4: 0.2, 2: 0.5, 0: 0.3}, {0: 0.3, 3: 0.7}]
)
def test_as_many_as_have_bins(shares: dict[int, float]) -> None:
    """One, two and three on different sides, some of them rarely heard; no more than is asked."""
    counting = made(shares)
    assert sorted(counting.cells(6)) == sorted(shares)
    assert len(counting.cells(1)) == 1


def test_one_more_on_a_cone_must_gain_more() -> None:
    """The same bins are one talker with reflections on his cone, and two on different sides."""
    shares = {0: 0.75, 1: 0.25}
    apart = made(shares, places=ELSEWHERE)
    both = apart._with_shares([0, 1]).explained - apart._with_shares([0]).explained
    assert WORTH[0] < both < WORTH[0] + SAME_CONE_WORTH
    assert sorted(apart.cells(6)) == [0, 1]
    assert made(shares).cells(6) == [0]
    assert sorted(made(shares, sharp=40.0).cells(6)) == [0, 1]


def test_a_quiet_talker_is_not_lost_to_two_places_of_a_loud_one() -> None:
    """Of two, one is on another side, though the loud one's bins fit two places on its cone."""
    counting = made({0: 0.45, 1: 0.29, 2: 0.26}, sharp=6.0)
    mirrored, other = (counting._with_shares(cells).explained for cells in ([0, 1], [0, 2]))
    assert other < mirrored < other + SAME_CONE_WORTH
    assert sorted(counting.cells(2)) == [0, 2]


def test_who_is_nearly_counted_has_a_share_of_what_is_asked() -> None:
    """Off all cones of WORTH, on a cone of that and its cost; who is counted would have it all."""
    one_cone, apart = made({0: 0.75, 1: 0.25}), made({0: 0.75, 1: 0.25}, places=ELSEWHERE)
    gained = one_cone._with_shares([0, 1]).explained - one_cone._with_shares([0]).explained
    assert one_cone.nearly([0]) == pytest.approx(gained / (WORTH[0] + SAME_CONE_WORTH), rel=1e-6)
    assert one_cone.nearly([0]) < 1
    assert apart.nearly([0]) == pytest.approx(gained / WORTH[0], rel=1e-6)
    assert apart.nearly([0]) > 1
    assert apart.nearly([0, 1]) < 0.1


def test_shares_are_those_that_explain_most() -> None:
    """By loops: what is explained is the weighted mean of logs, and no other shares do better."""
    counting = made({0: 0.6, 2: 0.4})
    found = counting._with_shares([0, 2])

    def explained(shares: np.ndarray) -> float:
        total = weight = 0.0
        for v, g in zip(counting._v, counting._g, strict=True):
            mixed = shares[0] * g[0] + shares[1] * g[2] + shares[2]
            total, weight = total + v * np.log(mixed), weight + v
        return float(total / weight)

    assert found.shares.sum() == pytest.approx(1, abs=1e-6)
    assert found.explained == pytest.approx(explained(found.shares), abs=1e-6)
    assert found.explained > explained(np.array([0.45, 0.45, NOWHERE])) + 0.01
    for a, b in ((0, 1), (1, 0), (0, 2), (1, 2)):
        moved = found.shares.copy()
        moved[a], moved[b] = moved[a] - 0.03, moved[b] + 0.03
        assert explained(moved) < found.explained
