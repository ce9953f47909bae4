"""Evaluation of a separated scene against its ground truth, with the measures of the benchmarks.

Input: a scene and what is known about it: directions, images of the sources, or both. Output: an
`Evaluation` with one row per true source. Directions and sounds are assigned independently, each
with the least error (`earatlas.evaluation.ground_truth`, `earatlas.evaluation.score`).

    M, J   numbers of true and estimated sources        n   samples
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from earatlas.errors import InputError
from earatlas.evaluation.assignment import Assignment, nan_mean
from earatlas.evaluation.ground_truth import GroundTruth, assign_by_position
from earatlas.evaluation.intelligibility import intelligibility
from earatlas.evaluation.interaural import interaural_errors
from earatlas.evaluation.quality import FILTER_LENGTH, assigned_quality, pairwise_metrics
from earatlas.evaluation.score import Score, score
from earatlas.features.audio import Audio
from earatlas.geometry.angles import azimuth_error, elevation_error
from earatlas.notebooks import data_frame
from earatlas.separation.result import Scene, SceneSummary
from earatlas.simulation.scene import SimulatedScene
from earatlas.types import Array

if TYPE_CHECKING:
    import pandas

__all__ = ["Evaluation", "SourceEvaluation", "evaluate"]


@dataclass(frozen=True, eq=False)
class SourceEvaluation:
    """What was found of one true source; NaN where something was missed or is not known."""

    name: str  # of the true source
    located_as: str | None  # estimated source with the nearest direction; None: missed
    separated_as: str | None  # estimated source with the best SDR; None: missed or no sounds
    error_degrees: float  # great-circle error; of a moving source the median along its path
    azimuth_error_degrees: float
    elevation_error_degrees: float
    credible_level: float  # smallest credible region with the true direction; moving source: NaN
    sdr_db: float  # mean of both ears, as all measures of sound
    sir_db: float
    sar_db: float
    si_sdr_db: float
    mixture_sdr_db: float  # of the mixture as the estimate
    mixture_sir_db: float
    early_sdr_db: float  # with the reflections of the first 50 ms as the truth
    stoi: float
    ild_error_db: float
    itd_error_microseconds: float

    @property
    def inside_90(self) -> bool | None:
        """Whether the 90 % region contains the true direction; None if that is not known."""
        return None if np.isnan(self.credible_level) else bool(self.credible_level <= 0.9)


_NUMBERS = tuple(f.name for f in fields(SourceEvaluation) if f.type == "float")


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Evaluation of a scene, with one entry per true source.

    Attributes
    ----------
    sources : tuple of SourceEvaluation
        What was found of each true source.
    n_found : int
        Number of estimated sources.
    by_direction : Assignment or None
        Estimated source of each true one by direction; None without true directions.
    by_sound : Assignment or None
        The same by SDR; None without true images or separated sounds.

    Examples
    --------
    >>> import earatlas as ea
    >>> head = ea.simulated_head([[-40, 0], [40, 0]])
    >>> voices = [ea.synthetic_speech(0.6, seed=m) for m in range(2)]
    >>> party = ea.render_scene(head, voices, [[-40, 0], [40, 0]])
    >>> scene = ea.example_atlas().separate(party.mixture, n_sources=2, rendering="soft")
    >>> result = ea.evaluate(scene, party)
    >>> result.mean("error_degrees") < 10, result.mean("sdr_db") > 5, result.missed
    (True, True, ())
    """

    sources: tuple[SourceEvaluation, ...]
    n_found: int
    by_direction: Assignment | None
    by_sound: Assignment | None

    def __repr__(self) -> str:
        parts = [f"{len(self.sources)} sources", f"{self.n_found} found"]
        for name, text in (
            ("error_degrees", "direction error {:.1f} degrees"),
            ("sdr_db", "SDR {:.1f} dB"),
            ("stoi", "STOI {:.2f}"),
        ):
            if np.isfinite(self.mean(name)):
                parts.append(text.format(self.mean(name)))
        if self.agree is False:
            parts.append("sounds and directions are assigned differently")
        return f"Evaluation({', '.join(parts)})"

    @property
    def missed(self) -> tuple[str, ...]:
        """Names of the true sources that no estimated source is assigned to."""
        pairs = self.by_sound if self.by_direction is None else self.by_direction
        return () if pairs is None else tuple(self.sources[m].name for m in pairs.missed)

    @property
    def n_false(self) -> int:
        """Number of estimated sources that belong to no true source."""
        return max(self.n_found - len(self.sources), 0)

    @property
    def agree(self) -> bool | None:
        """Whether sounds and directions are assigned alike; None if one of them is not known."""
        if self.by_direction is None or self.by_sound is None:
            return None
        return bool(np.array_equal(self.by_direction.found, self.by_sound.found))

    def mean(self, measure: str) -> float:
        """Return the mean of a measure over the sources that have it.

        Parameters
        ----------
        measure : str
            A number of `SourceEvaluation`, for example "sdr_db".

        Returns
        -------
        float
            The mean, NaN if no source has the measure.

        Raises
        ------
        InputError
            If there is no such measure.
        """
        if measure not in _NUMBERS:
            raise InputError(
                f"measure must be one of {', '.join(_NUMBERS)}, got '{measure}'. Choose one of "
                "them."
            )
        return nan_mean(np.array([getattr(source, measure) for source in self.sources]))

    def to_dict(self) -> dict[str, list[Any]]:
        """Return the measures as columns of JSON values.

        Returns
        -------
        dict
            The fields of `SourceEvaluation` and `inside_90`, with one value per true source; None
            where something is not known.
        """
        names = [*(field.name for field in fields(SourceEvaluation)), "inside_90"]
        return {
            name: [_json_value(getattr(source, name)) for source in self.sources] for name in names
        }

    def to_pandas(self) -> pandas.DataFrame:
        """Return the measures as a table; needs the extra `earatlas[pandas]`.

        Returns
        -------
        pandas.DataFrame
            One row per true source, with the columns of `to_dict`.

        Raises
        ------
        MissingExtraError
            If pandas is not installed.
        """
        return data_frame(self.to_dict())


