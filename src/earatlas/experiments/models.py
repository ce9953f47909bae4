"""Mapping methods by name: PPAM as in the paper, PPAM of this package, and the baselines.

The inputs are training pairs on the plane. The output is a model with `inverse_map`, from cue
vectors to directions.
"""

from __future__ import annotations

from earatlas.baselines.lookup import LookUp
from earatlas.baselines.mapping import InverseMap
from earatlas.baselines.sir import SIR
from earatlas.geometry.spaces import Plane
from earatlas.ppam.em import EMSettings
from earatlas.ppam.model import PPAM
from earatlas.types import Array

__all__ = ["METHODS", "fit_method", "paper_ppam"]


METHODS = (
    *("PPAM", "MPLR, plain", "SIR-1", "SIR-2"),  # methods of the paper
    *("PPAM, ours", "PPAM, ours, K = N/10", "MPLR, reduced", "look-up"),
)


def paper_ppam(x: Array, y: Array, components: int, seed: int = 0) -> PPAM:
    """Fit PPAM as in the paper: no latent coordinates, one noise for all charts, temperature 1."""
    settings = EMSettings(spread_prior=None, temperature=1.0)
    K = min(components, max(len(x) // 3, 1))
    return PPAM.fit(Plane(), x, y, components=K, latent=0, settings=settings, seed=seed)


def fit_method(
    method: str, x: Array, y: Array, components: int, *, seed: int = 0, tuned: bool = False
) -> InverseMap:
    """Fit the method of a given name to directions (N, 2) and cues (N, D).

    With `tuned`, the reduced MPLR selects its ridge on held-out directions (seven fits instead of
    one).
    """
    plane = Plane()
    match method:
        case "PPAM":
            return paper_ppam(x, y, components, seed)
        case "PPAM, ours":
            return PPAM.fit(plane, x, y, components=components, seed=seed)
        case "PPAM, ours, K = N/10":
            return PPAM.fit(plane, x, y, components=len(x) // 10, seed=seed)
        case "MPLR, plain":
            from earatlas.baselines.mplr import MPLR  # scikit-learn is an extra

            return MPLR.fit_plain(plane, x, y, components=components, seed=seed)
        case "MPLR, reduced":
            from earatlas.baselines.mplr import MPLR

            ridge = None if tuned else 3e-6  # what MPLR selects for most heads and cues
            return MPLR.fit(plane, x, y, components=components, ridge=ridge, seed=seed)
        case "SIR-1":
            return SIR.fit(plane, x, y, axes=1, seed=seed)
        case "SIR-2":
            return SIR.fit(plane, x, y, axes=2, seed=seed)
        case _:
            return LookUp.fit(plane, x, y)
