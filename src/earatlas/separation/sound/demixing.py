"""The algebra of two ears: how sources reach them, and filters from that; a frequency at a time.

    X (2, F, T) spectra    v (M, F, T) powers    R (M, F, 2, 2) covariances
    A (F, 2, M) columns of length 1: how source m reaches the ears

`earatlas.separation.sound.spatial` says what it is for; a live stream uses the same steps.
"""

from __future__ import annotations

import numpy as np

from earatlas.hearing.transform import squared_size
from earatlas.types import Array, Complex, Spectra

__all__ = [
    "apart",
    "beside",
    "columns_of_pair",
    "covariances",
    "pair",
    "powers",
    "principal",
    "smoothed",
    "wiener",
]


def covariances(X: Spectra, weights: Array) -> Complex:
    """Σ_t w x xᴴ (M, F, 2, 2)."""
    out = np.empty((*weights.shape[:2], 2, 2), dtype=np.complex128)
    left, right = X
    cross = left * right.conj()
    out[..., 0, 0] = (weights * squared_size(left)).sum(axis=-1)
    out[..., 1, 1] = (weights * squared_size(right)).sum(axis=-1)
    out[..., 0, 1] = (weights * cross).sum(axis=-1)
    out[..., 1, 0] = out[..., 0, 1].conj()
    return out


def principal(R: Complex) -> Complex:
    """The strongest direction of covariances (M, F, 2, 2), as columns (F, 2, M)."""
    return np.moveaxis(np.linalg.eigh(R)[1][..., -1], 0, -1)


def beside(X: Spectra, A: Complex) -> Array:
    """What of each bin is beside each source's column: (M, F, T), from 0 to 1; 1 in silence."""
    along = squared_size(np.einsum("fam,aft->mft", A.conj(), X))
    power = squared_size(X).sum(axis=0)
    left: Array = np.clip(1 - along / np.where(power > 0, power, 1.0), 0, 1)
    return left


def apart(A: Complex) -> Complex:
    """Columns that can be inverted: where two sources are the same, an ear each."""
    same = np.abs(np.linalg.det(A)) < 1e-6
    columns: Complex = np.where(same[:, None, None], np.eye(2), A)
    return columns


def powers(X: Spectra, A: Complex) -> Array:
    """Of the images a_m y_m, y = A⁻¹ x: (2, F, T)."""
    y = np.einsum("fma,aft->mft", np.linalg.inv(A), X)
    lengths = squared_size(A).sum(axis=1).T
    found: Array = squared_size(y) * lengths[..., None]
    return found


def smoothed(v: Array, size: tuple[int, int], floor: float) -> Array:
    """Powers (M, F, T) averaged over bins and frames, each frequency at its own level."""
    from scipy.ndimage import uniform_filter

    level = v.mean(axis=2, keepdims=True) + floor
    smooth: Array = np.stack([uniform_filter(row, size) for row in v / level]) * level + floor
    return smooth


def pair(X: Spectra, v: Array) -> Complex:
    """The columns (F, 2, 2) that make two sources of powers v (2, F, T) most probable."""
    return columns_of_pair(covariances(X, 1 / v) / X.shape[-1])


def columns_of_pair(V: Complex) -> Complex:
    """The same from covariances (2, F, 2, 2) of frames over the powers of either source."""
    # Powers are in units of v: the loading is far below any sound, and keeps silence regular.
    V = V + (1e-9 * np.trace(V, axis1=-2, axis2=-1).real[..., None, None] + 1e-12) * np.eye(2)
    ratio, w = np.linalg.eig(np.linalg.solve(V[1], V[0]))
    # wᴴ V_1 w is least where source 1 passes: its filter has the smallest ratio, 2 the largest.
    order = np.argsort(ratio.real, axis=-1)[:, None]
    filters = np.take_along_axis(w, order, axis=2).conj().mT
    columns = np.linalg.inv(filters)
    length = np.sqrt(squared_size(columns).sum(axis=1, keepdims=True))
    scaled: Complex = columns / length
    return scaled


def wiener(X: Spectra, A: Complex, v: Array, spread: float) -> Complex:
    """v_m R_m (Σ v R)⁻¹ x with R_m = a_m a_mᴴ + ε I: images (M, 2, F, T) that sum to x."""
    a, b = A[:, 0], A[:, 1]  # (F, M)
    R00, R11 = squared_size(a).T + spread, squared_size(b).T + spread  # (M, F)
    R01 = (a * b.conj()).T
    S00, S11 = np.einsum("mft,mf->ft", v, R00), np.einsum("mft,mf->ft", v, R11)
    S01 = np.einsum("mft,mf->ft", v, R01)
    scale = 1 / (S00 * S11 - squared_size(S01))
    left = scale * (S11 * X[0] - S01 * X[1])  # S⁻¹ x
    right = scale * (S00 * X[1] - S01.conj() * X[0])
    images = np.empty((len(v), *X.shape), dtype=np.complex128)
    images[:, 0] = v * (R00[..., None] * left + R01[..., None] * right)
    images[:, 1] = v * (R01.conj()[..., None] * left + R11[..., None] * right)
    return images
