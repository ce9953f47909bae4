"""Itakura-Saito non-negative matrix factorization (NMF) of a source's power spectrogram.

A power spectrogram v (F, T) of speech is approximated by K spectral templates with activations:

    v_ft ≈ Σ_k W_fk H_kt        W (F, K) templates, H (K, T) activations

The fit minimizes the Itakura-Saito divergence Σ_ft v / (W H) - log (v / (W H)) - 1, which is
scale-invariant: quiet bins count as much as loud ones. The multiplicative updates with exponent 1/2
never increase it [1]_.

References
----------
.. [1] C. Févotte and J. Idier, "Algorithms for nonnegative matrix factorization with the
   β-divergence", Neural Computation 23(9), 2011.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from earatlas.types import Array, Single

__all__ = ["ItakuraSaitoNMF"]

_RELATIVE_FLOOR = 1e-9  # floor relative to the mean power; avoids division by zero in silent bins
_ABSOLUTE_FLOOR = 1e-15  # floor of an all-silent spectrogram; its square fits single precision


@dataclass(frozen=True, eq=False)
class ItakuraSaitoNMF:
    """An Itakura-Saito NMF model of a power spectrogram, in single precision.

    Attributes
    ----------
    W : array of shape (F, K)
        Spectral templates.
    H : array of shape (K, T)
        Activations.
    floor : float
        Power that is added to W H, so that no bin is zero.

    References
    ----------
    .. [1] C. Févotte and J. Idier, "Algorithms for nonnegative matrix factorization with the
       β-divergence", Neural Computation 23(9), 2011.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> v = rng.random((5, 1)) @ rng.random((1, 7)) + 0.1
    >>> model = ItakuraSaitoNMF.initialize(v, n_templates=2).fit(v, iterations=200)
    >>> bool(np.abs(np.log(model.powers / v)).max() < 0.1)
    True
    """

    W: Single  # (F, K) spectral templates
    H: Single  # (K, T) activations
    floor: float  # power added to W H

    @classmethod
    def initialize(cls, v: Array | Single, n_templates: int) -> ItakuraSaitoNMF:
        """Return a random model at the mean level of the given powers.

        The random numbers are the same in every call, so results are reproducible.

        Parameters
        ----------
        v : array of shape (F, T)
            Power spectrogram.
        n_templates : int
            Number of spectral templates K.

        Returns
        -------
        ItakuraSaitoNMF
            The initial model.
        """
        rng = np.random.default_rng(0)
        level = float(v.mean())
        scale = np.sqrt(level / n_templates)
        shapes = ((len(v), n_templates), (n_templates, v.shape[1]))
        W, H = (rng.uniform(0.5, 1.5, shape) * scale for shape in shapes)
        floor = _RELATIVE_FLOOR * level + _ABSOLUTE_FLOOR
        return cls(W.astype(np.float32), H.astype(np.float32), floor)

    @property
    def powers(self) -> Single:
        """The modelled power spectrogram W H plus the floor, (F, T)."""
        powers: Single = self.W @ self.H + np.float32(self.floor)
        return powers

    def fit(self, v: Array | Single, iterations: int) -> ItakuraSaitoNMF:
        """Fit the model by multiplicative updates, starting from the current factors.

        Parameters
        ----------
        v : array of shape (F, T)
            Power spectrogram.
        iterations : int
            Number of updates of W and H.

        Returns
        -------
        ItakuraSaitoNMF
            The updated model; its divergence from v is not larger than before.
        """
        W, H = self.W.copy(), self.H.copy()
        for _ in range(iterations):
            ratio, weight = self._gradient_terms(v, W, H)
            W *= _update_factor(ratio @ H.T, weight @ H.T)
            ratio, weight = self._gradient_terms(v, W, H)
            H *= _update_factor(W.T @ ratio, W.T @ weight)
        return ItakuraSaitoNMF(W, H, self.floor)

    def _gradient_terms(self, v: Array | Single, W: Single, H: Single) -> tuple[Single, Single]:
        """Return v / (W H)² and 1 / (W H), both (F, T)."""
        weight: Single = np.reciprocal(W @ H + np.float32(self.floor))
        ratio = v.astype(np.float32) * weight
        ratio *= weight
        return ratio, weight


def _update_factor(numerator: Single, denominator: Single) -> Single:
    """Return the multiplicative update; an entry that is zero stays zero."""
    factor: Single = np.sqrt(numerator / np.maximum(denominator, np.float32(1e-30)))
    return factor
