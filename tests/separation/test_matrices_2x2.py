"""Closed-form 2 × 2 algebra against numpy.linalg."""

from __future__ import annotations

import numpy as np
import pytest

from earatlas.separation.demixing.matrices_2x2 import (
    determinant,
    inverse,
    joint_diagonalizer,
    principal_eigenvector,
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
