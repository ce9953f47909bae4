"""SIR: sliced inverse regression and a cubic polynomial, from cues to directions.

Section 7 of the paper uses one (SIR-1) or two (SIR-2) axes, 20 slices and polynomials of degree 3.
For each coordinate of the direction, its values are sorted into slices with equally many samples,
and the cues are averaged per slice. The axes maximize the variance of these averages relative to
the variance of the cues, and the coordinate is a cubic polynomial of the cues along the axes.

    Γ v = λ (S + ρ tr(S)/D I) v
    S (D, D) covariance of y       Γ (D, D) covariance of the slice means       v (D,) an axis

The ridge ρ is necessary because S is nearly singular. With a large ridge the axes are the principal
components of the slice means, as the paper describes them. It is selected on held-out directions.
The cues are standardized first.

References
----------
.. [1] K.-C. Li, "Sliced inverse regression for dimension reduction", J. Am. Stat. Assoc., 86(414),
   1991.

"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations_with_replacement
from typing import Self

import numpy as np
from numpy.typing import ArrayLike

from earatlas.baselines.mapping import (
    check_cues,
    cue_scale,
    from_targets,
    select_ridge,
    to_targets,
)
from earatlas.errors import InputError
from earatlas.geometry.spaces import Space
from earatlas.ppam.model import check_pairs
from earatlas.types import Array

__all__ = ["SIR", "covariance_spectrum", "sliced_axes"]


def _slice_means(target: Array, y: Array, slices: int) -> tuple[Array, Array]:
    """Return the mean cues (H, D) of the slices of a coordinate (N,), and their shares (H,)."""
    parts = np.array_split(np.argsort(target, kind="stable"), slices)
    shares = np.array([len(part) for part in parts]) / len(y)
    return np.stack([y[part].mean(axis=0) for part in parts]), shares


def covariance_spectrum(centred: Array) -> tuple[Array, Array]:
    """Return eigenvalues (D,) and eigenvectors (D, D) of the covariance of centred cues (N, D)."""
    values, vectors = np.linalg.eigh(centred.T @ centred / len(centred))
    return np.maximum(values, 0.0), vectors


def sliced_axes(
    target: Array,
    centred: Array,
    spectrum: tuple[Array, Array],
    *,
    axes: int,
    slices: int,
    ridge: float,
) -> Array:
    """Return the unit axes (D, axes) of centred cues (N, D) that best predict a coordinate (N,).

    They follow from the singular vectors of the slice means, whitened with (S + ρ tr(S)/D
    I)^(-1/2).
    """
    values, vectors = spectrum
    means, shares = _slice_means(target, centred, slices)
    root = 1 / np.sqrt(values + ridge * max(float(values.mean()), 1e-300))
    whitened = (np.sqrt(shares)[:, None] * means) @ vectors * root  # (H, D): Γ = its square
    right = np.linalg.svd(whitened, full_matrices=False)[2][:axes]
    v = vectors @ (root * right).T
    unit: Array = v / np.linalg.norm(v, axis=0)
    return unit


def _monomials(z: Array, degree: int) -> Array:
    """Return all products (N, P) of up to `degree` columns of z (N, axes); the first is 1."""
    columns = [np.ones(len(z))]
    for order in range(1, degree + 1):
        for chosen in combinations_with_replacement(range(z.shape[1]), order):
            columns.append(z[:, list(chosen)].prod(axis=1))
    return np.stack(columns, axis=1)


@dataclass(frozen=True, eq=False)
class SIR:
    """Polynomials of projected cues: targets[e] = polynomial_e((y - offset) · axes[e]).

    Predictions are limited to the range of the training targets.

    Examples
    --------
    >>> import earatlas as ea
    >>> import numpy as np
    >>> x = np.random.default_rng(0).uniform(-50, 50, (80, 2))
    >>> y = x @ np.array([[1.0, 0.5, 0.2], [0.1, -1.0, 0.3]])
    >>> model = SIR.fit(ea.Plane(), x, y, axes=2, ridge=1e-6)
    >>> bool(np.abs(model.inverse_map(y) - x).max() < 1)
    True

    """

    space: Space
    offset: Array  # (D,) mean of y
    axes: Array  # (E, D, axes), scaled to unit deviation of the projected cues
    coefficients: Array  # (E, P)
    limits: Array  # (2, E) minimum and maximum of the training targets
    degree: int
    ridge: float

    def __repr__(self) -> str:
        E, D, axes = self.axes.shape
        return f"SIR-{axes}({type(self.space).__name__}, D={D}, L={E})"

    @classmethod
    def fit(
        cls,
        space: Space,
        x: ArrayLike,
        y: ArrayLike,
        *,
        axes: int = 2,
        slices: int = 20,
        degree: int = 3,
        ridge: float | None = None,
        seed: int = 0,
    ) -> Self:
        """Fit the model.

        Parameters
        ----------
        space : Space
            Space of the directions.
        x : array_like, shape (N, C)
            Directions in degrees.
        y : array_like, shape (N, D)
            Cue vectors.
        axes : int
            Number of axes, 1 or 2 in the paper.
        slices : int
            Number of slices per coordinate.
        degree : int
            Degree of the polynomials.
        ridge : float, optional
            Ridge ρ; by default it is selected on held-out directions.
        seed : int
            Seed of the split.

        Returns
        -------
        model : SIR
            The fitted model.

        Raises
        ------
        InputError
            If a parameter is out of range.

        References
        ----------
        .. [1] K.-C. Li, "Sliced inverse regression for dimension reduction", J. Am. Stat. Assoc.,
           86(414), 1991.

        """
        points, cues = check_pairs(space, x, y)
        N, D = cues.shape
        if not 2 <= slices <= N:
            raise InputError(
                f"slices must be between 2 and the {N} directions, got {slices}. The paper uses 20."
            )
        if not 1 <= axes <= min(slices - 1, D):
            raise InputError(
                f"axes must be between 1 and {min(slices - 1, D)}, got {axes}. "
                "Use fewer axes than slices; the paper uses 1 and 2."
            )
        if degree < 1:
            raise InputError(f"degree must be at least 1, got {degree}. The paper uses 3.")
        if ridge is not None and not ridge > 0:
            raise InputError(f"ridge must be positive, got {ridge}. Try 0.01.")
        if ridge is None:
            ridges = (1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1e0, 1e2)  # candidates of ρ

            def fit_ridges(x: Array, y: Array) -> list[Self]:
                return cls._fit_ridges(space, x, y, axes, min(slices, len(x)), degree, ridges)

            ridge = select_ridge(space, points, cues, ridges, fit_ridges, seed=seed)
        return cls._fit_ridges(space, points, cues, axes, slices, degree, (ridge,))[0]

    @classmethod
    def _fit_ridges(
        cls,
        space: Space,
        x: Array,
        y: Array,
        axes: int,
        slices: int,
        degree: int,
        ridges: tuple[float, ...],
    ) -> list[Self]:
        """Fit one model per ridge; the spectrum of the cues, the expensive part, is shared."""
        targets, offset = to_targets(space, x), y.mean(axis=0)
        limits = np.stack([targets.min(axis=0), targets.max(axis=0)])
        scale = cue_scale(y)
        centred = (y - offset) / scale
        spectrum = covariance_spectrum(centred)
        models = []
        for ridge in ridges:
            all_axes, coefficients = [], []
            for target in targets.T:
                v = sliced_axes(target, centred, spectrum, axes=axes, slices=slices, ridge=ridge)
                v /= np.maximum((centred @ v).std(axis=0), 1e-300)  # monomials of order 1
                design = _monomials(centred @ v, degree)
                all_axes.append(v / scale[:, None])
                coefficients.append(np.linalg.lstsq(design, target, rcond=None)[0])
            models.append(
                cls(
                    space, offset, np.stack(all_axes), np.stack(coefficients), limits, degree, ridge
                )
            )
        return models

    def inverse_map(self, y: ArrayLike) -> Array:
        """Return the directions (N, C) of complete cue vectors (N, D)."""
        centred = check_cues(y, len(self.offset)) - self.offset
        targets = [
            _monomials(centred @ v, self.degree) @ c
            for v, c in zip(self.axes, self.coefficients, strict=True)
        ]
        return from_targets(self.space, np.clip(np.stack(targets, axis=1), *self.limits))
