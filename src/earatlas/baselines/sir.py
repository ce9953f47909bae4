"""SIR: directions from cues by sliced inverse regression (Li 1991) and a cubic polynomial.

The paper's section 7 takes one (SIR-1) or two (SIR-2) axes, 20 slices and polynomials of order
three. For each coordinate of the direction: sort its values into slices with equally many samples,
average the cues in each, and find the axes along which these averages differ most for the cues'
own scatter; the coordinate is then a cubic of the cues along these axes.

    Γ v = λ (S + ρ tr(S)/D I) v
    S (D, D) covariance of y       Γ (D, D) covariance of the slice means       v (D,) an axis

The ridge ρ is needed for S is all but singular; with a large one the axes are the principal
components of the slice means, as the paper describes them. It is chosen on held-out directions.
Channels are standardized first: on KU100's plane SIR-2 is off by 14 degrees in azimuth, else by 22.
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
    to_targets,
)
from earatlas.errors import InputError
from earatlas.geometry.spaces import Space
from earatlas.ppam.model import check_pairs
from earatlas.types import Array

__all__ = ["SIR", "sliced_axes", "spectrum_of"]


_RIDGES = (1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1e0, 1e2)
_HELD_OUT = 0.2


def _slice_means(target: Array, y: Array, slices: int) -> tuple[Array, Array]:
    """Mean cues (H, D) of slices of a coordinate (N,), and each slice's share (H,)."""
    parts = np.array_split(np.argsort(target, kind="stable"), slices)
    shares = np.array([len(part) for part in parts]) / len(y)
    return np.stack([y[part].mean(axis=0) for part in parts]), shares


def spectrum_of(centred: Array) -> tuple[Array, Array]:
    """Eigenvalues (D,) and eigenvectors (D, D) of the covariance of cues (N, D) about 0."""
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
    """Unit axes (D, axes) of cues (N, D) about 0 that tell most of a coordinate (N,).

    With T = (S + ρ..)^(-1/2), from the cues' spectrum, the singular vectors of T · slice means.
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
    """All products (N, P) of up to `degree` of the columns of z (N, axes), 1 first."""
    columns = [np.ones(len(z))]
    for order in range(1, degree + 1):
        for chosen in combinations_with_replacement(range(z.shape[1]), order):
            columns.append(z[:, list(chosen)].prod(axis=1))
    return np.stack(columns, axis=1)


@dataclass(frozen=True, eq=False)
class SIR:
    """targets[e] = polynomial_e((y - offset) · axes[e]), within what was seen."""

    space: Space
    offset: Array  # (D,) mean of y
    axes: Array  # (E, D, axes) over the cues' deviation along them
    coefficients: Array  # (E, P)
    limits: Array  # (2, E) least and largest target seen: cubics run away beyond
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
        """Learn from directions (N, C) and cues (N, D); `axes` is 1 or 2 in the paper.

        `ridge` None: the one of a few with the least error on held-out directions.
        """
        points, cues = check_pairs(space, x, y)
        N, D = cues.shape
        if not 2 <= slices <= N:
            raise InputError(
                f"slices must be between 2 and the {N} directions, got {slices}. The paper has 20."
            )
        if not 1 <= axes <= min(slices - 1, D):
            raise InputError(
                f"axes must be between 1 and {min(slices - 1, D)}, got {axes}. "
                "Fewer than the slices; the paper has 1 and 2."
            )
        if degree < 1:
            raise InputError(f"degree must be at least 1, got {degree}. The paper has 3.")
        if ridge is not None and not ridge > 0:
            raise InputError(f"ridge must be positive, got {ridge}. Such as 0.01.")
        if ridge is None:
            order = np.random.default_rng(seed).permutation(N)
            cut = max(int(_HELD_OUT * N), 1)
            asked, known = order[:cut], order[cut:]
            trials = cls._learned(
                space, points[known], cues[known], axes, min(slices, len(known)), degree, _RIDGES
            )
            errors = [
                space.distance(points[asked], trial.inverse_map(cues[asked])).mean()
                for trial in trials
            ]
            ridge = _RIDGES[int(np.argmin(errors))]
        return cls._learned(space, points, cues, axes, slices, degree, (ridge,))[0]

    @classmethod
    def _learned(
        cls,
        space: Space,
        x: Array,
        y: Array,
        axes: int,
        slices: int,
        degree: int,
        ridges: tuple[float, ...],
    ) -> list[Self]:
        """One model a ridge: the cues' spectrum, the costly part, is shared."""
        targets, offset = to_targets(space, x), y.mean(axis=0)
        limits = np.stack([targets.min(axis=0), targets.max(axis=0)])
        unit = cue_scale(y)
        centred = (y - offset) / unit
        spectrum = spectrum_of(centred)
        models = []
        for ridge in ridges:
            found, coefficients = [], []
            for target in targets.T:
                v = sliced_axes(target, centred, spectrum, axes=axes, slices=slices, ridge=ridge)
                v /= np.maximum((centred @ v).std(axis=0), 1e-300)  # cubes of order 1
                design = _monomials(centred @ v, degree)
                found.append(v / unit[:, None])
                coefficients.append(np.linalg.lstsq(design, target, rcond=None)[0])
            models.append(
                cls(space, offset, np.stack(found), np.stack(coefficients), limits, degree, ridge)
            )
        return models

    def inverse_map(self, y: ArrayLike) -> Array:
        """Directions (N, C) of complete cue vectors (N, D)."""
        centred = check_cues(y, len(self.offset)) - self.offset
        targets = [
            _monomials(centred @ v, self.degree) @ c
            for v, c in zip(self.axes, self.coefficients, strict=True)
        ]
        return from_targets(self.space, np.clip(np.stack(targets, axis=1), *self.limits))
