"""Progress of a separation in two passes."""

import pytest

from earatlas.separation.pipeline import SeparationProgress


def test_progress_is_proportional_to_time() -> None:
    """In the second pass, progress is proportional to time, whatever the first pass took."""
    now, reported = 0.0, []
    progress = SeparationProgress(lambda done, total: reported.append(done / total), lambda: now)
    for step in (1, 2, 3):  # a first pass of 3 s, assumed to be a fifth
        now = float(step)
        progress.report_first_pass(step / 3)
    now = 10.0  # the search took 7 s
    progress.begin_second_pass()
    for block in range(1, 11):  # ten blocks of 2 s, so it ends at 30 s
        now = 10.0 + 2 * block
        progress.report_second_pass(block / 10)
        assert reported[-1] == pytest.approx(now / 30)
    assert reported == sorted(reported)
    now, reported = 0.0, []
    optimistic = SeparationProgress(lambda done, total: reported.append(done / total), lambda: now)
    optimistic.report_first_pass(0.9)
    optimistic.report_first_pass(0.5)  # progress never decreases
    optimistic.begin_second_pass()
    now = 1.0
    optimistic.report_second_pass(0.1)
    assert reported == pytest.approx([0.18, 0.18, 0.18])
