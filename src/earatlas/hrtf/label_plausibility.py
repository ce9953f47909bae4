"""Plausibility of the directions of a head: whether they fit the delays between its ears.

Input: a `Head`. Output: a `LabelFit`. For any head, the interaural delay (or, if only cues are
known, the mean level difference) is nearly proportional to the lateral coordinate of the direction:

    d_n ≈ a + b y_n        y = sin(azimuth) cos(elevation), 1 at the left ear

If y explains less, or if the slope b is not that of a head, the labels are not azimuth and
elevation in degrees. Other readings of the same numbers are tried.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from earatlas.features.layout import CueLayout
from earatlas.geometry.angles import to_vectors
from earatlas.hrtf.head import Head, ImpulseResponses
from earatlas.hrtf.interaural_templates import response_delays
from earatlas.types import Array, Indices

__all__ = ["LabelFit", "LabelPlausibilitySettings", "LabelReading", "label_fit", "sampled_rows"]


class LabelReading(StrEnum):
    """How the two numbers of a direction may be meant."""

    DEGREES = "azimuth and elevation in degrees"
    RADIANS = "azimuth and elevation in radians"
    COLATITUDE = "azimuth and colatitude"
    SWAPPED = "elevation and azimuth"
    UNKNOWN = "unknown"


# Evidence: docs/figures/settings/hrtf.md, "label_plausibility".
@dataclass(frozen=True, slots=True)
class LabelPlausibilitySettings:
    """Thresholds between heads with right and with wrong labels."""

    min_directions: int = 6  # fewest directions that are tested
    max_directions: int = 3000  # of heads with more, a random part is tested
    min_explained: float = 0.8  # fraction of the variance of the delays that y explains
    min_delay_spread: float = 5e-5  # s, standard deviation below which there is nothing to explain
    min_level_spread: float = 1.5  # dB, the same for level differences
    min_lateral_spread: float = 0.2  # standard deviation of y from which delays must vary
    slopes: tuple[float, float] = (2e-4, 2e-3)  # s, of the delay of the right ear over y


_SETTINGS = LabelPlausibilitySettings()


@dataclass(frozen=True, slots=True)
class LabelFit:
    """How well directions explain the interaural delays of a head."""

    explained: float  # fraction of the variance; NaN: not tested
    reading: LabelReading  # the one that fits; UNKNOWN if none does

    @property
    def plausible(self) -> bool:
        """Whether the labels are those of the head, as far as can be tested."""
        return self.reading is LabelReading.DEGREES


def label_fit(head: Head, settings: LabelPlausibilitySettings = _SETTINGS) -> LabelFit:
    """Test whether the directions of a head are azimuths and elevations in degrees.

    Parameters
    ----------
    head : Head
        The head.
    settings : LabelPlausibilitySettings, optional
        Thresholds.

    Returns
    -------
    LabelFit
        The fraction of the variance that is explained, and the reading that fits.

    Examples
    --------
    >>> import numpy as np
    >>> import earatlas as ea
    >>> from dataclasses import replace
    >>> head = ea.simulated_head([[a, e] for a in range(-180, 180, 30) for e in (-30, 0, 40)])
    >>> label_fit(head).plausible
    True
    >>> str(label_fit(replace(head, directions=np.radians(head.directions))).reading)
    'azimuth and elevation in radians'
    """
    if head.plane is not None:  # positions in an image
        return LabelFit(float("nan"), LabelReading.DEGREES)
    if len(head) > settings.max_directions:
        head = head.subset(sampled_rows(len(head), settings))
    values, spread, slopes = _lateral_values(head, settings)
    x = head.directions
    lateral = to_vectors(x)[:, 1]
    untestable = len(x) < settings.min_directions or (
        values.std() < spread and lateral.std() < settings.min_lateral_spread
    )
    if untestable:
        return LabelFit(float("nan"), LabelReading.DEGREES)
    explained, fits = _explained(values, x, slopes, settings)
    if fits:
        return LabelFit(explained, LabelReading.DEGREES)
    readings = {
        LabelReading.RADIANS: np.degrees(x),
        LabelReading.COLATITUDE: np.stack([x[:, 0], 90 - x[:, 1]], axis=1),
        LabelReading.SWAPPED: x[:, ::-1],
    }
    for reading, directions in readings.items():
        if _explained(values, directions, slopes, settings)[1]:
            return LabelFit(explained, reading)
    return LabelFit(explained, LabelReading.UNKNOWN)


def sampled_rows(n: int, settings: LabelPlausibilitySettings = _SETTINGS) -> Indices:
    """Return all of n rows, or `max_directions` random ones in ascending order."""
    if n <= settings.max_directions:
        return np.arange(n)
    random = np.random.default_rng(0)
    return np.sort(random.choice(n, settings.max_directions, replace=False))


def _lateral_values(
    head: Head, settings: LabelPlausibilitySettings
) -> tuple[Array, float, tuple[float, float]]:
    """Return values (N,) that increase with y, their smallest spread, and the range of slopes."""
    if isinstance(head.ears, ImpulseResponses):
        delays = response_delays(head.ears.samples, head.ears.rate)
        return delays, settings.min_delay_spread, settings.slopes
    levels = -head.cues(CueLayout(ipd_band_hz=None)).mean(axis=1)
    return levels, settings.min_level_spread, (0.0, np.inf)


def _explained(
    values: Array,
    directions: Array,
    slopes: tuple[float, float],
    settings: LabelPlausibilitySettings,
) -> tuple[float, bool]:
    """Return the fraction of the variance that y explains, and whether it is that of a head."""
    y = to_vectors(directions)[:, 1]
    centred, deviation = y - y.mean(), values - values.mean()
    if not (centred.any() and deviation.any()):
        return 0.0, False
    slope = float(centred @ deviation / (centred @ centred))
    explained = slope * float(centred @ deviation) / float(deviation @ deviation)
    return explained, explained >= settings.min_explained and slopes[0] <= slope <= slopes[1]
