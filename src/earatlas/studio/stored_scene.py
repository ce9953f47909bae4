"""A scene on disk: a `SceneSummary` without its evidence, as one NumPy archive.

Pictures of a recording take seconds and are drawn when somebody asks for them, by any worker;
names given later need another report. The
file contains arrays and one string of JSON, and is read without unpickling.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from earatlas.geometry.direction_posterior import DirectionPosterior
from earatlas.geometry.spaces import space_from_dict
from earatlas.localization.diagnostics import Doubt, DoubtKind
from earatlas.separation.result import (
    SceneSummary,
    SourceSummary,
    SourceTrack,
    SpectrogramSummary,
)
from earatlas.types import Array

__all__ = ["SCENE_FILE", "read_scene", "write_scene"]

SCENE_FILE = "scene.npz"
_POSTERIOR = ("centres", "weights", "means", "covariances")
_TRACK = ("seconds", "directions", "radius_90", "level_db")
_SPECTROGRAM = tuple(one.name for one in fields(SpectrogramSummary))


def write_scene(folder: Path, scene: SceneSummary) -> None:
    """Write a scene into a folder, without signals and evidence."""
    values: dict[str, Any] = {
        "seconds": scene.seconds,
        "rate": scene.rate,
        "free_energies": list(scene.free_energies),
        "doubts": _doubt_values(scene.doubts),
        "dry": scene.dry,
        "sources": [
            {
                "name": source.name,
                "number": source.number,
                "given": source.given,
                "doubts": _doubt_values(source.doubts),
                "share": source.share,
                "moves": source.track.moves,
                "space": source.posterior.space.to_dict(),
            }
            for source in scene.sources
        ],
    }
    arrays = {name: getattr(scene.spectrogram, name).astype(np.float32) for name in _SPECTROGRAM}
    for m, source in enumerate(scene.sources):
        arrays |= {f"{m}_{name}": getattr(source.posterior, name) for name in _POSTERIOR}
        arrays |= {f"{m}_track_{name}": getattr(source.track, name) for name in _TRACK}
    np.savez(folder / SCENE_FILE, allow_pickle=False, json=json.dumps(values), **arrays)


def read_scene(folder: Path) -> SceneSummary:
    """Read a scene that `write_scene` has written."""
    with np.load(folder / SCENE_FILE, allow_pickle=False) as stored:
        arrays: dict[str, Array] = dict(stored)
    values = json.loads(str(arrays.pop("json")))
    summary = SpectrogramSummary(*(arrays[name].astype(np.float64) for name in _SPECTROGRAM))
    sources = tuple(_source(m, source, arrays) for m, source in enumerate(values["sources"]))
    energies = tuple(values["free_energies"])
    return SceneSummary(
        sources, summary, energies, values["seconds"], values["rate"],
        doubts=_doubts(values["doubts"]), dry=values["dry"],
    )  # fmt: skip


def _doubt_values(doubts: Sequence[Doubt]) -> list[list[Any]]:
    """Return kind, reason and value of each doubt, as JSON values."""
    return [[*doubt.__getnewargs__()[:2], _json_number(doubt.value)] for doubt in doubts]


def _json_number(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _doubts(values: Sequence[Sequence[Any]]) -> tuple[Doubt, ...]:
    return tuple(
        Doubt(DoubtKind(word), reason, math.nan if value is None else value)
        for word, reason, value in values
    )


def _source(m: int, values: dict[str, Any], arrays: dict[str, Array]) -> SourceSummary:
    posterior = DirectionPosterior(
        space_from_dict(values["space"]), *(arrays[f"{m}_{name}"] for name in _POSTERIOR)
    )
    seconds, directions, radius_90, level_db = (arrays[f"{m}_track_{name}"] for name in _TRACK)
    track = SourceTrack(seconds, directions, radius_90, level_db, bool(values["moves"]))
    return SourceSummary(
        values["name"], posterior, values["share"], track=track, number=values["number"],
        given=values["given"], doubts=_doubts(values["doubts"]),
    )  # fmt: skip
