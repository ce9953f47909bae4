"""What a head can teach: coverage, symmetry, and whether elevation can be heard at all.

In: a `Head`. Out: a `HeadReport`: plain numbers, and warnings in words; `earatlas info` prints
it.

On the median plane a source is equally far from both ears. A head whose ears are mirror images then
has no level or phase difference at any elevation, and nothing can be learned there; real ears
differ by a few dB, and that is what elevation and front/back are learned from.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from earatlas.features.layout import CueLayout
from earatlas.geometry.angles import to_vectors
from earatlas.geometry.spaces import Circle, Space, Sphere
from earatlas.hrtf.head import Head, ImpulseResponses
from earatlas.types import Array

__all__ = ["HeadReport", "coverage_map", "coverage_words", "diagnose", "nearest_neighbour_errors"]

_MEDIAN_DEGREES = 2.0  # how near to the median plane counts as on it
# Azimuths with gaps up to this, or two spacings, go all round: measured heads have gaps of 5
# degrees, or of 180 where they are known in front alone.
_ALL_ROUND_DEGREES = 20.0
_DEAF_DB = 0.5  # below this the median plane says nothing: measured heads have 1.8 to 2.3 dB


@dataclass(frozen=True)
class HeadReport:
    """A head in numbers; NaN becomes null in JSON where a figure does not apply."""

    name: str
    directions: int
    space: str
    spacing_degrees: float
    azimuth_range: tuple[float, float]
    elevation_range: tuple[float, float]
    largest_gap_degrees: float  # radius of the largest empty cap; on a circle, of the empty arc
    rate: float | None  # Hz; None: known by mean cues only
    taps: int | None
    licence: str
    provenance: str
    median_plane_ild_db: float  # RMS over median-plane directions and bins
    mirror_ild_db: float  # RMS of ILD(left) + ILD(right) over mirrored pairs; 0: one ear, copied
    warnings: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """The report as JSON values."""
        fields = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return {
            key: None if isinstance(value, float) and np.isnan(value) else value
            for key, value in fields.items()
        }


def diagnose(head: Head) -> HeadReport:
    """Measure a head's coverage and symmetry, and say what cannot be learned from it."""
    x, v = head.directions, to_vectors(head.directions)
    ild_layout = CueLayout(ipd_band_hz=None)
    ild = head.cues(ild_layout)
    median_ild = _median_plane_ild(ild, v)
    mirror = _mirror_ild(ild, v)
    space = head.space
    ears = head.ears if isinstance(head.ears, ImpulseResponses) else None
    return HeadReport(
        name=head.name,
        directions=len(head),
        space=space.name,
        spacing_degrees=head.spacing_degrees,
        azimuth_range=(float(x[:, 0].min()), float(x[:, 0].max())),
        elevation_range=(float(x[:, 1].min()), float(x[:, 1].max())),
        largest_gap_degrees=_largest_gap(space, x),
        rate=None if ears is None else ears.rate,
        taps=None if ears is None else ears.samples.shape[-1],
        licence=head.licence,
        provenance=head.provenance,
        median_plane_ild_db=median_ild,
        mirror_ild_db=mirror,
        warnings=tuple(_warnings(head, median_ild, mirror)),
    )


def _largest_gap(space: Space, x: Array) -> float:
    everywhere = space.grid(3.0)
    return float(space.distance(everywhere, x[space.nearest(x, everywhere)]).max())


def coverage_words(space: Space, directions: Array, spacing_degrees: float) -> str:
    """Where directions (N, 2) are, and how far from the next one a place may be."""
    azimuth = _azimuth_words(directions[:, 0], spacing_degrees)
    elevation = _span_words(directions[:, 1].min(), directions[:, 1].max())
    gap = _largest_gap(space, directions)
    return f"azimuth {azimuth}, elevation {elevation}, largest gap {gap:.0f}°"


def _azimuth_words(azimuths: Array, spacing_degrees: float) -> str:
    """All round, or from the leftmost to the rightmost."""
    around = np.sort(azimuths)
    gaps = np.diff(around, append=around[0] + 360)
    if gaps.max() <= max(_ALL_ROUND_DEGREES, 2 * spacing_degrees):
        return "all round"
    widest = int(np.argmax(gaps))  # what is not covered lies behind the last one
    first, last = around[widest], around[(widest + 1) % len(around)]
    return _span_words(first, last if last <= first else last - 360)  # from left to right


def _span_words(first: float, last: float) -> str:
    return f"{first:.0f}°" if first == last else f"{first:.0f}° … {last:.0f}°"


def _median_plane_ild(ild: Array, v: Array) -> float:
    near = np.abs(v[:, 1]) <= np.sin(np.radians(_MEDIAN_DEGREES))
    return float(np.sqrt(np.mean(ild[near] ** 2))) if near.any() else float("nan")


def _mirror_ild(ild: Array, v: Array) -> float:
    """RMS of ILD(x) + ILD(mirror of x): zero if the right ear is the left one mirrored."""
    from scipy.spatial import cKDTree  # a third of a second, and only heads need it

    chord, partner = cKDTree(v).query(v * (1.0, -1.0, 1.0))
    pairs = (chord < np.radians(1.0)) & (np.abs(v[:, 1]) > np.sin(np.radians(_MEDIAN_DEGREES)))
    if not pairs.any():
        return float("nan")
    return float(np.sqrt(np.mean((ild[pairs] + ild[partner[pairs]]) ** 2)))


def _warnings(head: Head, median_ild: float, mirror: float) -> list[str]:
    notes = []
    if isinstance(head.space, Circle):
        notes.append(
            "All directions have one elevation: azimuth can be learned on the circle, elevation "
            "cannot."
        )
    if mirror < 1e-3:
        notes.append("The ears are exact mirror images: one ear was measured and copied.")
    if median_ild < _DEAF_DB:
        notes.append(
            f"The median plane has {median_ild:.2f} dB of level difference: elevation and "
            "front/back cannot be learned there. Use a head measured at both ears."
        )
    if len(head) < 30:
        notes.append(f"Only {len(head)} directions: expect coarse answers. Measure more.")
    return notes


def coverage_map(head: Head, columns: int = 30, rows: int = 12) -> Array:
    """Density (rows, columns) of directions, 1 in a cell as dense as the median measured one.

    Elevation runs 90 to -90 down, azimuth 180 to -180 across; density is per solid angle.
    """
    edges = np.linspace(-90, 90, rows + 1)
    counts, _, _ = np.histogram2d(
        -head.directions[:, 1],
        -head.directions[:, 0],
        bins=(edges, np.linspace(-180, 180, columns + 1)),
    )
    density = counts / np.diff(np.sin(np.radians(edges)))[:, None]
    return density / np.median(density[density > 0])


def nearest_neighbour_errors(
    head: Head, *, seed: int = 0, layout: CueLayout | None = None
) -> Array:
    """Great-circle errors of looking up half of the directions among the other half, by cues.

    The simplest localizer there is: it shows whether a head's cues determine direction.
    """
    y = head.cues(layout)
    order = np.random.default_rng(seed).permutation(len(head))
    known, asked = order[: len(order) // 2], order[len(order) // 2 :]
    # |a - b|^2 = |a|^2 + |b|^2 - 2 a.b: one matrix product instead of a tree in 730 dimensions.
    cross = y[asked] @ (-2 * y[known].T)
    cross += (y[known] ** 2).sum(axis=1)  # in place: at 10,000 directions it has 200 MB
    found = head.directions[known[np.argmin(cross, axis=1)]]
    return Sphere().distance(head.directions[asked], found)
