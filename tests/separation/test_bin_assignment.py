"""The E-W step against loops over bins, cues and sources, written from its formula."""

from __future__ import annotations

from typing import Any

import numpy as np
import oracles
import pytest

from earatlas.features.layout import CueLayout
from earatlas.features.tf_bins import ObservedBins
from earatlas.separation.bin_assignment import (
    CueDensities,
    WeightCells,
    dense_masks,
    responsibilities,
)
from earatlas.types import Array

# F=8; ILD on bins 0-6 and IPD on 2-4: D=13. Bin 7 has no cue.
LAYOUT = CueLayout(rate=16, window=16, hop=2, ild_band_hz=(0.0, 7.0), ipd_band_hz=(2.0, 5.0))
M, F, T, D = 3, 8, 70, LAYOUT.n_cues
EXACT: dict[str, Any] = {"rtol": 1e-9, "atol": 1e-12}


def random_moments(seed: int) -> tuple[Array, Array, Array]:
    """Return E[s], E[s²] (M, D) and v (D,) without symmetries."""
    rng = np.random.default_rng(seed)
    cues = rng.normal(size=(M, D))
    return cues, cues**2 + rng.uniform(0.1, 0.5, (M, D)), rng.uniform(0.3, 2.0, D)


def loop_responsibilities(
    y: Array, cues: Array, squares: Array, v: Array, weights: Array
) -> tuple[Array, float]:
    """Return q (M,) and log Σ_m λ_m p_m of one bin with cues y (D,), NaN where it has none."""
    p = np.empty(len(cues))
    for m in range(len(cues)):
        log_p = 0.0
        for d in range(len(y)):
            if not np.isnan(y[d]):
                error = y[d] ** 2 - 2 * y[d] * cues[m, d] + squares[m, d]
                log_p -= 0.5 * (np.log(2 * np.pi * v[d]) + error / v[d])
        p[m] = weights[m] * np.exp(log_p)
    return p / p.sum(), float(np.log(p.sum()))


@pytest.mark.parametrize("bands", [None, 3])
def test_responsibilities_against_loops(bands: int | None) -> None:
    """Responsibilities and evidence of observed bins equal the formula, bin by bin."""
    bins = oracles.random_bins(LAYOUT, 5, 4)
    cells = WeightCells(F, 5, bands)
    weights = np.random.default_rng(1).dirichlet(np.ones(M), len(cells)).T
    moments = random_moments(7)
    logs = CueDensities.from_moments(*moments).of_bins(bins)
    q, evidence = responsibilities(logs + np.log(weights)[:, cells.of(bins.f, bins.t)])
    y = oracles.dense_cues(bins)
    for n, (f, t) in enumerate(zip(bins.f, bins.t, strict=True)):
        own = np.where(LAYOUT.cue_frequencies == f, y[:, t], np.nan)
        cell = f if bands is None else t * bands + f * bands // F
        expected, log_sum = loop_responsibilities(own, *moments, weights[:, cell])
        np.testing.assert_allclose(q[:, n], expected, **EXACT)
        np.testing.assert_allclose(evidence[n], log_sum, **EXACT)


def test_responsibilities_of_unlikely_bins() -> None:
    """Likelihoods below the smallest number neither underflow nor change the input."""
    logs = np.array([[-2000.0, 5.0], [-2001.0, 800.0]])
    q, evidence = responsibilities(logs)
    odds = 1 / (1 + np.exp(-1))
    np.testing.assert_allclose(q[:, 0], [odds, 1 - odds], **EXACT)
    np.testing.assert_allclose(evidence, [-2000 + np.log(1 + np.exp(-1)), 800.0], **EXACT)
    assert logs[1, 1] == 800.0


@pytest.mark.parametrize("bands", [None, 3])
def test_mean_per_cell_against_loops(bands: int | None) -> None:
    """Mixing weights are the means of a cell's bins, with a prior; empty cells are uniform."""
    bins = oracles.random_bins(LAYOUT, 5, 4)
    cells = WeightCells(F, 5, bands)
    cell = cells.of(bins.f, bins.t)
    q = np.random.default_rng(2).dirichlet(np.ones(M), len(bins)).T
    for prior_bins in (0.0, 0.7):
        weights = cells.mean(q, cell, prior_bins)
        assert weights.shape == (M, F if bands is None else 5 * bands)
        for c in range(len(cells)):
            own = q[:, cell == c]
            total = own.sum(axis=1) + prior_bins
            expected = total / total.sum() if total.sum() else np.full(M, 1 / M)
            np.testing.assert_allclose(weights[:, c], expected, **EXACT)


@pytest.mark.parametrize("bands", [None, 3])
def test_dense_masks_equal_responsibilities(bands: int | None) -> None:
    """They agree in every step, at low levels and over several chunks of frames.

    A silent ear gives finite masks.
    """
    rng, starts = np.random.default_rng(21), np.array([0, 2, 67])
    spectra = np.empty((2, F + 1, T), dtype=np.complex128)
    spectra.real, spectra.imag = 1e-3 * rng.normal(size=(2, 2, F + 1, T))
    spectra[:, 3, 5], spectra[1, 4, 6] = 0.0, 0.0
    cells = WeightCells(F, T, bands)
    weights = rng.dirichlet(np.ones(M), len(cells)).T
    densities = [CueDensities.from_moments(*random_moments(seed)) for seed in range(3)]
    masks = dense_masks(densities, starts, cells, weights, spectra, LAYOUT)
    np.testing.assert_allclose(masks.sum(axis=0), 1.0, rtol=1e-6)
    assert np.isfinite(masks).all()
    f, t = (index.ravel() for index in np.indices((F, T)))
    bins = ObservedBins.at(spectra, LAYOUT, f, t)
    log_weights = np.log(weights)[:, cells.of(f, t)]
    both = np.asarray((np.abs(spectra[:, 1:]) > 0).all(axis=0))
    for s, (begin, end) in enumerate([(0, 2), (2, 67), (67, T)]):
        expected, _ = responsibilities(densities[s].of_bins(bins) + log_weights)
        inside = both.copy()
        inside[:, :begin], inside[:, end:] = False, False
        np.testing.assert_allclose(
            masks[:, inside], expected.reshape(M, F, T)[:, inside], atol=1e-5
        )
