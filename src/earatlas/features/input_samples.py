"""Samples as they come in: bad samples and DC offset.

Input: samples of both channels as a device or a file provides them. Output: usable samples and
`FaultFinding`s (`SampleChecker`); the DC offset of each ear in a recording, and its removal from a
stream (`DCOffsetFilter`).

An offset added by a converter is not sound, but it leaks into the lowest frequency bins, and its
beginning looks like an onset at all frequencies.

    m  (2, 1)  mean of each ear      p  (2, 1)  its mean power
    An offset is removed where m² exceeds a fraction of p.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from earatlas.features.audio import MAX_ABS_SAMPLE
from earatlas.features.input_plausibility import FaultFinding, InputFault
from earatlas.types import Array

__all__ = [
    "DCOffsetFilter",
    "SampleCheckSettings",
    "SampleChecker",
    "clipped_findings",
    "count_clipped",
    "estimate_dc_offset",
]


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


# Evidence: docs/figures/settings/features.md, "dc_offset".
@dataclass(frozen=True, slots=True)
class DCOffsetSettings:
    """Parameters of the detection of an offset in a recording or stream, and of its removal."""

    negligible_ratio: float = 1e-4  # m² / p of a recording below which the offset is ignored
    detection_ratio: float = 1e-2  # m² / p of a stream above which an offset is detected
    constant_ratio: float = 0.9  # m² / p of a signal that is a constant rather than sound
    confident_seconds: float = 0.5  # in shorter signals the detection ratio is larger
    memory_seconds: float = 1.0  # time constant of the running mean
    ramp_seconds: float = 0.1  # of a change of the removed offset; a step would be an onset
    first_hop_seconds: float = 0.25  # default of the filter
    hop_seconds: float = 0.008  # default of the filter after the first hop


_DEFAULTS = DCOffsetSettings()


def estimate_dc_offset(samples: Array, settings: DCOffsetSettings = _DEFAULTS) -> Array:
    """Return the DC offset (2, 1) of samples (2, n), or 0 where it is negligible."""
    if not np.abs(samples).max(initial=0.0) < MAX_ABS_SAMPLE:  # NaN, too; rejected later
        return np.zeros((2, 1))
    count = max(samples.shape[1], 1)
    mean = samples.sum(axis=1, keepdims=True) / count
    power = (samples**2).sum(axis=1, keepdims=True) / count
    return np.where(mean**2 > settings.negligible_ratio * power, mean, 0.0)


class DCOffsetFilter:
    """Removes the DC offset from a stream, hop by hop; the block sizes do not matter.

    The samples are unchanged until an offset is detected. From then on the running mean of about
    the last second is subtracted. `rate` is in Hz, `hop` in samples; by default the first hop
    takes 0.25 s and the others take 8 ms.
    """

    def __init__(
        self, rate: int, hop: int | None = None, settings: DCOffsetSettings = _DEFAULTS
    ) -> None:
        self._rate, self._settings = rate, settings
        self._hop = max(round(settings.hop_seconds * rate), 1) if hop is None else hop
        self._next_hop = max(round(settings.first_hop_seconds * rate), 1) if hop is None else hop
        self._buffer = np.zeros((2, 0))
        self._count = 0.0  # number of samples, with exponential forgetting
        self._seconds = 0.0  # duration so far, without forgetting
        self._sum = np.zeros((2, 1))
        self._squares = np.zeros((2, 1))
        self._detected = np.zeros((2, 1), dtype=bool)
        self._offset = np.zeros((2, 1))  # subtracted at the end of the last hop

    @property
    def current_offset(self) -> Array:
        """Offset (2, 1) that is currently subtracted."""
        return self._offset

    def push(self, x: Array) -> Array:
        """Return the hops that a block (2, n) completes, without the offset."""
        x = np.concatenate([self._buffer, x], axis=1)
        done: list[Array] = [x[:, :0]]
        while x.shape[1] >= self._next_hop:
            done.append(self._subtract_offset(x[:, : self._next_hop]))
            x, self._next_hop = x[:, self._next_hop :], self._hop
        self._buffer = x
        return np.concatenate(done, axis=1)

    def finish(self) -> Array:
        """Return the remaining samples of the last, incomplete hop."""
        x, self._buffer = self._buffer, self._buffer[:, :0]
        return self._subtract_offset(x) if x.shape[1] else x

    def _subtract_offset(self, x: Array) -> Array:
        """Update the running mean with a hop (2, n) and subtract the offset from it."""
        n, settings = x.shape[1], self._settings
        seconds, first = n / self._rate, self._count == 0.0
        forgetting = float(np.exp(-seconds / settings.memory_seconds))
        self._count = forgetting * self._count + n
        self._seconds += seconds
        self._sum = forgetting * self._sum + x.sum(axis=1, keepdims=True)
        self._squares = forgetting * self._squares + (x**2).sum(axis=1, keepdims=True)
        mean, power = self._sum / self._count, self._squares / self._count
        uncertainty = 1 + (settings.confident_seconds / self._seconds) ** 2
        min_ratio = min(settings.detection_ratio * uncertainty, settings.constant_ratio)
        self._detected |= mean**2 > min_ratio * power
        if not self._detected.any():
            return x
        target = np.where(self._detected, mean, 0.0)
        previous = target if first else self._offset
        self._offset = previous + min(seconds / settings.ramp_seconds, 1.0) * (target - previous)
        ramp = (np.arange(n) + 1) / n
        filtered: Array = x - previous - (self._offset - previous) * ramp
        return filtered
