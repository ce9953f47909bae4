"""Onset detector: independence of block sizes, its formulas, and forgetting."""

import numpy as np
import pytest

from earatlas.features.onset_detector import OnsetBins, OnsetDetector, OnsetDetectorSettings
from earatlas.features.stft import stft
from earatlas.simulation.synthetic_speech import synthetic_speech

SETTINGS = OnsetDetectorSettings(most_bins=70)
RATE = 16_000


def onsets(samples: np.ndarray, size: int, *, forgetting: float = 1.0) -> OnsetBins:
    """Return the onsets of a sound in blocks of a given size."""
    stream = OnsetDetector(SETTINGS, forgetting=forgetting)
    for start in range(0, samples.shape[1], size):
        stream.push(samples[:, start : start + size])
    stream.finish()
    return stream.bins()


@pytest.fixture(scope="module")
def sound() -> np.ndarray:
    """Synthetic speech with noise, different at the two ears."""
    rng = np.random.default_rng(3)
    dry = synthetic_speech(1.3, seed=5)
    return np.stack([dry, 0.4 * np.roll(dry, 7)]) + 0.003 * rng.normal(size=(2, len(dry)))


@pytest.mark.parametrize("forgetting", [1.0, 0.99])
def test_block_size_does_not_matter(sound: np.ndarray, forgetting: float) -> None:
    """Single samples, odd block sizes and the whole recording give the same onsets."""
    whole = onsets(sound, sound.shape[1], forgetting=forgetting)
    assert len(whole) == 70
    for size in (1, 127, 4001):
        part = onsets(sound[:, :6000] if size == 1 else sound, size, forgetting=forgetting)
        same = onsets(sound[:, :6000], 6000, forgetting=forgetting) if size == 1 else whole
        np.testing.assert_array_equal(part.f, same.f)
        np.testing.assert_allclose(part.z, same.z, rtol=1e-12)
        np.testing.assert_allclose(part.rise_db, same.rise_db, rtol=1e-9)
        np.testing.assert_allclose(part.snr_db, same.snr_db, rtol=1e-9)


def test_bins_match_slow_loops(sound: np.ndarray) -> None:
    """Envelope, quiet level and rise are computed from their formulas for each bin."""
    X = stft(sound, SETTINGS.window, SETTINGS.hop)[:, SETTINGS.rows]
    P = (np.abs(X) ** 2).sum(axis=0)
    F, T = P.shape
    silence = 1e-10 * (SETTINGS.window / 4) ** 2
    rows = []
    for f in range(F):
        levels = np.sort(np.floor(10 * np.log10(P[f])))
        quiet_db = levels[int(np.ceil(0.15 * T)) - 1] + 0.5
        quiet = 10 ** (quiet_db / 10) / -np.log(0.85)
        e = 0.0
        for t in range(T):
            e *= SETTINGS.decay
            snr = 10 * np.log10(P[f, t] / quiet)
            rise = min(10 * np.log10(P[f, t] / max(e, silence)), snr)
            if rise > 3 and snr > 6 and P[f, t] > 1e-5 * P.max():
                rows.append((rise, f, t, snr))
            e = max(e, P[f, t])
    rows.sort(reverse=True)
    best = sorted(rows[:70], key=lambda row: row[1:3])
    found = onsets(sound, 999)
    np.testing.assert_array_equal(found.f, [row[1] for row in best])
    np.testing.assert_allclose(found.rise_db, [row[0] for row in best], rtol=1e-9)
    np.testing.assert_allclose(found.snr_db, [row[3] for row in best], rtol=1e-9)
    np.testing.assert_allclose(found.z, [X[:, row[1], row[2]] for row in best], rtol=1e-12)


def test_merge_overlapping_parts(sound: np.ndarray) -> None:
    """The result contains the bins of all parts without duplicates."""
    bins = onsets(sound, 512)
    parts = [bins[(bins.t >= first) & (bins.t < last)] for first, last in ((0, 90), (60, 150))]
    unique, rows = OnsetBins.merge_overlapping(parts)
    pairs = list(zip(unique.f.tolist(), unique.t.tolist(), strict=True))
    assert pairs == sorted(
        {(int(f), int(t)) for part in parts for f, t in zip(part.f, part.t, strict=True)}
    )
    assert len(pairs) < sum(map(len, parts))
    for part, own in zip(parts, rows, strict=True):
        for name in ("f", "t", "z", "rise_db", "snr_db"):
            np.testing.assert_array_equal(getattr(unique, name)[own], getattr(part, name))


def test_clicks_are_onsets_but_their_reverberation_is_not() -> None:
    """For clicks followed by decaying noise, only the frames of the clicks are onsets."""
    rng = np.random.default_rng(0)
    n = 2 * RATE
    tail = rng.normal(size=(2, n)) * 10 ** (-3 * (np.arange(n) % 8000) / (0.4 * RATE))
    tail[:, np.arange(n) % 8000 < 200] = 0.0
    clicks = np.zeros((2, n))
    clicks[:, ::8000] = 60.0
    stream = OnsetDetector(OnsetDetectorSettings(most_bins=200))
    stream.push(clicks + tail + 1e-4 * rng.normal(size=(2, n)))
    stream.finish()
    # A click is identical at both ears, whereas the interaural ratio of noise is random.
    ratio = stream.bins().z[:, 1] / stream.bins().z[:, 0]
    assert np.median(np.abs(ratio - 1)) < 0.2


def test_silence_has_no_onsets() -> None:
    """Neither digital silence nor a slowly rising tone has onsets."""
    assert len(onsets(np.zeros((2, 8000)), 500)) == 0
    t = np.arange(RATE) / RATE
    rising = np.tile(np.sin(2 * np.pi * 500 * t) * 10 ** (t - 1), (2, 1))
    rising += 1e-3 * np.random.default_rng(0).normal(size=rising.shape)
    stream = OnsetDetector(SETTINGS)
    stream.push(rising)
    rising_bins = stream.bins()
    assert not (np.abs(SETTINGS.frequencies_hz[rising_bins.f] - 500) < 60).any()


def test_older_onsets_are_discounted() -> None:
    """With a discount of e^-3, most bins belong to the newer of two equal sounds."""
    rng = np.random.default_rng(1)
    sound = np.tile(synthetic_speech(3.0, seed=2), 2)
    both = np.stack([sound, sound]) + 1e-4 * rng.normal(size=(2, len(sound)))
    found = onsets(both, 800, forgetting=float(np.exp(-128 / RATE / 1.0)))
    older = found.t < 3.0 * RATE / 128
    discounted_db = found.rise_db + 10 * np.log10(np.exp(-(found.t.max() - found.t) * 128 / RATE))
    assert older.mean() < 0.2
    assert abs(discounted_db[older].min() - discounted_db[~older].min()) < 1


def test_forgetting_keeps_the_newer_sound() -> None:
    """With forgetting, the onsets are those of the newer of two sounds."""
    rng = np.random.default_rng(1)
    first, second = synthetic_speech(1.0, seed=2), synthetic_speech(1.0, seed=3)
    left = np.concatenate([first, 0.3 * second])
    right = np.concatenate([0.3 * first, second])
    sound = np.stack([left, right]) + 1e-4 * rng.normal(size=(2, len(left)))
    fade = float(np.exp(-128 / RATE / 0.2))
    level = [
        np.median(20 * np.log10(np.abs(found.z[:, 1] / found.z[:, 0])))
        for found in (onsets(sound, 800), onsets(sound, 800, forgetting=fade))
    ]
    assert level[1] > 9 > level[0]
