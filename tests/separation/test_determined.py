"""Demixing filters of two sources: 2 × 2 algebra, moments and estimates against loops."""

from __future__ import annotations

import numpy as np
import pytest

from earatlas.parts import complete
from earatlas.separation.demixing.determined import (
    DemixingSettings,
    SecondMoments,
    determinant,
    estimate_pair,
    inverse,
    iterative_projection,
    joint_diagonalizer,
    principal_eigenvector,
    smooth_powers,
    steering_vectors_from_covariances,
)

N = 7


def complex_normal(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Return complex normal numbers with independent real and imaginary parts."""
    return rng.normal(size=shape) + 1j * rng.normal(size=shape)


def positive(rng: np.random.Generator, width: float) -> np.ndarray:
    """Return positive Hermitian matrices (N, 2, 2) whose second axis has `width` of the first."""
    x = complex_normal(rng, N, 2, 2) * [1.0, width]
    return np.asarray(x @ x.conj().mT)


def test_inverse_and_determinant() -> None:
    """Results equal those of numpy for any leading axes."""
    A = complex_normal(np.random.default_rng(0), 3, N, 2, 2)
    np.testing.assert_allclose(determinant(A), np.linalg.det(A), rtol=1e-12)
    np.testing.assert_allclose(inverse(A), np.linalg.inv(A), rtol=1e-11)


@pytest.mark.parametrize("width", [1.0, 1e-3, 0.0])
def test_principal_eigenvector_against_numpy(width: float) -> None:
    """The vector has unit length and equals that of eigh up to its phase."""
    R = positive(np.random.default_rng(1), width)
    axis = principal_eigenvector(R)
    expected = np.linalg.eigh(R)[1][..., -1]
    np.testing.assert_allclose(np.linalg.norm(axis, axis=-1), 1, rtol=1e-12)
    np.testing.assert_allclose(np.abs((axis.conj() * expected).sum(axis=-1)), 1, rtol=1e-12)


def test_principal_eigenvector_of_zero_is_finite() -> None:
    """A zero matrix gives a unit vector; a single active ear gives that ear."""
    R = np.zeros((3, 2, 2), dtype=np.complex128)
    R[1, 0, 0], R[2, 1, 1] = 2.0, 3.0
    np.testing.assert_allclose(np.abs(principal_eigenvector(R)), [[1, 0], [1, 0], [0, 1]])


@pytest.mark.parametrize("width", [1.0, 1e-3, 1e-6])
def test_joint_diagonalizer_diagonalizes_both_matrices(width: float) -> None:
    """A⁻¹ diagonalizes both matrices, with the smaller ratio first."""
    rng = np.random.default_rng(2)
    V, U = positive(rng, width), positive(rng, width)
    A = joint_diagonalizer(V, U)
    W = np.linalg.inv(A)
    v, u = (W @ matrix @ W.conj().mT for matrix in (V, U))
    for matrix in (v, u):
        size = np.sqrt(matrix[:, 0, 0].real * matrix[:, 1, 1].real)
        assert np.abs(matrix[:, 0, 1] / size).max() < 1e-4 * (width < 1) + 1e-9
    ratio = np.diagonal(v, axis1=1, axis2=2).real / np.diagonal(u, axis1=1, axis2=2).real
    assert (ratio[:, 0] < ratio[:, 1]).all()
    np.testing.assert_allclose(np.linalg.norm(A, axis=1), 1, rtol=1e-12)


def test_swapped_matrices_swap_the_columns() -> None:
    """The joint diagonalizer is symmetric in its arguments."""
    rng = np.random.default_rng(3)
    V, U = positive(rng, 1e-4), positive(rng, 1e-4)
    cosines = (joint_diagonalizer(V, U).conj() * joint_diagonalizer(U, V)[..., ::-1]).sum(axis=1)
    np.testing.assert_allclose(np.abs(cosines), 1, rtol=1e-12)


def test_equal_matrices_give_an_invertible_result() -> None:
    """For proportional matrices the columns are finite and different."""
    V = np.array([np.eye(2), 3 * np.eye(2)], dtype=np.complex128)
    A = joint_diagonalizer(V, V)
    np.testing.assert_allclose(np.abs(determinant(A)), 1)


def test_second_moments_against_loops() -> None:
    """Covariances, powers of images and filtered signals, and orthogonal energies equal loops."""
    rng = np.random.default_rng(8)
    M, F, T = 2, 3, 5
    X = rng.normal(size=(2, F, T)) + 1j * rng.normal(size=(2, F, T))
    A = rng.normal(size=(F, 2, M)) + 1j * rng.normal(size=(F, 2, M))
    weights = rng.uniform(0.1, 2.0, size=(M, F, T))
    moments = SecondMoments.from_spectra(X)
    found, powers = moments.covariances(weights), moments.powers(A)
    unit = A / np.linalg.norm(A, axis=1, keepdims=True)
    orthogonal = moments.orthogonal_fraction(unit)
    H = rng.normal(size=(F, 2, 2)) + 1j * rng.normal(size=(F, 2, 2))
    filtered = moments.filtered_powers(H)
    for f in range(F):
        expected = (np.abs(H[f] @ X[:, f]) ** 2).sum(axis=0)
        np.testing.assert_allclose(filtered[f], expected, rtol=1e-9)
    for m in range(M):
        for f in range(F):
            expected = sum(
                weights[m, f, t] * np.outer(X[:, f, t], X[:, f, t].conj()) for t in range(T)
            )
            np.testing.assert_allclose(found[m, f], expected, rtol=1e-9)
            y = np.linalg.inv(A[f]) @ X[:, f]
            image = A[f][:, m, None] * y[m]
            np.testing.assert_allclose(powers[m, f], (np.abs(image) ** 2).sum(axis=0), rtol=1e-9)
            for t in range(T):
                x = X[:, f, t]
                fraction = 1 - abs(np.vdot(unit[f, :, m], x)) ** 2 / np.vdot(x, x).real
                assert orthogonal[m, f, t] == pytest.approx(fraction, rel=1e-9)


def test_silent_bins_are_orthogonal_to_all_vectors() -> None:
    """The orthogonal fraction of a silent bin is 1, of a bin on the steering vector 0."""
    A = np.array([[[0.6], [0.8j]]])
    X = np.stack([[0.0, 0.6, -0.8j], [0.0, 0.8j, -0.6]])[:, None]
    found = SecondMoments.from_spectra(X).orthogonal_fraction(A)
    np.testing.assert_allclose(found[0, 0], [1, 0, 1], atol=1e-15)


def test_steering_vectors_satisfy_the_ip_conditions() -> None:
    """The filters diagonalize both weighted covariances (conditions of iterative projection)."""
    rng = np.random.default_rng(4)
    X = rng.normal(size=(2, 3, 50)) + 1j * rng.normal(size=(2, 3, 50))
    v = rng.uniform(0.2, 3.0, size=(2, 3, 50))
    moments = SecondMoments.from_spectra(X)
    W = np.linalg.inv(steering_vectors_from_covariances(moments.covariances(1 / v)))
    for f in range(3):
        for m in range(2):
            V = (X[:, f] / v[m, f]) @ X[:, f].conj().T
            cross = W[f, 0] @ V @ W[f, 1].conj()
            size = np.sqrt(np.abs((W[f, 0] @ V @ W[f, 0].conj()) * (W[f, 1] @ V @ W[f, 1].conj())))
            assert abs(cross) < 1e-6 * size


def test_iterative_projection_against_loops() -> None:
    """An iteration with older covariances, and frequencies above the masks, as loops."""
    rng = np.random.default_rng(10)
    F, T, n_masked = 5, 9, 3
    X = complex_normal(rng, 2, F, T)
    A = complex_normal(rng, F, 2, 2)
    past = np.stack([[positive(rng, 1.0)[0] for _ in range(F)] for _ in range(2)])
    moments = SecondMoments.from_spectra(X)
    found = complete(iterative_projection(moments, A, ((3, 1),), n_masked, past))
    powers = np.empty((2, F, T))
    for f in range(F):
        y = np.linalg.solve(A[f], X[:, f])
        for m in range(2):
            powers[m, f] = (np.abs(A[f, :, m]) ** 2).sum() * np.abs(y[m]) ** 2
    relative = powers / powers.mean(axis=2, keepdims=True)
    v = np.empty_like(powers)
    for m in range(2):
        for f in range(F):
            if f < n_masked:  # three bins, mirrored at the ends of the band with masks
                rows = [abs(f - 1) if f else 0, f, min(f + 1, n_masked - 1)]
                shape = sum(relative[m, row] for row in rows) / 3
            else:
                envelope = relative[m, :n_masked].mean(axis=0)
                shape = envelope + 1e-3 * envelope.mean()
            v[m, f] = shape * powers[m, f].mean()
    np.testing.assert_allclose(smooth_powers(powers, (3, 1), 0.0, n_masked), v, rtol=1e-9)
    for f in range(F):
        V = [(X[:, f] / v[m, f]) @ X[:, f].conj().T + past[m, f] for m in range(2)]
        W = np.linalg.inv(found[f])
        for matrix in V:
            cross = W[0] @ matrix @ W[1].conj()
            size = np.sqrt(np.abs((W[0] @ matrix @ W[0].conj()) * (W[1] @ matrix @ W[1].conj())))
            assert abs(cross) < 1e-5 * size


def test_estimate_of_two_sources_from_masks() -> None:
    """Wrong masks of a band are corrected, and the steering vectors are those of the sources."""
    rng = np.random.default_rng(11)
    F, T = 40, 400
    envelopes = np.exp(1.5 * rng.normal(size=(2, 1, T)))
    y = envelopes * complex_normal(rng, 2, F, T)
    truth = complex_normal(rng, F, 2, 2)
    truth /= np.linalg.norm(truth, axis=1, keepdims=True)
    moments = SecondMoments.from_spectra(np.einsum("fam,mft->aft", truth, y))
    q = np.abs(y) ** 2 / (np.abs(y) ** 2).sum(axis=0)
    wrong = slice(25, 31)
    q[:, wrong] = 0.5 + 0.1 * (q[::-1, wrong] - 0.5)
    frequencies_hz = np.linspace(50.0, 2000.0, F)
    broad, narrow = DemixingSettings(), DemixingSettings(((1, 5),) * 3, ((1, 5),) * 2)
    for settings in (broad, narrow):  # by smoothing over frequencies, or by the alignment
        A, permuted = complete(estimate_pair(moments, q, frequencies_hz, settings))
        corrected = slice(0) if settings is broad else wrong
        np.testing.assert_array_equal(np.flatnonzero(permuted), np.arange(F)[corrected])
        similarity = np.abs((A.conj() * truth).sum(axis=1)) ** 2
        assert 0.9 < np.median(similarity) < 1 - 1e-9
        assert similarity.mean() > 0.9


def test_order_above_the_masks_is_kept() -> None:
    """Frequencies above the masks are estimated, but never permuted."""
    rng = np.random.default_rng(12)
    F, T, n_masked = 30, 300, 20
    envelopes = np.exp(1.5 * rng.normal(size=(2, 1, T)))
    y = envelopes * complex_normal(rng, 2, F, T)
    truth = complex_normal(rng, F, 2, 2)
    moments = SecondMoments.from_spectra(np.einsum("fam,mft->aft", truth, y))
    q = np.abs(y) ** 2 / (np.abs(y) ** 2).sum(axis=0)
    q[:, n_masked:] = 0.5
    frequencies_hz = np.linspace(50.0, 1000.0, n_masked)
    A, permuted = complete(estimate_pair(moments, q, frequencies_hz, DemixingSettings()))
    assert not permuted.any()
    leakage = np.abs(np.linalg.solve(A, truth))
    assert np.median(leakage[:, 0, 1] / leakage[:, 0, 0]) < 0.2
