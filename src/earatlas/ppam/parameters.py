"""The parameters of a PPAM: K affine charts from directions to cues, and their noise.

EM estimates them (`earatlas.ppam.em`), and `PPAM` (`earatlas.ppam.model`, which has the symbol
table) adds inference.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from earatlas.errors import InputError
from earatlas.geometry.spaces import Space
from earatlas.types import Array

__all__ = ["PPAMParameters", "latent_root"]


@dataclass(frozen=True, eq=False)
class PPAMParameters:
    """Parameters of the joint density of directions and cues.

    p(x, y) = sum_k weights[k] N(u_k(x); 0, gammas[k]) N(y; A[k] u_k(x) + b[k], S[k]), with
    S[k] = sqrt(spread[k]) (diag(noise) + latent latent^T) sqrt(spread[k]), which is never formed.
    """

    space: Space
    centres: Array  # (K, C) chart centres c_k, degrees
    weights: Array  # (K,) mixture weights, sum to 1
    gammas: Array  # (K, L, L) chart covariances, square degrees
    A: Array  # (K, D, L) slopes, per degree
    b: Array  # (K, D) offsets
    noise: Array  # (D,) noise variances, the same for all components
    latent: Array  # (D, L_w) factor loadings of the latent coordinates
    spread: Array  # (K, D) noise of a component relative to the common noise
    log_likelihoods: tuple[float, ...] = field(default=(), repr=False)  # one per EM iteration
    converged: bool = False  # whether EM stopped before its last iteration

    def __post_init__(self) -> None:
        K, D, L = self.A.shape
        expected = {
            "centres": (K, self.space.columns),
            "weights": (K,),
            "gammas": (K, L, L),
            "b": (K, D),
            "noise": (D,),
            "latent": (D, self.latent.shape[-1]),
            "spread": (K, D),
        }
        for name, shape in expected.items():
            if getattr(self, name).shape != shape:
                raise InputError(
                    f"{name} must have shape {shape}, got {getattr(self, name).shape}. "
                    f"A has K, D, L = {K, D, L}."
                )
        if self.space.dims != L:
            raise InputError(
                f"A must have {self.space.dims} columns, one per chart coordinate, got {L}. "
                "Check the space."
            )

    def __repr__(self) -> str:
        K, D, L = self.A.shape
        name, space = type(self).__name__, type(self.space).__name__
        return f"{name}({space}, K={K}, D={D}, L={L}, L_w={self.latent.shape[1]})"

    @cached_property
    def log_determinants(self) -> Array:
        """log |2 pi S_k| (K,), by the matrix determinant lemma."""
        B, D = self.latent, len(self.noise)
        inner = np.linalg.slogdet(np.eye(B.shape[1]) + B.T @ (B / self.noise[:, None]))[1]
        shared = D * np.log(2 * np.pi) + np.log(self.noise).sum() + inner
        total: Array = shared + np.log(self.spread).sum(axis=1)
        return total


def latent_root(noise: Array, latent: Array) -> Array:
    """Return F (L_w, D) with (Σ + B Bᵀ)⁻¹ = Σ⁻¹ - Fᵀ F, by the Woodbury identity."""
    scaled = latent / noise[:, None]
    inner = np.eye(latent.shape[1]) + latent.T @ scaled
    root: Array = np.linalg.solve(np.linalg.cholesky(inner), scaled.T)
    return root
