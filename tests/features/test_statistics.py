"""Cue statistics: their formulas, streaming, noise floors and forgetting."""

import numpy as np
import pytest

from earatlas.features.audio import Audio
from earatlas.features.cues import Cues, audio_cues, spectra_cues
from earatlas.features.layout import CueLayout, Threshold
from earatlas.features.statistics import CueStatistics, LevelStatistics
from earatlas.features.stft import FrameStream, stft

SMALL = CueLayout(rate=8000, window=64, hop=16, ild_band_hz=(0, 4000), ipd_band_hz=(300, 2000))


def rising_noise(rng: np.random.Generator, n: int = 4000) -> np.ndarray:
    """Noise from one direction whose level rises by 120 dB, so that thresholds matter."""
    x = rng.normal(size=n) * np.logspace(-6, 0, n)
    return np.stack([x, 0.3 * np.roll(x, 1)])


def test_statistics_match_their_definition(rng: np.random.Generator) -> None:
    """Q, R and E match slow loops, with NaN in unobserved bins."""
    spectra = rng.normal(size=(2, 33, 5)) + 1j * rng.normal(size=(2, 33, 5))
    cues = spectra_cues(spectra, SMALL)
    observed = rng.random((32, 5)) > 0.4
    values = np.where(observed[SMALL.cue_frequencies], cues.values, np.nan)
    got = CueStatistics.from_cues(Cues(values, observed, SMALL))
    for d, f in enumerate(SMALL.cue_frequencies):
        q = r = e = 0.0
        for t in range(5):
            if observed[f, t]:
                q += 1
                r += values[d, t]
                e += values[d, t] ** 2
        np.testing.assert_allclose(
            (got.counts[d], got.sums[d], got.squares[d]), (q, r, e), rtol=1e-12, atol=1e-12
        )


def test_statistics_are_additive(rng: np.random.Generator) -> None:
    """The statistics of two halves sum to those of the whole recording."""
    spectra = rng.normal(size=(2, 33, 9)) + 1j * rng.normal(size=(2, 33, 9))
    cues = spectra_cues(spectra, SMALL)
    parts = [
        CueStatistics.from_cues(Cues(cues.values[:, s], cues.observed[:, s], SMALL))
        for s in (slice(0, 4), slice(4, 9))
    ]
    whole, total = CueStatistics.from_cues(cues), parts[0] + parts[1]
    np.testing.assert_allclose(total.sums, whole.sums, rtol=1e-12)
    np.testing.assert_allclose(total.squares, whole.squares, rtol=1e-12)
    assert total.frames == 9


@pytest.mark.parametrize("threshold", [Threshold(), Threshold(-30.4, -70.0), Threshold(-90, -50)])
def test_streamed_statistics_equal_those_of_the_recording(
    rng: np.random.Generator, threshold: Threshold
) -> None:
    """One pass in blocks, without knowing the peak, gives the sums of `audio_cues`."""
    x = rising_noise(rng)
    whole = CueStatistics.from_cues(audio_cues(Audio(x, 8000), SMALL, threshold=threshold))
    assert 0.02 < whole.counts.mean() / whole.frames < 0.98
    stream, levels = FrameStream(64, 16), LevelStatistics(SMALL)
    for part in np.array_split(x, 7, axis=1):
        levels.push(stream.push(part))
    levels.push(stream.finish())
    got = levels.statistics(threshold)
    np.testing.assert_array_equal(got.counts, whole.counts)
    np.testing.assert_allclose(got.sums, whole.sums, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(got.squares, whole.squares, rtol=1e-9)
    assert got.frames == whole.frames


def test_noise_raises_the_floor_and_a_steady_sound_does_not(rng: np.random.Generator) -> None:
    """Diffuse noise raises the floor; steady noise from one direction does not."""
    layout = CueLayout()
    n = 48_000
    burst = rng.normal(size=n) * (np.arange(n) % 16_000 < 4_000)
    for noise, low, high in (
        (0.1 * rng.normal(size=(2, n)), 0.0, 0.25),  # independent in the two ears
        (0.1 * rng.normal(size=(1, n)) * [[1.0], [0.5]], 0.9, 1.0),  # from one direction
    ):
        levels = LevelStatistics(layout)
        levels.push(stft(burst * [[1.0], [0.5]] + noise, layout.window, layout.hop))
        got = levels.statistics(Threshold(-80, -120))
        assert low < got.counts[:450].mean() / got.frames < high
        mean = got.sums[:450].sum() / got.counts[:450].sum()
        assert mean == pytest.approx(20 * np.log10(0.5), abs=0.5)  # noise would pull it to 0


def test_digital_silence_does_not_change_the_floor(rng: np.random.Generator) -> None:
    """A second of zeros before a noisy recording hardly changes the counts."""
    layout = CueLayout()
    burst = rng.normal(size=32_000) * (np.arange(32_000) % 16_000 < 4_000)
    x = burst * [[1.0], [0.5]] + 0.1 * rng.normal(size=(2, 32_000))
    counts = []
    for lead in (0, 16_000):
        levels = LevelStatistics(layout)
        padded = np.pad(x, ((0, 0), (lead, 0)))
        levels.push(stft(padded, layout.window, layout.hop))
        counts.append(levels.statistics().counts[:450].sum())
    assert counts[1] == pytest.approx(counts[0], rel=0.01)  # 0.3 %: one bin more at the border


def test_forgetting_matches_its_definition(rng: np.random.Generator) -> None:
    """A frame has the weight g^a after a frames; renormalizing the table changes nothing."""
    spectra = stft(rng.normal(size=(2, 16 * 900)), 64, 16)
    g = 0.6
    levels = LevelStatistics(SMALL, forgetting=g)
    levels.push(spectra[:, :, :500])
    levels.push(spectra[:, :, 500:])
    got = levels.statistics(Threshold(-300, -300))
    frames = spectra.shape[-1]
    age = g ** np.arange(frames - 1, -1, -1)
    y = spectra_cues(spectra, SMALL).values
    np.testing.assert_allclose(got.counts, age.sum(), rtol=1e-9)
    np.testing.assert_allclose(got.sums, y @ age, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(got.squares, y**2 @ age, rtol=1e-9)
    assert got.frames == pytest.approx(age.sum())


def test_statistics_of_one_vector() -> None:
    """One vector y has the statistics Q = 1, R = y and E = y^2."""
    got = CueStatistics.from_vector([2.0, -3.0])
    np.testing.assert_array_equal(got.counts, [1, 1])
    np.testing.assert_array_equal(got.squares, [4, 9])
