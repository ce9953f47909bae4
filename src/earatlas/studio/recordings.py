"""A recording in the studio: taken apart, looked at, and written as files and a page.

In: a file that was uploaded, recorded or made, and an atlas. Out: what the page shows of it; in the
recording's own folder mixture.wav, a sound a source, separated.json and report.html.
"""

from __future__ import annotations

import json
import math
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from earatlas.atlas import Atlas
from earatlas.batch.recordings import SeparatingFiles
from earatlas.errors import EaratlasWarning, InputError
from earatlas.evaluation.assignment import known_mean
from earatlas.evaluation.ground_truth import Truth
from earatlas.features.audio import Audio
from earatlas.features.audio_files import audio_seconds, read_audio
from earatlas.report import write_report
from earatlas.report.comparison import Known, decibel_words
from earatlas.separation.options import Separating
from earatlas.separation.pipeline import sound_file
from earatlas.separation.result import FoundScene
from earatlas.simulation.synthetic_speech import synthetic_speech
from earatlas.studio.progress import Teller
from earatlas.studio.scenes import read_truth
from earatlas.studio.views import pictures, scene_view, truth_view
from earatlas.wording import (
    direction_words,
    error_words,
    length_words,
    place_words,
    rate_words,
    speed_words,
)

__all__ = ["MIXTURE", "separated", "tried"]

MIXTURE = "mixture.wav"
_ANSWER = "separated.json"
_QUICK_SECONDS = 4.0  # a recording that is no longer is done at once
_MOST_SECONDS = 300.0  # a browser holds every sound as 32-bit samples: 115 MB each at 48 kHz


def separated(order: dict[str, Any], atlas: Atlas, teller: Teller) -> dict[str, Any]:
    """Take a recording apart: a first look, then all with its sounds, then with the report."""
    folder, name = Path(order["folder"]), str(order["name"])
    how = Separating(order.get("n_sources"), order.get("rendering", "spatial"))
    tell = teller.stage("reading", 0.0, 0.05)
    mixture = _mixture(Path(order["file"]), folder / MIXTURE)
    tell(1.0, 1.0)
    truth = read_truth(folder)
    about = {
        "name": name,
        "head": str(atlas.about.get("head", "?")),
        "truth": [] if truth is None else _true(truth),
        "settings": {"n_sources": how.n_sources, "rendering": how.rendering},
    }
    if audio_seconds(mixture) > _QUICK_SECONDS:
        teller.stage("looking", 0.05)
        teller.answer({**about, **_first_look(atlas, mixture, how)})
    tell = teller.stage("taking the sounds apart", 0.3, 0.9)
    told, scene, files = SeparatingFiles(folder, atlas, how).separated(mixture, tell)
    teller.stage("drawing", 0.9)
    sounds = {source.name: path for source, path in zip(scene.sources, files, strict=True)}
    sounds = {"mixture": mixture, **sounds}
    view = {
        **about,
        **scene_view(scene),
        "facts": _facts(scene, how, told["seconds"]),
        "compared": [] if truth is None else _compared(scene, truth, sounds),
        "images": pictures(scene),
        "files": _files(scene),
    }
    _write_json(folder / _ANSWER, told, name)
    teller.answer(view)
    teller.stage("writing the report", 0.95)
    write_report(
        folder / "report.html", scene, title=name, truth=truth, files=sounds,
        elapsed_seconds=told["seconds"],
    )  # fmt: skip
    return {**view, "files": {**view["files"], "report": "report.html"}}


def _first_look(atlas: Atlas, mixture: Path, how: Separating) -> dict[str, Any]:
    """Where the sources are, by masks alone at the rate of the cues: 40 % of the work of all."""
    audio = read_audio(mixture, rate=atlas.layout.rate)
    scene = atlas.separate(audio, n_sources=how.n_sources, rendering="soft")
    return {
        **scene_view(scene),
        "first": True,
        "facts": [
            f"{length_words(scene.seconds)} long",
            _count_words(scene, how),
            "their sounds are being made …",
        ],
        "compared": [],
        "images": pictures(scene),
        "files": {"mixture": MIXTURE, "sounds": []},
    }


def tried(atlas: Atlas) -> None:
    """A short sound taken apart in memory: what is computed once is then there."""
    samples = np.stack([synthetic_speech(0.6, seed=1), synthetic_speech(0.6, seed=2)])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EaratlasWarning)
        atlas.separate(Audio(samples, 16_000), n_sources=2)


def _mixture(file: Path, path: Path) -> Path:
    """The recording as a WAV file of its own rate, which every browser plays."""
    seconds = audio_seconds(file)
    if seconds > _MOST_SECONDS:
        raise InputError(
            f"recording must have at most {length_words(_MOST_SECONDS)} in the studio, got "
            f"{length_words(seconds)}. Use `earatlas separate --report` for longer ones."
        )
    if file != path:
        read_audio(file).write(path)
    return path


def _count_words(scene: FoundScene, how: Separating) -> str:
    count = len(scene.sources)
    found = "found" if how.n_sources is None else "as asked"
    return f"{count} source{'' if count == 1 else 's'} {found}"


def _facts(scene: FoundScene, how: Separating, seconds: float) -> list[str]:
    return [
        f"{length_words(scene.seconds)} long",
        _count_words(scene, how),
        f"sounds at {rate_words(scene.rate)}",
        f"separated in {speed_words(seconds, scene.seconds)}",
    ]


def _files(scene: FoundScene) -> dict[str, Any]:
    sounds = [sound_file(MIXTURE, m) for m in range(len(scene.sources))]
    return {"mixture": MIXTURE, "sounds": sounds, "json": _ANSWER}


def _true(truth: Truth) -> list[dict[str, Any]]:
    assert truth.directions is not None
    return truth_view(truth.names, truth.directions)


def _compared(scene: FoundScene, truth: Truth, sounds: dict[str, Path]) -> list[dict[str, str]]:
    """A row a true talker: where it is, where it was found, and how it sounds before and after."""
    known = Known.judged(scene, truth, sounds)
    assert known.by_direction is not None
    rows = []
    assert truth.directions is not None
    for m, (name, place) in enumerate(zip(truth.names, truth.directions, strict=True)):
        j = int(known.by_direction.found[m])
        row = {"name": name, "true": direction_words(place), "found": "not found", "error": "–"}
        if j >= 0:
            space, found = scene.sources[j].posterior.space, scene.sources[j].direction
            off = error_words(space, truth.off_by(m, scene.sources[j]))
            row |= {"found": f"{j + 1}: {place_words(space, found)}", "error": off}
        judged = {"before": math.nan, "after": math.nan}
        if known.score is not None:
            for key, quality in (("before", known.score.mixture), ("after", known.score.quality)):
                judged[key] = known_mean(quality.sdr_db[m])
        rows.append({**row, **{key: decibel_words(value) for key, value in judged.items()}})
    return rows


def _write_json(path: Path, told: dict[str, Any], name: str) -> None:
    """The answer of `earatlas separate --json`, with names in the place of this machine's paths."""
    sources = [{**source, "file": Path(source["file"]).name} for source in told["sources"]]
    path.write_text(json.dumps({**told, "file": name, "sources": sources}, indent=2) + "\n")
