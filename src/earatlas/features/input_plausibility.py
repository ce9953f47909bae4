"""Plausibility of the input: whether two channels can be the two ears of a head.

Input: the `InterauralStatistics` of a recording or a stream, and the `InterauralLimits` of the
learned head. Output: the `InputFault`s that were found. Recordings, mixtures and streams use the
same statistics and the same decisions.

    dead channel      one channel has sound while the other has none
    same signal       both channels have one signal up to a gain: their ratio varies less over
                      frequency than that of the head at any direction
    late channel      the channels correlate best at a delay that no direction of the head has, and
                      not only at high frequencies, as with a reflection in the far ear
    inverted channel  the correlation within these delays is negative
    unequal gains     the level difference at low frequencies, where heads hardly cast a shadow,
                      contradicts the delay
    wrong rate        the channels fit the head only at another sampling rate; delays and gains are
                      also found in this way (`channel_distortion`)
    gaps              milliseconds of silence in the middle of sound
    tonal             the sound has a few frequencies only
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np

from earatlas.features.channel_distortion import (
    DB_PER_RADIAN,
    DistortionKind,
    DistortionSettings,
    HeadRatios,
    find_distortion,
)
from earatlas.features.interaural_monitor import InterauralStatistics
from earatlas.types import Array, Complex

__all__ = [
    "FaultFinding",
    "InputFault",
    "InterauralLimits",
    "PlausibilitySettings",
    "find_input_faults",
    "low_band_delays",
]


class InputFault(StrEnum):
    """What may be wrong with two channels."""

    DEAD_CHANNEL = "dead channel"
    SAME_SIGNAL = "same signal"
    LATE_CHANNEL = "late channel"
    INVERTED_CHANNEL = "inverted channel"
    UNEQUAL_GAINS = "unequal gains"
    WRONG_RATE = "wrong rate"
    GAPS = "gaps"
    TONAL = "tonal"
    CLIPPED = "clipped"
    UNUSABLE_SAMPLES = "unusable samples"

    @property
    def voids_direction(self) -> bool:
        """Whether directions are meaningless with this fault."""
        return self in _VOIDING


# Unequal gains shift directions, but another person may have the level differences of a fault: with
# the atlas of people, 2 of 60 talkers.
_VOIDING = frozenset(
    {
        InputFault.DEAD_CHANNEL,
        InputFault.SAME_SIGNAL,
        InputFault.LATE_CHANNEL,
        InputFault.INVERTED_CHANNEL,
    }
)


_FAULT_OF_DISTORTION = {
    DistortionKind.RATE: InputFault.WRONG_RATE,
    DistortionKind.DELAY: InputFault.LATE_CHANNEL,
    DistortionKind.GAIN: InputFault.UNEQUAL_GAINS,
}


@dataclass(frozen=True, slots=True)
class FaultFinding:
    """A fault, with the measured value and the channel that it concerns."""

    fault: InputFault
    value: float  # fraction, dB, seconds, factor or number, depending on the fault
    channel: int | None = None  # 0: left, 1: right; None: both


# Evidence: docs/figures/settings/features.md, "input_plausibility".
@dataclass(frozen=True, slots=True)
class PlausibilitySettings:
    """Thresholds between what heads do and what only broken input does."""

    min_active_frames: float = 1.5  # frames with sound, without which only a dead channel is found
    max_dead_fraction: float = 0.25  # fraction of the frames with sound in only one channel

    # Same signal
    band_hz: float = 42.0  # width of the bands
    coherent: float = 0.9  # coherence of a band that is compared
    loud_ratio: float = 1e-4  # its power relative to the loudest band
    min_bands: int = 10  # fewest bands that are compared
    same_signal_fraction: float = 0.5  # variation over frequency relative to the head's smallest
    min_variation_db: float = 0.3  # a head that varies less has directions like a single signal
    max_variation_db: float = 3.0  # no head varies so little that more can be a single signal
    kept_directions: int = 200  # directions of the head that vary least, which are compared
    identical_fraction: float = 1e-7  # incoherent fraction of the energy of identical channels

    # Delay and polarity
    searched_delay_seconds: float = 3.0e-3  # within which the delays of the head are searched
    min_delay_limit_seconds: float = 1.0e-3  # also if the head has no lateral directions
    delay_margin_seconds: float = 0.2e-3  # beyond the largest delay of the head
    late_ratio: float = 2.0  # correlation at implausible delays relative to plausible ones
    min_late_correlation: float = 0.12
    low_late_ratio: float = 1.1  # the same ratio at low frequencies; below, it is a reflection
    min_direct_correlation: float = 6.0  # of a reflection, at plausible delays, relative to the RMS
    stretched_limits: float = 3.0  # delays of a wrong sampling rate, in limits of the head
    stretched_ratio: float = 1.25  # the same ratio at low frequencies, within these delays
    min_stretched_correlation: float = 0.3
    human_delay_seconds: float = 0.85e-3  # largest delay of human heads
    sure_correlation: float = 0.8  # from which a delay at low frequencies is exact
    sure_margin_seconds: float = 0.1e-3  # beyond the largest delay of the head, if it is exact
    low_hz: float = 1000.0  # upper end of the band in which delays have no ambiguity
    inverted_ratio: float = 1.25  # negative over positive correlation, in both bands (mean)
    min_inverted_correlation: float = 0.15

    # Gains
    prior_level_slope: float = -5500.0  # dB per second, of a head without lateral directions
    prior_delay_seconds: float = 5e-5  # spread of delays that has the weight of this prior
    level_hz: float = 700.0  # upper end of the band of the level difference
    gain_tolerance_db: float = 3.0  # of coherent sound
    incoherent_tolerance_db: float = 7.0  # in addition, of incoherent sound
    excess_level_db: float = 2.5  # beyond the largest level difference of the head at any delay

    distortion: DistortionSettings = field(default_factory=DistortionSettings)

    # Signals
    min_gaps: float = 2.5  # gaps within the memory of a stream
    tonal_bins: float = 25.0  # effective number of frequencies (of 3900) of a tonal sound


_SETTINGS = PlausibilitySettings()


@dataclass(frozen=True, eq=False, slots=True)
class InterauralLimits:
    """What the ratio of both ears of a head can be."""

    max_delay_seconds: float  # largest delay between the ears
    level_at_zero_db: float  # low-frequency level difference, right over left, without delay
    level_slope: float  # its change with the delay of the right ear in dB per second
    max_level_db: float  # its largest magnitude
    frequencies_hz: Array  # (F,)
    level_db: Array  # (n, F) of the directions whose ratio varies least over frequency
    phase_radians: Array  # (n, F)
    ratios: HeadRatios  # of all directions

    @classmethod
    def of(
        cls, frequencies_hz: Array, ratios: Complex, settings: PlausibilitySettings = _SETTINGS
    ) -> InterauralLimits:
        """Return the limits of a head with ratios (N, F) of the right over the left ear."""
        ratios = ratios.astype(np.complex64)  # saves time; digits beyond are not needed
        low = frequencies_hz <= settings.level_hz
        level_db = 20 * np.log10(np.maximum(np.abs(ratios), 1e-12))
        low_level_db = level_db[:, low].mean(axis=1)
        below = frequencies_hz <= settings.low_hz
        limit = settings.searched_delay_seconds
        delays = low_band_delays(frequencies_hz[below], ratios[:, below], limit)
        centred = delays - delays.mean()
        prior = len(delays) * settings.prior_delay_seconds**2  # s²
        slope = centred @ low_level_db + settings.prior_level_slope * prior
        slope /= centred @ centred + prior
        phase = np.angle(ratios)
        least = np.argsort(_variation_db(level_db, phase))[: settings.kept_directions]
        return cls(
            float(np.abs(delays).max()),
            float(low_level_db.mean() - slope * delays.mean()),
            float(slope),
            float(np.abs(low_level_db).max()),
            frequencies_hz,
            level_db[least],
            phase[least],
            HeadRatios.of(frequencies_hz, ratios, settings.distortion),
        )

    def min_variation_db(self, frequencies_hz: Array) -> float:
        """Return the smallest variation of the ratio of any direction over some frequencies."""
        rows = np.abs(self.frequencies_hz[:, None] - frequencies_hz).argmin(axis=0)
        return float(_variation_db(self.level_db[:, rows], self.phase_radians[:, rows]).min())


def low_band_delays(frequencies_hz: Array, spectra: Complex, limit_seconds: float) -> Array:
    """Return the delay (N,) within a limit at which phases (N, F) correlate best."""
    delays = _delay_grid(limit_seconds)
    waves = np.exp(2j * np.pi * np.multiply.outer(frequencies_hz, delays))
    phasors = spectra / np.maximum(np.abs(spectra), 1e-300)
    best: Array = delays[(phasors @ waves).real.argmax(axis=1)]
    return best


def _delay_grid(limit_seconds: float) -> Array:
    """Return delays from minus to plus a limit, at most 25 µs apart."""
    n = math.ceil(round(limit_seconds / 25e-6, 6))
    return np.linspace(-limit_seconds, limit_seconds, 2 * n + 1)


def _variation_db(level_db: Array, phase_radians: Array) -> Array:
    """Return the RMS (...,) over frequency of a log-ratio (..., F) without its mean level."""
    deviation = level_db - level_db.mean(axis=-1, keepdims=True)
    variation: Array = np.sqrt((deviation**2 + (DB_PER_RADIAN * phase_radians) ** 2).mean(axis=-1))
    return variation


def find_input_faults(
    statistics: InterauralStatistics,
    limits: InterauralLimits | None,
    settings: PlausibilitySettings = _SETTINGS,
) -> tuple[FaultFinding, ...]:
    """Return the faults of the input: at most one that voids directions, and others.

    `limits` None: the head is not known by its responses; only faults of any head are found.
    """
    # A dead channel is certain from the first frame, before a stream reports any direction.
    dead = statistics.dead_frames / max(statistics.active_frames, 1e-300)
    if dead.max() > settings.max_dead_fraction:
        channel = int(dead.argmax())
        return (FaultFinding(InputFault.DEAD_CHANNEL, float(dead[channel]), channel),)
    if statistics.active_frames < settings.min_active_frames:
        return ()
    found = [_signal_fault(statistics, limits, settings), *_gaps(statistics, settings)]
    root = np.sqrt(statistics.powers.sum(axis=0))
    tonal_bins = float(root.sum() ** 2 / max((root**2).sum(), 1e-300))
    if tonal_bins < settings.tonal_bins:  # correlations of a tone are periodic
        identical = _identical(statistics, settings)
        found[0] = identical or FaultFinding(InputFault.TONAL, tonal_bins)
    return tuple(finding for finding in found if finding is not None)


def _gaps(
    statistics: InterauralStatistics, settings: PlausibilitySettings
) -> tuple[FaultFinding, ...]:
    if statistics.gaps < settings.min_gaps:
        return ()
    return (FaultFinding(InputFault.GAPS, statistics.gaps),)


def _signal_fault(
    statistics: InterauralStatistics,
    limits: InterauralLimits | None,
    settings: PlausibilitySettings,
) -> FaultFinding | None:
    """Return the fault that explains the relation between the channels, if it is not a head's."""
    same = _same_signal(statistics, limits, settings)
    if same is not None or limits is None:
        return same
    limit = max(limits.max_delay_seconds, settings.min_delay_limit_seconds)
    limit += settings.delay_margin_seconds
    r = statistics.correlation()
    k = math.ceil(limit * statistics.rate)
    plausible, implausible = np.concatenate([r[-k:], r[: k + 1]]), r[k + 1 : -k]
    late = float(np.abs(implausible).max(initial=0.0))
    if late > max(settings.late_ratio * np.abs(plausible).max(), settings.min_late_correlation):
        lag = k + 1 + int(np.abs(implausible).argmax())
        seconds = (lag if lag < len(r) / 2 else lag - len(r)) / statistics.rate
        direct = float(np.abs(plausible).max()) / float(np.sqrt(np.mean(implausible**2)))
        if not _is_reflection(statistics, seconds, limit, direct, settings):
            return FaultFinding(InputFault.LATE_CHANNEL, abs(seconds), int(seconds > 0))
    delays = _delay_grid(limit)
    low = statistics.correlation_at(delays, settings.low_hz)
    beyond = settings.stretched_limits * delays
    beyond = beyond[np.abs(beyond) > limit]
    stretched = statistics.correlation_at(beyond, settings.low_hz)
    if stretched.max() > max(
        settings.stretched_ratio * np.abs(low).max(), settings.min_stretched_correlation
    ):
        seconds = float(beyond[stretched.argmax()])
        return FaultFinding(InputFault.LATE_CHANNEL, abs(seconds), int(seconds > 0))
    delay, correlation = float(delays[low.argmax()]), float(low.max())
    largest = max(limits.max_delay_seconds, settings.human_delay_seconds)
    beyond_head = abs(delay) > largest + settings.sure_margin_seconds
    if beyond_head and correlation > settings.sure_correlation:
        return FaultFinding(InputFault.LATE_CHANNEL, abs(delay), int(delay > 0))
    negative = max(-low.min(), 0.0) * max(-plausible.min(), 0.0)
    positive = max(low.max(), 1e-9) * max(plausible.max(), 1e-9)
    ratio = math.sqrt(negative / positive)
    if ratio > settings.inverted_ratio and -low.min() > settings.min_inverted_correlation:
        return FaultFinding(InputFault.INVERTED_CHANNEL, ratio)
    distortion = find_distortion(statistics, limits.ratios, settings.distortion)
    if distortion is not None:
        fault = _FAULT_OF_DISTORTION[distortion.kind]
        if fault is InputFault.WRONG_RATE:
            return FaultFinding(fault, distortion.value)
        return FaultFinding(fault, abs(distortion.value), int(distortion.value > 0))
    return _unequal_gains(statistics, limits, delay, correlation, settings)


