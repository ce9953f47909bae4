"""Distortions of two channels that explain why their ratio is not that of the head.

Input: the `InterauralStatistics` of a recording or a stream, and the `HeadRatios` of the learned
head. Output: the `ChannelDistortion` with which the channels fit the head, if they fit far
better than without it.

    z_f = Σ R L̄ / Σ |L|²      ratio of the channels in bands with one coherent source
    r_xf                       ratio of the ears of the head at direction x
    e(x)² = mean_f (20 log10 |z_f / r_xf|)² + (20 / ln 10)² |z_f / |z_f| - r_xf / |r_xf||²

    sampling rate   z_f belongs to r_x at c · f: the true rate is c times the stated one
    delay           z_f exp(j 2π f τ): the right channel is late by τ
    gain            z_f / g: the right channel is louder by g

The residual e is the smallest one of any direction, or of linear combinations of the directions
that fit best, because a source may lie between them. It is small for the head that was learned:
other heads, several sources and rooms have large residuals with and without a distortion, so that
nothing is concluded from them.

    N  directions    F  frequencies    T  delays
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from earatlas.features.interaural_monitor import InterauralStatistics
from earatlas.numerics import distinct, quantile
from earatlas.types import Array, Complex, Mask, Single

__all__ = [
    "DB_PER_RADIAN",
    "ChannelDistortion",
    "DistortionKind",
    "DistortionSettings",
    "HeadRatios",
    "find_distortion",
]

DB_PER_RADIAN = 20 / math.log(10)  # a phase counts as much as the log-magnitude of its size


class DistortionKind(StrEnum):
    """What happened to the channels."""

    RATE = "rate"
    DELAY = "delay"
    GAIN = "gain"


@dataclass(frozen=True, slots=True)
class ChannelDistortion:
    """A distortion; the value is a factor of the rate, a delay in seconds or a gain in dB."""

    kind: DistortionKind
    value: float  # of the right channel, if it concerns one
    improvement: float  # residual without over residual with it; 0: the channels do not fit either


# Evidence: docs/figures/settings/features.md, "channel_distortion".
@dataclass(frozen=True, slots=True)
class DistortionSettings:
    """Bands that are compared, distortions that are tried, and how much better they must fit."""

    band_hz: float = 42.0  # width of the bands
    coherent: float = 0.95  # coherence of a band that is compared
    loud_ratio: float = 1e-4  # its power relative to the loudest band
    min_bands: int = 40  # fewest bands that are compared
    consistent_db: float = 1.2  # residual below which the channels are those of the head
    max_residual_db: float = 2.8  # largest residual with a distortion that explains the channels
    min_improvement: float = 3.0  # residual without over residual with a distortion
    left_out: int = 40  # directions from which the residual between measured directions follows
    interpolated_directions: int = 5  # between which the ratio of the channels may lie
    interpolation_ridge: float = 0.05  # relative, of their weights
    # True over stated sampling rate: 16, 24, 32 or 48 kHz for another one, 44.1 for 48 kHz
    rate_factors: tuple[float, ...] = (
        1 / 3, 1 / 2, 2 / 3, 44.1 / 48, 48 / 44.1, 3 / 2, 2.0, 3.0
    )  # fmt: skip
    min_delay_seconds: float = 0.3e-3  # smaller ones also occur if the head is larger
    max_delay_seconds: float = 1.7e-3  # from one side of a head to the other
    near_directions: int = 300  # directions with the most similar levels, which are tried
    delay_step_seconds: float = 25e-6
    min_gain_db: float = 3.0  # smaller ones also occur if a head is set up again

    @property
    def delays(self) -> Array:
        """Delays (T,) in seconds that are tried."""
        step = self.delay_step_seconds
        late = np.arange(self.min_delay_seconds, self.max_delay_seconds + step / 2, step)
        return np.concatenate([-late[::-1], late])

    def improvement(self, residual_db: float, distorted_db: float) -> float:
        """Return a residual over the one with a distortion; 0 if that is large, too."""
        return residual_db / max(distorted_db, 1e-3) if distorted_db < self.max_residual_db else 0.0


_SETTINGS = DistortionSettings()


@dataclass(frozen=True, eq=False)
class HeadRatios:
    """Ratios of the right over the left ear of a head."""

    frequencies_hz: Array  # (F,)
    level_db: Single  # (N, F)
    phasors: NDArray[np.complex64]  # (N, F), of magnitude 1
    settings: DistortionSettings = _SETTINGS

    @classmethod
    def of(
        cls, frequencies_hz: Array, ratios: Complex, settings: DistortionSettings = _SETTINGS
    ) -> HeadRatios:
        """Return the levels and phases of ratios (N, F)."""
        magnitude = np.maximum(np.abs(ratios), 1e-12)
        level_db = (20 * np.log10(magnitude)).astype(np.float32)
        phasors = (ratios / magnitude).astype(np.complex64)
        return cls(frequencies_hz, level_db, phasors, settings)

    def prepare(self) -> None:
        """Compare the directions with each other before a stream begins, in which it takes long."""
        _ = self.sparse

    @cached_property
    def sparse(self) -> bool:
        """Whether the directions are too far apart to explain a source between them.

        The median residual of directions that are left out, one at a time, is larger than that of
        an explanation. With many directions this takes longer than a hop of a stream should: it is
        computed for the first recording that has an explanation, and before a stream begins.
        """
        N, used = len(self.level_db), np.ones(len(self.frequencies_hz), dtype=np.bool_)
        if N == 1:
            return True
        residuals = []
        for row in distinct(np.linspace(0, N - 1, self.settings.left_out).astype(np.intp)):
            level_db, phasors = self.level_db[row].astype(float), self.phasors[row].astype(complex)
            bands = _Bands(used, level_db, phasors)
            residuals.append(_residual_db(bands, self, used, self.settings, without=int(row)))
        return quantile(residuals, 0.5) > self.settings.max_residual_db


@dataclass(frozen=True, eq=False, slots=True)
class _Bands:
    """The ratio of the channels at the frequencies of a head, where it is known."""

    used: Mask  # (F,)
    level_db: Array  # (F,)
    phasors: Complex  # (F,)

    @classmethod
    def at(
        cls, statistics: InterauralStatistics, hz: Array, settings: DistortionSettings
    ) -> _Bands:
        """Return the bands around frequencies (F,)."""
        (left, right), cross = statistics.sums_around(hz, settings.band_hz)
        total, product = left + right, np.maximum(left * right, 1e-300)
        used = np.abs(cross) > settings.coherent * np.sqrt(product)
        used &= total > settings.loud_ratio * total.max(initial=0.0)
        level_db = 10 * np.log10(np.maximum(right, 1e-300) / np.maximum(left, 1e-300))
        return cls(used, level_db, cross / np.maximum(np.abs(cross), 1e-300))


def find_distortion(
    statistics: InterauralStatistics, head: HeadRatios, settings: DistortionSettings = _SETTINGS
) -> ChannelDistortion | None:
    """Return the distortion with which the channels fit the head; None if there is none."""
    bands = _Bands.at(statistics, head.frequencies_hz, settings)
    if bands.used.sum() < settings.min_bands:
        return None
    residual = _residual_db(bands, head, bands.used, settings)
    if residual < settings.consistent_db:
        return None
    explanations = [
        _gain(bands, head, residual, settings),
        _delay(bands, head, residual, settings),
        *(_rate(statistics, bands, head, c, settings) for c in settings.rate_factors),
    ]
    best = max(explanations, key=lambda one: one.improvement)
    small_gain = best.kind is DistortionKind.GAIN and abs(best.value) < settings.min_gain_db
    if small_gain or best.improvement < settings.min_improvement:
        return None
    return None if head.sparse else best  # last, because it takes longest


def _level_errors(bands: _Bands, head: HeadRatios, used: Mask) -> Array:
    """Return the squared level errors (N,) in dB², averaged over the used bands."""
    errors = head.level_db[:, used] - bands.level_db[used].astype(np.float32)
    mean: Array = np.einsum("nf,nf->n", errors, errors) / max(int(used.sum()), 1)
    return mean


def _phase_errors(phasors: Complex, references: NDArray[np.complex64]) -> Array:
    """Return the squared phase errors (N, ...) in dB² of phasors (F, ...), given those (N, F)."""
    mean = (phasors.conj() / max(len(phasors), 1)).astype(np.complex64)
    similarity = (references @ mean).real.astype(np.float64)
    errors: Array = DB_PER_RADIAN**2 * (2 - 2 * similarity)
    return errors


def _residual_db(
    bands: _Bands,
    head: HeadRatios,
    used: Mask,
    settings: DistortionSettings,
    *,
    without: int | None = None,
) -> float:
    """Return the residual of the best direction, between measured ones if that fits better.

    The direction `without` is left out.
    """
    errors = _phase_errors(bands.phasors[used], head.phasors[:, used])
    errors = errors + _level_errors(bands, head, used)
    ranked = np.argsort(errors)
    if without is not None:
        ranked = ranked[ranked != without]
    best, *others = ranked[: settings.interpolated_directions + 1]
    # Levels and phases of the other directions and of the recording, relative to the best one.
    levels, phasors = head.level_db[best, used], head.phasors[best, used]
    slopes = np.concatenate(
        [
            head.level_db[np.ix_(others, np.flatnonzero(used))] - levels,
            DB_PER_RADIAN
            * np.angle(head.phasors[np.ix_(others, np.flatnonzero(used))] * phasors.conj()),
        ],
        axis=1,
    ).astype(np.float64)
    wanted = np.concatenate(
        [
            bands.level_db[used] - levels,
            DB_PER_RADIAN * np.angle(bands.phasors[used] * phasors.conj()),
        ]
    )
    gram = slopes @ slopes.T
    gram += settings.interpolation_ridge * np.diag(np.diag(gram)) + 1e-9 * np.eye(len(gram))
    remainder = wanted - np.linalg.solve(gram, slopes @ wanted) @ slopes
    return math.sqrt(float(remainder @ remainder) / max(int(used.sum()), 1))


def _gain(
    bands: _Bands, head: HeadRatios, residual_db: float, settings: DistortionSettings
) -> ChannelDistortion:
    """Return the gain with which the channels fit best."""
    used = bands.used
    differences = bands.level_db[used] - head.level_db[:, used]
    errors = _phase_errors(bands.phasors[used], head.phasors[:, used]) + differences.var(axis=1)
    gain_db = float(differences[int(errors.argmin())].mean())
    without = replace(bands, level_db=bands.level_db - gain_db)
    improvement = settings.improvement(residual_db, _residual_db(without, head, used, settings))
    return ChannelDistortion(DistortionKind.GAIN, gain_db, improvement)


def _delay(
    bands: _Bands, head: HeadRatios, residual_db: float, settings: DistortionSettings
) -> ChannelDistortion:
    """Return the delay with which the channels fit best."""
    used, delays, hz = bands.used, settings.delays, head.frequencies_hz
    levels = _level_errors(bands, head, used)
    near = np.argsort(levels)[: settings.near_directions]  # others have other levels
    waves = np.exp(2j * np.pi * np.multiply.outer(hz[used], delays))
    references = head.phasors[np.ix_(near, np.flatnonzero(used))]
    errors = _phase_errors(bands.phasors[used, None] * waves, references) + levels[near, None]
    delay = float(delays[int(errors.min(axis=0).argmin())])
    without = replace(bands, phasors=bands.phasors * np.exp(2j * np.pi * hz * delay))
    improvement = settings.improvement(residual_db, _residual_db(without, head, used, settings))
    return ChannelDistortion(DistortionKind.DELAY, delay, improvement)


def _rate(
    statistics: InterauralStatistics,
    bands: _Bands,
    head: HeadRatios,
    factor: float,
    settings: DistortionSettings,
) -> ChannelDistortion:
    """Return how much better the channels fit if the true rate is `factor` times the stated one."""
    hz = head.frequencies_hz
    scaled = _Bands.at(statistics, hz / factor, settings)
    # Both are compared at those frequencies of the recording at which both are known.
    own = bands.used & (hz * factor >= hz[0]) & (hz * factor <= hz[-1])
    other = scaled.used & (hz / factor >= hz[0]) & (hz / factor <= hz[-1])
    improvement = 0.0
    if min(own.sum(), other.sum()) >= settings.min_bands:
        residual = _residual_db(bands, head, own, settings)
        improvement = settings.improvement(residual, _residual_db(scaled, head, other, settings))
    return ChannelDistortion(DistortionKind.RATE, factor, improvement)
