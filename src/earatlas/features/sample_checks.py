"""Checks of single samples: those that are not usable, and clipped ones.

Input: samples of both channels as a device or a file provides them. Output: usable samples, and
`FaultFinding`s.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from earatlas.features.audio import MAX_ABS_SAMPLE
from earatlas.features.input_plausibility import FaultFinding, InputFault
from earatlas.types import Array

__all__ = ["SampleCheckSettings", "SampleChecker", "clipped_findings", "count_clipped"]


# Evidence: docs/figures/settings/features.md, "sample_checks".
@dataclass(frozen=True, slots=True)
class SampleCheckSettings:
    """Settings of the checks of samples."""

    full_scale: float = 0.999  # magnitude from which samples may be clipped
    memory_seconds: float = 10.0  # time constant (1/e) with which clipped samples are forgotten
    max_clipped_fraction: float = 0.0025  # of the samples of both channels, if the sound is clipped


_SETTINGS = SampleCheckSettings()


def count_clipped(samples: Array, settings: SampleCheckSettings = _SETTINGS) -> int:
    """Return the number of samples (2, n) at full scale that equal the one before.

    Only repeated values count, because samples of float files may exceed full scale. Values that
    are not finite or beyond all scales are unusable instead.
    """
    magnitude = np.abs(samples)
    loud = (magnitude >= settings.full_scale) & (magnitude < MAX_ABS_SAMPLE)
    return int((loud[:, 1:] & (samples[:, 1:] == samples[:, :-1])).sum())


def clipped_findings(
    fraction: float, settings: SampleCheckSettings = _SETTINGS
) -> tuple[FaultFinding, ...]:
    """Return the finding about a fraction of clipped samples, if it is too large."""
    if fraction <= settings.max_clipped_fraction:
        return ()
    return (FaultFinding(InputFault.CLIPPED, fraction),)


class SampleChecker:
    """Replaces the samples of a stream that are not usable by silence, and counts clipped ones."""

    def __init__(self, rate: int, settings: SampleCheckSettings = _SETTINGS) -> None:
        self._rate, self._settings = rate, settings
        self._n_unusable = 0
        self._n_clipped = self._n_recent = 0.0  # with forgetting

    def usable(self, x: Array) -> Array:
        """Return samples (2, n), zero where they are not finite or beyond all scales."""
        unusable = ~(np.abs(x) < MAX_ABS_SAMPLE)  # NaN, too
        self._n_unusable += int(unusable.any(axis=0).sum())
        decay = float(np.exp(-x.shape[1] / self._rate / self._settings.memory_seconds))
        self._n_clipped = decay * self._n_clipped + count_clipped(x, self._settings)
        self._n_recent = decay * self._n_recent + x.size
        return np.where(unusable, 0.0, x)

    @property
    def findings(self) -> tuple[FaultFinding, ...]:
        """The faults of the samples so far."""
        found = []
        if self._n_unusable:
            found.append(FaultFinding(InputFault.UNUSABLE_SAMPLES, self._n_unusable))
        found += clipped_findings(self._n_clipped / max(self._n_recent, 1.0), self._settings)
        return tuple(found)
