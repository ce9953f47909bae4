"""Statistics of hops and sliding windows match slow loops, however the sound is split."""

from itertools import pairwise

import numpy as np
import pytest

from earatlas.features.hop_statistics import (
    HopStatistics,
    hop_statistics,
    sliding_statistics,
    whole_statistics,
)
from earatlas.features.layout import CueLayout, Threshold
from earatlas.features.statistics import LevelHistogram, LevelStatistics
from earatlas.features.stft import stft

LAYOUT = CueLayout(rate=8000, window=64, hop=16, ild_band_hz=(500.0, 4000.0),
                   ipd_band_hz=(300.0, 2000.0))  # fmt: skip


@pytest.fixture
def samples(rng: np.random.Generator) -> np.ndarray:
    """Noise at different levels in the ears, with pauses, and digital silence at the end."""
    x: np.ndarray = rng.normal(size=(2, 6000)) * np.array([[0.3], [0.02]])
    x *= np.repeat(rng.uniform(0, 1, size=30) ** 3, 200)
    x[:, 5000:] = 0.0
    return x


@pytest.mark.parametrize("step", [1, 7, 400])
def test_hop_statistics_match_a_loop(samples: np.ndarray, step: int) -> None:
    """Q, R and E of every `step` frames match a loop, wherever the spectra are split."""
    spectra = stft(samples, 64, 16)
    floors = np.random.default_rng(2).integers(-75, -45, size=LAYOUT.n_cues)
    edges = [0, 1, 3, 50, 50, 333, spectra.shape[-1]]
    parts = [spectra[..., a:b] for a, b in pairwise(edges)]
    found = HopStatistics.concatenate(hop_statistics(parts, LAYOUT, floors, step))
    y = LAYOUT.stack(*spectra[:, 1:].swapaxes(-1, -2))
    power = (np.abs(spectra[:, 1:]) ** 2).min(axis=0).T * (4 / 64) ** 2
    observed = power[:, LAYOUT.cue_frequencies] >= 10.0 ** (floors / 10)
    assert 0.05 < observed.mean() < 0.95
    for n, first in enumerate(range(0, len(y), step)):
        q, v = observed[first : first + step], y[first : first + step]
        assert found.frames[n] == len(q)
        for own, expected in zip(found.table[:, n], (q, q * v, q * v**2), strict=True):
            np.testing.assert_allclose(own, expected.sum(axis=0), rtol=1e-9, atol=1e-9)
    assert len(found) == n + 1


@pytest.mark.parametrize("length", [1, 2, 5, 11, 40, 90])
def test_sliding_statistics_match_sums_of_hops(rng: np.random.Generator, length: int) -> None:
    """Windows of any length match sums of hops for parts of any size; silence gives zero."""
    hops = HopStatistics(rng.normal(size=(3, 83, 4)), rng.integers(1, 9, size=83).astype(float))
    hops.table[:, 20:70] = 0.0
    edges = [0, 1, 2, 30, 70, 83]
    parts = [hops[a:b] for a, b in pairwise(edges)]
    found = HopStatistics.concatenate(sliding_statistics(parts, length, hops_at_once=16))
    assert len(found) == max(83 - length + 1, 1)
    for n in range(len(found)):
        own = hops[n : n + length]
        np.testing.assert_allclose(found.table[:, n], own.table.sum(axis=1), rtol=1e-9, atol=1e-12)
        assert found.frames[n] == own.frames.sum()
    if length == 40:
        assert not found.table[:, 21:30].any()


@pytest.mark.parametrize("noise", [0.0, 1e-3])
def test_histogram_has_the_floors_of_level_statistics(samples: np.ndarray, noise: float) -> None:
    """The floors agree with and without noise, in single precision, for several thresholds."""
    samples = samples[:1] * np.array([[1.0], [0.1]])  # a single source
    samples = samples + noise * np.random.default_rng(5).normal(size=samples.shape)
    samples[:, 5000:] = 0.0
    levels, counts, single = LevelStatistics(LAYOUT), LevelHistogram(LAYOUT), LevelHistogram(LAYOUT)
    levels.push(stft(samples, 64, 16))
    counts.push(stft(samples, 64, 16))
    single.push(stft(samples.astype(np.float32), 64, 16))
    for threshold in (None, Threshold(relative_db=-20.0)):
        expected = levels.floors_db(threshold)
        np.testing.assert_array_equal(counts.floors_db(threshold), expected)
        assert np.abs(single.floors_db(threshold) - expected).max() <= 1
    assert (len(np.unique(levels.floors_db())) > 1) == (noise > 0), "raised above the noise"


@pytest.mark.parametrize("noise", [0.0, 0.05])
def test_whole_statistics_are_those_of_level_statistics(samples: np.ndarray, noise: float) -> None:
    """Statistics of a sound in memory agree with those by level up to single precision."""
    layout = LAYOUT
    x = samples + noise * np.random.default_rng(3).normal(size=samples.shape)
    levels = LevelStatistics(layout)
    levels.push(stft(x, layout.window, layout.hop))
    expected, found = levels.statistics(), whole_statistics(x, layout)
    assert found.frames == expected.frames
    # A bin whose level is a whole number of dB may be rounded to either side.
    assert np.abs(found.counts - expected.counts).sum() <= 1e-4 * expected.counts.sum()
    same = found.counts == expected.counts
    np.testing.assert_allclose(found.sums[same], expected.sums[same], atol=2e-3)
    np.testing.assert_allclose(found.squares[same], expected.squares[same], rtol=1e-4, atol=2e-3)
