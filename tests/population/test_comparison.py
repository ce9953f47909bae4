"""Which head made a recording: fits relative to those of the other candidates."""

from dataclasses import replace

import numpy as np
import pytest

import earatlas as ea
from earatlas.features.statistics import CueStatistics
from earatlas.population import comparison
from earatlas.population.comparison import compare_learned_heads


def test_a_head_does_not_fit_if_another_one_fits_far_better(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A head with small residuals fits alone, and beside a head that explains the sound as well."""
    monkeypatch.setattr(comparison, "_is_other_head", lambda statistics, head: False)
    head = ea.example_atlas()
    deviation = 0.7 * np.sqrt(head.model.noise) * np.resize([1.0, -1.0], len(head.model.noise))
    similar = replace(head, model=replace(head.model, b=head.model.b + deviation))
    alike = replace(head, model=replace(head.model, b=head.model.b + 1.1 * deviation))
    own = CueStatistics.from_vector(head.model.b[5] - 0.05 * deviation).scaled(100.0)
    assert [one.fits for one in compare_learned_heads(own, [similar])] == [True]
    found = compare_learned_heads(own, [similar, head])
    assert [(one.index, one.fits) for one in found] == [(1, True), (0, False)]
    found = compare_learned_heads(own, [similar, alike])
    assert [(one.index, one.fits) for one in found] == [(0, True), (1, True)]
