"""Observed bins: sums over slices of the sorted list match loops over cues and frames."""

from __future__ import annotations

from typing import Any

import numpy as np
import oracles
import pytest

from earatlas.features.cues import spectra_cues
from earatlas.features.layout import CueLayout
from earatlas.features.stft import bin_power
from earatlas.features.tf_bins import ObservedBins, full_band_layout, interaural_coherence

# F=8: ILD at bins 0-6, IPD at bins 2-4, no cue at bin 7. The others have all cues, or one kind.
NARROW = CueLayout(rate=16, window=16, hop=2, ild_band_hz=(0.0, 7.0), ipd_band_hz=(2.0, 5.0))
LAYOUTS = {
    "both": NARROW,
    "everywhere": CueLayout(16, 16, 2, (0.0, 8.0), (0.0, 8.0)),
    "no phase": CueLayout(rate=16, window=16, hop=2, ild_band_hz=(3.0, 8.0), ipd_band_hz=None),
    "no level": CueLayout(rate=16, window=16, hop=2, ild_band_hz=None, ipd_band_hz=(1.0, 6.0)),
}
every_layout = pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS.keys())
EXACT: dict[str, Any] = {"rtol": 1e-12, "atol": 1e-13}
M, T = 3, 6


def random_spectra(frames: int = T, seed: int = 0) -> np.ndarray:
    """Return random spectra (2, 9, T) with levels that differ by 40 dB from bin to bin."""
    rng = np.random.default_rng(seed)
    shape = (2, 9, frames)
    phase = np.exp(2j * np.pi * rng.random(shape))
    return 10 ** rng.uniform(-2, 0, shape) * phase  # type: ignore[no-any-return]


def assert_same(a: ObservedBins, b: ObservedBins) -> None:
    """Assert that two lists have the same bins with the same cues."""
    assert a.layout == b.layout
    assert a.frames == b.frames
    np.testing.assert_array_equal(a.f, b.f)
    np.testing.assert_array_equal(a.t, b.t)
    np.testing.assert_array_equal(a.level_db, b.level_db)
    for ours, theirs in zip(a.values, b.values, strict=True):
        np.testing.assert_array_equal(ours, theirs)


@every_layout
def test_cues_are_those_of_the_spectrogram(layout: CueLayout) -> None:
    """The bins are those in which both ears reach the floor of their frequency."""
    spectra = random_spectra()
    floors = np.linspace(-48, -28, layout.n_frequencies)
    bins = ObservedBins.from_spectra(spectra, layout, floors)
    power = bin_power(spectra, layout.window)
    weaker = np.minimum(power[0], power[1])
    observed = [
        (f, t) for f in range(8) for t in range(T) if weaker[f, t] >= 10 ** (floors[f] / 10)
    ]
    assert 5 < len(observed) < 40
    assert list(zip(bins.f.tolist(), bins.t.tolist(), strict=True)) == observed
    expected = spectra_cues(spectra, layout).values
    found = oracles.dense_cues(bins)
    for d, f in enumerate(layout.cue_frequencies):
        for t in range(T):
            if (f, t) in observed:
                np.testing.assert_allclose(found[d, t], expected[d, t], **EXACT)
            else:
                assert np.isnan(found[d, t])
    levels = [10 * np.log10(weaker[f, t]) for f, t in observed]
    np.testing.assert_allclose(bins.level_db, levels, **EXACT)


def test_silent_bins_have_the_cues_of_the_spectrogram() -> None:
    """Silent bins that are selected explicitly have 0 dB and 0 rad, without a warning."""
    spectra = random_spectra()
    spectra[:, 3, 2] = 0
    f, t = (index.ravel() for index in np.indices((8, T)))
    bins = ObservedBins.at(spectra, LAYOUTS["everywhere"], f, t)
    expected = spectra_cues(spectra, bins.layout).values
    np.testing.assert_allclose(oracles.dense_cues(bins), expected, **EXACT)


@every_layout
def test_statistics_match_loops(layout: CueLayout) -> None:
    """Weighted Q, R and E match loops; they are 0 without observed bins."""
    bins, rng = oracles.random_bins(layout, T, 1), np.random.default_rng(2)
    assert 0 in bins.counts[:-1]
    w = rng.random((M, len(bins)))
    y, spread = oracles.dense_cues(bins), oracles.dense_weights(bins, w)
    Q, R, E = oracles.moments(bins.statistics(w))
    assert Q.shape == (M, layout.n_cues)
    for m in range(M):
        for d, f in enumerate(layout.cue_frequencies):
            observed = [t for t in range(T) if (bins.t[bins.f == f] == t).any()]
            weights = [spread[m, f, t] for t in observed]
            values = [y[d, t] for t in observed]
            moments = [
                sum(a * b**power for a, b in zip(weights, values, strict=True))
                for power in range(3)
            ]
            np.testing.assert_allclose([Q[m, d], R[m, d], E[m, d]], moments, **EXACT)


@every_layout
def test_quadratic_forms_of_a_bin(layout: CueLayout) -> None:
    """The sum over the cues of a bin matches a loop, and is 0 for a bin without cues."""
    bins, rng = oracles.random_bins(layout, T, 3), np.random.default_rng(4)
    square, linear, constant = rng.normal(size=(3, M, layout.n_cues))
    y = oracles.dense_cues(bins)
    expected = np.zeros((M, len(bins)))
    for m in range(M):
        for n, (f, t) in enumerate(zip(bins.f, bins.t, strict=True)):
            for d in np.flatnonzero(layout.cue_frequencies == f):
                expected[m, n] += square[m, d] * y[d, t] ** 2 + linear[m, d] * y[d, t]
                expected[m, n] += constant[m, d]
    np.testing.assert_allclose(bins.quadratic(square, linear, constant), expected, **EXACT)


