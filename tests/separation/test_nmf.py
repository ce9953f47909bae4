"""Itakura-Saito NMF: the divergence decreases, and NMF improves underdetermined powers."""

from __future__ import annotations

import numpy as np
from test_underdetermined import three_steering_vectors

from earatlas.separation.demixing import underdetermined
from earatlas.separation.demixing.underdetermined import ItakuraSaitoNMF, UnderdeterminedSettings
from earatlas.separation.demixing.wiener import SourceCovariances
from earatlas.types import Array, Single

F, T, K = 23, 40, 3


def low_rank_powers(seed: int) -> Array:
    """Return powers (F, T) of three spectral templates with a large dynamic range."""
    rng = np.random.default_rng(seed)
    W, H = 10 ** rng.normal(size=(F, K)), 10 ** rng.normal(size=(K, T))
    powers: Array = (W @ H).astype(np.float32)
    return powers


def divergence(v: Array | Single, model: Array | Single) -> float:
    """Return the Itakura-Saito divergence by a loop over bins."""
    total = 0.0
    for f in range(F):
        for t in range(T):
            ratio = float(v[f, t]) / float(model[f, t])
            total += ratio - np.log(ratio) - 1
    return total


def test_divergence_never_increases() -> None:
    """Every update decreases the divergence up to single precision, at any level."""
    for level in (1.0, 1e-6):
        v = (level * low_rank_powers(1)).astype(np.float32)
        model, before = ItakuraSaitoNMF.initialize(v, K), np.inf
        for _ in range(30):
            model = model.fit(v, 1)
            current = divergence(v, model.powers)
            assert current <= before * (1 + 1e-5)
            before = current
        assert before < 0.05 * divergence(v, np.full_like(v, v.mean()))


def test_fit_can_be_continued() -> None:
    """Continuing a fit gives the same result as one longer fit."""
    v = low_rank_powers(2)
    once, twice = (
        ItakuraSaitoNMF.initialize(v, K).fit(v, 7),
        ItakuraSaitoNMF.initialize(v, K).fit(v, 4).fit(v, 3),
    )
    np.testing.assert_array_equal(once.powers, twice.powers)


def test_silence_gives_finite_powers() -> None:
    """There is no division by zero."""
    v = np.zeros((F, T), dtype=np.float32)
    assert np.isfinite(ItakuraSaitoNMF.initialize(v, K).fit(v, 3).powers).all()


def test_nmf_improves_underdetermined_powers() -> None:
    """Powers of three sources are closer to the truth, independently of their order."""
    A = three_steering_vectors(F)
    truth = np.stack([low_rank_powers(seed) for seed in (3, 4, 5)])
    truth /= truth.mean(axis=(1, 2), keepdims=True)
    rng = np.random.default_rng(6)
    y = np.sqrt(truth / 2) * (rng.normal(size=truth.shape) + 1j * rng.normal(size=truth.shape))
    X = np.einsum("fam,mft->aft", A, y).astype(np.complex64)
    power = np.abs(y) ** 2
    initial = np.repeat(power.mean(axis=0, keepdims=True), 3, axis=0).astype(np.float32)
    settings = UnderdeterminedSettings()
    R = SourceCovariances.from_steering_vectors(A.astype(X.dtype), 1e-3)
    em_powers = underdetermined.em_source_powers(X, R, initial, 1e-6, (3, 3), 10)
    nmf_powers = underdetermined.nmf_source_powers(X, R, initial, 1e-6, settings)
    errors = [float(np.abs(np.log(v / truth)).mean()) for v in (em_powers, nmf_powers)]
    assert errors[1] < 0.9 * errors[0]
    order = [2, 0, 1]
    R = SourceCovariances.from_steering_vectors(A[..., order].astype(X.dtype), 1e-3)
    reordered = underdetermined.nmf_source_powers(X, R, initial[order], 1e-6, settings)
    np.testing.assert_allclose(reordered, nmf_powers[order], rtol=2e-2)
