"""Diagnosis of a head: its coverage and symmetry, and what can be learned from it.

The input is a `Head`, the output a `HeadReport` with numbers and warnings.

On the median plane, a source is equally far from both ears. If the ears are mirror images, there
is no level or phase difference at any elevation, and neither elevation nor front/back can be
learned there. Real ears differ by a few dB.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from earatlas.features.layout import CueLayout
from earatlas.geometry.angles import to_vectors
from earatlas.geometry.neighbours import nearest_neighbours
from earatlas.geometry.spaces import Circle, Plane, Space, Sphere
from earatlas.hrtf.head import Head, ImpulseResponses
from earatlas.hrtf.label_plausibility import LabelFit, LabelReading, label_fit, sampled_rows
from earatlas.types import Array, Indices, Mask
from earatlas.wording import rounded_repr

__all__ = [
    "DiagnosisSettings",
    "HeadReport",
    "coverage_map",
    "diagnose",
    "format_coverage",
    "label_warning",
    "largest_gap",
    "nearest_neighbour_errors",
]


# Evidence: docs/figures/settings/hrtf.md, "diagnosis".
@dataclass(frozen=True, slots=True)
class DiagnosisSettings:
    """Thresholds of the diagnosis of a head."""

    median_plane_degrees: float = 2.0  # maximum distance of a direction on the median plane
    mirror_degrees: float = 1.0  # maximum distance of a direction from another's mirror image
    min_median_ild_db: float = 0.5  # below, nothing can be learned on the median plane
    mirrored_ild_db: float = 1e-3  # below, the ears are exact mirror images
    min_directions: int = 30  # with fewer, estimates are coarse


_DEFAULTS = DiagnosisSettings()


@dataclass(frozen=True)
class HeadReport:
    """Properties of a head, returned by `diagnose`.

    Attributes
    ----------
    name : str
        Name of the head.
    directions : int
        Number of directions.
    space : str
        Space of the directions, "circle" or "sphere".
    spacing_degrees : float
        Median distance between neighbouring directions.
    azimuth_range, elevation_range : (float, float)
        Smallest and largest angle in degrees.
    largest_gap_degrees : float
        Radius of the largest spherical cap, or arc of the circle, without a direction.
    rate : float or None
        Sampling rate in Hz; None for a head without impulse responses.
    taps : int or None
        Length of the impulse responses in samples.
    licence, provenance : str
        Licence and origin of the data.
    median_plane_ild_db : float
        RMS level difference over the directions of the median plane; NaN if there are none.
    mirror_ild_db : float
        RMS of ILD(x) + ILD(mirror image of x); 0 if one ear is a copy of the other, NaN if there
        are no mirrored pairs of directions.
    warnings : tuple of str
        What cannot be learned from the head, as sentences.
    image : Plane or None
        The image of a head that is labelled with positions in pixels. The ranges are then those of
        x and y.

    Examples
    --------
    >>> import earatlas as ea
    >>> report = ea.diagnose(ea.simulated_head([[a, 0.0] for a in range(-180, 180, 10)]))
    >>> report.directions, report.elevation_range, report.taps
    (36, (0.0, 0.0), 256)
    """

    name: str
    directions: int
    space: str
    spacing_degrees: float
    azimuth_range: tuple[float, float]
    elevation_range: tuple[float, float]
    largest_gap_degrees: float
    rate: float | None
    taps: int | None
    licence: str
    provenance: str
    median_plane_ild_db: float
    mirror_ild_db: float
    warnings: tuple[str, ...]
    image: Plane | None = None

    def __repr__(self) -> str:
        return rounded_repr(self)

    def to_dict(self) -> dict[str, Any]:
        """Return the report as a dictionary of JSON values, with None for NaN.

        Returns
        -------
        dict
            One entry per attribute; for positions in an image, with lengths in pixels.
        """
        fields = {name: getattr(self, name) for name in self.__dataclass_fields__}
        image = fields.pop("image")
        if image is not None:
            unit, scale = image.unit_name, image.unit_scale
            fields[f"spacing_{unit}"] = scale * fields.pop("spacing_degrees")
            fields[f"largest_gap_{unit}"] = scale * fields.pop("largest_gap_degrees")
            fields["x_range"] = fields.pop("azimuth_range")
            fields["y_range"] = fields.pop("elevation_range")
            fields["image"] = image.to_dict()
        return {
            key: None if isinstance(value, float) and np.isnan(value) else value
            for key, value in fields.items()
        }


def diagnose(head: Head, settings: DiagnosisSettings = _DEFAULTS) -> HeadReport:
    """Measure the coverage and the symmetry of a head.

    Parameters
    ----------
    head : Head
        The head.
    settings : DiagnosisSettings, optional
        Thresholds of the warnings.

    Returns
    -------
    HeadReport
        Its properties, with warnings about what cannot be learned from it.

    Examples
    --------
    >>> import earatlas as ea
    >>> report = ea.diagnose(ea.simulated_head([[a, 0.0] for a in range(-180, 180, 10)]))
    >>> report.space, round(report.spacing_degrees)
    ('circle', 10)
    >>> report.warnings
    ('All directions have one elevation: azimuth can be learned on the circle, elevation cannot.',)
    """
    x, space = head.directions, head.space
    median_ild = mirror = float("nan")
    if head.plane is None:
        v = to_vectors(x)
        on_median = np.abs(v[:, 1]) <= np.sin(np.radians(settings.median_plane_degrees))
        median_ild = _rms_ild(head, np.flatnonzero(on_median)[:, None])
        mirror = _rms_ild(head, _mirrored_pairs(v, ~on_median, settings.mirror_degrees))
    ears = head.ears if isinstance(head.ears, ImpulseResponses) else None
    return HeadReport(
        name=head.name,
        directions=len(head),
        space=space.name,
        spacing_degrees=head.spacing_degrees,
        azimuth_range=(float(x[:, 0].min()), float(x[:, 0].max())),
        elevation_range=(float(x[:, 1].min()), float(x[:, 1].max())),
        largest_gap_degrees=largest_gap(space, x)[1],
        rate=None if ears is None else ears.rate,
        taps=None if ears is None else ears.samples.shape[-1],
        licence=head.licence,
        provenance=head.provenance,
        median_plane_ild_db=median_ild,
        mirror_ild_db=mirror,
        warnings=tuple(_warnings(head, median_ild, mirror, settings)),
        image=head.plane,
    )


def largest_gap(space: Space, x: Array) -> tuple[Array, float]:
    """Return the point (2,) farthest from all directions (N, 2), and its distance in degrees."""
    grid = space.grid(3.0)  # spacing in degrees; gaps of interest are larger
    if isinstance(space, Sphere):
        nearest = nearest_neighbours(to_vectors(x), to_vectors(grid))[1][:, 0]
    else:
        nearest = space.nearest(x, grid)
    distances = space.distance(grid, x[nearest])
    farthest = int(np.argmax(distances))
    return grid[farthest], float(distances[farthest])


def format_coverage(space: Space, directions: Array, spacing_degrees: float) -> str:
    """Describe the ranges and the largest gap of directions (N, 2) in words."""
    if not space.holds_directions:
        ranges = zip("xy", directions.min(axis=0), directions.max(axis=0), strict=False)
        listed = ", ".join(f"{name} {low:.0f} … {high:.0f}" for name, low, high in ranges)
        gap = space.unit_scale * largest_gap(space, directions)[1]
        return f"{listed}, largest gap {gap:.0f} {space.unit_name}".rstrip()
    azimuth = _format_azimuths(directions[:, 0], spacing_degrees)
    elevation = _format_range(directions[:, 1].min(), directions[:, 1].max())
    gap = largest_gap(space, directions)[1]
    return f"azimuth {azimuth}, elevation {elevation}, largest gap {gap:.0f}°"


def _format_azimuths(azimuths: Array, spacing_degrees: float) -> str:
    """Return "all round", or the range from the leftmost to the rightmost azimuth.

    Azimuths go all round if no gap is larger than 20 degrees or two spacings.
    """
    ordered = np.sort(azimuths)
    gaps = np.diff(ordered, append=ordered[0] + 360)
    if gaps.max() <= max(20.0, 2 * spacing_degrees):
        return "all round"
    widest = int(np.argmax(gaps))
    first, last = ordered[widest], ordered[(widest + 1) % len(ordered)]
    return _format_range(first, last if last <= first else last - 360)  # from left to right


def _format_range(first: float, last: float) -> str:
    return f"{first:.0f}°" if first == last else f"{first:.0f}° … {last:.0f}°"


def _rms_ild(head: Head, rows: Indices) -> float:
    """Return the RMS of sums of ILDs over rows (n, m) of directions; NaN without rows.

    With m = 1 these are the ILDs of the directions. Of many rows a random part is used: the spectra
    of 50,000 directions take 2 GB.
    """
    if not len(rows):
        return float("nan")
    rows = rows[sampled_rows(len(rows))]
    layout = CueLayout(ipd_band_hz=None)
    sums = sum(head.subset(indices).cues(layout) for indices in rows.T)
    return float(np.sqrt(np.mean(np.square(sums))))


def _mirrored_pairs(v: Array, lateral: Mask, max_degrees: float) -> Indices:
    """Return pairs (n, 2) of lateral directions within `max_degrees` of each other's mirror image.

    ILD(x) + ILD(mirror image of x) is 0 if one ear is a copy of the other.
    """
    max_chord = np.radians(max_degrees)
    chord, partner = nearest_neighbours(v, v * (1.0, -1.0, 1.0), max_chord=max_chord)
    pairs = np.flatnonzero((chord[:, 0] < max_chord) & lateral)
    return np.column_stack([pairs, partner[pairs, 0]])


def _warnings(
    head: Head, median_ild: float, mirror: float, settings: DiagnosisSettings
) -> list[str]:
    """Return sentences about what cannot be learned from the head."""
    notes = [] if (fit := label_fit(head)).plausible else [label_warning(fit)]
    if isinstance(head.space, Circle):
        notes.append(
            "All directions have one elevation: azimuth can be learned on the circle, elevation "
            "cannot."
        )
    if mirror < settings.mirrored_ild_db:
        notes.append("The ears are exact mirror images: one ear was measured and copied.")
    if median_ild < settings.min_median_ild_db:
        notes.append(
            f"The median plane has {median_ild:.2f} dB of level difference: elevation and "
            "front/back cannot be learned there. Use a head measured at both ears."
        )
    if len(head) < settings.min_directions:
        notes.append(f"Only {len(head)} {head.label_name}: expect coarse estimates. Measure more.")
    return notes


def label_warning(fit: LabelFit) -> str:
    """Return a sentence about labels that do not fit the responses."""
    meant = "No usual reading of them fits: check the table of directions."
    if fit.reading is not LabelReading.UNKNOWN:
        meant = f"They fit if they are read as {fit.reading}: convert them."
    return (
        f"The directions explain {100 * max(fit.explained, 0):.0f} % of the delays between the "
        "ears, or imply a head of another size; at any head it is 95 % or more. They are not "
        f"azimuth and elevation in degrees. {meant}"
    )


def coverage_map(head: Head, columns: int = 30, rows: int = 12) -> Array:
    """Return the density (rows, columns) of the directions per solid angle.

    The density is 1 in a cell as dense as the median occupied one. Elevation runs from 90 degrees
    at the top to -90, azimuth from 180 degrees on the left to -180.
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
    """Return great-circle errors in degrees of a nearest-neighbour search in cue space.

    A random half of the directions is looked up among the other half, which shows whether the cues
    of the head determine the direction.
    """
    y = head.cues(layout)
    order = np.random.default_rng(seed).permutation(len(head))
    known, queries = order[: len(order) // 2], order[len(order) // 2 :]
    # |a - b|² = |a|² + |b|² - 2 a·b; one matrix product is faster than a tree in 730 dimensions.
    distances = y[queries] @ (-2 * y[known].T)
    distances += (y[known] ** 2).sum(axis=1)  # in place: it takes 200 MB at 10,000 directions
    found = head.directions[known[np.argmin(distances, axis=1)]]
    return Sphere().distance(head.directions[queries], found)
