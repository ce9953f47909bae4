"""The paper's start of VESSL: from random masks through the scales, on two talkers."""

from __future__ import annotations

import numpy as np
import pytest

import earatlas as ea
from earatlas.evaluation.directions import direction_errors
from earatlas.experiments.vessl_as_published import paper_scales
from earatlas.features.cues import bin_power
from earatlas.features.layout import Threshold
from earatlas.features.stft import stft
from earatlas.features.tf_bins import HeardBins
from earatlas.separation.multiscale_initialization import multiscale
from earatlas.separation.source_model import SourceModel

LAYOUT = ea.CueLayout()
PLACES = ((-45.0, 0.0), (50.0, 20.0))


@pytest.fixture(scope="module")
def scales() -> list[SourceModel]:
    """PPAM as printed at K = 1, 2, … 32 on a plane of the simulated head."""
    head = ea.simulated_head(ea.Plane(((-90.0, 90.0), (-45.0, 45.0))).grid(6.0))
    found = paper_scales(head.directions, head.cues(), 32)
    assert [len(source.model.weights) for source in found] == [1, 2, 4, 8, 16, 32]
    return found


@pytest.fixture(scope="module")
def bins() -> HeardBins:
    """What is heard of two murmurs that overlap throughout."""
    head = ea.simulated_head(np.array(PLACES))
    sounds = [ea.synthetic_speech(3.0, seed=m) for m in (3, 4)]
    scene = ea.render_scene(head, sounds, PLACES, settings=ea.SceneSettings(snr_db=60.0, seed=0))
    spectra = stft(scene.mixture.samples, LAYOUT.window, LAYOUT.hop)
    floor = Threshold().floor_db(float(bin_power(spectra, LAYOUT.window).max()))
    return HeardBins.of_spectra(spectra, LAYOUT, np.full(LAYOUT.n_frequencies, float(floor)))


@pytest.mark.parametrize("seed", range(3))
def test_no_source_is_lost(scales: list[SourceModel], bins: HeardBins, seed: int) -> None:
    """Both keep a fair share of the bins, and stand about where they are."""
    state = multiscale(scales, bins, 2, seed=seed)
    shares = state.assignments.mean(axis=1)
    assert shares.min() > 0.2
    found = np.stack([source.posterior.best for source in state.sources])
    errors = direction_errors(np.array(PLACES), np.clip(found, (-180, -90), (180, 90)))
    assert errors.great_circle_degrees.max() < 15


def test_energies_are_those_after_the_release(scales: list[SourceModel], bins: HeardBins) -> None:
    """Once masking is released on the last scale the free energy never falls."""
    energies = np.array(multiscale(scales[:4], bins, 2, seed=0).free_energies)
    assert len(energies) >= 2
    assert np.all(np.diff(energies) > -1e-6 * np.abs(energies[0]))


def test_the_seed_decides(scales: list[SourceModel], bins: HeardBins) -> None:
    """The same seed, the same answer."""
    first, again = (multiscale(scales[:3], bins, 2, seed=7) for _ in range(2))
    np.testing.assert_array_equal(first.assignments, again.assignments)
