"""A scene as the page draws it: numbers in plain JSON, and small images.

In: a `FoundScene`. Out: JSON values: of every source a direction in words, its belief as cells of a
region, its course over time; and images of the spectrogram, whole and by source.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from earatlas.drawing.belief_maps import edges
from earatlas.drawing.palette import LEVEL_RANGE_DB, colour_of
from earatlas.report.images import level_image, mask_image, on_colour
from earatlas.separation.scene import FoundScene, FoundSource
from earatlas.space.belief import ChartMixture
from earatlas.types import Array
from earatlas.words import percent_words, place_words, sure_words

__all__ = ["pictures", "region", "scene_view", "sphere_view", "truth_view"]

_CELLS = 150  # of a region
_CELL_DEGREES = 0.5, 6.0  # a belief all over the sphere has 1150 cells of the largest
_QUIET_DB = -90.0


def region(belief: ChartMixture) -> dict[str, Any]:
    """The 90 % region as cells of equal size, most probable first: `half` of them are the 50 %."""
    size, flat = belief.credible_area(0.9), belief.space.dims == 1
    # Some 150 cells: enough for a round edge, few enough for 60 frames a second.
    wide = size / _CELLS if flat else np.sqrt(size / _CELLS)
    wide = float(np.clip(wide, *_CELL_DEGREES))
    whole, half = (belief.credible_region(level, wide).cells for level in (0.9, 0.5))
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
        "sources": [_source(scene, m, source) for m, source in enumerate(scene.sources)],
        "free_energies": [round(value, 2) for value in scene.free_energies],
    }


def _source(scene: FoundScene, m: int, source: FoundSource) -> dict[str, Any]:
    space, colour = source.belief.space, colour_of(m)
    return {
        **source.to_dict(),
        "direction": np.round(sphere_view(source.direction)[0], 2).tolist(),
        "number": m + 1,
        "colour": colour,
        "on_colour": on_colour(colour),
        "words": place_words(space, source.direction),
        "sure": sure_words(space, source.credible_90_area),
        "energy": percent_words(source.share),
        "region": region(source.belief),
        "course": _course(scene, m, source),
    }


def _course(scene: FoundScene, m: int, source: FoundSource) -> dict[str, Any]:
    """Where a source is over time and how sure that is, and how loud it is."""
    places = np.stack([sphere_view(place)[0] for place in scene.track[:, m]])
    return {
        "seconds": np.round(scene.track_seconds, 3).tolist(),
        "azimuth": np.round(places[:, 0], 1).tolist(),
        "elevation": np.round(places[:, 1], 1).tolist(),
        "radius": [round(source.radius_90, 2)] * len(places),
        "level_seconds": np.round(scene.picture.seconds, 3).tolist(),
        "level_db": _levels(scene, m).tolist(),
    }


def _levels(scene: FoundScene, m: int) -> Array:
    """(T',) how loud source m is in each column of the picture, in dB."""
    power = 10 ** (scene.picture.level_db / 10)
    own = np.nansum(power * scene.picture.masks[m], axis=0)
    levels: Array = np.round(10 * np.log10(np.maximum(own, 10 ** (_QUIET_DB / 10))), 1)
    return levels


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
