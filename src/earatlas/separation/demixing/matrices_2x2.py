"""Matrices of two rows, many at a time, in closed form.

Everything a frequency asks of two ears is a 2 × 2 matrix. A library that takes them one by one
spends its time on being called: an eigenvector in closed form takes a twentieth of it.

    A, R, V (…, 2, 2)    R and V Hermitian, V positive
"""

from __future__ import annotations

import numpy as np

from earatlas.types import Array, Complex

__all__ = ["determinant", "inverse", "principal_axis", "shared_columns"]


def determinant(A: Complex) -> Complex:
    """(…,)."""
    d: Complex = A[..., 0, 0] * A[..., 1, 1] - A[..., 0, 1] * A[..., 1, 0]
    return d


def inverse(A: Complex) -> Complex:
    """(…, 2, 2)."""
    out = np.empty_like(A)
    out[..., 0, 0], out[..., 1, 1] = A[..., 1, 1], A[..., 0, 0]
    out[..., 0, 1], out[..., 1, 0] = -A[..., 0, 1], -A[..., 1, 0]
    out /= determinant(A)[..., None, None]
    return out


def principal_axis(R: Complex) -> Complex:
    """The eigenvector (…, 2) of the larger eigenvalue, of length 1."""
    return _axis(R[..., 0, 0].real, R[..., 1, 1].real, R[..., 0, 1])


def shared_columns(V: Complex, U: Complex) -> Complex:
    """A (…, 2, 2), columns of length 1, for which A⁻¹ V A⁻ᴴ and A⁻¹ U A⁻ᴴ are diagonal.

    The ratio of V to U is smaller along the first. The rows of A⁻¹ are the generalized eigenvectors
    of V and U, those of U⁻¹ V and so of adj(U) V; each column is across the other's row. Where V
    and U are alike, an ear each.
    """
    p = U[..., 1, 1] * V[..., 0, 0] - U[..., 0, 1] * V[..., 1, 0]  # adj(U) V = (p, q; r, s)
    q = U[..., 1, 1] * V[..., 0, 1] - U[..., 0, 1] * V[..., 1, 1]
    r = U[..., 0, 0] * V[..., 1, 0] - U[..., 1, 0] * V[..., 0, 0]
    s = U[..., 0, 0] * V[..., 1, 1] - U[..., 1, 0] * V[..., 0, 1]
    half = 0.5 * (p - s)
    root = np.sqrt(half**2 + q * r)  # half of what the eigenvalues differ by, real but for rounding
    up = (half.conj() * root).real >= 0  # of two ways, the one in which nothing cancels
    far = np.where(up, half + root, root - half)
    alike = (far == 0) & (q == 0) & (r == 0)
    far = np.where(alike, 1.0, far)
    A = np.empty_like(U)  # across the rows (far, r) and (q, -far), or (q, far) and (-far, r)
    A[..., 0, 0], A[..., 1, 0] = np.where(up, r, far).conj(), -np.where(up, far, q).conj()
    A[..., 0, 1], A[..., 1, 1] = np.where(up, -far, r).conj(), -np.where(up, q, -far).conj()
    A /= np.sqrt((A.real**2 + A.imag**2).sum(axis=-2, keepdims=True))
    return A


def _axis(first: Array, second: Array, across: Complex) -> Complex:
    """The main axis (…, 2) of Hermitian matrices (first, across; across*, second).

    Of the two ways to write it the one is taken in which nothing cancels.
    """
    half = 0.5 * (first - second)
    size = np.sqrt(half**2 + across.real**2 + across.imag**2)
    up = half >= 0
    axis = np.empty((*half.shape, 2), dtype=np.complex128)
    axis[..., 0] = np.where(up, half + size, across)
    axis[..., 1] = np.where(up, across.conj(), size - half)
    length = np.sqrt((axis.real**2 + axis.imag**2).sum(axis=-1))
    alike = length == 0  # every axis is as good
    axis[..., 0] = np.where(alike, 1.0, axis[..., 0])
    axis /= np.where(alike, 1.0, length)[..., None]
    return axis