def _json_value(value: Any) -> Any:
    """Return a value with at most four decimals, and None for NaN."""
    if isinstance(value, float):
        return None if np.isnan(value) else round(value, 4) + 0.0  # no -0.0
    return value


def evaluate(
    scene: SceneSummary,
    truth: GroundTruth | SimulatedScene | ArrayLike,
    *,
    sounds: Sequence[Audio] | None = None,
    mixture: Audio | None = None,
) -> Evaluation:
    """Evaluate a separated scene against its ground truth.

    Parameters
    ----------
    scene : SceneSummary
        A separated scene.
    truth : GroundTruth, SimulatedScene, or array_like of shape (M, C)
        What is known: a `GroundTruth` with directions, images or both, a scene that `render_scene`
        made, or true directions alone, in degrees.
    sounds : sequence of Audio, optional
        The separated signals of the sources of the scene, in their order, for a scene that was
        written to files. By default those of the scene. They are resampled to the rate of the
        mixture.
    mixture : Audio, optional
        The recording, required with `sounds`.

    Returns
    -------
    Evaluation
        Errors of directions, credible levels, SDR, SIR, SAR, SI-SDR, STOI and interaural errors of
        each true source, as far as the truth allows.

    Raises
    ------
    InputError
        If the truth or the sounds do not fit the scene, or if `sounds` come without `mixture`.

    Examples
    --------
    >>> import earatlas as ea
    >>> scene = ea.people_atlas().separate(ea.example_recording(), n_sources=2)
    >>> ea.evaluate(scene, [[35, 0], [-60, 0]]).n_found
    2
    """
    if not isinstance(scene, SceneSummary):
        raise InputError(
            f"scene must be a separated scene, got {type(scene).__name__}. Give the scene first, "
            "and the truth after it."
        )
    known = _ground_truth(truth)
    if sounds is not None:
        _check_sounds(scene, sounds, mixture)
    by_direction = None if known.directions is None else assign_by_position(scene, known)
    if sounds is None and isinstance(scene, Scene):
        sounds, mixture = [source.audio for source in scene.sources], scene.mixture
    scored: Score | None = None
    columns: dict[str, Array] = {}
    if known.images and sounds and mixture is not None:
        scored, columns = _measure_sounds(known, sounds, mixture)
    by_sound = None if scored is None else scored.by_sound
    rows = []
    for m, name in enumerate(known.names):
        numbers = {key: float(values[m]) for key, values in columns.items()}
        numbers |= _direction_numbers(scene, known, m, by_direction)
        missing = {key: np.nan for key in _NUMBERS if key not in numbers}
        located, separated = (_source_name(scene, pairs, m) for pairs in (by_direction, by_sound))
        rows.append(SourceEvaluation(name, located, separated, **numbers, **missing))
    return Evaluation(tuple(rows), len(scene.sources), by_direction, by_sound)


