"""Onsets: the same whatever the blocks, by the formulas, and where sound arrives."""

import numpy as np
import pytest

from earatlas.features.onset_detector import Gate, OnsetBins, OnsetStream
from earatlas.features.stft import stft
from earatlas.simulation.synthetic_speech import synthetic_speech

GATE = Gate(most_bins=70)
RATE = 16_000


def onsets(samples: np.ndarray, size: int, *, forgetting: float = 1.0) -> OnsetBins:
    """Those of a sound that comes in blocks of a size."""
    stream = OnsetStream(GATE, forgetting=forgetting)
    for start in range(0, samples.shape[1], size):
        stream.push(samples[:, start : start + size])
    stream.finish()
    return stream.bins()


@pytest.fixture(scope="module")
def sound() -> np.ndarray:
    """A synthetic_speech with noise, unequal in the two ears."""
    rng = np.random.default_rng(3)
    dry = synthetic_speech(1.3, seed=5)
    return np.stack([dry, 0.4 * np.roll(dry, 7)]) + 0.003 * rng.normal(size=(2, len(dry)))


@pytest.mark.parametrize("forgetting", [1.0, 0.99])
def test_blocks_change_nothing(sound: np.ndarray, forgetting: float) -> None:
    """Samples one by one, by odd numbers, or all at once."""
    whole = onsets(sound, sound.shape[1], forgetting=forgetting)
    assert len(whole) == 70
    for size in (1, 127, 4001):
        part = onsets(sound[:, :6000] if size == 1 else sound, size, forgetting=forgetting)
        same = onsets(sound[:, :6000], 6000, forgetting=forgetting) if size == 1 else whole
        np.testing.assert_array_equal(part.f, same.f)
        np.testing.assert_allclose(part.z, same.z, rtol=1e-12)
        np.testing.assert_allclose(part.rise_db, same.rise_db, rtol=1e-9)
        np.testing.assert_allclose(part.snr_db, same.snr_db, rtol=1e-9)


def test_bins_are_those_of_the_loops(sound: np.ndarray) -> None:
    """Envelope, quiet level and rise from their formulas, a bin at a time."""
    X = stft(sound, GATE.window, GATE.hop)[:, GATE.rows]
    P = (np.abs(X) ** 2).sum(axis=0)
    F, T = P.shape
    silence = 1e-10 * (GATE.window / 4) ** 2
    rows = []
    for f in range(F):
        levels = np.sort(np.floor(10 * np.log10(P[f])))
        quiet_db = levels[int(np.ceil(0.15 * T)) - 1] + 0.5
        quiet = 10 ** (quiet_db / 10) / -np.log(0.85)
        e = 0.0
        for t in range(T):
            e *= GATE.decay
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


def test_bins_of_overlapping_parts_are_there_once(sound: np.ndarray) -> None:
    """Each bin of each part is found in the whole, which has none twice."""
    bins = onsets(sound, 512)
    parts = [bins[(bins.t >= first) & (bins.t < last)] for first, last in ((0, 90), (60, 150))]
    once, rows = OnsetBins.united(parts)
    pairs = list(zip(once.f.tolist(), once.t.tolist(), strict=True))
    assert pairs == sorted(
        {(int(f), int(t)) for part in parts for f, t in zip(part.f, part.t, strict=True)}
    )
    assert len(pairs) < sum(map(len, parts))
    for part, own in zip(parts, rows, strict=True):
        for name in ("f", "t", "z", "rise_db", "snr_db"):
            np.testing.assert_array_equal(getattr(once, name)[own], getattr(part, name))


def test_clicks_are_onsets_and_their_tails_are_not() -> None:
    """Of clicks with decaying noise behind them only bins of the click's own frames are kept."""
    rng = np.random.default_rng(0)
    n = 2 * RATE
    tail = rng.normal(size=(2, n)) * 10 ** (-3 * (np.arange(n) % 8000) / (0.4 * RATE))
    tail[:, np.arange(n) % 8000 < 200] = 0.0
    clicks = np.zeros((2, n))
    clicks[:, ::8000] = 60.0
    stream = OnsetStream(Gate(most_bins=200))
    stream.push(clicks + tail + 1e-4 * rng.normal(size=(2, n)))
    stream.finish()
    # A click is the same at both ears; of noise the ears' ratio is anything.
    ratio = stream.bins().z[:, 1] / stream.bins().z[:, 0]
    assert np.median(np.abs(ratio - 1)) < 0.2


def test_silence_has_no_onsets() -> None:
    """Neither digital silence nor a tone that swells so slowly that it never arrives."""
    assert len(onsets(np.zeros((2, 8000)), 500)) == 0
    t = np.arange(RATE) / RATE
    steady = np.tile(np.sin(2 * np.pi * 500 * t) * 10 ** (t - 1), (2, 1))
    steady += 1e-3 * np.random.default_rng(0).normal(size=steady.shape)
    stream = OnsetStream(GATE)
    stream.push(steady)
    swelling = stream.bins()
    assert not (np.abs(GATE.frequencies_hz[swelling.f] - 500) < 60).any()


def test_onsets_fade_by_their_power() -> None:
    """Of two that rise alike the older has e^-3 of the newer's power: most bins are the newer's."""
    rng = np.random.default_rng(1)
    sound = np.tile(synthetic_speech(3.0, seed=2), 2)
    both = np.stack([sound, sound]) + 1e-4 * rng.normal(size=(2, len(sound)))
    found = onsets(both, 800, forgetting=float(np.exp(-128 / RATE / 1.0)))
    older = found.t < 3.0 * RATE / 128
    merit = found.rise_db + 10 * np.log10(np.exp(-(found.t.max() - found.t) * 128 / RATE))
    assert older.mean() < 0.2
    assert abs(merit[older].min() - merit[~older].min()) < 1


def test_older_onsets_are_forgotten() -> None:
    """With forgetting, the bins are those of the newer of two sounds."""
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
