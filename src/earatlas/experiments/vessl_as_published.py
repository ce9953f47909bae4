"""VESSL as published: PPAM at all scales, and multi-scale initialization from random masks.

The inputs are training pairs or a `Bench`, and a scene. The outputs are soft or binary masks,
signals and directions of the sources. The scales are learned here, because an atlas contains only
the finest model.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from earatlas.experiments.bench import Bench
from earatlas.experiments.models import paper_ppam
from earatlas.features.layout import CueLayout, Threshold
from earatlas.features.stft import bin_power, stft
from earatlas.features.tf_bins import ObservedBins
from earatlas.geometry.direction_posterior import DirectionPosterior
from earatlas.separation.demixing.masks import apply_masks, binary_masks
from earatlas.separation.multiscale_initialization import multiscale_vessl
from earatlas.separation.source_model import SourceModel, VESSLSettings
from earatlas.separation.vessl import VESSL
from earatlas.simulation.scene import SimulatedScene
from earatlas.types import Array, Spectra

__all__ = [
    "COMPONENTS",
    "PublishedSeparation",
    "paper_map",
    "paper_scales",
    "separate_as_published",
    "source_models",
]

COMPONENTS = {"T1": 128, "T2": 64}  # the paper's K by training set


def paper_scales(x: Array, y: Array, finest: int) -> list[SourceModel]:
    """Return PPAM with 1, 2, 4, … charts up to the finest, with learned noise and no adaptation."""
    models = [paper_ppam(x, y, 2**i) for i in range(finest.bit_length())]
    return [SourceModel.from_ppam(m, CueLayout(), m.noise, VESSLSettings.paper()) for m in models]


@lru_cache(maxsize=2)
def source_models(bench: Bench) -> dict[str, list[SourceModel]]:
    """Return PPAM at all scales from 1 chart to the paper's K, for T1 and T2."""
    x, y = bench.planar_head.directions, bench.cues()
    found = {}
    for name, components in COMPONENTS.items():
        train, _ = bench.training_set(name)
        found[name] = paper_scales(x[train], y[train], min(components, len(train) // 8))
    return found


def paper_map(posterior: DirectionPosterior) -> Array:
    """Return the paper's MAP direction (2,): the mean of the chart with the largest α |S|^-1/2.

    The other charts are ignored, so that it may differ from the mode of the mixture.
    """
    with np.errstate(divide="ignore"):  # charts without weight
        peaks = np.log(posterior.weights) - 0.5 * np.linalg.slogdet(posterior.covariances)[1]
    k = int(np.argmax(peaks))
    return posterior.space.exp(posterior.centres[k], posterior.means[k])


@dataclass(frozen=True, eq=False)
class PublishedSeparation:
    """Masks and direction posteriors of the sources by VESSL as published."""

    masks: Array  # (M, F, T), soft
    posteriors: tuple[DirectionPosterior, ...]
    spectra: Spectra  # (2, B, T), of the mixture
    n_samples: int
    ild_db: Array  # (F, T), NaN in unobserved bins
    layout: CueLayout

    def signals(self, *, binary: bool = False) -> Array:
        """Return the signals (M, 2, n) of the sources, from soft or binary masks."""
        masks = binary_masks(self.masks) if binary else self.masks
        return apply_masks(self.spectra, masks, self.layout, self.n_samples)

    @property
    def directions(self) -> Array:
        """The paper's MAP directions (M, 2)."""
        return np.stack([paper_map(posterior) for posterior in self.posteriors])


def separate_as_published(
    sources: list[SourceModel], scene: SimulatedScene, seed: int
) -> PublishedSeparation:
    """Separate the mixture of a scene by VESSL as published."""
    layout, M = CueLayout(), len(scene.directions)
    mixture = scene.mixture.samples
    spectra = stft(mixture, layout.window, layout.hop)
    floor = Threshold().floor_db(float(bin_power(spectra, layout.window).max()))
    observed = ObservedBins.from_spectra(
        spectra, layout, np.full(layout.n_frequencies, float(floor))
    )
    state = multiscale_vessl(sources, observed, M, seed=seed)
    masks = VESSL(sources[-1], observed).masks(state, spectra)
    ild = np.full(masks.shape[1:], np.nan)
    left, right = spectra[:, 1:][:, observed.f, observed.t]
    ild[observed.f, observed.t] = 20 * np.log10(np.abs(right) / np.abs(left))
    posteriors = tuple(source.posterior for source in state.sources)
    return PublishedSeparation(masks, posteriors, spectra, mixture.shape[1], ild, layout)
