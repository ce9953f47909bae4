"""Computations in parts: one result, at the same hop with and without a copy in between."""

import copy
import pickle

import pytest

from earatlas.parts import Parts, SpreadComputation, complete


def powers(base: int, costs: tuple[float, ...]) -> Parts[int]:
    """Return base to the number of parts."""
    value = 1
    for cost in costs:
        yield cost
        value *= base
    return value


def hops_of(computation: SpreadComputation[int]) -> int:
    """Return the number of hops until a computation is finished."""
    hops = 1
    while not computation.advance():
        hops += 1
    return hops


def test_complete_runs_all_parts() -> None:
    """The result is that of all parts, also without any part."""
    assert complete(powers(3, (1.0, 5.0, 2.0))) == 27
    assert complete(powers(3, ())) == 1


@pytest.mark.parametrize(
    ("costs", "hops"),
    [((1.0,) * 6, 2), ((2.0, 2.0, 1.0), 2), ((9.0, 1.0), 2), ((9.0, 9.0, 1.0, 2.0), 3), ((), 1)],
)
def test_parts_of_a_hop_stay_within_the_budget(costs: tuple[float, ...], hops: int) -> None:
    """A hop runs parts of up to three units, and a larger one alone."""
    computation = SpreadComputation(powers(2, costs), 3.0)
    assert hops_of(computation) == hops
    assert computation.result == 2 ** len(costs)


@pytest.mark.parametrize("before", [0, 1, 3])
def test_copies_finish_at_the_same_hop(before: int) -> None:
    """A copy and a pickle do not change when the result is available, here or there."""
    computation = SpreadComputation(powers(2, (1.0,) * 5), 1.0)
    for _ in range(before):
        assert not computation.advance()
    copied = copy.deepcopy(computation)
    unpickled = pickle.loads(pickle.dumps(copied))
    for each in (computation, copied, unpickled, copy.deepcopy(copied)):
        assert hops_of(each) == 5 - before
        assert each.result == 32
