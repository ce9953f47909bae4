"""Directions of several simultaneous sources, from the onset bins of a recording.

Input: onset bins of a mixture (`earatlas.features.onset_detector`) and a head's `DirectSoundModel`
(`earatlas.localization.onset_likelihood`). Output: one `DetectedSource` per source, with a
log-likelihood of directions and the evidence for the source.

The sources are searched on coarse cells (`earatlas.localization.onset_mixture`) and refined on the
fine grid. The log-likelihood of source m is that of the mixture as a function of x_m with the other
directions fixed: bins that the others explain carry little information about it, and a front-back
ambiguity remains if the bins leave it open. The evidence of a source is the increase of the
log-likelihood over the other components alone, to which its mixing weight is then distributed.

    B  onset bins    G  grid directions    M  sources    e  (B,) likelihood of other components
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from earatlas.features.onset_detector import OnsetBins
from earatlas.geometry.angles import to_vectors
from earatlas.localization.onset_likelihood import (
    DirectionLogLikelihood,
    DirectSoundModel,
    LeaveOneOutTemplates,
    best_cells,
    bin_weights,
)
from earatlas.localization.onset_mixture import MixtureFit, OnsetMixture, SourceMixture
from earatlas.types import Array, Indices, Mask, Single

__all__ = [
    "DETECTION_SETTINGS",
    "DetectedSource",
    "DetectionSettings",
    "SourceDetector",
]


# Evidence: docs/figures/settings/localization.md, "detected_sources".
@dataclass(frozen=True, slots=True)
class DetectionSettings:
    """Settings of the detection of several sources; all of its users share them."""

    few_bins: int = 800  # strongest onset bins, which give the best directions
    many_bins: int = 1500  # the same if one source dominates those
    low_evidence_nats: float = 0.03  # nats per onset below which a source may not exist
    fine_cells: int = 60  # coarse cells per source that are evaluated on the fine grid
    fine_rounds: int = 2  # rounds of refinement on the fine grid


DETECTION_SETTINGS = DetectionSettings()


@dataclass(frozen=True, eq=False)
class DetectedSource:
    """One of several sources, estimated from its onsets."""

    log_likelihood: DirectionLogLikelihood  # given the directions of the other sources
    direction: Array  # (C,) of the maximum
    bins: float  # expected number of its onset bins
    nats_per_bin: float  # per (weighted) bin of its own, over diffuse sound
    evidence: float  # nats per (weighted) bin of all bins that the source adds
    responsibilities: Array  # (B,) posterior probability that a bin belongs to the source


class SourceDetector:
    """The onset bins of a recording, the densities at all coarse cells, and their mixture."""

    def __init__(
        self,
        model: DirectSoundModel,
        bins: OnsetBins,
        leave_one_out: LeaveOneOutTemplates | None = None,
    ) -> None:
        self.model, self.bins, self._leave_one_out = model, bins, leave_one_out
        coarse = model.cells[0]
        self.mixture = OnsetMixture(
            model.densities(bins, coarse, leave_one_out),
            bin_weights(bins.f),
            to_vectors(model.grid[coarse]),
            frequencies=bins.f,
        )

    def second_source_gain(self) -> float:
        """Return the nats per onset by which two sources fit better than one.

        What whole frequency bands explain better is subtracted.
        """
        one, two = self.mixture.search(2)
        gain = (two.log_likelihood - one.log_likelihood) / self.mixture.total
        return max(gain - self.mixture.band_excess(two, 1), 0.0)

    def alternates(self, directions: Array) -> bool:
        """Return whether sources in directions (M, C) have onsets at the same frequencies."""
        mixture = self.mixture
        cells = (mixture.vectors @ to_vectors(directions).T).argmax(axis=0)
        fit = mixture.fit_static(list(cells))
        return all(mixture.gain(fit, m) > mixture.band_excess(fit, m) for m in range(1, len(fit)))

    def sources(self, fit: MixtureFit) -> list[DetectedSource]:
        """Return the sources of a fit, refined on the fine grid given the others."""
        model, mixture = self.model, self.mixture
        coarse, cell = model.cells
        components = mixture.components(fit)
        directions = list(model.grid[coarse[fit.cells[:, 0]]])
        fine: list[tuple[Indices, Single]] = []  # grid points near each source, and densities there
        for round_number in range(DETECTION_SETTINGS.fine_rounds):
            for m in range(len(fit)):
                if round_number == 0:
                    L = components.log_likelihoods(m, mixture.densities)
                    rows = np.flatnonzero(best_cells(L, DETECTION_SETTINGS.fine_cells)[cell])
                    fine.append((rows, model.densities(self.bins, rows, self._leave_one_out)))
                rows, g = fine[m]
                L = components.log_likelihoods(m, g)
                L[self._too_near(model.grid[rows], directions, m)] = -np.inf
                best = int(L.argmax())
                components = components.relocated(m, g[:, best])
                directions[m] = model.grid[rows[best]]
        return [self._source(components, m, fine[m], directions) for m in range(len(fit))]

    def _source(
        self,
        components: SourceMixture,
        m: int,
        fine: tuple[Indices, Single],
        directions: list[Array],
    ) -> DetectedSource:
        """Assemble source m, given densities (B, G) of the bins at grid points near it."""
        log_likelihood = components.direction_log_likelihood(
            m, self.model, fine, self.mixture.densities, self.bins.snr_db
        )
        # Exclude the directions of the others; otherwise both posteriors peak at the louder source.
        excluded = self._too_near(log_likelihood.directions, directions, m)
        log_likelihood.log_likelihoods[excluded] = -np.inf
        responsibilities = components.responsibilities(m)
        return DetectedSource(
            log_likelihood,
            directions[m],
            float(responsibilities.sum()),
            float(log_likelihood.features[0]),
            float(components.gains(m).sum()) / self.mixture.total,
            responsibilities,
        )

    def _too_near(self, directions: Array, sources: list[Array], m: int) -> Mask:
        """Return which (G,) directions are too close to those of sources other than m."""
        others = np.array(sources[:m] + sources[m + 1 :]).reshape(-1, directions.shape[1])
        cosines = to_vectors(directions) @ to_vectors(others).T
        largest = np.cos(np.radians(self.mixture.settings.min_separation_degrees))
        near: Mask = (cosines > largest).any(axis=1)
        return near
