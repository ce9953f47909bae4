"""Number, colour and name of each source: one source has the same ones in all parts of the page.

The input is a scene, and its ground truth if it was rendered by the studio. The output is a
`SourceIdentity` per source. A source that is assigned to a true talker has the talker's number, and
so its colour, and its name; the others have the numbers that are left.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from earatlas.evaluation.ground_truth import GroundTruth, assign_by_position
from earatlas.separation.result import SceneSummary

__all__ = ["SourceIdentity", "SourceLabels", "identified_scene", "identify_sources"]


@dataclass(frozen=True, slots=True)
class SourceIdentity:
    """The number of a source, which determines its colour, and its name."""

    number: int  # counted from 0
    label: str = ""  # "" if it has no name


@dataclass(frozen=True, slots=True)
class SourceLabels:
    """Names and numbers of given sources, which a page keeps when it separates again."""

    names: Sequence[str] = ()
    numbers: Sequence[int] = ()  # counted from 1; empty: not given

    @classmethod
    def of(cls, request: dict[str, Any]) -> SourceLabels:
        """Return the labels in a request."""
        return cls(request.get("source_names", ()), request.get("source_numbers", ()))


def identify_sources(
    scene: SceneSummary, truth: GroundTruth | None = None, labels: SourceLabels | None = None
) -> list[SourceIdentity]:
    """Return the identity of each source."""
    n_sources, labels = len(scene.sources), labels or SourceLabels()
    given = [*labels.names, *[""] * n_sources][:n_sources]
    if len(labels.numbers) == n_sources:
        numbers = [number - 1 for number in labels.numbers]
        return [SourceIdentity(m, name) for m, name in zip(numbers, given, strict=True)]
    if truth is None or not n_sources:
        return [SourceIdentity(m, name) for m, name in enumerate(given)]
    found = assign_by_position(scene, truth).found
    talkers = {int(j): m for m, j in enumerate(found) if j >= 0}
    left = iter(range(len(truth), len(truth) + n_sources))
    return [
        SourceIdentity(talkers[j], given[j] or truth.names[talkers[j]])
        if j in talkers
        else SourceIdentity(next(left), given[j])
        for j in range(n_sources)
    ]


def identified_scene(
    scene: SceneSummary, truth: GroundTruth | None = None, labels: SourceLabels | None = None
) -> tuple[SceneSummary, list[SourceIdentity], list[int]]:
    """Return the scene with named sources in the order of their numbers.

    Also returns their identities, and the index of each source in the scene before.
    """
    identities = identify_sources(scene, truth, labels)
    order = sorted(range(len(identities)), key=lambda j: identities[j].number)
    identities = [identities[j] for j in order]
    shown = [one.label for one in identities]
    sources = []
    for j, one in zip(order, identities, strict=True):
        name = one.label or f"source{one.number + 1}"
        if shown.count(one.label) > 1 and one.label:  # sounds are found by the name of the source
            name = f"{name} ({one.number + 1})"
        sources.append(replace(scene.sources[j], name=name, number=one.number))
    masks = scene.spectrogram.masks[np.array(order, dtype=np.intp)]
    spectrogram = replace(scene.spectrogram, masks=masks)
    return replace(scene, sources=tuple(sources), spectrogram=spectrogram), identities, order
