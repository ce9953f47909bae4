"""Embeddings of a head's cues, and an HTML page with an interactive three-dimensional view.

Input: the directions of a head and embeddings of its cues. Output: `manifold_page`, the text of one
self-contained HTML file. As in the paper's figure 3, each line connects the directions of one
elevation in azimuth order.
"""

from __future__ import annotations

import html
import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files

import numpy as np

from earatlas.manifold.faithfulness import Faithfulness
from earatlas.types import Array, Indices, Mask

__all__ = ["Embedding", "manifold_page", "rings"]


@dataclass(frozen=True, eq=False, slots=True)
class Embedding:
    """Coordinates of the cues at some directions of a head, and their faithfulness."""

    cue: str  # such as "low ILD"
    method: str  # such as "LTSA"
    direction_indices: Indices  # (M,) indices of the directions
    coordinates: Array  # (M, 3)
    score: Faithfulness
    left_out: int  # number of directions without coordinates

    @property
    def verdict(self) -> str:
        """Return "homeomorphic" if the scores are high and nine in ten directions are embedded."""
        whole = len(self.direction_indices) >= 9 * self.left_out
        return "homeomorphic" if self.score.homeomorphic and whole else "distorted"

    @property
    def caption(self) -> str:
        """One line with the scores; a second line if points lie outside the frame."""
        s = self.score
        scores = (
            f"{self.verdict}: trustworthiness {s.trustworthiness:.2f}, "
            f"continuity {s.continuity:.2f}"
        )
        outside = int((~self.inside).sum())
        if not outside:
            return scores
        lie = "lie" if outside > 1 else "lies"
        return (
            f"{scores}\n{outside} of {len(self.direction_indices)} points {lie} outside the frame"
        )

    @property
    def centred(self) -> Array:
        """Coordinates (M, 3), shifted and scaled such that the frame is the unit ball."""
        low, high = np.quantile(self.coordinates, (0.05, 0.95), axis=0)
        t = self.coordinates - 0.5 * (low + high)
        # Outliers may lie outside the frame, so that they do not shrink all other points.
        # Evidence: docs/figures/settings/manifold.md, "viewer".
        radius = np.linalg.norm(t, axis=1)
        unit: Array = t / max(min(radius.max(), 2 * float(np.quantile(radius, 0.9))), 1e-300)
        return unit

    @property
    def inside(self) -> Mask:
        """Whether each point is inside the frame (M,)."""
        within: Mask = np.linalg.norm(self.centred, axis=1) <= 1 + 1e-9
        return within

    def lines(self, directions: Array, spacing_degrees: float) -> list[Indices]:
        """Return the `rings` of the embedded ones of directions (N, 2), as indices of points (M,).

        Lines are interrupted at points outside the frame.
        """
        inside = self.inside
        lines: list[Indices] = []
        for ring in rings(directions[self.direction_indices], spacing_degrees):
            gaps = np.flatnonzero(~inside[ring])
            first, *rest = np.split(ring, gaps)
            lines += [part for part in (first, *(part[1:] for part in rest)) if len(part) > 1]
        return lines


def rings(directions: Array, spacing_degrees: float) -> list[Indices]:
    """Return lines of one elevation in azimuth order, as indices into the directions (N, 2).

    Directions that are not on a grid of elevations are grouped into bands as wide as their spacing.
    Lines are interrupted where the next direction is more than four spacings away, and are closed
    behind the head.
    """
    azimuth, elevation = directions.T
    levels = np.unique(np.round(elevation, 3))
    band = np.searchsorted(levels, np.round(elevation, 3))
    if len(levels) > len(directions) / 8:
        band = np.round(elevation / max(spacing_degrees, 0.1)).astype(np.intp)
    lines: list[Indices] = []
    for level in np.unique(band):
        ring = np.flatnonzero(band == level)
        ring = ring[np.argsort(azimuth[ring], kind="stable")]
        if len(ring) < 3:
            continue
        ring = np.append(ring, ring[0])
        arc = np.diff(azimuth[ring]) % 360 * np.cos(np.radians(elevation[ring[:-1]]))
        ends = np.flatnonzero(arc > 4 * spacing_degrees) + 1
        parts = np.split(ring, ends)
        lines.extend(part for part in parts if len(part) > 1)
    return lines


def manifold_page(
    embeddings: Sequence[Embedding], directions: Array, spacing_degrees: float, *, title: str = ""
) -> str:
    """Return the HTML page: drag to rotate, wheel or pinch to zoom, hover for the direction."""
    panels: dict[str, dict[str, object]] = {}
    for e in embeddings:
        inside = e.inside
        number = np.cumsum(inside) - 1  # index of a point among those that are drawn
        panels.setdefault(e.cue, {})[e.method] = {
            "score": e.caption,
            "places": e.direction_indices[inside].tolist(),
            "points": np.rint(1000 * e.centred[inside]).astype(int).tolist(),
            "lines": [number[line].tolist() for line in e.lines(directions, spacing_degrees)],
        }
    data = {
        "methods": list(dict.fromkeys(e.method for e in embeddings)),
        "directions": np.round(directions, 1).tolist(),
        "panels": [{"name": cue, "views": views} for cue, views in panels.items()],
    }
    page = files("earatlas.manifold").joinpath("viewer.html").read_text(encoding="utf-8")
    # Escape "<", because "</script>" in a name would end the script.
    text = json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")
    return page.replace("__TITLE__", html.escape(title)).replace("__DATA__", text)
