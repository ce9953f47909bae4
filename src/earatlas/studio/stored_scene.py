"""A scene on disk: what figures and tables need of a `SceneSummary`, as one NumPy archive.

Pictures of a recording take seconds and are drawn when somebody asks for them, by any worker. The
file contains arrays and one string of JSON, and is read without unpickling.
"""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from earatlas.geometry.direction_posterior import DirectionPosterior
from earatlas.geometry.spaces import space_from_dict
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
    """Write a scene into a folder, without signals, evidence and doubts."""
    values: dict[str, Any] = {
        "seconds": scene.seconds,
        "rate": scene.rate,
        "free_energies": list(scene.free_energies),
        "sources": [
            {
                "name": source.name,
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
    return SceneSummary(sources, summary, energies, values["seconds"], values["rate"])


def _source(m: int, values: dict[str, Any], arrays: dict[str, Array]) -> SourceSummary:
    posterior = DirectionPosterior(
        space_from_dict(values["space"]), *(arrays[f"{m}_{name}"] for name in _POSTERIOR)
    )
    seconds, directions, radius_90, level_db = (arrays[f"{m}_track_{name}"] for name in _TRACK)
    track = SourceTrack(seconds, directions, radius_90, level_db, bool(values["moves"]))
    return SourceSummary(values["name"], posterior, values["share"], track=track)
