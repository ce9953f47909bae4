"""Fuzz every format with a small number of mutants; `make fuzz` uses many more."""

import pytest
from fuzz_faults import FORMATS as FAULTS
from fuzz_formats import FORMATS
from fuzz_guard import fuzz

COUNT = 300


@pytest.mark.parametrize("name", FORMATS)
def test_mutants_are_used_or_rejected(name: str) -> None:
    """No mutant causes a traceback, a hang, a crash, a long message or excessive memory."""
    outcomes = fuzz(name, COUNT, seed=1)
    assert not outcomes.failures, "\n".join(outcomes.failures[:5])
    assert outcomes.counts["used"] + outcomes.counts["refused"] == COUNT
    assert outcomes.counts["refused"] > 20, "too few mutants are invalid"


@pytest.mark.parametrize("fault", FAULTS)
def test_guard_detects_every_failure(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both of two failing mutants are detected, so the guard continues after a failure."""
    if fault == "hang":  # the others end by themselves, however busy the machine is
        monkeypatch.setattr("fuzz_guard._WAIT_SECONDS", 4.0)
    outcomes = fuzz(fault, 2, module="fuzz_faults")
    assert outcomes.counts == {fault: 2}
    assert [failure.split(":")[0] for failure in outcomes.failures] == ["0", "1"]
