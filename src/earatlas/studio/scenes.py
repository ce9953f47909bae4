"""Make a scene: talkers placed around a head by hand, so that the truth is known.

In: who speaks where, noise, room, and a head. Out: a folder as `earatlas simulate` writes it, to be
taken apart like any recording; and its truth, to be shown beside what is found.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from earatlas.evaluation.ground_truth import Truth
from earatlas.features.audio_files import read_all_channels, read_mono
from earatlas.geometry.spaces import Sphere
from earatlas.hrtf.head import Head
from earatlas.hrtf.loading import open_head
from earatlas.hrtf.simulated import simulated_head
from earatlas.simulation.image_source import Room
from earatlas.simulation.scene import SceneSettings, read_scene_file, render_scene
from earatlas.simulation.speech import DEMO_TALKERS, Talker, can_speak
from earatlas.simulation.synthetic_speech import synthetic_speech
from earatlas.studio.progress import Teller
from earatlas.studio.views import truth_view
from earatlas.types import Array

__all__ = ["TALKERS", "read_truth", "rendered", "voice"]

_RATE = 16_000
_MURMUR_SECONDS = 4.0
_ROOM_SPACING = 6.0  # degrees between the directions that a room's reflections come from

TALKERS = (
    *DEMO_TALKERS,
    Talker(
        "Vera",
        "Four voices at a table are hard to follow, even for people with good ears.",
        voice="en-us+f4",
        pitch=48,
    ),
)


def rendered(order: dict[str, Any], teller: Teller) -> dict[str, Any]:
    """Render a scene into a folder; what was placed where, for the page."""
    wished = order["talkers"]
    places = np.array([[talker["azimuth"], talker["elevation"]] for talker in wished], dtype=float)
    teller.stage("the talkers speak", 0.0)
    names, sounds = zip(*(voice(talker) for talker in wished), strict=True)
    teller.stage("placing them around the head", 0.5)
    t60 = order.get("t60_seconds")
    room = None if t60 is None else Room(t60_seconds=float(t60))
    head = _head(order.get("head"), places, whole=room is not None)
    settings = SceneSettings(snr_db=float(order.get("snr_db", 60.0)))
    scene = render_scene(
        head, sounds, places, rate=_RATE, settings=settings, room=room, names=names
    )
    scene.write(order["folder"])
    return {
        "truth": truth_view(scene.names, scene.directions),
        "seconds": round(scene.mixture.seconds, 3),
        "spoken": can_speak(),
        "files": {"mixture": "mixture.wav"},
    }


def voice(talker: dict[str, Any]) -> tuple[str, Array]:
    """The name and the sound of a talker: one of ours, or a file that was dropped."""
    if "file" in talker:
        return str(talker["name"]), read_mono(talker["file"], rate=_RATE)
    number = int(talker["voice"])
    own = TALKERS[number]
    if can_speak():
        return own.name, own.speak(rate=_RATE)
    return own.name, synthetic_speech(_MURMUR_SECONDS, _RATE, seed=number)


def _head(source: str | None, places: Array, *, whole: bool) -> Head:
    """The head; the simulated one is computed for the very places that are wished."""
    if source is not None:
        return open_head(source)
    around = Sphere().grid(_ROOM_SPACING) if whole else np.zeros((0, 2))
    return simulated_head(np.concatenate([places, around]))


def read_truth(folder: Path) -> Truth | None:
    """The truth of a scene that was rendered into the folder; None where nothing was."""
    file = folder / "scene.json"
    if not file.is_file():
        return None
    sources = read_scene_file(file)["sources"]
    images = tuple(read_all_channels(folder / source["file"]) for source in sources)
    places = np.array([source["direction"] for source in sources], dtype=np.float64)
    return Truth(places, images, tuple(str(source["name"]) for source in sources))