def _is_reflection(
    statistics: InterauralStatistics,
    seconds: float,
    limit: float,
    direct: float,
    settings: PlausibilitySettings,
) -> bool:
    """Whether the channels correlate best at a delay because a reflection is louder in one ear.

    The far ear of a source at the side may receive a reflection that is louder than the direct
    sound, but not at low frequencies, where heads hardly cast a shadow. `direct` is the correlation
    within the delays of the head, relative to the RMS of that at other delays.
    """
    if abs(seconds) < 2 * limit or direct < settings.min_direct_correlation:
        return False
    delays = _delay_grid(limit)
    at_head, at_lag = (
        float(np.abs(statistics.correlation_at(delays + centre, settings.low_hz)).max())
        for centre in (0.0, seconds)
    )
    return at_lag < settings.low_late_ratio * at_head


def _unequal_gains(
    statistics: InterauralStatistics,
    limits: InterauralLimits,
    delay: float,
    correlation: float,
    settings: PlausibilitySettings,
) -> FaultFinding | None:
    """Compare the low-frequency level difference with the one at this delay."""
    hz, powers, _ = statistics.band_sums(settings.band_hz)
    left, right = np.maximum(powers[:, hz <= settings.level_hz], 1e-300)
    level_db = float(np.mean(10 * np.log10(right / left)))
    excess_db = level_db - limits.level_at_zero_db - limits.level_slope * delay
    tolerance = settings.gain_tolerance_db
    tolerance += settings.incoherent_tolerance_db * (1 - max(correlation, 0.0))
    beyond = abs(level_db) - limits.max_level_db > settings.excess_level_db
    if beyond or abs(excess_db) > tolerance:
        return FaultFinding(InputFault.UNEQUAL_GAINS, abs(excess_db), int(excess_db > 0))
    return None


