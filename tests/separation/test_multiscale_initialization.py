"""Multi-scale initialization of VESSL as in the paper, on two talkers."""

from __future__ import annotations

import numpy as np
import pytest

import earatlas as ea
from earatlas.evaluation.directions import direction_errors
from earatlas.experiments.vessl_as_published import paper_scales
from earatlas.features.layout import Threshold
from earatlas.features.stft import bin_power, stft
from earatlas.features.tf_bins import ObservedBins
from earatlas.separation.multiscale_initialization import multiscale_vessl
from earatlas.separation.source_model import SourceModel

LAYOUT = ea.CueLayout()
DIRECTIONS = ((-45.0, 0.0), (50.0, 20.0))


@pytest.fixture(scope="module")
def scales() -> list[SourceModel]:
    """Return models of the paper at K = 1, 2, … 32 on a plane of the simulated head."""
    head = ea.simulated_head(ea.Plane(((-90.0, 90.0), (-45.0, 45.0))).grid(6.0))
    models = paper_scales(head.directions, head.cues(), 32)
    assert [len(source.model.weights) for source in models] == [1, 2, 4, 8, 16, 32]
    return models


@pytest.fixture(scope="module")
def bins() -> ObservedBins:
    """Return the observed bins of two synthetic talkers who speak all the time."""
    head = ea.simulated_head(np.array(DIRECTIONS))
    sounds = [ea.synthetic_speech(3.0, seed=m) for m in (3, 4)]
    scene = ea.render_scene(
        head, sounds, DIRECTIONS, settings=ea.SceneSettings(snr_db=60.0, seed=0)
    )
    spectra = stft(scene.mixture.samples, LAYOUT.window, LAYOUT.hop)
    floor = Threshold().floor_db(float(bin_power(spectra, LAYOUT.window).max()))
    return ObservedBins.from_spectra(spectra, LAYOUT, np.full(LAYOUT.n_frequencies, float(floor)))


@pytest.mark.parametrize("seed", range(3))
def test_no_source_is_lost(scales: list[SourceModel], bins: ObservedBins, seed: int) -> None:
    """Both sources keep a fifth of the bins at least, and their directions are right."""
    state = multiscale_vessl(scales, bins, 2, seed=seed)
    fractions = state.assignments.mean(axis=1)
    assert fractions.min() > 0.2
    found = np.stack([source.posterior.best for source in state.sources])
    errors = direction_errors(np.array(DIRECTIONS), np.clip(found, (-180, -90), (180, 90)))
    assert errors.great_circle_degrees.max() < 15


def test_free_energy_never_decreases_after_progressive_masking(
    scales: list[SourceModel], bins: ObservedBins
) -> None:
    """At the last scale, the free energies begin after progressive masking and never decrease."""
    energies = np.array(multiscale_vessl(scales[:4], bins, 2, seed=0).free_energies)
    assert len(energies) >= 2
    assert np.all(np.diff(energies) > -1e-6 * np.abs(energies[0]))


def test_result_is_determined_by_the_seed(scales: list[SourceModel], bins: ObservedBins) -> None:
    """Two runs with one seed give the same assignments."""
    first, second = (multiscale_vessl(scales[:3], bins, 2, seed=7) for _ in range(2))
    np.testing.assert_array_equal(first.assignments, second.assignments)
