"""Spectrogram summaries: means over cells, any division into parts, and bounded size."""

from itertools import pairwise

import numpy as np
import pytest

from earatlas.features.layout import CueLayout
from earatlas.features.stft import bin_power
from earatlas.features.tf_bins import ObservedBins
from earatlas.separation.assembly import SpectrogramAccumulator, SpectrogramSettings
from earatlas.separation.result import SpectrogramSummary

LAYOUT = CueLayout(rate=16, window=16, hop=2, ild_band_hz=(0.0, 7.0), ipd_band_hz=(2.0, 5.0))
M, T = 3, 23


# Cells of 3 bins by 4 frames, the last ones smaller: F=8, T=23.
COARSE = SpectrogramSettings(max_times=6, max_frequencies=3)


def random_recording() -> tuple[np.ndarray, np.ndarray]:
    """Return spectra (2, 9, T) of very unequal levels and masks (M, 8, T) that sum to 1."""
    rng = np.random.default_rng(3)
    spectra = 10 ** rng.uniform(-2, 0, (2, 9, T)) * np.exp(2j * np.pi * rng.random((2, 9, T)))
    spectra[:, 1:4, 4:8] *= 1e-4  # a cell without observed bins
    return spectra, np.moveaxis(rng.dirichlet(np.ones(M), (8, T)), -1, 0)


def observed_bins(spectra: np.ndarray) -> ObservedBins:
    """Return the bins whose weaker ear is above -38 dB."""
    return ObservedBins.from_spectra(spectra, LAYOUT, np.full(8, -38.0))


def summarize(cuts: list[int], settings: SpectrogramSettings = COARSE) -> SpectrogramSummary:
    """Return the summary of the recording, accumulated in parts."""
    spectra, masks = random_recording()
    builder = SpectrogramAccumulator(LAYOUT, T, M, settings)
    edges = [0, *cuts, T]
    for first, last in pairwise(edges):
        part = spectra[:, :, first:last]
        power = bin_power(part, 16).sum(axis=0)
        builder.add(part, power, masks[:, :, first:last], first, observed_bins(part))
    return builder.summary()


def test_summary_of_parts_equals_that_of_the_recording() -> None:
    """The recording may be split anywhere, also within a column."""
    whole, pieces = summarize([]), summarize([1, 6, 8, 17])
    for name in ("seconds", "frequencies_hz", "level_db", "ild_db", "masks"):
        ours, theirs = getattr(pieces, name), getattr(whole, name)
        np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-12)


def test_cell_of_a_summary_is_the_mean_of_its_bins() -> None:
    """Power is the mean of all bins; cues and masks are means of observed bins, or NaN."""
    summary = summarize([])
    spectra, masks = random_recording()
    observed, power = observed_bins(spectra), bin_power(spectra, 16).sum(axis=0)
    observed_positions = set(zip(observed.f.tolist(), observed.t.tolist(), strict=True))
    assert repr(summary) == "SpectrogramSummary(3 sources, 3 x 6)"
    empty = 0
    for row in range(3):
        for column in range(6):
            bins = [
                (f, t)
                for f in range(3 * row, min(3 * row + 3, 8))
                for t in range(4 * column, min(4 * column + 4, T))
            ]
            level = 10 * np.log10(np.mean([power[f, t] for f, t in bins]))
            np.testing.assert_allclose(summary.level_db[row, column], level, rtol=1e-12)
            own = [(f, t) for f, t in bins if (f, t) in observed_positions]
            if not own:
                empty += 1
                assert np.isnan(summary.ild_db[row, column])
                assert np.isnan(summary.masks[:, row, column]).all()
                continue
            ratios = [spectra[1, f + 1, t] / spectra[0, f + 1, t] for f, t in own]
            ild = np.mean([20 * np.log10(abs(ratio)) for ratio in ratios])
            np.testing.assert_allclose(summary.ild_db[row, column], ild, rtol=1e-9)
            mask = np.mean([masks[:, f, t] for f, t in own], axis=0)
            np.testing.assert_allclose(summary.masks[:, row, column], mask, rtol=1e-12)
    assert empty == 1
    # Bins 1-3 have a mean of 2 Hz, frames 0-3 of 1.5 hops of 1/8 s.
    np.testing.assert_allclose(summary.frequencies_hz[:2], [2.0, 5.0])
    np.testing.assert_allclose(summary.seconds[:2], [1.5 / 8, 5.5 / 8])


def test_summary_of_a_short_recording_has_all_bins() -> None:
    """There is one cell per bin, at its own frequency and time."""
    summary = summarize([], SpectrogramSettings())
    assert summary.masks.shape == (M, 8, T)
    np.testing.assert_allclose(summary.frequencies_hz, LAYOUT.frequencies_hz)
    np.testing.assert_allclose(summary.seconds, np.arange(T) / 8)


def test_summary_of_a_long_recording_has_bounded_size() -> None:
    """The size of the summary does not grow with the duration."""
    summary = SpectrogramAccumulator(CueLayout(), 450_000, 2, SpectrogramSettings()).summary()
    assert summary.masks.shape[0] == 2
    assert summary.masks.shape[1] == 256
    assert 600 < summary.masks.shape[2] <= 1200
    assert summary.seconds[-1] == pytest.approx(3600, rel=2e-3)
