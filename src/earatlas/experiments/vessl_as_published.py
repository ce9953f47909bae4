"""VESSL as published: PPAM at all scales, multi-scale initialization from random masks, soft masks.

The inputs are training pairs or a `Bench`, and a scene. The outputs are signals and directions of
the sources. The scales are learned here, because an atlas contains only the finest model.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from earatlas.experiments.bench import Bench
from earatlas.experiments.models import paper_ppam
from earatlas.features.cues import bin_power
from earatlas.features.layout import CueLayout, Threshold
from earatlas.features.stft import stft
from earatlas.features.tf_bins import ObservedBins
from earatlas.separation.demixing.masks import apply_masks
from earatlas.separation.multiscale_initialization import multiscale_vessl
from earatlas.separation.source_model import SourceModel, VESSLSettings
from earatlas.separation.vessl import VESSL
from earatlas.simulation.scene import SimulatedScene
from earatlas.types import Array

__all__ = ["paper_scales", "separate_as_published", "source_models"]


def paper_scales(x: Array, y: Array, finest: int) -> list[SourceModel]:
    """Return PPAM with 1, 2, 4, … charts up to the finest, with learned noise and no adaptation."""
    models = [paper_ppam(x, y, 2**i) for i in range(finest.bit_length())]
    return [SourceModel.from_ppam(m, CueLayout(), m.noise, VESSLSettings.paper()) for m in models]


@lru_cache(maxsize=2)
def source_models(bench: Bench) -> dict[str, list[SourceModel]]:
    """Return PPAM at all scales from 1 to 64 charts, for T1 and T2."""
    x, y = bench.planar_head.directions, bench.cues()
    found = {}
    for name in ("T1", "T2"):
        train, _ = bench.training_set(name)
        found[name] = paper_scales(x[train], y[train], min(64, len(train) // 8))
    return found


def separate_as_published(
    sources: list[SourceModel], scene: SimulatedScene, seed: int
) -> tuple[Array, Array]:
    """Return signals (M, 2, n) and directions (M, 2) of the sources by VESSL as published."""
    layout, M = CueLayout(), len(scene.directions)
    spectra = stft(scene.mixture.samples, layout.window, layout.hop)
    floor = Threshold().floor_db(float(bin_power(spectra, layout.window).max()))
    observed = ObservedBins.from_spectra(
        spectra, layout, np.full(layout.n_frequencies, float(floor))
    )
    state = multiscale_vessl(sources, observed, M, seed=seed)
    masks = VESSL(sources[-1], observed).masks(state, spectra)
    found = np.stack([source.posterior.best for source in state.sources])
    return apply_masks(spectra, masks, layout, scene.mixture.samples.shape[1]), found
