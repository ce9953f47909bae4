"""earatlas: learn how a head hears directions, then localize and separate sounds with two ears.

A name is imported when it is first used: `import earatlas` alone costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from earatlas.atlas import Atlas, learn
    from earatlas.batches.recordings import map_recordings
    from earatlas.batches.work import Outcome
    from earatlas.errors import EaratlasWarning, InputError
    from earatlas.heads.by_name import open_head
    from earatlas.heads.diagnosis import HeadReport, diagnose
    from earatlas.heads.head import Head
    from earatlas.heads.kemar import kemar
    from earatlas.heads.recordings import read_recordings
    from earatlas.heads.simulated import simulated_head
    from earatlas.heads.sofa import read_sofa
    from earatlas.hearing.audio import Audio
    from earatlas.hearing.cues import Cues, audio_cues, mean_cues, recording_cues, response_cues
    from earatlas.hearing.files import read_audio, read_blocks, read_mono
    from earatlas.hearing.layout import CueLayout, Threshold
    from earatlas.hearing.transform import istft, stft
    from earatlas.learning.learned import Accuracy
    from earatlas.learning.ppam import PPAM
    from earatlas.live.live import Live
    from earatlas.live.report import LiveReport, LiveSource
    from earatlas.localization.answer import Localization
    from earatlas.localization.stream import Localizer
    from earatlas.localization.track import Track
    from earatlas.manifold.faithfulness import Faithfulness, faithfulness
    from earatlas.manifold.ltsa import Manifold, ltsa
    from earatlas.manifold.unlabelled import IntrinsicMap, learn_unlabelled
    from earatlas.scenes.murmur import murmur
    from earatlas.scenes.rooms import Room
    from earatlas.scenes.routes import Route
    from earatlas.scenes.scene import SimulatedScene, Staging, render_scene
    from earatlas.separation.scene import Scene, Source
    from earatlas.space.angles import azimuth_error, elevation_error, great_circle_error
    from earatlas.space.belief import ChartMixture, CredibleRegion
    from earatlas.space.spaces import Circle, Cylinder, Plane, Space, Sphere
    from earatlas.space.yaw import Yaw

__version__ = "0.1.0"

# The same for when it runs: where each name is from.
_NAMES = {
    "atlas": "Atlas learn",
    "batches.recordings": "map_recordings",
    "batches.work": "Outcome",
    "errors": "EaratlasWarning InputError",
    "heads.by_name": "open_head",
    "heads.diagnosis": "HeadReport diagnose",
    "heads.head": "Head",
    "heads.kemar": "kemar",
    "heads.recordings": "read_recordings",
    "heads.simulated": "simulated_head",
    "heads.sofa": "read_sofa",
    "hearing.audio": "Audio",
    "hearing.cues": "Cues audio_cues mean_cues recording_cues response_cues",
    "hearing.files": "read_audio read_blocks read_mono",
    "hearing.layout": "CueLayout Threshold",
    "hearing.transform": "istft stft",
    "learning.learned": "Accuracy",
    "learning.ppam": "PPAM",
    "live.live": "Live",
    "live.report": "LiveReport LiveSource",
    "localization.answer": "Localization",
    "localization.stream": "Localizer",
    "localization.track": "Track",
    "manifold.faithfulness": "Faithfulness faithfulness",
    "manifold.ltsa": "Manifold ltsa",
    "manifold.unlabelled": "IntrinsicMap learn_unlabelled",
    "scenes.murmur": "murmur",
    "scenes.rooms": "Room",
    "scenes.routes": "Route",
    "scenes.scene": "SimulatedScene Staging render_scene",
    "separation.scene": "Scene Source",
    "space.angles": "azimuth_error elevation_error great_circle_error",
    "space.belief": "ChartMixture CredibleRegion",
    "space.spaces": "Circle Cylinder Plane Space Sphere",
    "space.yaw": "Yaw",
}
_HOMES = {name: module for module, names in _NAMES.items() for name in names.split()}

__all__ = [
    "PPAM",
    "Accuracy",
    "Atlas",
    "Audio",
    "ChartMixture",
    "Circle",
    "CredibleRegion",
    "CueLayout",
    "Cues",
    "Cylinder",
    "EaratlasWarning",
    "Faithfulness",
    "Head",
    "HeadReport",
    "InputError",
    "IntrinsicMap",
    "Live",
    "LiveReport",
    "LiveSource",
    "Localization",
    "Localizer",
    "Manifold",
    "Outcome",
    "Plane",
    "Room",
    "Route",
    "Scene",
    "SimulatedScene",
    "Source",
    "Space",
    "Sphere",
    "Staging",
    "Threshold",
    "Track",
    "Yaw",
    "audio_cues",
    "azimuth_error",
    "diagnose",
    "elevation_error",
    "faithfulness",
    "great_circle_error",
    "istft",
    "kemar",
    "learn",
    "learn_unlabelled",
    "ltsa",
    "map_recordings",
    "mean_cues",
    "murmur",
    "open_head",
    "read_audio",
    "read_blocks",
    "read_mono",
    "read_recordings",
    "read_sofa",
    "recording_cues",
    "render_scene",
    "response_cues",
    "simulated_head",
    "stft",
]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


if not TYPE_CHECKING:  # which would take every name for one of ours

    def __getattr__(name: str) -> Any:
        if name not in _HOMES:
            raise AttributeError(f"module 'earatlas' has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(f"earatlas.{_HOMES[name]}"), name)
        return value
