"""JSON values and images of a scene for the page.

The input is a `SceneSummary`. Each source has its direction in words, the cells of its credible
region, a flat map of its posterior and its track over time. Images are the spectrogram, one mask
per source, and the differences between the ears, with the ends of their colour scales.
"""

from __future__ import annotations

import math
from base64 import b64encode
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from earatlas.geometry.alternatives import Alternative
from earatlas.geometry.credible_region import grid_regions
from earatlas.geometry.direction_posterior import DirectionPosterior
from earatlas.geometry.lateral_angle import LateralAngle
from earatlas.geometry.spaces import Space, Sphere
from earatlas.localization.diagnostics import DoubtKind
from earatlas.plotting.palette import ILD_LIMIT_DB, LEVEL_RANGE_DB, source_colour, text_colour
from earatlas.plotting.posterior_maps import (
    PosteriorMap,
    cell_edges,
    posterior_map,
    zoomed_map,
)
from earatlas.plotting.tracks import marginal_bands
from earatlas.report.images import (
    ILD_STOPS,
    LEVEL_STOPS,
    PHASE_STOPS,
    ild_image,
    level_image,
    mask_image,
    phase_image,
)
from earatlas.report.maps import region_opacities
from earatlas.separation.result import SceneSummary, SourceSummary
from earatlas.studio.identity import SourceIdentity, identify_sources
from earatlas.studio.phase_spectrogram import phase_spectrogram
from earatlas.types import Array
from earatlas.wording import (
    format_alternatives,
    format_percent,
    format_radius,
    format_region,
    is_unknown,
    listed_alternatives,
)

__all__ = [
    "alternatives_view",
    "azimuth_elevation",
    "colours",
    "describe_uncertainty",
    "map_view",
    "region",
    "scene_view",
    "spectrogram_images",
    "truth_view",
]


def region(posterior: DirectionPosterior) -> dict[str, Any]:
    """Return the cells of the 90 % region, most probable first; the first `half` are the 50 %."""
    size = posterior.credible_area(0.9)
    one_dimensional = posterior.space.dims == 1
    # About 150 cells of 0.5 to 6 degrees. Evidence: docs/figures/settings/studio.md, "views".
    width = size / 150 if one_dimensional else np.sqrt(size / 150)
    widest = 6.0
    width = float(np.clip(width, 0.5, widest))
    if width == widest and isinstance(posterior.space, Sphere):
        cells, half = _broad_region(posterior, width)
    else:
        outer, inner = grid_regions(posterior, (0.9, 0.5), width)
        cells, half = outer.cells, len(inner.cells)
    return {
        "cells": np.round(azimuth_elevation(cells), 2).tolist(),
        "half": half,
        "cell_degrees": round(0.8 * width, 3),  # radius of discs that overlap their neighbours
    }


def _broad_region(posterior: DirectionPosterior, width: float) -> tuple[Array, int]:
    """Return the cells (G, C) of the 90 % region, and the number of those of the 50 % region.

    They are those of `credible_region`. The grid is evaluated once and whole, because finding the
    few cells that are far from each of thousands of components takes longer.
    """
    cells = posterior.space.grid(width)
    density = np.exp(posterior.log_density(cells))
    order = np.argsort(-density)
    mass = np.cumsum(density[order]) / density.sum()
    half, whole = np.searchsorted(mass, [0.5, 0.9]) + 1
    return cells[order[:whole]], int(half)


def azimuth_elevation(places: Array) -> Array:
    """Return places (N, C) as (azimuth, elevation) (N, 2); the elevation of a circle is 0."""
    x = np.atleast_2d(places)
    return np.column_stack([x, np.zeros(len(x))]) if x.shape[1] == 1 else x


def describe_uncertainty(space: Space, radius: float, area: float | None = None) -> str:
    """Describe the 90 % region by its radius and, if given, its area."""
    unknown = is_unknown(radius, space)
    if area is None:
        return "" if unknown else f"90 % within {format_radius(space, radius)}"
    region = format_region(space, radius, area)
    return f"90 % in {region}" if unknown else f"90 % {region}"


