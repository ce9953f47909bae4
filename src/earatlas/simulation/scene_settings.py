"""Settings of a simulated scene: levels, noise, timing and placement."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from earatlas.errors import InputError

__all__ = ["SceneSettings"]


@dataclass(frozen=True)
class SceneSettings:
    """Levels, noise and timing of a simulated scene.

    Parameters
    ----------
    levels_db : tuple of float
        Level of each source in dB, averaged over both ears. Empty: equal levels.
    snr_db : float
        Ratio of all sources together to white noise that is independent in the two ears.
    overlap : float or None
        Share of the time with two or more active sources. None: all sources start at 0 s.
    distance_metres : float
        Distance of the sources from the head in a room.
    seed : int
        Seed of the noise.
    interpolate : bool
        Place sources exactly in the requested directions by interpolation, instead of in the
        nearest measured directions.

    Raises
    ------
    InputError
        If a value is outside its range.

    Examples
    --------
    >>> import earatlas as ea
    >>> ea.SceneSettings(levels_db=(0.0, -6.0), snr_db=20.0).snr_db
    20.0

    """

    levels_db: tuple[float, ...] = ()
    snr_db: float = 60.0
    overlap: float | None = None
    distance_metres: float = 1.5
    seed: int = 0
    interpolate: bool = False

    def __post_init__(self) -> None:
        if self.overlap is not None and not 0 <= self.overlap <= 1:
            raise InputError(
                f"overlap must be between 0 and 1, got {self.overlap}. The paper uses 0.6."
            )
        max_db = 200.0  # beyond this, the weaker sound vanishes in the rounding of the stronger one
        if not self.snr_db >= -max_db:
            raise InputError(
                f"snr_db must be at least {-max_db:g}, got {self.snr_db}. "
                "Give dB, or inf for no noise."
            )
        if not all(abs(level) <= max_db for level in self.levels_db):
            raise InputError(
                f"levels_db must be numbers within ±{max_db:g}, got {self.levels_db}. "
                "Give dB; 0 for every source means equal levels."
            )
        if not 0 < self.distance_metres < np.inf:
            raise InputError(
                f"distance_metres must be positive, got {self.distance_metres}. "
                "Give metres, for example 1.5."
            )
        if self.seed < 0:
            raise InputError(f"seed must be 0 or more, got {self.seed}. Give a whole number.")
