"""Learn a head's direct sound, and how far it may be trusted, from rooms made of the head itself.

In: a head with responses, then what was learned of it in the open. Out: a `RoomHearing`.
Scenes are murmurs in the open, in noise and in random rooms (`earatlas.simulation.random_reverberation`)
from measured directions; each is looked at as if its direction had not been measured. So what is
measured is what a new direction in a new room will meet.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.special import logsumexp

from earatlas.features.cues import rings, transfer_functions
from earatlas.features.layout import CueLayout
from earatlas.features.onset_detector import Gate, OnsetBins
from earatlas.features.statistics import CueStatistics, LevelStatistics
from earatlas.features.stft import stft
from earatlas.geometry.spaces import Space
from earatlas.hrtf.head import Head, MeasuredCues
from earatlas.hrtf.interaural_templates import Templates
from earatlas.localization.onset_likelihood import (
    LEVELS,
    N_CLASSES,
    SHARPNESS,
    DirectSound,
    Look,
    Patch,
    bin_class,
    stokes,
)
from earatlas.localization.reverberant_localizer import RoomHearing
from earatlas.localization.score_calibration import Trust, fit_open_share, fit_trust, place_scores
from earatlas.ppam.calibration import Calibration
from earatlas.ppam.cross_validation import Folds
from earatlas.simulation.random_reverberation import even_weights
from earatlas.simulation.synthetic_speech import SyntheticTalkers
from earatlas.threads import side_by_side
from earatlas.training.scenes import Stage, mismatch, turned
from earatlas.training.source_pairs import learn_crowd, onsets_of
from earatlas.types import Array, Complex, Indices, Single

__all__ = ["RoomScenes", "rooms_refused"]

_SCENES = 180
_TO_A_PAIR = 3  # scenes of one sound to a scene of two: these have two looks, and take four times
_OPEN_SCENES = 50  # of them ask the open-air model too: four weights are to be found
_FEWEST_BINS = 20
_OTHER_UNITS = 0.35  # of the scenes: evidence in `earatlas.training.scenes`
_LEAST_EIGENVALUE = 0.02  # of Γ, whose trace is 2
_DENSITY_STEPS = 25
_PRIOR_BINS = 20.0  # of a class: drawn towards what all classes have together


@dataclass(frozen=True, eq=False)
class _Scene:
    """A sound from a measured direction, and the look at it without that direction."""

    row: int  # which direction
    truth: Array  # (C,) where it would be said to be: another unit of the head is turned a little
    bins: OnsetBins
    patch: Patch  # grid points that are interpolated from it, without it
    cosines: Array  # (B,) u of the bins around the truth, templates put wrong
    classes: Indices  # (B,)
    statistics: CueStatistics | None  # for the open-air model, of some scenes


def rooms_refused(head: Head, layout: CueLayout) -> str | None:
    """Why a head cannot be made ready for rooms, or None if it can."""
    if isinstance(head.ears, MeasuredCues):
        return "is known by recordings of noise, not by responses"
    if rings(head.ears.samples, head.ears.rate, layout):
        return "has responses that ring: its room was learned with it"
    return None


@dataclass(frozen=True, eq=False)
class RoomScenes:
    """What a head's own scenes say of its direct sound: all that needs no open-air model."""

    sound: DirectSound
    trust: Trust  # nothing of the open-air answer is believed yet
    crowd: Trust
    asked: tuple[tuple[_Scene, Look], ...]  # those that the open-air model will be asked of

    @classmethod
    def of(
        cls, head: Head, space: Space, layout: CueLayout, synthetic_talkers: SyntheticTalkers
    ) -> RoomScenes:
        """Those of a head with responses that do not ring."""
        sound, stage = (
            _untold(head, space, Gate(rate=layout.rate)),
            Stage.of(head, synthetic_talkers),
        )
        scenes = _scenes(stage, sound, layout)
        told = sound.with_densities(
            _log_densities([s.cosines for s in scenes], [s.classes for s in scenes])
        )
        _ = told.coarse_points  # once, before threads ask for them
        looks = side_by_side(lambda scene: told.look(scene.bins, scene.patch), scenes)
        trust = fit_trust(space, looks, np.array([scene.truth for scene in scenes]))
        crowd = learn_crowd(stage, told, scenes=_SCENES // _TO_A_PAIR)
        every = zip(scenes, looks, strict=True)
        asked = tuple((scene, look) for scene, look in every if scene.statistics is not None)
        return cls(told, trust, crowd, asked)

    def hearing(self, folds: Folds, calibration: Calibration, *, doubted: float) -> RoomHearing:
        """With how much of the open-air model's answer is to be believed.

        Where that model's misfit is `doubted` or less, its answer will be taken as it is.
        """
        space = self.sound.space

        def opened(scene: _Scene) -> tuple[float, float]:
            """Misfit of the open-air model, and log p of the truth."""
            assert scene.statistics is not None  # by `asked`
            posterior, misfit = calibration.judged(folds.without(scene.row), scene.statistics)
            return misfit, float(posterior.log_density(scene.truth[None])[0])

        misfits, scores = np.array(side_by_side(opened, [scene for scene, _ in self.asked])).T
        odd = np.flatnonzero(misfits > doubted)  # only there is the open-air answer ever doubted
        doubtful = [self.asked[n] for n in odd]
        own = np.array([_log_score(space, self.trust, look, s.truth) for s, look in doubtful])
        features = np.array([look.features for _, look in doubtful])
        weights = fit_open_share(features, misfits[odd], scores[odd], own)
        trust = replace(self.trust, weights=weights)
        return RoomHearing(self.sound, trust, self.crowd, doubted).rounded()


def _log_score(space: Space, trust: Trust, look: Look, truth: Array) -> float:
    """log p of the truth under the posterior of a look."""
    scores = place_scores(space, look, truth)
    return float(logsumexp(scores + np.log(trust.near(look.features) + 1e-12)))


def _open_statistics(samples: Array, layout: CueLayout) -> CueStatistics:
    levels = LevelStatistics(layout)
    levels.push(stft(samples, layout.window, layout.hop))
    return levels.statistics()


def _untold(head: Head, space: Space, gate: Gate) -> DirectSound:
    """Templates and Γ; what the density of bins is comes from scenes."""
    templates = Templates.of(head, gate.frequencies_hz)
    ears = head.responses()
    H = transfer_functions(ears.samples, ears.rate, gate.frequencies_hz)
    gamma = np.einsum("n,naf,nbf->fab", even_weights(head.directions), H, H.conj())
    gamma /= np.einsum("faa->f", gamma).real[:, None, None] / 2
    values, vectors = np.linalg.eigh(gamma)
    roots = np.maximum(values, _LEAST_EIGENVALUE) ** -0.5
    return DirectSound(
        space=space,
        templates=templates,
        spacing_degrees=head.spacing_degrees,
        whiten=np.einsum("fab,fb,fcb->fac", vectors, roots, vectors.conj()),
        log_densities=np.zeros((N_CLASSES, LEVELS), dtype=np.float32),
        gate=gate,
    )


def _scenes(stage: Stage, sound: DirectSound, layout: CueLayout) -> list[_Scene]:
    gate, step = sound.gate, max(_SCENES // _OPEN_SCENES, 1)

    def made(n: int) -> _Scene | None:
        rng = np.random.default_rng(
            (stage.synthetic_talkers.seed, n)
        )  # its own: scenes are made side by side
        row, samples = stage.one(rng)
        bins, wrong = onsets_of(samples, gate), mismatch(gate.frequencies_hz, rng)
        truth = stage.directions[row]
        if rng.random() < _OTHER_UNITS:
            bins = replace(bins, z=bins.z * np.stack([np.ones(len(bins)), wrong[bins.f]], axis=1))
            truth = turned(sound.space, truth, rng)
            wrong = np.ones_like(wrong)
        if len(bins) < _FEWEST_BINS:
            return None
        scene = _scene(sound, row, truth, bins, wrong)
        asked = n % step == 0
        return replace(scene, statistics=_open_statistics(samples, layout)) if asked else scene

    _ = sound.grid, sound.interpolation  # once, before threads ask for them
    return [scene for scene in side_by_side(made, range(_SCENES)) if scene is not None]


def _scene(sound: DirectSound, row: int, truth: Array, bins: OnsetBins, wrong: Complex) -> _Scene:
    """What the grid around a direction is without its measurement, and how bins stand to it."""
    patch, points = sound.left_out(np.array([row]))
    z = bins.z * np.stack([np.ones(len(bins)), wrong[bins.f]], axis=1)
    s = stokes(np.einsum("bac,bc->ba", sound.whiten[bins.f], z))
    cosines = np.clip((s * points[bins.f, :, 0]).sum(axis=1), -1.0, 1.0)
    classes = bin_class(bins.rise_db, sound.gate.frequencies_hz[bins.f])
    return _Scene(row, truth, bins, patch, cosines, classes, None)


def _log_densities(cosines: list[Array], classes: list[Indices]) -> Single:
    """log g (classes, LEVELS): the weights of its parts by EM on all scenes' bins."""
    u, c = np.concatenate(cosines), np.concatenate(classes)
    p = _parts(u)
    w = np.full((N_CLASSES, len(SHARPNESS)), 1 / len(SHARPNESS))
    for _ in range(_DENSITY_STEPS):
        r = p * w[c]
        r /= r.sum(axis=1, keepdims=True)
        counts = np.stack([np.bincount(c, column, N_CLASSES) for column in r.T], axis=1)
        pooled = counts.sum(axis=0) / counts.sum() + 0.02 / len(SHARPNESS)
        w = counts + _PRIOR_BINS * pooled
        w /= w.sum(axis=1, keepdims=True)
    middles = (np.arange(LEVELS) + 0.5) / LEVELS * 2 - 1
    logs: Single = np.log(_parts(middles) @ w.T).T.astype(np.float32)
    return logs


def _parts(u: Array) -> Array:
    """(1 - b_j²) / (1 - b_j u)² (n, J)."""
    parts: Array = (1 - SHARPNESS**2) / (1 - np.multiply.outer(u, SHARPNESS)) ** 2
    return parts
