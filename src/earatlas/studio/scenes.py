"""Scenes with known ground truth: talkers that the user places around a head.

The inputs are talkers with directions, noise, reverberation and a head. The output is a folder like
that of `earatlas simulate`, which can be separated like any recording, and its ground truth.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from earatlas.evaluation.ground_truth import GroundTruth
from earatlas.features.audio_files import read_all_channels, read_mono
from earatlas.geometry.spaces import Sphere
from earatlas.hrtf.head import Head
from earatlas.hrtf.loading import open_head
from earatlas.hrtf.simulated import simulated_head
from earatlas.simulation.image_source import Room
from earatlas.simulation.scene import SceneSettings, read_scene_file, render_scene
from earatlas.simulation.speech import DEMO_TALKERS, Talker, speech_available, synthetic_talker
from earatlas.studio.progress import ProgressReporter
from earatlas.studio.views import truth_view
from earatlas.types import Array

__all__ = ["TALKERS", "read_scene_truth", "render", "talker_sound"]

# Voices of the talkers of a scene, in the order of the page.
TALKERS = (
    *DEMO_TALKERS,
    Talker(
        "Vera",
        "Four voices at a table are hard to follow, even for people with good ears.",
        voice="en-us+f4",
        pitch=48,
    ),
)


def render(request: dict[str, Any], reporter: ProgressReporter) -> dict[str, Any]:
    """Render a scene into a folder, and return its ground truth for the page."""
    talkers = request["talkers"]
    directions = np.array([[one["azimuth"], one["elevation"]] for one in talkers], dtype=float)
    reporter.stage("generating speech", 0.0)
    names, sounds = zip(*(talker_sound(talker) for talker in talkers), strict=True)
    reporter.stage("rendering the scene", 0.5)
    t60 = request.get("t60_seconds")
    room = None if t60 is None else Room(t60_seconds=float(t60))
    head = _head(request.get("head"), directions, reverberant=room is not None)
    settings = SceneSettings(snr_db=float(request.get("snr_db", 60.0)))
    scene = render_scene(head, sounds, directions, settings=settings, room=room, names=names)
    scene.write(request["folder"])
    return {
        "truth": truth_view(scene.names, scene.directions),
        "seconds": round(scene.mixture.seconds, 3),
        "spoken": speech_available(),
        "files": {"mixture": "mixture.wav"},
    }


def talker_sound(talker: dict[str, Any], rate: int = 16_000) -> tuple[str, Array]:
    """Return the name and the samples of a talker: a built-in voice or an uploaded file.

    The default of `rate` in Hz is that of `render_scene`.
    """
    if "file" in talker:
        return str(talker["name"]), read_mono(talker["file"], rate=rate)
    number = int(talker["voice"])
    built_in = TALKERS[number]
    if speech_available():
        return built_in.name, built_in.speak(rate=rate)
    return built_in.name, synthetic_talker(number, rate)


def _head(source: str | None, directions: Array, *, reverberant: bool) -> Head:
    """Return the head; the simulated one is computed for exactly the requested directions."""
    if source is not None:
        return open_head(source)
    # Reflections come from a lattice with a spacing of 6 degrees.
    reflections = Sphere().grid(6.0) if reverberant else np.zeros((0, 2))
    return simulated_head(np.concatenate([directions, reflections]))


def read_scene_truth(folder: Path) -> GroundTruth | None:
    """Return the ground truth of a scene rendered into the folder, or None if there is none."""
    file = folder / "scene.json"
    if not file.is_file():
        return None
    sources = read_scene_file(file)["sources"]
    images = tuple(read_all_channels(folder / source["file"]) for source in sources)
    directions = np.array([source["direction"] for source in sources], dtype=np.float64)
    return GroundTruth(directions, images, tuple(str(source["name"]) for source in sources))
