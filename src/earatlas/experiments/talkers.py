"""Talkers around a head: dry voices, placed as the paper places them.

In: a `Bench` and the directions that may be used. Out: a `SimulatedScene`. The voices are those of
a folder of sound files, or built in: three sentences by `earatlas.simulation.speech`, or murmurs where
espeak-ng is not installed.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache
from pathlib import Path

import numpy as np

from earatlas.batch.file_arguments import RECORDINGS, with_endings
from earatlas.errors import InputError
from earatlas.experiments.bench import Bench
from earatlas.features.audio_files import read_mono
from earatlas.geometry.spaces import Sphere
from earatlas.simulation.scene import SceneSettings, SimulatedScene, render_scene
from earatlas.simulation.speech import DEMO_TALKERS, speak
from earatlas.simulation.synthetic_speech import synthetic_speech
from earatlas.types import Array, Indices

__all__ = [
    "ESPEAK",
    "MURMURS",
    "RATE",
    "speech_about",
    "talkers_and_places",
    "talkers_at",
    "voices_of",
]


RATE = 16_000
ESPEAK, MURMURS = "built-in voices", "built-in murmurs"
_APART_DEGREES = 15.0
_VOICES = ("en-us+f1", "en-gb+m3", "en-gb-scotland+linda", "en-us+m1", "en-gb+f3", "en-us+m7")


def speech_about(folder: Path | None) -> dict[str, str]:
    """Name of the speech, and a fingerprint of a folder's files: their names and sizes."""
    if folder is None:
        return {"speech": ESPEAK if _espeak_works() else MURMURS}
    listed = "".join(f"{f.name}:{f.stat().st_size};" for f in _files(folder))
    digest = hashlib.sha256(listed.encode(errors="surrogateescape")).hexdigest()
    return {"speech": folder.resolve().name, "files": digest[:8]}


@lru_cache(maxsize=2)
def voices_of(folder: Path | None, quick: bool) -> list[Array]:
    """Dry voices at 16 kHz: the folder's sound files, or the built-in ones."""
    if folder is None:
        return _built_in(quick)
    sounds = [read_mono(f, rate=RATE) for f in _files(folder)]
    return [s for s in sounds if len(s) >= RATE] or sounds


def _files(folder: Path) -> list[Path]:
    try:
        files = with_endings(folder, RECORDINGS)
    except OSError as error:
        raise InputError(
            f"speech must be a folder of sound files, got '{folder}' ({error.strerror}). "
            "Leave it out for the built-in talkers."
        ) from error
    if len(files) < 3:
        raise InputError(
            f"speech must be a folder with at least 3 sound files, got {len(files)} in '{folder}'. "
            "Leave it out for the built-in talkers."
        )
    return files


@lru_cache(maxsize=1)
def _espeak_works() -> bool:
    try:
        speak("One.", voice=_VOICES[0])
    except InputError:  # espeak-ng is an extra
        return False
    return True


def _built_in(quick: bool) -> list[Array]:
    """Every voice says the three sentences of the demonstration, each in another order."""
    voices = _VOICES[:3] if quick else _VOICES
    if not _espeak_works():
        return [synthetic_speech(6.0, seed=seed) for seed in range(len(voices))]
    return [
        speak(" ".join(DEMO_TALKERS[(i + j) % 3].text for j in range(3)), voice=voice)
        for i, voice in enumerate(voices)
    ]


def talkers_at(
    bench: Bench, asked: Indices, n_sources: int, seed: int, *, seconds: tuple[float, float]
) -> SimulatedScene:
    """Different talkers at equal level at some of the asked directions, at least 15 degrees apart.

    Several overlap in 60 % of the time, as in the paper. Noise is 60 dB below.
    """
    sounds, places = talkers_and_places(bench, asked, n_sources, seed, seconds=seconds)
    settings = SceneSettings(overlap=0.6 if n_sources > 1 else None, seed=seed)
    return render_scene(bench.plane, sounds, places, settings=settings)


def talkers_and_places(
    bench: Bench, asked: Indices, n_sources: int, seed: int, *, seconds: tuple[float, float]
) -> tuple[list[Array], Array]:
    """What different talkers say, and where (n_sources, 2) each stands, at least 15° apart."""
    rng = np.random.default_rng((seed, n_sources))
    head, voices = bench.plane, voices_of(bench.speech, bench.quick)
    pairs = np.triu_indices(n_sources, 1)
    while True:
        places = head.directions[rng.choice(asked, n_sources, replace=False)]
        gaps = Sphere().distance(places[pairs[0]], places[pairs[1]])
        if not len(gaps) or gaps.min() >= _APART_DEGREES:
            break
    sounds = []
    for voice in rng.choice(len(voices), n_sources, replace=False):
        n = min(int(rng.uniform(*seconds) * RATE), len(voices[voice]))
        start = int(rng.integers(0, len(voices[voice]) - n + 1))
        sounds.append(voices[voice][start : start + n])
    return sounds, places
