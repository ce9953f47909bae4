"""Matrices of two rows in closed form, against the library that takes them one by one."""

from __future__ import annotations

import numpy as np
import pytest

from earatlas.separation.demixing.matrices_2x2 import (
    determinant,
    inverse,
    principal_axis,
    shared_columns,
)

N = 7


def complex_normal(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Independent real and imaginary parts."""
    return rng.normal(size=shape) + 1j * rng.normal(size=shape)


def positive(rng: np.random.Generator, width: float) -> np.ndarray:
    """(N, 2, 2) Hermitian; the second axis has `width` of the first."""
    x = complex_normal(rng, N, 2, 2) * [1.0, width]
    return np.asarray(x @ x.conj().mT)


def test_inverse_and_determinant() -> None:
    """Those of the library, whatever the axes before the last two."""
    A = complex_normal(np.random.default_rng(0), 3, N, 2, 2)
    np.testing.assert_allclose(determinant(A), np.linalg.det(A), rtol=1e-12)
    np.testing.assert_allclose(inverse(A), np.linalg.inv(A), rtol=1e-11)


@pytest.mark.parametrize("width", [1.0, 1e-3, 0.0])
def test_the_principal_axis_is_the_last_eigenvector(width: float) -> None:
    """Of length 1, and the library's but for its phase."""
    R = positive(np.random.default_rng(1), width)
    axis = principal_axis(R)
    theirs = np.linalg.eigh(R)[1][..., -1]
    np.testing.assert_allclose(np.linalg.norm(axis, axis=-1), 1, rtol=1e-12)
    np.testing.assert_allclose(np.abs((axis.conj() * theirs).sum(axis=-1)), 1, rtol=1e-12)


def test_a_principal_axis_of_silence_is_finite() -> None:
    """Every axis is as good; one ear alone has that ear's."""
    R = np.zeros((3, 2, 2), dtype=np.complex128)
    R[1, 0, 0], R[2, 1, 1] = 2.0, 3.0
    np.testing.assert_allclose(np.abs(principal_axis(R)), [[1, 0], [1, 0], [0, 1]])


@pytest.mark.parametrize("width", [1.0, 1e-3, 1e-6])
def test_shared_columns_are_those_of_the_generalized_eigenvectors(width: float) -> None:
    """A⁻¹ makes both matrices diagonal, with the smaller ratio first."""
    rng = np.random.default_rng(2)
    V, U = positive(rng, width), positive(rng, width)
    A = shared_columns(V, U)
    W = np.linalg.inv(A)
    v, u = (W @ own @ W.conj().mT for own in (V, U))
    for own in (v, u):
        size = np.sqrt(own[:, 0, 0].real * own[:, 1, 1].real)
        assert np.abs(own[:, 0, 1] / size).max() < 1e-4 * (width < 1) + 1e-9
    ratio = np.diagonal(v, axis1=1, axis2=2).real / np.diagonal(u, axis1=1, axis2=2).real
    assert (ratio[:, 0] < ratio[:, 1]).all()
    np.testing.assert_allclose(np.linalg.norm(A, axis=1), 1, rtol=1e-12)


def test_exchanged_matrices_exchange_the_columns() -> None:
    """Neither of the two is treated otherwise."""
    rng = np.random.default_rng(3)
    V, U = positive(rng, 1e-4), positive(rng, 1e-4)
    along = (shared_columns(V, U).conj() * shared_columns(U, V)[..., ::-1]).sum(axis=1)
    np.testing.assert_allclose(np.abs(along), 1, rtol=1e-12)


def test_matrices_that_are_alike_have_an_ear_each() -> None:
    """Nothing tells two columns apart: they must be finite, and differ."""
    V = np.array([np.eye(2), 3 * np.eye(2)], dtype=np.complex128)
    A = shared_columns(V, V)
    np.testing.assert_allclose(np.abs(determinant(A)), 1)
