"""Embeddings of a head's cues, and a page that turns them in a browser.

In: a head's directions and embeddings of its cues. Out: `manifold_page`, the text of one HTML file
that needs nothing else, no network and no library. As in the paper's figure 3, one line is one
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
    """Coordinates of the cues at some of a head's directions, and how faithful they are."""

    cue: str  # such as "low ILD"
    method: str  # such as "LTSA"
    places: Indices  # (M,) which directions
    coordinates: Array  # (M, 3)
    score: Faithfulness
    left_out: int  # how many directions have no place

    @property
    def verdict(self) -> str:
        """Homeomorphic if the scores say so and at least nine in ten directions have a place."""
        whole = len(self.places) >= 9 * self.left_out
        return "homeomorphic" if self.score.homeomorphic and whole else "distorted"

    @property
    def caption(self) -> str:
        """The scores in a line; a second one where points lie outside the frame."""
        s = self.score
        scores = (
            f"{self.verdict}: trustworthiness {s.trustworthiness:.2f}, "
            f"continuity {s.continuity:.2f}"
        )
        outside = int((~self.inside).sum())
        if not outside:
            return scores
        lie = "lie" if outside > 1 else "lies"
        return f"{scores}\n{outside} of {len(self.places)} points {lie} outside the frame"

    @property
    def centred(self) -> Array:
        """(M, 3) the coordinates, moved and scaled so that the frame is the unit ball."""
        low, high = np.quantile(self.coordinates, (0.05, 0.95), axis=0)
        t = self.coordinates - 0.5 * (low + high)
        # The farthest points may leave the frame: they must not shrink all the others. LTSA of a
        # measured head (ku100, high ILD) sent some hundreds of times as far as nine in ten others.
        away = np.linalg.norm(t, axis=1)
        unit: Array = t / max(min(away.max(), 2 * float(np.quantile(away, 0.9))), 1e-300)
        return unit

    @property
    def inside(self) -> Mask:
        """(M,) whether the point is in the frame."""
        within: Mask = np.linalg.norm(self.centred, axis=1) <= 1 + 1e-9
        return within

    def lines(self, directions: Array, spacing_degrees: float) -> list[Indices]:
        """Rings of all directions (N, 2) that have a place, as indices of points (M,).

        They end where a point lies outside the frame.
        """
        inside = self.inside
        lines: list[Indices] = []
        for ring in rings(directions[self.places], spacing_degrees):
            gaps = np.flatnonzero(~inside[ring])
            first, *rest = np.split(ring, gaps)
            lines += [part for part in (first, *(part[1:] for part in rest)) if len(part) > 1]
        return lines


def rings(directions: Array, spacing_degrees: float) -> list[Indices]:
    """Lines of one elevation in azimuth order: indices into the directions.

    A grid of elevations gives its own; others are cut into bands as wide as their spacing. Lines
    end where the next direction is more than four spacings away, and close behind the head.
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
    """The HTML page: drag to turn, wheel or pinch to zoom, hover for the direction."""
    panels: dict[str, dict[str, object]] = {}
    for e in embeddings:
        inside = e.inside
        number = np.cumsum(inside) - 1  # of a point among those that are drawn
        panels.setdefault(e.cue, {})[e.method] = {
            "score": e.caption,
            "places": e.places[inside].tolist(),
            "points": np.rint(1000 * e.centred[inside]).astype(int).tolist(),
            "lines": [number[line].tolist() for line in e.lines(directions, spacing_degrees)],
        }
    data = {
        "methods": list(dict.fromkeys(e.method for e in embeddings)),
        "directions": np.round(directions, 1).tolist(),
        "panels": [{"name": cue, "views": views} for cue, views in panels.items()],
    }
    page = files("earatlas.manifold").joinpath("viewer.html").read_text(encoding="utf-8")
    # A "</script>" in a name would end the script.
    text = json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")
    return page.replace("__TITLE__", html.escape(title)).replace("__DATA__", text)
