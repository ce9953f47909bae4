"""Sums of hops and windows are those of loops, however the sound is cut up."""

from collections import deque
from itertools import pairwise

import numpy as np
import pytest

from earatlas.hearing.floors import LevelCounts
from earatlas.hearing.hops import HopSums, hop_sums, sliding_sums
from earatlas.hearing.layout import CueLayout, Threshold
from earatlas.hearing.loud_bins import LoudBins
from earatlas.hearing.statistics import LevelStatistics
from earatlas.hearing.transform import stft

LAYOUT = CueLayout(rate=8000, window=64, hop=16, ild_band_hz=(500.0, 4000.0),
                   ipd_band_hz=(300.0, 2000.0))  # fmt: skip


@pytest.fixture
def samples(rng: np.random.Generator) -> np.ndarray:
    """A louder and a softer ear, with pauses, and digital silence at the end."""
    x: np.ndarray = rng.normal(size=(2, 6000)) * np.array([[0.3], [0.02]])
    x *= np.repeat(rng.uniform(0, 1, size=30) ** 3, 200)
    x[:, 5000:] = 0.0
    return x


@pytest.mark.parametrize("step", [1, 7, 400])
def test_hop_sums_are_those_of_a_loop(samples: np.ndarray, step: int) -> None:
    """Q, R, E of each `step` frames, of spectra cut at odd places; the last hop has fewer."""
    spectra = stft(samples, 64, 16)
    floors = np.random.default_rng(2).integers(-75, -45, size=LAYOUT.n_cues)
    edges = [0, 1, 3, 50, 50, 333, spectra.shape[-1]]
    power = (np.abs(spectra[:, 1:]) ** 2).min(axis=0).T * (4 / 64) ** 2
    parts = [
        LoudBins.above(spectra[..., a:b], power[a:b] * 16**2, 1e-8 * 16**2)
        for a, b in pairwise(edges)
    ]
    assert sum(map(len, parts)) < 0.95 * power.size, "what is below every floor is left out"
    found = HopSums.joined(hop_sums(parts, LAYOUT, floors, step))
    y = LAYOUT.stack(*spectra[:, 1:].swapaxes(-1, -2))
    heard = power[:, LAYOUT.cue_frequencies] >= 10.0 ** (floors / 10)
    assert 0.05 < heard.mean() < 0.95
    for n, first in enumerate(range(0, len(y), step)):
        q, v = heard[first : first + step], y[first : first + step]
        assert found.frames[n] == len(q)
        for own, expected in zip(found.table[:, n], (q, q * v, q * v**2), strict=True):
            np.testing.assert_allclose(own, expected.sum(axis=0), rtol=1e-9, atol=1e-9)
    assert len(found) == n + 1


@pytest.mark.parametrize("length", [1, 2, 5, 11, 40, 90])
def test_windows_are_sums_of_hops_in_a_row(rng: np.random.Generator, length: int) -> None:
    """Of any length, from parts of any size; silence is exactly nothing."""
    hops = HopSums(rng.normal(size=(3, 83, 4)), rng.integers(1, 9, size=83).astype(float))
    hops.table[:, 20:70] = 0.0
    edges = [0, 1, 2, 30, 70, 83]
    parts = [hops[a:b] for a, b in pairwise(edges)]
    found = HopSums.joined(sliding_sums(parts, length))
    assert len(found) == max(83 - length + 1, 1)
    for n in range(len(found)):
        own = hops[n : n + length]
        np.testing.assert_allclose(found.table[:, n], own.table.sum(axis=1), rtol=1e-9, atol=1e-12)
        assert found.frames[n] == own.frames.sum()
    if length == 40:
        assert not found.table[:, 21:30].any()


@pytest.mark.parametrize("noise", [0.0, 1e-3])
def test_counts_have_the_floors_of_statistics(samples: np.ndarray, noise: float) -> None:
    """With and without noise in the pauses, from single precision too, at any threshold."""
    samples = samples[:1] * np.array([[1.0], [0.1]])  # one sound, which has a direction
    samples = samples + noise * np.random.default_rng(5).normal(size=samples.shape)
    samples[:, 5000:] = 0.0
    spectra = stft(samples, 64, 16)
    levels = LevelStatistics(LAYOUT)
    levels.push(spectra)
    for threshold in (None, Threshold(relative_db=-20.0)):
        counts, single = LevelCounts(LAYOUT, threshold), LevelCounts(LAYOUT, threshold)
        deque(counts.push(spectra), maxlen=0)
        deque(single.push(stft(samples.astype(np.float32), 64, 16)), maxlen=0)
        expected = levels.floors_db(threshold)
        np.testing.assert_array_equal(counts.floors_db(), expected)
        assert np.abs(single.floors_db() - expected).max() <= 1
    assert (len(np.unique(levels.floors_db())) > 1) == (noise > 0), "raised above the noise"


def test_loud_bins_are_all_that_floors_let_through(samples: np.ndarray) -> None:
    """Whatever is above the floors of the whole was above those of what had been heard by then."""
    spectra = stft(np.hstack([0.1 * samples, samples]), 64, 16)
    edges = [0, 100, 101, 300, spectra.shape[-1]]
    counts, found = LevelCounts(LAYOUT), []
    for a, b in pairwise(edges):
        found += list(counts.push(spectra[..., a:b]))
    whole = LevelCounts(LAYOUT)
    deque(whole.push(spectra), maxlen=0)
    np.testing.assert_array_equal(counts.floors_db(), whole.floors_db())
    sums = HopSums.joined(hop_sums(found, LAYOUT, counts.floors_db(), 7))
    y = LAYOUT.stack(*spectra[:, 1:].swapaxes(-1, -2))
    power = (np.abs(spectra[:, 1:]) ** 2).min(axis=0).T * (4 / 64) ** 2
    heard = power[:, LAYOUT.cue_frequencies] >= 10.0 ** (counts.floors_db() / 10)
    np.testing.assert_allclose(sums.total().table[1, 0], (heard * y).sum(axis=0), atol=1e-9)
    assert heard.sum() < sum(map(len, found)) < 0.8 * power.size
