"""Three sources at two ears: steering vectors from clusters of bins, and sparse powers."""

from __future__ import annotations

import numpy as np

from earatlas.parts import complete
from earatlas.separation.demixing import determined
from earatlas.separation.demixing.determined import SecondMoments
from earatlas.separation.demixing.underdetermined import (
    UnderdeterminedSettings,
    em_source_powers,
    underdetermined_steering_vectors,
)
from earatlas.separation.demixing.wiener import SourceCovariances
from earatlas.types import Array, Complex

SETTINGS = UnderdeterminedSettings()


def three_steering_vectors(F: int, seed: int = 5) -> Complex:
    """Return unit steering vectors (F, 2, 3) that differ clearly."""
    rng = np.random.default_rng(seed)
    phases = np.array([-2.0, 0.1, 2.1]) + 0.2 * rng.normal(size=(F, 3))
    levels = np.array([-0.5, 0.9, 0.1]) + 0.1 * rng.normal(size=(F, 3))
    A = np.stack([np.exp(0.5 * levels), np.exp(-0.5 * levels + 1j * phases)], axis=1)
    vectors: Complex = A / np.sqrt((np.abs(A) ** 2).sum(axis=1, keepdims=True))
    return vectors


def sparse_sources(F: int, T: int, seed: int = 1, duration: int = 1) -> Complex:
    """Return sources (3, F, T), one or two of them active at a time, in wide bands."""
    rng = np.random.default_rng(seed)
    shape = (F // 16, T // duration)
    active = rng.random((3, *shape)).argsort(axis=0) < rng.integers(1, 3, size=shape)
    active = np.repeat(active, duration, axis=2)
    noise = rng.normal(size=(2, 3, F, T))
    sources: Complex = np.repeat(active, 16, axis=1) * (noise[0] + 1j * noise[1])
    return sources


def steering_vectors_of(
    X: Complex, q: Array, n_phase_bins: int, settings: UnderdeterminedSettings
) -> Complex:
    """Return the steering vectors of spectra X (2, F, T)."""
    moments = SecondMoments.from_spectra(X)
    return complete(underdetermined_steering_vectors(moments, q, n_phase_bins, settings))


def orthogonal_error(A: Complex, truth: Complex) -> Array:
    """Return the orthogonal energy fraction (F, M) of each steering vector, from 0 to 1."""
    error: Array = 1 - np.abs((truth.conj() * A).sum(axis=1)) ** 2
    return error


def test_steering_vectors_follow_clusters_of_bins() -> None:
    """Half of the bins hold two sources; the steering vectors are still close to the truth."""
    F, T = 32, 400
    truth, y = three_steering_vectors(F), sparse_sources(F, T)
    X = np.einsum("fam,mft->aft", truth, y)
    power = np.abs(y) ** 2
    q = (power + 1e-9) / (power + 1e-9).sum(axis=0)
    by_masks = orthogonal_error(
        determined.principal_steering_vectors(SecondMoments.from_spectra(X).covariances(q**2)),
        truth,
    )
    found = orthogonal_error(steering_vectors_of(X, q, F, SETTINGS), truth)
    assert np.median(found) < 1e-3
    assert found.max() < 0.5 * by_masks.max()


def test_neighbouring_frequencies_correct_wrong_masks() -> None:
    """Above the band of learned phases, frequencies with permuted masks are corrected."""
    F, T = 96, 300
    truth, y = three_steering_vectors(F, seed=6), np.tile(sparse_sources(16, T), (1, 6, 1))
    X = np.einsum("fam,mft->aft", truth, y)
    power = np.abs(y) ** 2
    q = (power + 1e-9) / (power + 1e-9).sum(axis=0)
    wrong = [40, 55, 70]
    q[:, wrong] = q[[1, 2, 0]][:, wrong]
    uncorrected = orthogonal_error(steering_vectors_of(X, q, F, SETTINGS), truth)
    corrected = orthogonal_error(steering_vectors_of(X, q, 16, SETTINGS), truth)
    assert uncorrected[wrong].min() > 0.1
    assert corrected[wrong].max() < 0.01


def test_powers_against_matrices() -> None:
    """One iteration is ½ E[cᴴ R⁻¹ c | x] per bin, averaged with its local mean."""
    rng = np.random.default_rng(2)
    M, F, T, diffuse_to_direct, floor = 3, 4, 5, 0.2, 1e-9
    X = rng.normal(size=(2, F, T)) + 1j * rng.normal(size=(2, F, T))
    A = three_steering_vectors(F)
    v = rng.uniform(0.2, 2.0, size=(M, F, T))
    expected = np.empty_like(v)
    for f in range(F):
        R = [
            np.outer(A[f, :, m], A[f, :, m].conj()) + diffuse_to_direct * np.eye(2)
            for m in range(M)
        ]
        for t in range(T):
            S = sum(v[m, f, t] * R[m] for m in range(M))
            for m in range(M):
                W = v[m, f, t] * R[m] @ np.linalg.inv(S)
                c = W @ X[:, f, t]
                C = np.outer(c, c.conj()) + (np.eye(2) - W) @ (v[m, f, t] * R[m])
                expected[m, f, t] = 0.5 * np.trace(np.linalg.solve(R[m], C)).real
    expected = 0.5 * (expected + determined.smooth_powers(expected, (3, 3), floor))
    covariances = SourceCovariances.from_steering_vectors(A, diffuse_to_direct)
    found = em_source_powers(X, covariances, v, floor, (3, 3), 1)
    np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_powers_of_silent_sources_decay() -> None:
    """From equal powers, the power of a silent source falls below the others."""
    F, T = 32, 60
    truth, y = three_steering_vectors(F), sparse_sources(F, T, duration=10)
    X = np.einsum("fam,mft->aft", truth, y)
    equal = np.repeat((np.abs(X) ** 2).sum(axis=0)[None] / 3 + 1e-9, 3, axis=0)
    R = SourceCovariances.from_steering_vectors(truth, 1e-3)
    v = em_source_powers(X, R, equal, 1e-9, (3, 3), 10)
    silent, active = v[y == 0], v[y != 0]
    assert np.median(silent) < 0.1 * np.median(active)
