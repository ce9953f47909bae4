"""earatlas: learn how a head hears directions, then localize and separate sounds with two ears."""

from earatlas.atlas import Accuracy, Atlas, learn
from earatlas.audio import Audio, istft, read_audio, read_blocks, read_mono, stft
from earatlas.calibration import murmur
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
from earatlas.intrinsic import IntrinsicMap, learn_unlabelled
from earatlas.localization import Localization, Localizer, Track
from earatlas.manifold import Faithfulness, Manifold, faithfulness, ltsa
from earatlas.posterior import ChartMixture, CredibleRegion
from earatlas.ppam import PPAM
from earatlas.rooms import Room
from earatlas.scenes import SimulatedScene, Staging, render_scene
from earatlas.separation import Scene, Source

__version__ = "0.1.0"

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
    "Localization",
    "Localizer",
    "Manifold",
    "Plane",
    "Room",
    "Scene",
    "SimulatedScene",
    "Source",
    "Space",
    "Sphere",
    "Staging",
    "Threshold",
    "Track",
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