@every_layout
def test_diffuse_log_likelihood(layout: CueLayout) -> None:
    """Levels have a wide normal distribution, and phases are uniform."""
    bins = oracles.random_bins(layout, T, 3)
    y = oracles.dense_cues(bins)
    expected = [
        oracles.diffuse_log_density(layout, y[:, t], f) for f, t in zip(bins.f, bins.t, strict=True)
    ]
    np.testing.assert_allclose(bins.diffuse_log_likelihood(), expected, **EXACT)


@every_layout
def test_subset_of_bins(layout: CueLayout) -> None:
    """A subset has the cues of its bins; it may be empty."""
    bins, rng = oracles.random_bins(layout, T, 5), np.random.default_rng(6)
    y = oracles.dense_cues(bins)
    for fraction in (0.0, 0.4, 1.0):
        rows = np.flatnonzero(rng.random(len(bins)) < fraction)
        some = bins.subset(rows)
        assert len(some) == len(rows)
        np.testing.assert_array_equal(some.f, bins.f[rows])
        np.testing.assert_array_equal(some.t, bins.t[rows])
        np.testing.assert_array_equal(some.level_db, bins.level_db[rows])
        expected = np.full_like(y, np.nan)
        for f, t in zip(some.f, some.t, strict=True):
            expected[layout.cue_frequencies == f, t] = y[layout.cue_frequencies == f, t]
        np.testing.assert_array_equal(oracles.dense_cues(some), expected)


def test_restriction_to_a_narrower_layout() -> None:
    """The bins are the same, with the cues of the narrower layout."""
    bins = oracles.random_bins(LAYOUTS["everywhere"], T, 7)
    y = oracles.dense_cues(bins)
    for layout in LAYOUTS.values():
        narrow = bins.restricted_to(layout)
        np.testing.assert_array_equal(narrow.f, bins.f)
        expected = y[layout.indices_in(bins.layout)]
        np.testing.assert_array_equal(oracles.dense_cues(narrow), expected)
    twice = bins.restricted_to(NARROW).restricted_to(
        CueLayout(rate=16, window=16, hop=2, ild_band_hz=(2.0, 6.0), ipd_band_hz=(3.0, 4.0))
    )
    expected = y[twice.layout.indices_in(bins.layout)]
    np.testing.assert_array_equal(oracles.dense_cues(twice), expected)


@every_layout
def test_concatenated_parts_equal_the_recording(layout: CueLayout) -> None:
    """Parts of 5, 1 and 7 frames, one of them silent, give the bins of the recording."""
    spectra = random_spectra(13)
    spectra[:, :, 5] *= 1e-9
    floors = np.full(layout.n_frequencies, -35.0)
    parts = [
        ObservedBins.from_spectra(part, layout, floors)
        for part in np.split(spectra, [5, 6], axis=2)
    ]
    assert [part.frames for part in parts] == [5, 1, 7]
    assert len(parts[1]) == 0
    assert_same(ObservedBins.concatenate(parts), ObservedBins.from_spectra(spectra, layout, floors))
    assert_same(ObservedBins.concatenate(parts[:1]), parts[0])


def test_empty_list_of_bins() -> None:
    """Without bins, all sums are 0."""
    bins = oracles.random_bins(NARROW, T, 8, share=0.0)
    assert len(bins) == 0
    for total in oracles.moments(bins.statistics(np.zeros((M, 0)))):
        assert not total.any()
    assert repr(bins) == "ObservedBins(0 of 48 bins)"


@every_layout
def test_full_band_layout_has_phase_at_all_bins(layout: CueLayout) -> None:
    """The IPD covers every bin, whatever the band of the layout."""
    wide = full_band_layout(layout)
    np.testing.assert_array_equal(wide.ipd_frequencies, np.arange(8))
    assert (wide.rate, wide.window, wide.hop) == (16, 16, 2)
    layout.indices_in(wide)


def test_full_band_layout_has_the_same_levels() -> None:
    """Only phases are added, because N(0, 1/2) is not a prior of a level difference in dB."""
    for layout in LAYOUTS.values():
        np.testing.assert_array_equal(
            full_band_layout(layout).ild_frequencies, layout.ild_frequencies
        )


@pytest.mark.parametrize("reach", [1, 2])
def test_coherence_matches_its_definition(reach: int) -> None:
    """It is |Σ R L*|² / (Σ |L|² Σ |R|²), with the first and last frame repeated at the ends."""
    spectra = random_spectra(9)
    left, right = spectra[:, 1:]
    found = interaural_coherence(spectra, reach)
    for f in range(8):
        for t in range(9):
            near = [min(max(t + i, 0), 8) for i in range(-reach, reach + 1)]
            cross = sum(right[f, i] * left[f, i].conj() for i in near)
            powers = [sum(abs(ear[f, i]) ** 2 for i in near) for ear in (left, right)]
            expected = abs(cross) ** 2 / (powers[0] * powers[1])
            np.testing.assert_allclose(found[f, t], expected, rtol=1e-5)  # single precision


def test_coherence_of_one_source_is_one() -> None:
    """A constant interaural ratio has coherence 1, and silence has coherence 0."""
    spectra = random_spectra(9)
    ratio = np.random.default_rng(3).normal(size=(9, 1)) + 0.5j
    spectra[1] = ratio * spectra[0]
    spectra[:, 4] = 0
    found = interaural_coherence(spectra)
    np.testing.assert_allclose(np.delete(found, 3, axis=0), 1.0, rtol=1e-6)
    assert not found[3].any()