def scene_view(
    scene: SceneSummary, identities: Sequence[SourceIdentity] | None = None
) -> dict[str, Any]:
    """Return the JSON values of a scene; by default its sources are numbered in their order."""
    identities = identities or identify_sources(scene)
    spectrogram = scene.spectrogram
    start, end = cell_edges(spectrogram.seconds)
    low, high = cell_edges(spectrogram.frequencies_hz)
    return {
        "seconds": round(scene.seconds, 4),
        "rate": scene.rate,
        "doubts": [str(doubt) for doubt in scene.doubts],
        "other_head": any(doubt.word is DoubtKind.HEAD_MISMATCH for doubt in scene.doubts),
        "spectrogram": {
            "start": start,
            "end": end,
            "low_hz": max(low, 0.0),
            "high_hz": high,
            "levels": _level_grid(spectrogram.level_db),
        },
        "sources": [
            _source_view(one, source) for one, source in zip(identities, scene.sources, strict=True)
        ],
        "free_energies": [round(value, 2) for value in scene.free_energies],
    }


def _level_grid(level_db: Array) -> dict[str, Any]:
    """Return levels (F', T') in dB for the page: one byte per bin, low frequencies first."""
    low = float(level_db.max()) - 127.5
    steps = np.clip(np.round(2 * (level_db - low)), 0, 255).astype(np.uint8)
    rows, columns = steps.shape
    data = b64encode(steps.tobytes()).decode()
    return {"rows": rows, "columns": columns, "low_db": low, "step_db": 0.5, "data": data}


def colours(number: int) -> dict[str, str]:
    """Return the colours of a source and of text on it."""
    colour = source_colour(number)
    return {"colour": colour, "text_colour": text_colour(colour)}


def _source_view(identity: SourceIdentity, source: SourceSummary) -> dict[str, Any]:
    return {
        **source.to_dict(),
        "direction": np.round(azimuth_elevation(source.direction)[0], 2).tolist(),
        **alternatives_view(
            source.posterior.space, source.alternatives, source.radius_90, source.lateral_angle
        ),
        "number": identity.number + 1,
        "label": identity.label,
        **colours(identity.number),
        **_describe_place(source),
        "energy": format_percent(source.share),
        "region": region(source.posterior),
        "map": map_view(source.posterior, source_colour(identity.number)),
        "known": source.direction_known,
        "track": _track_view(source),
    }


def alternatives_view(
    space: Space,
    alternatives: Sequence[Alternative],
    radius: float,
    lateral_angle: LateralAngle | None,
) -> dict[str, Any]:
    """Return the further possible directions of a source, as points and as text ("" if none)."""
    listed = listed_alternatives(alternatives, radius, space)
    places = [np.round(azimuth_elevation(one.direction)[0], 1).tolist() for one in listed]
    return {
        "alternative_directions": places,
        "alternatives_text": format_alternatives(space, alternatives, radius, lateral_angle) or "",
    }


def _describe_place(source: SourceSummary) -> dict[str, str]:
    """Describe the direction and its uncertainty; of a moving source, both ends of its path."""
    space, track, place = source.posterior.space, source.track, source.describe_place()
    if source.given:
        return {"place": place, "uncertainty": "given by hand"}
    if not track.moves:
        uncertainty = describe_uncertainty(space, source.radius_90, source.credible_90_area)
        return {"place": place, "uncertainty": uncertainty}
    radius = float(np.nanmedian(track.radius_90))
    return {
        "place": place,
        "uncertainty": f"90 % within {format_radius(space, radius)} along its path",
    }


