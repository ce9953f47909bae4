"""Answers to many windows of a track at once: what `turning_answer` says of each, not thoroughly.

In: sums and onsets of windows that overlap. Out: a `Localization` of each, whose direction, mean,
radius and area are known already where the space is a sphere.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from earatlas.features.hop_statistics import HopSums
from earatlas.features.onset_detector import OnsetBins
from earatlas.features.statistics import CueStatistics
from earatlas.geometry.posterior_summary import told_of
from earatlas.geometry.spaces import Sphere
from earatlas.localization.learned_head import LearnedHead
from earatlas.localization.result import Localization, answer, observed_shares, rested
from earatlas.ppam.posterior_batch import Posteriors
from earatlas.types import Array, Indices

__all__ = ["QuickAnswers"]


class QuickAnswers:
    """Answers of a head that is turned to its left by so much."""

    def __init__(self, head: LearnedHead, yaw_degrees: float) -> None:
        self._head, self._yaw = head, yaw_degrees
        self._posteriors = Posteriors(head.model)
        self._silence: Localization | None = None  # nothing heard is the same posterior every time

    def __call__(self, sums: HopSums, onsets: Sequence[OnsetBins | None]) -> Iterator[Localization]:
        """Of each window; onsets in order of time."""
        layout = self._head.layout
        shares = observed_shares(layout, sums.table[0], sums.frames)
        heard = np.flatnonzero(sums.table[0].any(axis=1))
        found = iter(self._heard(sums, heard, [onsets[n] for n in heard.tolist()], shares))
        for n, frames in enumerate(sums.frames.tolist()):
            if sums.table[0, n].any():
                yield next(found)
            else:
                yield replace(self._silent(sums), seconds=frames * layout.hop / layout.rate)

    def _silent(self, sums: HopSums) -> Localization:
        if self._silence is None:
            nothing = np.zeros(sums.table.shape[-1])
            self._silence = answer(self._head, CueStatistics(nothing, nothing, nothing))
        return self._silence

    def _heard(
        self, sums: HopSums, rows: Indices, onsets: Sequence[OnsetBins | None], shares: Array
    ) -> list[Localization]:
        if not len(rows):
            return []
        head = self._head
        counts, values, squares = sums.table[:, rows]
        heard = CueStatistics(counts, values, squares)
        opened = self._posteriors.judged(head.calibration, heard)
        judged = head.joined_many(opened, onsets)
        frame = head.layout.hop / head.layout.rate
        found = [
            rested(
                head,
                one.turned(self._yaw),
                own,
                share=float(shares[n]),
                seconds=float(sums.frames[n]) * frame,
            )
            for n, one, own in zip(rows, judged, onsets, strict=True)
        ]
        if isinstance(head.space, Sphere):
            for one, told in zip(found, told_of([one.posterior for one in found]), strict=True):
                one.posterior.know(told)
        return found
