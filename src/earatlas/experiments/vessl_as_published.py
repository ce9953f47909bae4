"""VESSL as the paper has it: PPAM at all scales, a multi-scale start from random masks, its masks.

In: training pairs or a `Bench`, and a scene of talkers. Out: sounds and directions of the sources.
The scales are learned here: an atlas holds only the model that is used.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from earatlas.experiments.bench import Bench
from earatlas.experiments.models import paper_ppam
from earatlas.features.cues import bin_power
from earatlas.features.layout import CueLayout, Threshold
from earatlas.features.stft import stft
from earatlas.features.tf_bins import HeardBins
from earatlas.separation.demixing.masking import render
from earatlas.separation.multiscale_initialization import multiscale
from earatlas.separation.source_model import Inference, SourceModel
from earatlas.separation.vessl import VESSL
from earatlas.simulation.scene import SimulatedScene
from earatlas.types import Array

__all__ = ["paper_scales", "printed_vessl", "sources_of"]


def paper_scales(x: Array, y: Array, finest: int) -> list[SourceModel]:
    """PPAM with 1, 2, 4, … charts up to the finest, its noise as learned, no adaptation."""
    models = [paper_ppam(x, y, 2**i) for i in range(finest.bit_length())]
    return [SourceModel.of(m, CueLayout(), m.noise, Inference.paper()) for m in models]


@lru_cache(maxsize=2)
def sources_of(bench: Bench) -> dict[str, list[SourceModel]]:
    """PPAM at all scales from 1 chart to 64, on T1 and T2."""
    x, y = bench.plane.directions, bench.cues()
    found = {}
    for name in ("T1", "T2"):
        known, _ = bench.training_set(name)
        found[name] = paper_scales(x[known], y[known], min(64, len(known) // 8))
    return found


def printed_vessl(
    sources: list[SourceModel], scene: SimulatedScene, seed: int
) -> tuple[Array, Array]:
    """Sounds (M, 2, n) and directions (M, 2) by VESSL as the paper has it."""
    layout, M = CueLayout(), len(scene.directions)
    spectra = stft(scene.mixture.samples, layout.window, layout.hop)
    floor = Threshold().floor_db(float(bin_power(spectra, layout.window).max()))
    heard = HeardBins.of_spectra(spectra, layout, np.full(layout.n_frequencies, float(floor)))
    state = multiscale(sources, heard, M, seed=seed)
    every = np.indices((layout.n_frequencies, spectra.shape[-1])).reshape(2, -1)
    bins = HeardBins.at(spectra, layout, every[0], every[1])
    masks = (
        VESSL(sources[-1], heard).posterior_masks(state, bins).reshape(M, layout.n_frequencies, -1)
    )
    found = np.stack([source.posterior.best for source in state.sources])
    return render(spectra, masks, layout, scene.mixture.samples.shape[1]), found