def _identical(
    statistics: InterauralStatistics, settings: PlausibilitySettings
) -> FaultFinding | None:
    """Return a finding if the channels are identical up to a gain, whatever the sound."""
    left, right = statistics.powers.sum(axis=1)
    incoherent = 1 - float(statistics.cross.real.sum()) ** 2 / max(float(left * right), 1e-300)
    if incoherent < settings.identical_fraction:
        return FaultFinding(InputFault.SAME_SIGNAL, 0.0)
    return None


def _same_signal(
    statistics: InterauralStatistics,
    limits: InterauralLimits | None,
    settings: PlausibilitySettings,
) -> FaultFinding | None:
    """Return a finding if the ratio of the channels does not depend on frequency."""
    identical = _identical(statistics, settings)
    if identical is not None or limits is None:
        return identical
    hz, powers, cross = statistics.band_sums(settings.band_hz)
    total, product = powers.sum(axis=0), np.maximum(powers.prod(axis=0), 1e-300)
    used = np.abs(cross) > settings.coherent * np.sqrt(product)
    used &= total > settings.loud_ratio * total.max()
    if used.sum() < settings.min_bands:
        return None
    left_powers, right_powers = np.maximum(powers[:, used], 1e-300)
    level_db = 10 * np.log10(right_powers / left_powers)
    variation = float(_variation_db(level_db, np.angle(cross[used])))
    if variation > settings.max_variation_db:
        return None
    smallest = limits.min_variation_db(hz[used])
    if smallest < settings.min_variation_db or variation > settings.same_signal_fraction * smallest:
        return None
    return FaultFinding(InputFault.SAME_SIGNAL, variation)