def _track_view(source: SourceSummary) -> dict[str, Any]:
    """Return direction, 90 % bands and level over time; None in silence.

    `azimuth_band` and `elevation_band` are half-widths of the marginal distributions, `radius` is
    that of the direction.
    """
    track = source.track
    places, bands = azimuth_elevation(track.directions), azimuth_elevation(marginal_bands(source))
    return {
        "seconds": _numbers(track.seconds, 3),
        "azimuth": _numbers(places[:, 0]),
        "elevation": _numbers(np.where(track.active, places[:, 1], np.nan)),
        "azimuth_band": _numbers(bands[:, 0]),
        "elevation_band": _numbers(np.where(track.active, bands[:, 1], np.nan)),
        "radius": _numbers(track.radius_90),
        "level_db": _numbers(np.maximum(track.level_db, -90.0)),
    }


def _numbers(values: Array, digits: int = 1) -> list[float | None]:
    return [round(v, digits) if math.isfinite(v) else None for v in values.tolist()]


def map_view(posterior: DirectionPosterior, colour: str) -> dict[str, Any]:
    """Return the regions of a posterior over azimuth and elevation as an image, left on the left.

    A sharp posterior has a close-up as well. On a circle the image has one row, which the page
    stretches over all elevations.
    """
    whole = posterior_map(posterior)
    close_up = zoomed_map(posterior, whole=whole)
    view = _map_image(posterior, whole, colour)
    if close_up.extent == whole.extent:
        return view
    return {**view, "close_up": _map_image(posterior, close_up, colour)}


def _map_image(posterior: DirectionPosterior, drawn: PosteriorMap, colour: str) -> dict[str, Any]:
    left, right, low, high = drawn.extent
    one_dimensional = posterior.space.dims == 1
    return {
        "image": mask_image(region_opacities(drawn)[:, ::-1], colour),
        "azimuths": [right, left],
        "elevations": [-90.0, 90.0] if one_dimensional else [low, high],
    }


def spectrogram_images(
    scene: SceneSummary, mixture: Path, identities: Sequence[SourceIdentity] | None = None
) -> dict[str, Any]:
    """Return images of a scene, and the colour scales of those that need one.

    They are the mixture's spectrogram, its part assigned to each source in the source's colour,
    and the level and phase differences between the ears, of which the last one has its own range
    of frequencies.
    """
    identities = identities or identify_sources(scene)
    spectrogram = scene.spectrogram
    top = float(spectrogram.level_db.max())
    shade = np.clip((spectrogram.level_db - top) / LEVEL_RANGE_DB + 1, 0.0, 1.0)
    phases = phase_spectrogram(mixture).observed_in(spectrogram)
    start, end = cell_edges(phases.seconds)
    low, high = cell_edges(phases.frequencies_hz)
    limit, depth = f"{ILD_LIMIT_DB:g} dB", f"{LEVEL_RANGE_DB:g} dB"
    return {
        "level": level_image(spectrogram.level_db, top, LEVEL_RANGE_DB),
        "masks": [
            mask_image(np.nan_to_num(mask) * shade, source_colour(one.number))
            for one, mask in zip(identities, spectrogram.masks, strict=True)
        ],
        "ild": ild_image(spectrogram.ild_db, ILD_LIMIT_DB),
        "ipd": phase_image(phases.radians),
        "ipd_range": {"start": start, "end": end, "low_hz": max(low, 0.0), "high_hz": high},
        "scales": {
            "level": {"stops": LEVEL_STOPS, "low": f"−{depth}", "high": "0 dB, loudest"},
            "ild": {
                "stops": ILD_STOPS,
                "low": f"left louder −{limit}",
                "high": f"{limit} right louder",
            },
            "ipd": {"stops": PHASE_STOPS, "low": "right lags −180°", "high": "180° right leads"},
        },
    }


def truth_view(names: Sequence[str], directions: Array) -> list[dict[str, Any]]:
    """Return names and true directions for the page."""
    return [
        {"name": name, "direction": np.round(place, 2).tolist(), "number": m + 1, **colours(m)}
        for m, (name, place) in enumerate(zip(names, azimuth_elevation(directions), strict=True))
    ]
