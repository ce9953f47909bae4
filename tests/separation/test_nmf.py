"""Powers of a voice as few spectra: nearer with every step, and what bins alone cannot tell."""

from __future__ import annotations

import numpy as np
from test_underdetermined import three_columns

from earatlas.separation.demixing import underdetermined
from earatlas.separation.demixing.nmf import Repertoire
from earatlas.types import Array, Single

F, T, K = 23, 40, 3


def few_spectra(seed: int) -> Array:
    """Powers (F, T) of three spectra that come and go, over many decibels."""
    rng = np.random.default_rng(seed)
    W, H = 10 ** rng.normal(size=(F, K)), 10 ** rng.normal(size=(K, T))
    powers: Array = (W @ H).astype(np.float32)
    return powers


def divergence(v: Array | Single, model: Array | Single) -> float:
    """Of Itakura and Saito, a bin at a time."""
    total = 0.0
    for f in range(F):
        for t in range(T):
            ratio = float(v[f, t]) / float(model[f, t])
            total += ratio - np.log(ratio) - 1
    return total


def test_no_step_goes_back() -> None:
    """Each step fits better, down to single precision, whatever the level."""
    for level in (1.0, 1e-6):
        v = (level * few_spectra(1)).astype(np.float32)
        found, before = Repertoire.of(v, K), np.inf
        for _ in range(30):
            found = found.fitted(v, 1)
            now = divergence(v, found.powers)
            assert now <= before * (1 + 1e-5)
            before = now
        assert before < 0.05 * divergence(v, np.full_like(v, v.mean()))


def test_steps_add_up() -> None:
    """Going on from where it was is the same as going all the way."""
    v = few_spectra(2)
    once, twice = Repertoire.of(v, K).fitted(v, 7), Repertoire.of(v, K).fitted(v, 4).fitted(v, 3)
    np.testing.assert_array_equal(once.powers, twice.powers)


def test_silence_has_a_repertoire() -> None:
    """Nothing is divided by nothing."""
    v = np.zeros((F, T), dtype=np.float32)
    assert np.isfinite(Repertoire.of(v, K).fitted(v, 3).powers).all()


def test_voices_tell_what_two_ears_cannot() -> None:
    """Powers of three at two ears are nearer to the truth, and none depends on its place."""
    A = three_columns(F)
    truth = np.stack([few_spectra(seed) for seed in (3, 4, 5)])
    truth /= truth.mean(axis=(1, 2), keepdims=True)
    rng = np.random.default_rng(6)
    y = np.sqrt(truth / 2) * (rng.normal(size=truth.shape) + 1j * rng.normal(size=truth.shape))
    X = np.einsum("fam,mft->aft", A, y).astype(np.complex64)
    heard = np.abs(y) ** 2
    start = np.repeat(heard.mean(axis=0, keepdims=True), 3, axis=0).astype(np.float32)
    bins = underdetermined.sparse_powers(X, A, start, 1e-3, 1e-6)
    voices = underdetermined.voiced_powers(X, A, start, 1e-3, 1e-6)
    misses = [float(np.abs(np.log(v / truth)).mean()) for v in (bins, voices)]
    assert misses[1] < 0.9 * misses[0]
    order = [2, 0, 1]
    again = underdetermined.voiced_powers(X, A[..., order], start[order], 1e-3, 1e-6)
    np.testing.assert_allclose(again, voices[order], rtol=2e-2)
