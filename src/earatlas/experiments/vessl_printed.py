"""VESSL as the paper has it: PPAM at all scales, a multi-scale start from random masks, its masks.

In: a `Bench`, and a scene of talkers. Out: sounds and directions of the sources.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from earatlas.experiments.data import Bench
from earatlas.experiments.models import paper_ppam
from earatlas.hearing.cues import bin_power
from earatlas.hearing.heard_bins import HeardBins
from earatlas.hearing.layout import CueLayout, Threshold
from earatlas.hearing.transform import stft
from earatlas.scenes.scene import SimulatedScene
from earatlas.separation.sound.masks import render
from earatlas.separation.vessl import VESSL, Inference, SourceModel, multiscale
from earatlas.types import Array

__all__ = ["printed_vessl", "sources_of"]


@lru_cache(maxsize=2)
def sources_of(bench: Bench) -> dict[str, list[SourceModel]]:
    """PPAM at all scales from 1 chart to 64, on T1 and T2."""
    x, y, layout = bench.plane.directions, bench.cues(), CueLayout()
    found = {}
    for name in ("T1", "T2"):
        known, _ = bench.training_set(name)
        finest = min(64, len(known) // 8)
        sizes = [2**i for i in range(finest.bit_length())]
        models = [paper_ppam(x[known], y[known], K) for K in sizes]
        found[name] = [SourceModel.of(m, layout, m.noise, Inference.paper()) for m in models]
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
    found = np.stack([source.belief.best for source in state.sources])
    return render(spectra, masks, layout, scene.mixture.samples.shape[1]), found
