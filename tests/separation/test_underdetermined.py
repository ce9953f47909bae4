"""Three sources at two ears: columns where bins crowd together, powers of which one falls away."""

from __future__ import annotations

import numpy as np

from earatlas.separation.demixing import steering_vectors, underdetermined
from earatlas.types import Array, Complex


def three_columns(F: int, seed: int = 5) -> Complex:
    """Columns (F, 2, 3) of length 1, well apart."""
    rng = np.random.default_rng(seed)
    phases = np.array([-2.0, 0.1, 2.1]) + 0.2 * rng.normal(size=(F, 3))
    levels = np.array([-0.5, 0.9, 0.1]) + 0.1 * rng.normal(size=(F, 3))
    A = np.stack([np.exp(0.5 * levels), np.exp(-0.5 * levels + 1j * phases)], axis=1)
    columns: Complex = A / np.sqrt((np.abs(A) ** 2).sum(axis=1, keepdims=True))
    return columns


def sparse_sources(F: int, T: int, seed: int = 1, lasting: int = 1) -> Complex:
    """Sources (3, F, T), of which now one and now two are heard, at many frequencies alike."""
    rng = np.random.default_rng(seed)
    few = (F // 16, T // lasting)
    heard = rng.random((3, *few)).argsort(axis=0) < rng.integers(1, 3, size=few)
    heard = np.repeat(heard, lasting, axis=2)
    sound = rng.normal(size=(2, 3, F, T))
    sources: Complex = np.repeat(heard, 16, axis=1) * (sound[0] + 1j * sound[1])
    return sources


def beside_truth(A: Complex, truth: Complex) -> Array:
    """How far each column (F, M) is from the true one: 0 to 1."""
    far: Array = 1 - np.abs((truth.conj() * A).sum(axis=1)) ** 2
    return far


def test_columns_are_where_bins_crowd() -> None:
    """Half the bins hold two sources, and masks split those; columns come out near the truth."""
    F, T = 32, 400
    truth, y = three_columns(F), sparse_sources(F, T)
    X = np.einsum("fam,mft->aft", truth, y)
    power = np.abs(y) ** 2
    q = (power + 1e-9) / (power + 1e-9).sum(axis=0)
    by_masks = beside_truth(
        steering_vectors.principal(steering_vectors.covariances(X, q**2)), truth
    )
    found = beside_truth(underdetermined.crowded_columns(X, q, F), truth)
    assert np.median(found) < 1e-3
    assert found.max() < 0.5 * by_masks.max()


def test_neighbours_mend_masks_that_are_wrong() -> None:
    """Above the learned phases a frequency whose masks are exchanged is put right by the others."""
    F, T = 96, 300
    truth, y = three_columns(F, seed=6), np.tile(sparse_sources(16, T), (1, 6, 1))
    X = np.einsum("fam,mft->aft", truth, y)
    power = np.abs(y) ** 2
    q = (power + 1e-9) / (power + 1e-9).sum(axis=0)
    wrong = [40, 55, 70]
    q[:, wrong] = q[[1, 2, 0]][:, wrong]
    as_told = beside_truth(underdetermined.crowded_columns(X, q, F), truth)
    mended = beside_truth(underdetermined.crowded_columns(X, q, 16), truth)
    assert as_told[wrong].min() > 0.1
    assert mended[wrong].max() < 0.01


def test_powers_against_matrices() -> None:
    """One step is EM's, ½ E[cᴴ R⁻¹ c | x], bin by bin, then half way to the neighbours' mean."""
    rng = np.random.default_rng(2)
    M, F, T, spread, floor = 3, 4, 5, 0.2, 1e-9
    X = rng.normal(size=(2, F, T)) + 1j * rng.normal(size=(2, F, T))
    A = three_columns(F)
    v = rng.uniform(0.2, 2.0, size=(M, F, T))
    expected = np.empty_like(v)
    for f in range(F):
        R = [np.outer(A[f, :, m], A[f, :, m].conj()) + spread * np.eye(2) for m in range(M)]
        for t in range(T):
            S = sum(v[m, f, t] * R[m] for m in range(M))
            for m in range(M):
                W = v[m, f, t] * R[m] @ np.linalg.inv(S)
                c = W @ X[:, f, t]
                C = np.outer(c, c.conj()) + (np.eye(2) - W) @ (v[m, f, t] * R[m])
                expected[m, f, t] = 0.5 * np.trace(np.linalg.solve(R[m], C)).real
    expected = 0.5 * (expected + steering_vectors.smoothed(expected, (3, 3), floor))
    found = underdetermined.sparse_powers(X, A, v, spread, floor, steps=1)
    np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_powers_find_who_is_silent() -> None:
    """From powers that are all alike, the source that is silent falls below the others."""
    F, T = 32, 60
    truth, y = three_columns(F), sparse_sources(F, T, lasting=10)
    X = np.einsum("fam,mft->aft", truth, y)
    alike = np.repeat((np.abs(X) ** 2).sum(axis=0)[None] / 3 + 1e-9, 3, axis=0)
    v = underdetermined.sparse_powers(X, truth, alike, 1e-3, 1e-9)
    silent, heard = v[y == 0], v[y != 0]
    assert np.median(silent) < 0.1 * np.median(heard)
