"""The powers of a voice as few spectra that come and go.

A voice says the same sounds again and again: its powers over frequency and time are nearly a sum of
few spectra, each louder or softer in every frame,

    v_ft ≈ Σ_k W_fk H_kt        W (F, K) spectra, H (K, T) how loud each is when

fitted by the divergence of Itakura and Saito, in which soft sounds count as much as loud ones:
d = Σ_ft v / (W H) - log (v / (W H)) - 1. Each step makes it smaller (Févotte and Idier, 2011). What
one frame cannot tell of a sound, the others that have it do.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from earatlas.types import Array, Single

__all__ = ["Repertoire"]

_TINY = 1e-9  # of the mean power: keeps silence from being divided by
_NOTHING = 1e-15  # and where all is silent; its square is within single precision


@dataclass(frozen=True, eq=False)
class Repertoire:
    """K spectra, and how loud each is when."""

    W: Single  # (F, K)
    H: Single  # (K, T)
    least: float  # a power that is nothing

    @classmethod
    def of(cls, v: Array | Single, count: int) -> Repertoire:
        """A start for powers (F, T): even, but no two spectra alike; the same for all sources."""
        rng = np.random.default_rng(0)
        level = float(v.mean())
        each = np.sqrt(level / count)
        W, H = (rng.uniform(0.5, 1.5, n) * each for n in ((len(v), count), (count, v.shape[1])))
        return cls(W.astype(np.float32), H.astype(np.float32), _TINY * level + _NOTHING)

    @property
    def powers(self) -> Single:
        """(F, T) W H."""
        powers: Single = self.W @ self.H + np.float32(self.least)
        return powers

    def fitted(self, v: Array | Single, steps: int) -> Repertoire:
        """Nearer to powers (F, T) by so many steps."""
        W, H = self.W.copy(), self.H.copy()
        for _ in range(steps):
            ratio, weight = self._misses(v, W, H)
            W *= _factor(ratio @ H.T, weight @ H.T)
            ratio, weight = self._misses(v, W, H)
            H *= _factor(W.T @ ratio, W.T @ weight)
        return Repertoire(W, H, self.least)

    def _misses(self, v: Array | Single, W: Single, H: Single) -> tuple[Single, Single]:
        """v / (W H)² and 1 / (W H), (F, T)."""
        weight: Single = np.reciprocal(W @ H + np.float32(self.least))
        ratio = v.astype(np.float32) * weight
        ratio *= weight
        return ratio, weight


def _factor(asked: Single, there: Single) -> Single:
    """What a spectrum or its loudness is multiplied by; one that has died away stays so."""
    factor: Single = np.sqrt(asked / np.maximum(there, np.float32(1e-30)))
    return factor