def _check_sounds(scene: SceneSummary, sounds: Sequence[Audio], mixture: Audio | None) -> None:
    """Raise an InputError if the sounds are not those of the sources, or lack their mixture."""
    if len(sounds) != len(scene.sources):
        raise InputError(
            f"sounds must have one entry per source of the scene ({len(scene.sources)}), got "
            f"{len(sounds)}. Give the signals of all sources, in their order."
        )
    if mixture is None:
        raise InputError(
            "mixture must be given with sounds, got none. Give the recording that was separated."
        )


def _ground_truth(truth: GroundTruth | SimulatedScene | ArrayLike) -> GroundTruth:
    """Return what is known as a `GroundTruth`."""
    if isinstance(truth, GroundTruth):
        return truth
    if isinstance(truth, SimulatedScene):
        return GroundTruth.of(truth)
    return GroundTruth(np.asarray(truth, dtype=np.float64))


def _source_name(scene: SceneSummary, pairs: Assignment | None, m: int) -> str | None:
    """Return the name of the estimated source of true source m, None if it was missed."""
    if pairs is None or pairs.found[m] < 0:
        return None
    return scene.sources[int(pairs.found[m])].name


def _direction_numbers(
    scene: SceneSummary, truth: GroundTruth, m: int, pairs: Assignment | None
) -> dict[str, float]:
    """Return errors of direction and the credible level of true source m."""
    if pairs is None or pairs.found[m] < 0 or truth.directions is None:
        return {}
    source = scene.sources[int(pairs.found[m])]
    unit = source.posterior.space.unit_name or "degrees"
    numbers = {f"error_{unit}": truth.direction_error(m, source)}
    if truth.trajectories and truth.trajectories[m] is not None:
        return numbers
    direction = truth.directions[m]
    numbers["credible_level"] = source.posterior.credible_level(direction)
    if source.posterior.space.holds_directions:
        found = source.direction
        numbers["azimuth_error_degrees"] = float(azimuth_error(direction, found))
        numbers["elevation_error_degrees"] = float(elevation_error(direction, found))
    return numbers


def _measure_sounds(
    truth: GroundTruth, sounds: Sequence[Audio], mixture: Audio
) -> tuple[Score, dict[str, Array]]:
    """Return the score of the sounds, and measures (M,) by name, each the mean of both ears."""
    true, early, found, mixed = _truncate_to_common_length(truth, mixture, sounds)
    scored = score(true, found, mixed)
    columns = {}
    for name in ("sdr_db", "sir_db", "sar_db", "si_sdr_db"):
        columns[name] = getattr(scored.quality, name).mean(axis=1)
    for name in ("sdr_db", "sir_db"):
        columns[f"mixture_{name}"] = getattr(scored.mixture, name).mean(axis=1)
    known: dict[str, Any] = {"rate": mixture.rate, "assignment": scored.by_sound}
    errors = interaural_errors(true, found, **known)
    columns |= {
        "ild_error_db": errors.ild_db,
        "itd_error_microseconds": errors.itd_microseconds,
        "stoi": intelligibility(true, found, **known).mean(axis=1),
    }
    if early is not None:
        pairs = pairwise_metrics(early, found, FILTER_LENGTH)
        columns["early_sdr_db"] = assigned_quality(pairs, scored.by_sound).sdr_db.mean(axis=1)
    return scored, columns


def _truncate_to_common_length(
    truth: GroundTruth, mixture: Audio, sounds: Sequence[Audio]
) -> tuple[Array, Array | None, Array, Array]:
    """Return images, early images or None, sounds (M, 2, n each) and mixture (2, n).

    All are at the rate of the mixture, and truncated to a common length, because resampling and
    padding can add a few samples.
    """
    true, early = (
        [image.at_rate(mixture.rate).samples for image in images]
        for images in (truth.images, truth.early)
    )
    found = [sound.at_rate(mixture.rate).samples for sound in sounds]
    n = min(x.shape[1] for x in (*found, *true, *early, mixture.samples))
    images, early_images, separated = (
        np.stack([x[:, :n] for x in parts]) if parts else None for parts in (true, early, found)
    )
    assert images is not None
    assert separated is not None
    return images, early_images, separated, mixture.samples[:, :n]
