"""Result of a localization: a posterior of the direction, and what it is based on."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from earatlas.geometry.alternatives import Alternative
from earatlas.geometry.credible_region import CredibleRegion
from earatlas.geometry.direction_posterior import DirectionPosterior
from earatlas.geometry.lateral_angle import LateralAngle
from earatlas.localization.diagnostics import Doubt, DoubtKind
from earatlas.notebooks import HtmlView
from earatlas.types import Array
from earatlas.wording import (
    UNKNOWN_DIRECTION,
    is_unknown,
    repr_alternatives,
    repr_doubts,
    unit_field,
)

__all__ = ["Localization", "ResultSettings", "uninformative_posterior"]


@dataclass(frozen=True, slots=True)
class ResultSettings:
    """How posteriors widen in silence.

    Evidence: docs/figures/settings/localization.md, "result".
    """

    pause_seconds: float = 0.5  # silence that is usual between words and raises no doubt
    drift_degrees_per_second: float = 5.0  # assumed speed of a silent source


_SETTINGS = ResultSettings()


@dataclass(frozen=True, eq=False)
class Localization(HtmlView):
    """Direction of one source, as a posterior distribution.

    Attributes
    ----------
    posterior : DirectionPosterior
        Calibrated posterior of the direction.
    observed_share : float
        Share of the time-frequency bins that were loud enough to be used.
    seconds : float
        Duration of the sound.
    doubts : tuple of Doubt
        Reasons why the direction may be wrong, as text. Empty if there are none.
    age_seconds : float or None
        For a stream with memory, time since the source was last active; None otherwise.

    Examples
    --------
    >>> import earatlas as ea
    >>> atlas = ea.example_atlas()
    >>> head = ea.simulated_head([[40, 0]])
    >>> scene = ea.render_scene(head, [ea.synthetic_speech(1.0)], [[40, 0]])
    >>> where = atlas.localize(scene.mixture)
    >>> bool(ea.great_circle_error(where.direction, [40, 0]) < where.radius_90)
    True
    >>> where.direction_known
    True

    """

    posterior: DirectionPosterior
    observed_share: float
    seconds: float
    doubts: tuple[Doubt, ...] = ()
    age_seconds: float | None = None

    def __repr__(self) -> str:
        where = UNKNOWN_DIRECTION
        if self.direction_known:
            unit = f" {self.posterior.space.unit_name}".rstrip()
            place = ", ".join(f"{v:.1f}" for v in self.direction)
            where = f"({place}){unit}, radius_90 {self.radius_90:.1f}"
        where += repr_alternatives(
            self.alternatives, self.radius_90, self.posterior.space, self.lateral_angle
        )
        observed = f"{100 * self.observed_share:.0f} % observed"
        return f"Localization({where}, {observed}{repr_doubts(d.word for d in self.doubts)})"

    @cached_property
    def direction(self) -> Array:
        """Most probable direction (C,) in degrees, that of the first of the `alternatives`."""
        return self.posterior.direction

    @property
    def alternatives(self) -> tuple[Alternative, ...]:
        """The possible directions with their probabilities; `direction` is that of the first.

        There are several if, for example, front and back are both probable.
        """
        return self.posterior.alternatives

    @property
    def lateral_angle(self) -> LateralAngle | None:
        """Angle from the median plane, positive on the left, with its own 90 % radius.

        It is often known where front, back and height are not. With a yaw, it is that of a head
        with yaw 0, as `direction` is. None if the atlas has no directions.
        """
        return self.posterior.lateral_angle

    @cached_property
    def mean(self) -> Array:
        """Mean direction (C,) in degrees."""
        return self.posterior.mean

    def credible_region(self, level: float = 0.9) -> CredibleRegion:
        """Return the smallest region that contains the direction with a given probability.

        Parameters
        ----------
        level : float, default 0.9
            Probability, between 0 and 1.

        Returns
        -------
        CredibleRegion
            The region and its area.

        """
        return self.posterior.credible_region(level)

    @cached_property
    def radius_90(self) -> float:
        """Radius around `direction`, in degrees, that contains the source with 90 % probability."""
        return self.posterior.radius_90

    @property
    def direction_known(self) -> bool:
        """Whether `radius_90` is small enough to state a direction (`earatlas.wording.is_unknown`).

        It is always True for an atlas of coordinates that are not directions.
        """
        return not is_unknown(self.radius_90, self.posterior.space)

    def aged(self, seconds: float) -> Localization:
        """Return the localization after a silence, with a posterior that widens over time.

        Parameters
        ----------
        seconds : float
            Time since the source was last active.

        Returns
        -------
        Localization
            A copy with `age_seconds`; after 0.5 s also with a wider posterior and a doubt.

        """
        if seconds <= _SETTINGS.pause_seconds:
            return replace(self, age_seconds=seconds)
        posterior = self.posterior.blurred([_SETTINGS.drift_degrees_per_second * seconds], [1.0])
        reason = (
            f"no sound for {seconds:.1f} s. The source may have moved; the radius grows until it "
            "is active again."
        )
        doubts = (*self.doubts, Doubt(DoubtKind.SILENT, reason, seconds))
        return replace(self, posterior=posterior, doubts=doubts, age_seconds=seconds)

    def to_dict(self) -> dict[str, Any]:
        """Return the localization as JSON values.

        Returns
        -------
        dict
            Keys direction, mean, radius_90, credible_90_area, alternatives, lateral_angle (None if
            the atlas has no directions), observed_share and doubts; age for a stream with memory.

        """
        return {
            **self._summary(),
            "alternatives": [one.to_dict() for one in self.alternatives],
            "lateral_angle": self.lateral_angle and self.lateral_angle.to_dict(),
            **self._remarks(),
        }

    def _summary(self) -> dict[str, Any]:
        """Return direction, mean and sizes of the posterior as JSON values."""
        radius, area = self.posterior.rounded_region_size(0.9)
        return {
            "direction": [round(float(v), 2) for v in self.direction],
            "mean": [round(float(v), 2) for v in self.mean],
            "radius_90": radius,
            "credible_90_area": area,
            **unit_field(self.posterior.space),
        }

    def _remarks(self) -> dict[str, Any]:
        """Return the other values for JSON."""
        age = {} if self.age_seconds is None else {"age": round(self.age_seconds, 2)}
        return {
            "observed_share": round(self.observed_share, 4),
            "doubts": [str(doubt) for doubt in self.doubts],
            **age,
        }

    def to_row(self, time: float) -> dict[str, Any]:
        """Return the localization of a window as JSON values, without a direction if silent.

        Parameters
        ----------
        time : float
            Centre of the window in seconds.

        Returns
        -------
        dict
            The key time and the keys of `to_dict` without alternatives and lateral_angle: the
            search for alternatives takes longer than the localization of a window.

        """
        fields = {**self._summary(), **self._remarks()} if self.observed_share > 0 else _SILENT
        return {"time": round(time, 4), **fields}


# Fields of a row in which nothing was observed.
_SILENT: dict[str, Any] = {
    "direction": None,
    "mean": None,
    "radius_90": None,
    "credible_90_area": None,
    "observed_share": 0.0,
    "doubts": [],
}


def uninformative_posterior(posterior: DirectionPosterior) -> DirectionPosterior:
    """Return a posterior that is spread over nearly all directions, with the same mode."""
    return posterior.blurred([0.0, 90.0], [0.05, 0.95])
