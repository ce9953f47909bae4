"""Localization in reverberant rooms: the onset posterior combined with the anechoic posterior.

Input: the onsets of a recording and the posterior of the anechoic model (PPAM). Output: one
posterior that is calibrated in anechoic, noisy and reverberant conditions, in rooms that were not
learned.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from earatlas.features.onset_detector import OnsetBins, OnsetDetectorSettings
from earatlas.geometry.direction_posterior import DirectionPosterior
from earatlas.geometry.spaces import Space, Sphere
from earatlas.hrtf.interaural_templates import InterauralTemplates
from earatlas.localization.onset_likelihood import (
    N_CLASSES,
    N_TABLE_STEPS,
    DirectionLogLikelihood,
    DirectSoundModel,
)
from earatlas.localization.score_calibration import BETAS, KERNEL_WIDTHS_DEGREES, ScoreCalibration
from earatlas.types import Array, Indices

__all__ = ["AnechoicPosteriors", "ReverberantLocalizer", "posterior_mixture", "widen_posterior"]

# Posteriors of the anechoic model for some of W sounds, computed on demand
AnechoicPosteriors = Callable[[Indices], Iterable[DirectionPosterior]]

_NEGLIGIBLE_WEIGHT = 0.01  # a posterior of this weight or less is left out of the mixture
# Names of the arrays of a `ScoreCalibration` in atlas files, and of its fields.
_CALIBRATION_ARRAYS = {
    "features": "features",
    "scale": "scale",
    "shares": "mixture_weights",
    "weights": "weights",
}


@dataclass(frozen=True, eq=False)
class ReverberantLocalizer:
    """Models with which a head localizes in any room."""

    direct_sound: DirectSoundModel
    score_calibration: ScoreCalibration  # for a single source
    multi_source_calibration: ScoreCalibration | None = (
        None  # for one of several; None: a population
    )
    residual_threshold: float = 1.0  # normalized residual up to which onsets are not used

    def combine(
        self,
        residual_ratios: Array,
        anechoic: AnechoicPosteriors,
        onsets: Sequence[OnsetBins],
        yaw: Array | None = None,
    ) -> list[tuple[DirectionPosterior, float]]:
        """Combine anechoic posteriors of W sounds with those of their onsets, at a fitted weight.

        `residual_ratios` (W,) are the normalized residuals of the anechoic model, divided by their
        limit. Up to `residual_threshold` a sound is like the training data and its anechoic
        posterior is returned unchanged, since that model is the better one there, unless the decays
        are those of a room: then onsets alone decide. (The threshold is 0 for a head with too few
        directions to calibrate the residual.) Several sounds overlap, and their onsets are sorted
        by time. `yaw` (B,) is the yaw of the head at each bin of a single sound in degrees.

        The second values are the log-likelihood per onset of the best direction in nats, NaN if the
        onsets were not used.
        """
        used = [
            n
            for n, (ratio, own) in enumerate(zip(residual_ratios, onsets, strict=True))
            if own.enough and not self.is_anechoic(float(ratio), own)
        ]
        weights, nats = np.ones(len(onsets)), np.full(len(onsets), math.nan)
        mixed: dict[int, DirectionLogLikelihood] = {}
        likelihoods = self._log_likelihoods([onsets[n] for n in used], yaw)
        for n, likelihood in zip(used, likelihoods, strict=True):
            weights[n] = self.anechoic_weight(likelihood.features, float(residual_ratios[n]))
            nats[n] = likelihood.features[0]
            if weights[n] <= 1 - _NEGLIGIBLE_WEIGHT:
                mixed[n] = likelihood
        reverberant = self.score_calibration.posteriors(
            self.direct_sound.space, list(mixed.values())
        )
        posteriors = dict(zip(mixed, reverberant, strict=True))
        needed = np.flatnonzero(weights >= _NEGLIGIBLE_WEIGHT)
        for n, posterior in zip(needed.tolist(), anechoic(needed), strict=True):
            posteriors[n] = (
                posterior_mixture(posterior, posteriors[n], weights[n])
                if n in posteriors
                else posterior
            )
        return [(posteriors[n], float(nats[n])) for n in range(len(onsets))]

    def _log_likelihoods(
        self, onsets: Sequence[OnsetBins], yaw: Array | None
    ) -> Sequence[DirectionLogLikelihood]:
        """Return the log-likelihood of the onsets of each sound; of several, in one batch."""
        sound = self.direct_sound
        if yaw is not None:
            return [sound.rotated_log_likelihood(bins, yaw) for bins in onsets]
        most = sound.onset_settings.most_bins
        if len(onsets) < 2:
            return [sound.log_likelihood(bins.by_frequency().strongest(most)) for bins in onsets]
        return sound.log_likelihood_batch([bins.strongest(most) for bins in onsets])

    def is_anechoic(self, residual_ratio: float, onsets: OnsetBins | None) -> bool:
        """Whether the anechoic posterior is used unchanged: it fits, and there is no room.

        The broad model of an unknown listener fits the diffuse sound of a hall as well.
        """
        reverberant = onsets is not None and onsets.reverberation.reverberant
        return not (residual_ratio > self.residual_threshold or reverberant)

    def anechoic_weight(self, features: Array, residual_ratio: float) -> float:
        """Return π if the onsets are used; 0 if they are used in spite of a small residual."""
        if residual_ratio <= self.residual_threshold:
            return 0.0
        return self.score_calibration.anechoic_weight(features, residual_ratio)

    def multi_source_posterior(self, likelihood: DirectionLogLikelihood) -> DirectionPosterior:
        """Return the calibrated posterior of one of several sources, or of one of several tracks.

        Its spread was measured for similar sources in simulated scenes of two sources
        (`earatlas.training.reverberant`).
        """
        space = self.direct_sound.space
        if self.multi_source_calibration is None:
            # The calibration for a single source is overconfident here.
            return widen_posterior(self.score_calibration.posterior(space, likelihood))
        return self.multi_source_calibration.posterior(space, likelihood)

    def to_arrays(self) -> dict[str, Array]:
        """Return all arrays for a file; `from_arrays` is the inverse."""
        sound = self.direct_sound
        return {
            "rooms.directions": sound.templates.directions,
            "rooms.level_db": sound.templates.level_db,
            "rooms.delay_seconds": sound.templates.delay_seconds,
            "rooms.phase_radians": sound.templates.phase_radians,
            "rooms.whiten": np.stack([sound.whitening.real, sound.whitening.imag]),
            "rooms.log_densities": sound.log_densities.astype(np.float64),
            **_calibration_arrays(self.score_calibration, "rooms."),
            **_calibration_arrays(self.multi_source_calibration, "rooms.crowd_"),
        }

    def to_dict(self) -> dict[str, Any]:
        """Return all other settings as JSON values."""
        sound = self.direct_sound
        return {
            "gate": asdict(sound.onset_settings),
            "spacing_degrees": sound.spacing_degrees,
            "doubted": self.residual_threshold,
        }

    @classmethod
    def from_arrays(
        cls, space: Space, arrays: dict[str, Array], about: dict[str, Any]
    ) -> ReverberantLocalizer:
        """Invert `to_arrays` and `to_dict`; raise a ValueError if the parts do not fit."""
        own = {name[6:]: value for name, value in arrays.items() if name.startswith("rooms.")}
        onset_settings = OnsetDetectorSettings(**about["gate"])
        F, N = len(onset_settings.rows), len(own["directions"])
        whitening = own["whiten"][0] + 1j * own["whiten"][1]
        shapes = {
            "level_db": (N, F),
            "phase_radians": (N, F),
            "delay_seconds": (N,),
            "log_densities": (N_CLASSES, N_TABLE_STEPS),
        }
        if not (
            whitening.shape == (F, 2, 2)
            and all(own[k].shape == s for k, s in shapes.items())
            and all(np.isfinite(array).all() for array in own.values())
            and 0 < float(about["spacing_degrees"]) <= 180
        ):
            raise ValueError("its arrays for reverberant rooms do not fit each other")
        Sphere().check(own["directions"])
        templates = InterauralTemplates(
            own["directions"],
            onset_settings.frequencies_hz,
            own["level_db"],
            own["delay_seconds"],
            own["phase_radians"],
        )
        sound = DirectSoundModel(
            space=space,
            templates=templates,
            spacing_degrees=float(about["spacing_degrees"]),
            whitening=whitening,
            log_densities=own["log_densities"].astype(np.float32),
            onset_settings=onset_settings,
        )
        multi_source = _read_calibration(own, "crowd_") if "crowd_shares" in own else None
        return cls(sound, _read_calibration(own), multi_source, float(about["doubted"]))

    def rounded(self) -> ReverberantLocalizer:
        """Return a copy rounded to float32, so that saving it at half the size loses nothing."""
        arrays = {
            name: array.astype(np.float32).astype(np.float64)
            for name, array in self.to_arrays().items()
        }
        copied = ReverberantLocalizer.from_arrays(self.direct_sound.space, arrays, self.to_dict())
        kept = {  # files do not hold these settings
            name: replace(getattr(copied, name), settings=part.settings)
            for name in ("direct_sound", "score_calibration", "multi_source_calibration")
            if (part := getattr(self, name)) is not None
        }
        return replace(copied, **kept)


def _calibration_arrays(calibration: ScoreCalibration | None, prefix: str) -> dict[str, Array]:
    """Return the arrays of a calibration by their names in atlas files."""
    if calibration is None:
        return {}
    return {prefix + key: getattr(calibration, field) for key, field in _CALIBRATION_ARRAYS.items()}


def _read_calibration(arrays: dict[str, Array], prefix: str = "") -> ScoreCalibration:
    """Return the calibration with these arrays; raise a ValueError if they do not fit."""
    own = {field: arrays[prefix + key] for key, field in _CALIBRATION_ARRAYS.items()}
    n = len(own["mixture_weights"])
    shapes = {
        "features": (n, 3),
        "scale": (3,),
        "mixture_weights": (n, len(BETAS), len(KERNEL_WIDTHS_DEGREES)),
        "weights": (4,),
    }
    if not (
        all(own[name].shape == shape for name, shape in shapes.items())
        and min(own["scale"].min(), own["mixture_weights"].sum(axis=(1, 2)).min()) > 0
        and own["mixture_weights"].min() >= 0
    ):
        raise ValueError("its arrays for the score calibration do not fit each other")
    calibration = ScoreCalibration(
        own["features"], own["scale"], own["mixture_weights"], own["weights"]
    )
    if not calibration.typical_nats_per_onset > 0:
        raise ValueError("the onsets that it was calibrated with have no direction")
    return calibration


def posterior_mixture(
    a: DirectionPosterior, b: DirectionPosterior, weight: float
) -> DirectionPosterior:
    """Return weight a + (1 - weight) b; a negligible weight is rounded to 0."""
    if weight < _NEGLIGIBLE_WEIGHT:
        return b
    a = a.pruned(1e-9)

    def both(x: Array, y: Array) -> Array:
        return np.concatenate([x, y])

    return DirectionPosterior(
        a.space,
        both(a.centres, b.centres),
        both(weight * a.weights, (1 - weight) * b.weights),
        both(a.means, b.means),
        both(a.covariances, b.covariances),
    )


def widen_posterior(posterior: DirectionPosterior, amount: float = 1.0) -> DirectionPosterior:
    """Blur a posterior that no other evidence supports, by an amount from 0 to 1.

    Up to 70 % of it is blurred by 30 degrees (standard deviation).
    """
    return posterior.blurred([0.0, 30.0], [1 - 0.7 * amount, 0.7 * amount])
