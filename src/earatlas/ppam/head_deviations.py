"""How heads deviate from each other: the model of a measured head that may not be the present one.

Input: the deviations of people from the expected head, as an atlas of people has them. Output: the
`ListenerPPAM` of a measured head from which the present head deviates by a given magnitude.

    α        magnitude: 0 for the measured head itself, 1 for a difference between two people
    β_k ψ_k  loadings (K, H, J) and variances (K, D) of the population at the nearest of its charts

    y = cues of the measured head + √2 α β_k z + residual,   residual ~ N(0, own + 2 α² c ψ_k)

√2, because both people deviate from the mean; c is the share of ψ that differs between heads.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from earatlas.container import ATLAS_VERSION, read_container
from earatlas.features.layout import CueLayout
from earatlas.geometry.angles import to_vectors
from earatlas.geometry.neighbours import nearest_neighbours
from earatlas.packaged_atlases import PEOPLE_ATLAS
from earatlas.ppam.cue_bands import CueBands
from earatlas.ppam.listener_model import ListenerPPAM
from earatlas.ppam.model import PPAM
from earatlas.types import Array

__all__ = ["HeadDeviations", "people_deviations", "read_deviations"]

# Evidence: docs/figures/settings/localization.md, "head_mismatch".
_RESIDUAL_SHARE = 0.3  # c


@dataclass(frozen=True, eq=False)
class HeadDeviations:
    """Deviations of heads from the expected head, at directions of the sphere."""

    layout: CueLayout
    centres: Array  # (K, 2) degrees
    bands: CueBands
    loadings: Array  # (K, H, J) β
    residual: Array  # (K, D) ψ

    def apply_to(self, model: PPAM, layout: CueLayout) -> bool:
        """Whether they describe heads with this model: the same cues, and points on the sphere."""
        known = isinstance(model, ListenerPPAM)  # has deviations of its own
        return layout == self.layout and model.space.limited_angles and not known

    def deviating(self, model: PPAM, magnitude: float) -> ListenerPPAM:
        """Return the model of a head that deviates from a measured one by a magnitude α."""
        near = nearest_neighbours(to_vectors(self.centres), to_vectors(model.centres))[1][:, 0]
        own = model.noise * model.spread + (model.latent**2).sum(axis=1)
        return ListenerPPAM(
            model.space,
            model.centres,
            model.weights,
            model.gammas,
            model.A,
            model.b,
            model.noise,
            np.zeros((len(model.noise), 0)),
            model.spread,
            bands=self.bands,
            loadings=np.sqrt(2) * magnitude * self.loadings[near],
            residual=own + 2 * magnitude**2 * _RESIDUAL_SHARE * self.residual[near],
        )


def read_deviations(path: Path) -> HeadDeviations:
    """Read the deviations of heads from the atlas of a population."""
    about, arrays = read_container(path, "atlas", ATLAS_VERSION)
    layout = CueLayout.from_dict(about["layout"])
    centres, loadings, residual = (
        arrays[f"population.{name}"] for name in ("centres", "loadings", "residual")
    )
    return HeadDeviations(layout, centres, CueBands.of(layout), loadings, residual)


@cache
def people_deviations() -> HeadDeviations | None:
    """Return the deviations of people, from the built-in atlas; None if it is not installed."""
    return read_deviations(PEOPLE_ATLAS) if PEOPLE_ATLAS.is_file() else None
