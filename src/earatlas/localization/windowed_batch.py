"""Localization of many windows of a static head at once.

Input: statistics and onsets of overlapping windows. Output: one `Localization` per window, as
`localize_rotating_head` returns it without the test for several sources. On the sphere, the summary
of each posterior (direction, mean, radius, area) is computed for all windows together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from earatlas.features.hop_statistics import HopStatistics
from earatlas.features.onset_detector import OnsetBins
from earatlas.features.statistics import CueStatistics
from earatlas.geometry.posterior_summary import summarize_posteriors
from earatlas.geometry.spaces import Sphere
from earatlas.localization.learned_head import LearnedHead
from earatlas.localization.localizer import (
    localization_from_posterior,
    localize_statistics,
    observed_shares,
)
from earatlas.localization.result import Localization
from earatlas.ppam.posterior_batch import PosteriorBatch
from earatlas.types import Array, Indices

__all__ = ["WindowBatchLocalizer"]


class WindowBatchLocalizer:
    """Localizer of windows for a head with a constant yaw."""

    def __init__(self, head: LearnedHead, yaw_degrees: float) -> None:
        self._head, self._yaw = head, yaw_degrees
        self._posteriors = PosteriorBatch(head.model)
        self._silence: Localization | None = None  # the result of every window without bins

    def __call__(
        self, windows: HopStatistics, onsets: Sequence[OnsetBins | None]
    ) -> Iterator[Localization]:
        """Yield the localization of each window; its onsets are sorted by time."""
        layout = self._head.layout
        shares = observed_shares(layout, windows.table[0], windows.frames)
        rows = np.flatnonzero(windows.table[0].any(axis=1))
        observed = iter(self._localize(windows, rows, [onsets[n] for n in rows.tolist()], shares))
        for n, frames in enumerate(windows.frames.tolist()):
            if windows.table[0, n].any():
                yield next(observed)
            else:
                yield replace(self._silent(windows), seconds=frames * layout.hop / layout.rate)

    def _silent(self, windows: HopStatistics) -> Localization:
        if self._silence is None:
            nothing = np.zeros(windows.table.shape[-1])
            statistics = CueStatistics(nothing, nothing, nothing)
            self._silence = localize_statistics(self._head, statistics)
        return self._silence

    def _localize(
        self,
        windows: HopStatistics,
        rows: Indices,
        onsets: Sequence[OnsetBins | None],
        shares: Array,
    ) -> list[Localization]:
        """Localize the windows in these rows, all of which have observed bins."""
        if not len(rows):
            return []
        head = self._head
        counts, sums, squares = windows.table[:, rows]
        statistics = CueStatistics(counts, sums, squares)
        anechoic = self._posteriors.calibrated_posterior(head.calibration, statistics)
        combined = head.combine_batch(anechoic, onsets)
        frame = head.layout.hop / head.layout.rate
        localizations = [
            localization_from_posterior(
                head,
                calibrated.rotated(self._yaw),
                own,
                observed_share=float(shares[n]),
                seconds=float(windows.frames[n]) * frame,
            )
            for n, calibrated, own in zip(rows, combined, onsets, strict=True)
        ]
        if isinstance(head.space, Sphere):
            posteriors = [localization.posterior for localization in localizations]
            for posterior, summary in zip(
                posteriors, summarize_posteriors(posteriors), strict=True
            ):
                posterior.cache_summary(summary)
        return localizations
