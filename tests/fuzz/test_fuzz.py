"""A small seeded number of mutants of every format; `make fuzz` has many more."""

import pytest
from fuzz_faults import FORMATS as FAULTS
from fuzz_formats import FORMATS
from fuzz_guard import fuzz

COUNT = 300


@pytest.mark.parametrize("name", FORMATS)
def test_mutants_are_used_or_refused(name: str) -> None:
    """No traceback, hang, crash, flood of words, nor more memory than a file may ask for."""
    outcomes = fuzz(name, COUNT, seed=1)
    assert not outcomes.failures, "\n".join(outcomes.failures[:5])
    assert outcomes.counts["used"] + outcomes.counts["refused"] == COUNT
    assert outcomes.counts["refused"] > 20, "mutants that do no harm try nothing"


@pytest.mark.parametrize("fault", FAULTS)
def test_the_guards_see_what_they_are_for(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A format that fails in each of the ways; two mutants, so that the second has its turn."""
    monkeypatch.setattr("fuzz_guard._WAIT_SECONDS", 4.0)
    outcomes = fuzz(fault, 2, module="fuzz_faults")
    assert outcomes.counts == {fault: 2}
    assert [failure.split(":")[0] for failure in outcomes.failures] == ["0", "1"]
