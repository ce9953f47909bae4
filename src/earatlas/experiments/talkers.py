"""Scenes of talkers around a head, placed as in the paper.

The inputs are a `Bench` and the indices of the allowed directions. The output is a
`SimulatedScene`. The anechoic speech is that of a folder of sound files, or built in: three
sentences by `earatlas.simulation.speech`, or synthetic speech if espeak-ng is not installed. With a
table of binaural recordings instead of a folder, recordings are summed (`recorded_talkers`).
"""

from __future__ import annotations

import hashlib
from functools import lru_cache
from pathlib import Path

import numpy as np

from earatlas.batch.file_arguments import files_with_suffix
from earatlas.errors import InputError
from earatlas.experiments.bench import Bench, describe_files
from earatlas.experiments.recorded_talkers import (
    Mixing,
    is_recorded_speech,
    mix_recordings,
    recorded_speech,
)
from earatlas.features.audio_files import read_mono
from earatlas.features.sound_file import RECORDING_SUFFIXES
from earatlas.geometry.spaces import Sphere
from earatlas.simulation.scene import SceneSettings, SimulatedScene, render_scene
from earatlas.simulation.speech import DEMO_TALKERS, speak
from earatlas.simulation.synthetic_speech import synthetic_speech
from earatlas.types import Array, Indices

__all__ = [
    "RATE",
    "SPEECH_SYNTHESIZER",
    "SYNTHETIC_SPEECH",
    "describe_speech",
    "draw_talkers",
    "load_voices",
    "render_talkers",
]


RATE = 16_000  # Hz
SPEECH_SYNTHESIZER, SYNTHETIC_SPEECH = "built-in voices", "built-in synthetic speech"
_VOICES = ("en-us+f1", "en-gb+m3", "en-gb-scotland+linda", "en-us+m1", "en-gb+f3", "en-us+m7")


def describe_speech(folder: Path | None) -> dict[str, str]:
    """Return the name of the speech and, for files, a fingerprint of their names and sizes."""
    if folder is None:
        return {"speech": SPEECH_SYNTHESIZER if _espeak_available() else SYNTHETIC_SPEECH}
    if is_recorded_speech(folder):
        content = folder.read_bytes() + describe_files(recorded_speech(folder).files)
    else:
        content = describe_files(_files(folder))
    return {"speech": folder.resolve().name, "files": hashlib.sha256(content).hexdigest()[:8]}


@lru_cache(maxsize=2)
def load_voices(folder: Path | None, quick: bool) -> list[Array]:
    """Return anechoic voices at 16 kHz: the sound files of a folder, or the built-in ones."""
    if folder is None:
        return _built_in_voices(quick)
    sounds = [read_mono(f, rate=RATE) for f in _files(folder)]
    return [s for s in sounds if len(s) >= RATE] or sounds


def _files(folder: Path) -> list[Path]:
    try:
        files = files_with_suffix(folder, RECORDING_SUFFIXES)
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
def _espeak_available() -> bool:
    try:
        speak("One.", voice=_VOICES[0])
    except InputError:  # espeak-ng is optional
        return False
    return True


def _built_in_voices(quick: bool) -> list[Array]:
    """Return one signal per voice with the three demo sentences, each in another order."""
    voices = _VOICES[:3] if quick else _VOICES
    if not _espeak_available():
        return [synthetic_speech(6.0, seed=seed) for seed in range(len(voices))]
    return [
        speak(" ".join(DEMO_TALKERS[(i + j) % 3].text for j in range(3)), voice=voice)
        for i, voice in enumerate(voices)
    ]


def render_talkers(
    bench: Bench, test: Indices, n_sources: int, seed: int, *, seconds: tuple[float, float]
) -> SimulatedScene:
    """Render different talkers at equal level at some of the allowed directions.

    Directions are at least 15 degrees apart. Several talkers overlap during 60 % of the time, as in
    the paper. White noise is 60 dB below the speech, or as much as in the recordings of the
    simulated room. Binaural recordings keep their levels, and nothing
    is added to them.
    """
    if bench.speech is not None and is_recorded_speech(bench.speech):
        mixing = Mixing(n_sources, seed, seconds, RATE)
        speech = recorded_speech(bench.speech)
        return mix_recordings(speech, bench.planar_head.directions, test, mixing)
    sounds, directions = draw_talkers(bench, test, n_sources, seed, seconds=seconds)
    settings = SceneSettings(overlap=0.6 if n_sources > 1 else None, snr_db=bench.snr_db, seed=seed)
    return render_scene(bench.planar_head, sounds, directions, settings=settings)


def draw_talkers(
    bench: Bench, test: Indices, n_sources: int, seed: int, *, seconds: tuple[float, float]
) -> tuple[list[Array], Array]:
    """Draw signals of different talkers and their directions (n_sources, 2), at least 15° apart."""
    rng = np.random.default_rng((seed, n_sources))
    head, voices = bench.planar_head, load_voices(bench.speech, bench.quick)
    pairs = np.triu_indices(n_sources, 1)
    while True:
        directions = head.directions[rng.choice(test, n_sources, replace=False)]
        gaps = Sphere().distance(directions[pairs[0]], directions[pairs[1]])
        if not len(gaps) or gaps.min() >= 15.0:
            break
    sounds = []
    for voice in rng.choice(len(voices), n_sources, replace=False):
        n = min(int(rng.uniform(*seconds) * RATE), len(voices[voice]))
        start = int(rng.integers(0, len(voices[voice]) - n + 1))
        sounds.append(voices[voice][start : start + n])
    return sounds, directions
