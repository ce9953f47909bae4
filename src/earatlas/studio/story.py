"""The paper's story as numbers for a page: cues, their manifold, charts, and VESSL at work.

In: the built-in head. Out: JSON values.

    N directions all round        f  bands of frequencies
    ild (N, f) dB, ipd (N, f) radians: heard, and as PPAM expects them
    surface                       the manifold of levels below 2 kHz, by LTSA
    charts                        centres, and for each direction the three that tell most of it
    steps                         of VESSL on two voices, from directions that are wrong on purpose
"""

from __future__ import annotations

from typing import Any

import numpy as np

from earatlas.atlas import Atlas
from earatlas.features.cues import bin_power
from earatlas.features.layout import CueLayout, Threshold
from earatlas.features.stft import stft
from earatlas.features.tf_bins import HeardBins
from earatlas.geometry.spaces import Sphere
from earatlas.hrtf.simulated import simulated_head
from earatlas.manifold.faithfulness import faithfulness
from earatlas.manifold.ltsa import ltsa
from earatlas.plotting.palette import colour_of
from earatlas.report.images import mask_image, on_colour
from earatlas.separation.vessl import VESSL, State
from earatlas.simulation.scene import SceneSettings, render_scene
from earatlas.studio.progress import Teller
from earatlas.studio.scenes import voice
from earatlas.studio.views import region
from earatlas.types import Array, Mask

__all__ = ["story"]

_SPACING = 7.0  # degrees between the directions that can be tried
_ILD_BINS, _IPD_BINS = 8, 3  # frequencies that one value of a curve stands for
_NEAREST = 3  # charts that are told of a direction
_PLACES, _STARTS = [[41.0, 1.0], [-64.0, 24.0]], [[8.0, -25.0], [-110.0, -5.0]]
_STEPS = 10
# On the simulated head: trustworthiness 0.92 and continuity 0.96; with all cues 0.84 and 0.96, with
# low phases 0.82 and 0.95, and points far out.
_LOW_HERTZ = 2000.0
_ROWS, _COLUMNS = 64, 120  # of a picture of masks


def story(atlas: Atlas, teller: Teller) -> dict[str, Any]:
    """All that the page tells."""
    teller.stage("listening to every direction", 0.0)
    x = Sphere().grid(_SPACING)
    heard = simulated_head(x).cues(atlas.layout)
    teller.stage("unrolling the manifold", 0.3)
    teller.stage("following two voices", 0.5)
    return {
        "directions": np.round(x, 1).tolist(),
        "hertz": _hertz(atlas.layout),
        "heard": _curves(heard, atlas.layout),
        "expected": _curves(atlas.model.forward_map(x), atlas.layout),
        "surface": _surface(x, heard[:, _low_levels(atlas.layout)]),
        "charts": _charts(atlas, x),
        "vessl": _followed(atlas),
    }


def _low_levels(layout: CueLayout) -> Mask:
    """(D,) which cues are level differences below 2 kHz."""
    low = layout.frequencies_hz[layout.cue_frequencies] <= _LOW_HERTZ
    return np.asarray(low & (layout.cue_kinds == "ild"))


def _surface(x: Array, cues: Array) -> dict[str, Any]:
    """The cues' manifold: a place for each direction that has one, and how faithful it is."""
    unrolled = ltsa(cues, neighbours=12, whiten=20)
    places = unrolled.coordinates / np.linalg.norm(unrolled.coordinates, axis=1).max()
    score = faithfulness(Sphere(), x[unrolled.kept], places)
    return {
        "numbers": cues.shape[1],
        "kept": unrolled.kept.tolist(),
        "places": np.round(places, 3).tolist(),
        "trustworthiness": round(score.trustworthiness, 2),
        "continuity": round(score.continuity, 2),
    }


def _hertz(layout: CueLayout) -> dict[str, list[float]]:
    f = layout.frequencies_hz
    return {
        "ild": _bands(f[layout.ild_frequencies][None], _ILD_BINS)[0].round().tolist(),
        "ipd": f[layout.ipd_frequencies][::_IPD_BINS].round().tolist(),
    }


def _curves(cues: Array, layout: CueLayout) -> dict[str, Any]:
    """Level differences (N, f) in dB and phases (N, f) in radians, of cue vectors (N, D)."""
    ild, cosine, sine = (cues[:, layout.cue_kinds == k] for k in ("ild", "ipd_cos", "ipd_sin"))
    phase = np.arctan2(sine, cosine)[:, ::_IPD_BINS]
    levels = _bands(ild, _ILD_BINS)
    return {"ild": np.round(levels, 1).tolist(), "ipd": np.round(phase, 2).tolist()}


def _bands(values: Array, size: int) -> Array:
    """Means (N, f) of so many neighbours each."""
    whole = values.shape[1] // size * size
    means: Array = values[:, :whole].reshape(len(values), -1, size).mean(axis=2)
    return means


def _charts(atlas: Atlas, x: Array) -> dict[str, Any]:
    """Centres (K, 2), and the charts that answer for each direction, with their shares."""
    logs, _ = atlas.model.gates(x)
    shares = np.exp(logs - logs.max(axis=1, keepdims=True))
    shares /= shares.sum(axis=1, keepdims=True)
    best = np.argsort(-shares, axis=1)[:, :_NEAREST]
    return {
        "centres": np.round(atlas.model.centres, 1).tolist(),
        "nearest": best.tolist(),
        "shares": np.round(np.take_along_axis(shares, best, axis=1), 2).tolist(),
    }


def _followed(atlas: Atlas) -> dict[str, Any]:
    """VESSL on two voices, step by step."""
    names, sounds = zip(*(voice({"voice": m}) for m in range(len(_PLACES))), strict=True)
    scene = render_scene(
        simulated_head(_PLACES), sounds, _PLACES, settings=SceneSettings(snr_db=40.0)
    )
    separator = atlas.separator
    layout = separator.layout
    spectra = stft(scene.mixture.at_rate(layout.rate).samples, layout.window, layout.hop)
    floor = Threshold().floor_db(float(bin_power(spectra, layout.window).max()))
    bins = separator.sure_bins(spectra, floor)
    vessl = VESSL(separator.source_model, bins)
    state = vessl.start_at(np.array(_STARTS))
    steps = []
    for _ in range(_STEPS):
        state = vessl.step(state, all_charts=True)
        steps.append(_step(state, bins))
    return {
        "names": list(names),
        "truth": _PLACES,
        "starts": _STARTS,
        "colours": [[colour_of(m), on_colour(colour_of(m))] for m in range(len(_PLACES))],
        "seconds": round(scene.mixture.seconds, 2),
        "steps": steps,
    }


def _step(state: State, bins: HeardBins) -> dict[str, Any]:
    return {
        "free_energy": round(state.free_energy),
        "directions": np.round(state.directions, 1).tolist(),
        "regions": [region(source.posterior) for source in state.sources],
        "masks": [
            mask_image(np.nan_to_num(_picture(q, bins)), colour_of(m))
            for m, q in enumerate(state.assignments[: len(state.sources)])
        ],
    }


def _picture(q: Array, bins: HeardBins) -> Array:
    """Mean assignments (rows, columns) of the bins in each cell; NaN where there are none."""
    rows = bins.f * _ROWS // bins.layout.n_frequencies
    cell = rows * _COLUMNS + bins.t * _COLUMNS // bins.frames
    size = _ROWS * _COLUMNS
    count = np.bincount(cell, minlength=size)
    means: Array = np.bincount(cell, q, size) / np.where(count > 0, count, np.nan)
    return means.reshape(_ROWS, _COLUMNS)
