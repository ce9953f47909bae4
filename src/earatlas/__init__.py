"""earatlas: learn how a head hears directions, then localize and separate sounds with two ears."""

from earatlas.audio import Audio, istft, read_audio, read_blocks, read_mono, stft
from earatlas.cues import (
    CueLayout,
    Cues,
    Threshold,
    audio_cues,
    mean_cues,
    recording_cues,
    response_cues,
)
from earatlas.diagnosis import HeadReport, diagnose
from earatlas.directions import (
    Circle,
    Cylinder,
    Plane,
    Space,
    Sphere,
    azimuth_error,
    elevation_error,
    great_circle_error,
)
from earatlas.errors import EaratlasWarning, InputError
from earatlas.heads import Head, kemar, open_head, read_recordings, read_sofa, simulated_head
from earatlas.rooms import Room
from earatlas.scenes import SimulatedScene, Staging, render_scene

__version__ = "0.1.0"

__all__ = [
    "Audio",
    "Circle",
    "CueLayout",
    "Cues",
    "Cylinder",
    "EaratlasWarning",
    "Head",
    "HeadReport",
    "InputError",
    "Plane",
    "Room",
    "SimulatedScene",
    "Space",
    "Sphere",
    "Staging",
    "Threshold",
    "audio_cues",
    "azimuth_error",
    "diagnose",
    "elevation_error",
    "great_circle_error",
    "istft",
    "kemar",
    "mean_cues",
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
