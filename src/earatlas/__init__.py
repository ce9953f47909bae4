"""earatlas: localization and separation of sounds in binaural recordings.

Names are imported on first use, so that `import earatlas` itself is fast.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from earatlas.atlas import Atlas, example_atlas, learn
    from earatlas.batch.job import Outcome
    from earatlas.batch.recordings import map_recordings
    from earatlas.errors import EaratlasWarning, InputError
    from earatlas.evaluation.evaluate import Evaluation, evaluate
    from earatlas.evaluation.ground_truth import GroundTruth
    from earatlas.features.audio import Audio
    from earatlas.features.audio_files import (
        example_recording,
        read_audio,
        read_blocks,
        read_mono,
    )
    from earatlas.features.cues import Cues, audio_cues, mean_cues, recording_cues, response_cues
    from earatlas.features.layout import CueLayout, Threshold
    from earatlas.features.stft import istft, stft
    from earatlas.geometry.angles import azimuth_error, elevation_error, great_circle_error
    from earatlas.geometry.credible_region import CredibleRegion
    from earatlas.geometry.direction_posterior import DirectionPosterior
    from earatlas.geometry.head_yaw import Yaw
    from earatlas.geometry.spaces import Circle, Cylinder, Plane, Space, Sphere
    from earatlas.hrtf.calibration_recordings import read_recordings
    from earatlas.hrtf.diagnosis import HeadReport, diagnose
    from earatlas.hrtf.head import Head
    from earatlas.hrtf.interpolation import interpolated_head
    from earatlas.hrtf.kemar import kemar
    from earatlas.hrtf.loading import open_head
    from earatlas.hrtf.simulated import simulated_head
    from earatlas.hrtf.sofa import read_sofa
    from earatlas.hrtf.sofa_writer import write_sofa
    from earatlas.interchange.dcase import write_dcase
    from earatlas.interchange.rttm import write_rttm
    from earatlas.localization.learned_head import Accuracy
    from earatlas.localization.localizer import Localizer
    from earatlas.localization.result import Localization
    from earatlas.localization.windowed import Track
    from earatlas.manifold.faithfulness import Faithfulness, faithfulness
    from earatlas.manifold.ltsa import Manifold, ltsa
    from earatlas.manifold.unlabelled import IntrinsicMap, learn_unlabelled
    from earatlas.population.adaptation_report import Adaptation
    from earatlas.population.comparison import AtlasFit
    from earatlas.population_atlas import (
        PopulationAtlas,
        compare_heads,
        learn_population,
        people_atlas,
    )
    from earatlas.ppam.model import PPAM
    from earatlas.separation.result import Scene, Source
    from earatlas.simulation.image_source import Room
    from earatlas.simulation.scene import SceneSettings, SimulatedScene, render_scene
    from earatlas.simulation.synthetic_speech import synthetic_speech
    from earatlas.simulation.trajectories import Trajectory
    from earatlas.streaming.report import LiveReport, LiveSource
    from earatlas.streaming.stream import Live

__version__ = "0.1.0"

# The module of each name, for imports at run time.
_NAMES = {
    "atlas": "Atlas example_atlas learn",
    "batch.recordings": "map_recordings",
    "batch.job": "Outcome",
    "errors": "EaratlasWarning InputError",
    "evaluation.evaluate": "Evaluation evaluate",
    "evaluation.ground_truth": "GroundTruth",
    "hrtf.loading": "open_head",
    "hrtf.diagnosis": "HeadReport diagnose",
    "hrtf.head": "Head",
    "hrtf.kemar": "kemar",
    "hrtf.calibration_recordings": "read_recordings",
    "hrtf.simulated": "simulated_head",
    "hrtf.interpolation": "interpolated_head",
    "hrtf.sofa": "read_sofa",
    "hrtf.sofa_writer": "write_sofa",
    "features.audio": "Audio",
    "features.cues": "Cues audio_cues mean_cues recording_cues response_cues",
    "features.audio_files": "example_recording read_audio read_blocks read_mono",
    "features.layout": "CueLayout Threshold",
    "features.stft": "istft stft",
    "interchange.dcase": "write_dcase",
    "interchange.rttm": "write_rttm",
    "localization.learned_head": "Accuracy",
    "population.adaptation_report": "Adaptation",
    "population.comparison": "AtlasFit",
    "population_atlas": "PopulationAtlas compare_heads learn_population people_atlas",
    "ppam.model": "PPAM",
    "streaming.stream": "Live",
    "streaming.report": "LiveReport LiveSource",
    "localization.result": "Localization",
    "localization.localizer": "Localizer",
    "localization.windowed": "Track",
    "manifold.faithfulness": "Faithfulness faithfulness",
    "manifold.ltsa": "Manifold ltsa",
    "manifold.unlabelled": "IntrinsicMap learn_unlabelled",
    "simulation.synthetic_speech": "synthetic_speech",
    "simulation.image_source": "Room",
    "simulation.trajectories": "Trajectory",
    "simulation.scene": "SimulatedScene SceneSettings render_scene",
    "separation.result": "Scene Source",
    "geometry.angles": "azimuth_error elevation_error great_circle_error",
    "geometry.direction_posterior": "DirectionPosterior",
    "geometry.credible_region": "CredibleRegion",
    "geometry.spaces": "Circle Cylinder Plane Space Sphere",
    "geometry.head_yaw": "Yaw",
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names.split()}

__all__ = [
    "PPAM",
    "Accuracy",
    "Adaptation",
    "Atlas",
    "AtlasFit",
    "Audio",
    "Circle",
    "CredibleRegion",
    "CueLayout",
    "Cues",
    "Cylinder",
    "DirectionPosterior",
    "EaratlasWarning",
    "Evaluation",
    "Faithfulness",
    "GroundTruth",
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
    "PopulationAtlas",
    "Room",
    "Scene",
    "SceneSettings",
    "SimulatedScene",
    "Source",
    "Space",
    "Sphere",
    "Threshold",
    "Track",
    "Trajectory",
    "Yaw",
    "audio_cues",
    "azimuth_error",
    "compare_heads",
    "diagnose",
    "elevation_error",
    "evaluate",
    "example_atlas",
    "example_recording",
    "faithfulness",
    "great_circle_error",
    "interpolated_head",
    "istft",
    "kemar",
    "learn",
    "learn_population",
    "learn_unlabelled",
    "ltsa",
    "map_recordings",
    "mean_cues",
    "open_head",
    "people_atlas",
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
    "synthetic_speech",
    "write_dcase",
    "write_rttm",
    "write_sofa",
]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


if not TYPE_CHECKING:  # a type checker would accept every name

    def __getattr__(name: str) -> Any:
        if name not in _MODULES:
            raise AttributeError(f"module 'earatlas' has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(f"earatlas.{_MODULES[name]}"), name)
        return value
