"""A scene as the page draws it: numbers in plain JSON, and small images.

In: a `FoundScene`. Out: JSON values: of every source a direction in words, its posterior as cells of a
region, its course over time; and images of the spectrogram, whole and by source.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from earatlas.geometry.direction_posterior import DirectionPosterior
from earatlas.plotting.palette import LEVEL_RANGE_DB, colour_of
from earatlas.plotting.posterior_maps import edges
from earatlas.report.images import level_image, mask_image, on_colour
from earatlas.separation.result import FoundScene, FoundSource
from earatlas.separation.source_track import SourceTrack
from earatlas.types import Array
from earatlas.wording import percent_words, place_words, radius_words, sure_words

__all__ = ["pictures", "region", "scene_view", "sphere_view", "truth_view"]

_CELLS = 150  # of a region
_CELL_DEGREES = 0.5, 6.0  # a posterior all over the sphere has 1150 cells of the largest
_QUIET_DB = -90.0


def region(posterior: DirectionPosterior) -> dict[str, Any]:
    """The 90 % region as cells of equal size, most probable first: `half` of them are the 50 %."""
    size, flat = posterior.credible_area(0.9), posterior.space.dims == 1
    # Some 150 cells: enough for a round edge, few enough for 60 frames a second.
    wide = size / _CELLS if flat else np.sqrt(size / _CELLS)
    wide = float(np.clip(wide, *_CELL_DEGREES))
    whole, half = (posterior.credible_region(level, wide).cells for level in (0.9, 0.5))
    return {
        "cells": np.round(sphere_view(whole), 2).tolist(),
        "half": len(half),
        "cell_degrees": round(0.8 * wide, 3),  # a disc that covers its cell touches its neighbours'
    }


def sphere_view(places: Array) -> Array:
    """Places (N, C) as (azimuth, elevation): a circle is at ear height."""
    x = np.atleast_2d(places)
    return np.column_stack([x, np.zeros(len(x))]) if x.shape[1] == 1 else x


def scene_view(scene: FoundScene) -> dict[str, Any]:
    """All that is shown of a scene."""
    picture = scene.picture
    start, end = edges(picture.seconds)
    low, high = edges(picture.frequencies_hz)
    return {
        "seconds": round(scene.seconds, 4),
        "rate": scene.rate,
        "doubts": [str(doubt) for doubt in scene.doubts],
        "picture": {"start": start, "end": end, "low_hz": max(low, 0.0), "high_hz": high},
        "sources": [_source(m, source) for m, source in enumerate(scene.sources)],
        "free_energies": [round(value, 2) for value in scene.free_energies],
    }


def _source(m: int, source: FoundSource) -> dict[str, Any]:
    colour = colour_of(m)
    told = source.to_dict()
    del told["track"]  # the course has it
    return {
        **told,
        "direction": np.round(sphere_view(source.direction)[0], 2).tolist(),
        "number": m + 1,
        "colour": colour,
        "on_colour": on_colour(colour),
        **_place(source),
        "energy": percent_words(source.share),
        "region": region(source.posterior),
        "course": _course(source.track),
    }


def _place(source: FoundSource) -> dict[str, str]:
    """Where it is, and how sure that is; of one that moves, from where to where."""
    space, track = source.posterior.space, source.track
    if not track.moves:
        sure = sure_words(space, source.radius_90, source.credible_90_area)
        return {"words": place_words(space, source.direction), "sure": sure}
    way, radius = track.directions[track.heard], float(np.nanmedian(track.radius_90))
    return {
        "words": f"{place_words(space, way[0])} → {place_words(space, way[-1])}",
        "sure": f"within {radius_words(space, radius)} along its way",
    }


def _course(track: SourceTrack) -> dict[str, Any]:
    """Where a source is over time and how sure that is, and how loud; None where it is silent."""
    places = sphere_view(track.directions)
    return {
        "seconds": _numbers(track.seconds, 3),
        "azimuth": _numbers(places[:, 0]),
        "elevation": _numbers(np.where(track.heard, places[:, 1], np.nan)),
        "radius": _numbers(track.radius_90),
        "level_db": _numbers(np.maximum(track.level_db, _QUIET_DB)),
    }


def _numbers(values: Array, digits: int = 1) -> list[float | None]:
    return [round(v, digits) if math.isfinite(v) else None for v in values.tolist()]


def pictures(scene: FoundScene) -> dict[str, Any]:
    """The spectrogram of the mixture, and of what each source was given, as images of a page."""
    picture = scene.picture
    top = float(picture.level_db.max())
    shade = np.clip((picture.level_db - top) / LEVEL_RANGE_DB + 1, 0.0, 1.0)
    return {
        "level": level_image(picture.level_db, top, LEVEL_RANGE_DB),
        "masks": [
            mask_image(np.nan_to_num(mask) * shade, colour_of(m))
            for m, mask in enumerate(picture.masks)
        ],
    }


def truth_view(names: Sequence[str], directions: Array) -> list[dict[str, Any]]:
    """True places, to be drawn beside what was found."""
    return [
        {"name": name, "direction": np.round(place, 2).tolist()}
        for name, place in zip(names, sphere_view(directions), strict=True)
    ]
