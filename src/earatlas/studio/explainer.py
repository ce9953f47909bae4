"""Data of the page "How it works": cues, their manifold, the charts of PPAM, and steps of VESSL.

The input is the atlas of the simulated head, the output JSON values:

    N directions on the sphere    f  frequency bands
    ild (N, f) dB, ipd (N, f) radians: observed, and expected by PPAM
    manifold                      of the level differences below 2 kHz, by LTSA
    charts                        centres, and the three charts of the largest weight per direction
    steps                         of VESSL on two voices, from deliberately wrong directions

and sounds: the responses of all directions and a dry voice, which the page filters with them, and
the separated sounds after each step of VESSL.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from earatlas.atlas import Atlas
from earatlas.features.audio import Audio
from earatlas.features.layout import CueLayout, Threshold
from earatlas.features.stft import bin_power, istft, stft
from earatlas.features.tf_bins import ObservedBins
from earatlas.geometry.spaces import Sphere
from earatlas.hrtf.head import Head
from earatlas.hrtf.simulated import simulated_head
from earatlas.manifold.faithfulness import faithfulness
from earatlas.manifold.ltsa import ltsa
from earatlas.plotting.palette import source_colour, text_colour
from earatlas.report.images import mask_image
from earatlas.separation.vessl import VESSL, VESSLState
from earatlas.simulation.scene import SceneSettings, render_scene
from earatlas.studio.progress import ProgressReporter
from earatlas.studio.scenes import talker_sound
from earatlas.studio.views import region
from earatlas.types import Array, Mask

__all__ = ["explainer"]

_DIRECTIONS = [[41.0, 1.0], [-64.0, 24.0]]  # true directions of the two voices, degrees
_INITIAL_DIRECTIONS = [[8.0, -25.0], [-110.0, -5.0]]  # initial directions of VESSL, degrees


# Evidence: docs/figures/settings/studio.md, "explainer".
@dataclass(frozen=True, slots=True)
class ExplainerSettings:
    """What the page shows, and in which resolution."""

    spacing_degrees: float = 7.0  # between the directions that can be selected
    ild_bins: int = 8  # frequency bins per value of a curve of level differences
    ipd_bins: int = 3  # the same of phase differences
    n_charts: int = 3  # per direction
    iterations: int = 10  # of VESSL
    manifold_max_hz: float = 2000.0  # highest frequency of the cues of the manifold
    mask_rows: int = 64  # pixels of a mask image
    mask_columns: int = 120
    voice_rate: int = 48_000  # Hz, of the responses and of the voice that is filtered with them


_PAGE = ExplainerSettings()


def explainer(atlas: Atlas, folder: Path, reporter: ProgressReporter) -> dict[str, Any]:
    """Return all data of the page, and write its sounds into a folder."""
    folder.mkdir(exist_ok=True)
    reporter.stage("computing cues", 0.0)
    x = Sphere().grid(_PAGE.spacing_degrees)
    head = simulated_head(x)
    observed = head.cues(atlas.layout)
    hearing = _write_hearing(head, folder)
    reporter.stage("computing the manifold", 0.3)
    manifold = _manifold(x, observed[:, _low_ild(atlas.layout)])
    reporter.stage("separating two voices", 0.5)
    vessl, step_files = _vessl_steps(atlas, folder)
    return {
        "files": [*hearing["files"], *step_files],
        "hearing": hearing,
        "directions": np.round(x, 1).tolist(),
        "frequencies_hz": _frequencies(atlas.layout),
        "observed": _curves(observed, atlas.layout),
        "expected": _curves(atlas.model.forward_map(x), atlas.layout),
        "manifold": manifold,
        "charts": _charts(atlas, x),
        "vessl": vessl,
    }


def _write_hearing(head: Head, folder: Path) -> dict[str, Any]:
    """Write the responses (N, 2, taps) as 32-bit floats, and a dry voice; return their names."""
    responses = head.responses().at_rate(_PAGE.voice_rate)
    voice_file, responses_file = "voice.wav", "responses.bin"
    (folder / responses_file).write_bytes(responses.astype("<f4").tobytes())
    name, voice = talker_sound({"voice": 0}, rate=_PAGE.voice_rate)
    Audio(np.stack([voice, voice]), _PAGE.voice_rate).write(folder / voice_file)
    return {
        "files": [responses_file, voice_file],
        "name": name,
        "rate": _PAGE.voice_rate,
        "taps": responses.shape[2],
    }


def _low_ild(layout: CueLayout) -> Mask:
    """Return the mask (D,) of the level differences below 2 kHz."""
    low = layout.frequencies_hz[layout.cue_frequencies] <= _PAGE.manifold_max_hz
    return np.asarray(low & (layout.cue_kinds == "ild"))


def _manifold(x: Array, cues: Array) -> dict[str, Any]:
    """Return the manifold of the cues (N, D): coordinates (n, 3) and how faithful they are."""
    embedded = ltsa(cues, neighbours=12, whiten=20)
    coordinates = embedded.coordinates / np.linalg.norm(embedded.coordinates, axis=1).max()
    score = faithfulness(Sphere(), x[embedded.kept], coordinates)
    return {
        "n_cues": cues.shape[1],
        "kept": embedded.kept.tolist(),
        "coordinates": np.round(coordinates, 3).tolist(),
        "trustworthiness": round(score.trustworthiness, 2),
        "continuity": round(score.continuity, 2),
    }


def _frequencies(layout: CueLayout) -> dict[str, list[float]]:
    f = layout.frequencies_hz
    return {
        "ild": _band_means(f[layout.ild_frequencies][None], _PAGE.ild_bins)[0].round().tolist(),
        "ipd": f[layout.ipd_frequencies][:: _PAGE.ipd_bins].round().tolist(),
    }


def _curves(cues: Array, layout: CueLayout) -> dict[str, Any]:
    """Return level differences (N, f) in dB and phases (N, f) in radians of cues (N, D)."""
    ild, cosine, sine = (cues[:, layout.cue_kinds == k] for k in ("ild", "ipd_cos", "ipd_sin"))
    phase = np.arctan2(sine, cosine)[:, :: _PAGE.ipd_bins]
    levels = _band_means(ild, _PAGE.ild_bins)
    return {"ild": np.round(levels, 1).tolist(), "ipd": np.round(phase, 2).tolist()}


def _band_means(values: Array, size: int) -> Array:
    """Return the means (N, f) of `size` neighbouring columns."""
    whole = values.shape[1] // size * size
    means: Array = values[:, :whole].reshape(len(values), -1, size).mean(axis=2)
    return means


def _charts(atlas: Atlas, x: Array) -> dict[str, Any]:
    """Return the centres (K, 2), and the charts of the largest weight at each direction."""
    logs, _ = atlas.model.log_gating(x)
    weights = np.exp(logs - logs.max(axis=1, keepdims=True))
    weights /= weights.sum(axis=1, keepdims=True)
    best = np.argsort(-weights, axis=1)[:, : _PAGE.n_charts]
    return {
        "centres": np.round(atlas.model.centres, 1).tolist(),
        "nearest": best.tolist(),
        "weights": np.round(np.take_along_axis(weights, best, axis=1), 2).tolist(),
    }


def _vessl_steps(atlas: Atlas, folder: Path) -> tuple[dict[str, Any], list[str]]:
    """Return the iterations of VESSL on two voices, and the names of their sounds."""
    n = len(_DIRECTIONS)
    names, sounds = zip(*(talker_sound({"voice": m}) for m in range(n)), strict=True)
    scene = render_scene(
        simulated_head(_DIRECTIONS), sounds, _DIRECTIONS, settings=SceneSettings(snr_db=40.0)
    )
    separator = atlas.separator
    layout = separator.layout
    mixture = scene.mixture.at_rate(layout.rate)
    spectra = stft(mixture.samples, layout.window, layout.hop)
    floor = Threshold().floor_db(float(bin_power(spectra, layout.window).max()))
    bins = separator.coherent_bins(spectra, floor)
    vessl = VESSL(separator.source_model, bins)
    state = vessl.initialize_at(np.array(_INITIAL_DIRECTIONS))
    steps, mixture_file = [], "mixture.wav"
    mixture.write(folder / mixture_file)
    files = [mixture_file]
    for number in range(1, _PAGE.iterations + 1):
        state = vessl.step(state, all_charts=True)
        step_files = [f"step{number}_{m + 1}.wav" for m in range(n)]
        for file, q in zip(step_files, state.assignments, strict=True):
            masked = spectra * _mask(q, bins, spectra.shape[1:], 1 / n)
            samples = istft(masked, layout.window, layout.hop, mixture.samples.shape[1])
            Audio(samples, layout.rate).write(folder / file)
        steps.append({**_step_view(state, bins), "sounds": step_files})
        files += step_files
    view = {
        "names": list(names),
        "truth": _DIRECTIONS,
        "initial_directions": _INITIAL_DIRECTIONS,
        "colours": [[source_colour(m), text_colour(source_colour(m))] for m in range(n)],
        "seconds": round(mixture.seconds, 2),
        "max_hz": float(layout.frequencies_hz[-1]),
        "rate": layout.rate,
        "mixture": mixture_file,
        "steps": steps,
    }
    return view, files


def _mask(q: Array, bins: ObservedBins, shape: tuple[int, ...], elsewhere: float) -> Array:
    """Return a mask of the spectra, with a constant where no bin was observed."""
    mask = np.full(shape, elsewhere)
    mask[bins.f + 1, bins.t] = q
    return mask


def _step_view(state: VESSLState, bins: ObservedBins) -> dict[str, Any]:
    return {
        "free_energy": round(state.free_energy),
        "directions": np.round(state.directions, 1).tolist(),
        "regions": [region(source.posterior) for source in state.sources],
        "masks": [
            mask_image(np.nan_to_num(_mask_grid(q, bins)), source_colour(m))
            for m, q in enumerate(state.assignments)
        ],
    }


def _mask_grid(q: Array, bins: ObservedBins) -> Array:
    """Return the mean assignment probability (rows, columns) per cell; NaN in empty cells."""
    n_rows, n_columns = _PAGE.mask_rows, _PAGE.mask_columns
    rows = bins.f * n_rows // bins.layout.n_frequencies
    cell = rows * n_columns + bins.t * n_columns // bins.frames
    size = n_rows * n_columns
    count = np.bincount(cell, minlength=size)
    means: Array = np.bincount(cell, q, size) / np.where(count > 0, count, np.nan)
    return means.reshape(n_rows, n_columns)
