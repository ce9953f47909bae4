"""Calibration of a model's posteriors on held-out synthetic speech.

Input: directions of a head, and models that were learned without them. Output: the cue statistics
of a sound from each direction (`held_out_statistics`), and the `Calibration` under which the true
directions are most probable (`fit_calibration`). No recordings are needed: synthetic speech has the
gaps of speech in time and frequency, which is what matters for calibration.

A head that is known only by recordings of noise has no impulse responses to render with. There the
ratio of the ears, which the mean cues determine, filters the sound of one ear into that of the
other (`relative_responses`). The held-out cue vectors themselves would not do: with a single
complete vector the posterior is much wider than with the many frames of a talker, and a kernel that
is fitted to its errors is too narrow.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from earatlas.features.hop_statistics import whole_statistics
from earatlas.features.layout import CueLayout
from earatlas.features.statistics import CueStatistics
from earatlas.geometry.chart_gaussians import log_gaussians
from earatlas.geometry.direction_posterior import DirectionPosterior
from earatlas.hrtf.head import Head, MeasuredCues
from earatlas.numerics import convolve, logsumexp
from earatlas.ppam.model import PPAM
from earatlas.ppam.posterior import ChartPosteriors
from earatlas.threads import parallel_map
from earatlas.types import Array, Indices

if TYPE_CHECKING:  # localization does not need it
    from earatlas.simulation.synthetic_speech import SyntheticTalkers

__all__ = [
    "KERNEL_WIDTHS_DEGREES",
    "CalibratedPosteriorBatch",
    "Calibration",
    "CalibrationSettings",
    "HeldOutSounds",
    "fit_calibration",
    "held_out_statistics",
    "relative_responses",
]

TYPICAL_FRAME_NOISE = {"ild": 4.0, "ipd_cos": 0.05, "ipd_sin": 0.05}  # dB², and of unit vectors
# Standard deviations of the kernels: 0.1 to 51.2 degrees.
KERNEL_WIDTHS_DEGREES = np.array([0.1 * 2**j for j in range(10)], dtype=np.float64)


# Evidence: docs/figures/settings/ppam.md, "calibration".
@dataclass(frozen=True, slots=True)
class CalibrationSettings:
    """Settings with which a calibration is fitted."""

    min_sounds: int = 60  # held-out sounds; heads with fewer directions are used several times
    cues_per_temperature: int = 45  # neighbouring cues err together and count as one
    min_variance_frames: float = 4.0  # frames above which a cue has a variance


_SETTINGS = CalibrationSettings()


@dataclass(frozen=True)
class Calibration:
    """Corrections that make the posteriors of a PPAM well calibrated.

    1. Saturation. The model has the same error in every frame, so frames cannot add certainty
       without limit. With v_d the variance of the frames' cues, the mean of a cue has the variance
       sigma_d^2 + v_d / (tau Q_d), so it counts as Q'_d = sigma_d^2 / (sigma_d^2 + v_d / (tau Q_d))
       < 1 training vectors. tau is the fraction of independent frames (2 hop / window).
    2. Tempering. Neighbouring bins err together: Q', R', E' are divided by `temperature`.
    3. Kernel. The remaining error has heavy tails: the posterior is convolved with a mixture of
       Gaussians, the most probable kernel of held-out errors.
    4. Relaxation. A sound whose normalized residual at its best direction exceeds
       `max_residual` (twice the median of held-out sounds) does not fit the model: the temperature
       and the squared widths are multiplied by the ratio of the two.
    """

    temperature: float = 1.0  # divisor of the statistics
    kernel_widths: tuple[float, ...] = (0.0,)  # standard deviations, degrees
    kernel_weights: tuple[float, ...] = (1.0,)  # sum to 1
    frame_weight: float = 0.25  # tau, fraction of independent frames
    prior_frames: float = 4.0  # pseudo-frames of the frame noise below
    max_residual: float = math.inf  # largest usual normalized residual; inf: never relax
    frame_noise: Array | None = field(default=None, compare=False)  # (D,) variance of one frame

    def calibrated_posterior(
        self, model: PPAM, statistics: CueStatistics
    ) -> tuple[DirectionPosterior, float]:
        """Return the calibrated posterior and the residual ratio.

        The ratio is that of the normalized residual to `max_residual`. The posterior of a sound
        that fits no direction as well as held-out sounds did (noise, a room that was not learned)
        is widened by it.
        """
        batch = self.calibrated_posteriors(model, CueStatistics.stack([statistics]))
        return next(batch.posteriors(np.arange(1))), float(batch.residual_ratios[0])

    def calibrated_posteriors(
        self, model: PPAM, statistics: CueStatistics, *, all_charts: bool = True
    ) -> CalibratedPosteriorBatch:
        """Return the same for each row of statistics (W, D); `all_charts`: `PPAM.posteriors`."""
        effective = self.effective_statistics(statistics, model.noise)
        posteriors = model.posteriors(effective, all_charts=all_charts)
        residuals = model.normalized_residuals(effective, posteriors.best())
        ratios = residuals / self.max_residual
        return CalibratedPosteriorBatch(self, model, effective, posteriors, ratios, all_charts)

    def effective_statistics(self, statistics: CueStatistics, noise: Array) -> CueStatistics:
        """Return the saturated and tempered statistics (..., D): steps 1 and 2."""
        observed = statistics.counts > 0
        count = np.where(observed, statistics.counts, 1.0)
        mean = statistics.means
        prior = 0.0 if self.frame_noise is None else self.prior_frames
        prior_noise = 0.0 if self.frame_noise is None else self.frame_noise
        frame_noise = (statistics.scatter + prior * prior_noise) / (count + prior)
        q = np.where(observed, noise / (noise + frame_noise / (self.frame_weight * count)), 0.0)
        q = q / self.temperature
        return CueStatistics(q, q * mean, q * mean**2, statistics.frames)

    def relative_variances(self, statistics: CueStatistics) -> Array:
        """Return the 90th percentile (W,) of the variances of single frames' cues of sounds (W, D).

        They are relative to `frame_noise`, that of held-out anechoic sounds; NaN if it is not known
        or if no cue was observed in several frames.
        """
        several = statistics.counts > _SETTINGS.min_variance_frames
        if self.frame_noise is None:
            return np.full(len(several), np.nan)
        counts = np.where(several, statistics.counts, 1.0)
        last_value = np.finfo(np.float64).max  # of cues without a variance, sorted last
        relative = np.where(several, statistics.scatter / (counts * self.frame_noise), last_value)
        relative.sort(axis=1)
        # Linear interpolation between the ranks, as by np.quantile, among the observed cues.
        last = several.sum(axis=1) - 1
        rank, fraction = np.divmod(0.9 * np.maximum(last, 0), 1)
        rows, lower = np.arange(len(relative)), rank.astype(np.intp)
        upper = np.minimum(lower + 1, np.maximum(last, 0))
        quantiles = (1 - fraction) * relative[rows, lower] + fraction * relative[rows, upper]
        return np.where(last >= 0, quantiles, np.nan)

    def relaxed(self, factor: float) -> Calibration:
        """Return the calibration for a sound with `factor` times the largest residual: step 4."""
        return replace(
            self,
            temperature=self.temperature * factor,
            kernel_widths=tuple(width * factor**0.5 for width in self.kernel_widths),
        )

    def blur(self, posterior: DirectionPosterior) -> DirectionPosterior:
        """Return the posterior convolved with the kernel of held-out errors: step 3."""
        return posterior.blurred(self.kernel_widths, self.kernel_weights)

    @staticmethod
    def kernel(
        posteriors: Sequence[DirectionPosterior],
        truths: Array,
        widths: Array = KERNEL_WIDTHS_DEGREES,
    ) -> tuple[Array, Array, float]:
        """Fit the kernel under which the true directions (N, C) are most probable.

        Returns the widths, their weights, and the mean log density of the true directions. That
        score is concave in the weights for fixed widths, so EM finds its global maximum.
        """
        space = posteriors[0].space
        logs = np.empty((len(posteriors), len(widths)))
        for i, (posterior, truth) in enumerate(zip(posteriors, truths, strict=True)):
            p = posterior.pruned(1e-6)
            residuals = space.charts(p.centres, truth[None])[0] - p.means
            for j, width in enumerate(widths):
                blurred = p.covariances + width**2 * np.eye(space.dims)
                logs[i, j] = logsumexp(np.log(p.weights) + log_gaussians(residuals, blurred))
        weights = np.full(len(widths), 1.0 / len(widths))
        for _ in range(300):  # EM has converged long before
            terms = logs + np.log(weights)
            r = np.exp(terms - logsumexp(terms, axis=1, keepdims=True))
            # Half a pseudo-sample keeps tails that a small held-out set does not show.
            weights = (r.sum(axis=0) + 0.5 / len(weights)) / (len(r) + 0.5)
        score = float(logsumexp(logs + np.log(weights), axis=1).mean())
        keep = weights > 1e-3
        return widths[keep], weights[keep] / weights[keep].sum(), score


@dataclass(frozen=True, eq=False)
class CalibratedPosteriorBatch:
    """Normalized residuals of W sounds under the anechoic model, and posteriors on demand."""

    _calibration: Calibration
    _model: PPAM
    effective: CueStatistics  # (W, D), saturated and tempered
    _unrelaxed: ChartPosteriors
    residual_ratios: Array  # (W,) normalized residuals divided by `Calibration.max_residual`
    _all_charts: bool

    def posteriors(self, rows: Indices) -> Iterator[DirectionPosterior]:
        """Yield the calibrated posteriors of some of the sounds: steps 3 and 4."""
        factors = np.maximum(self.residual_ratios[rows], 1.0)
        exceeding = rows[factors > 1]
        relaxed: Iterator[DirectionPosterior] = iter(())
        if len(exceeding):
            # Effective statistics are proportional to the inverse temperature.
            scaled = self.effective[exceeding].scaled(1 / factors[factors > 1])
            relaxed = iter(self._model.posteriors(scaled, all_charts=self._all_charts))
        for row, factor in zip(rows.tolist(), factors.tolist(), strict=True):
            if factor > 1:
                yield self._calibration.relaxed(factor).blur(next(relaxed))
            else:
                yield self._calibration.blur(self._unrelaxed[row])


@dataclass(frozen=True, eq=False)
class HeldOutSounds:
    """Cue statistics of sounds from known directions."""

    directions: Array  # (N, 2) degrees
    statistics: CueStatistics  # (N, D)
    frame_noise: Array  # (D,) variance of the cue of a single frame around the mean of its sound


def held_out_statistics(
    head: Head, layout: CueLayout, synthetic_talkers: SyntheticTalkers
) -> HeldOutSounds:
    """Compute the statistics of two to five seconds of synthetic speech from each direction.

    The directions of a small head are used several times, with different sounds.
    """
    rows = np.tile(np.arange(len(head)), max(_SETTINGS.min_sounds // len(head), 1))
    head = head.subset(rows)
    if isinstance(head.ears, MeasuredCues):
        pairs = relative_responses(head.cues(layout), layout)
    else:
        pairs = head.responses().at_rate(layout.rate)

    def render(n: int) -> CueStatistics:
        # Every sound has its own generator, because sounds are rendered in parallel.
        rng = np.random.default_rng((synthetic_talkers.seed, n))
        return _statistics(synthetic_talkers.excerpt(rng.uniform(2.0, 5.0), rng), pairs[n], layout)

    _ = synthetic_talkers.voices  # computed once, before the threads need them
    statistics = CueStatistics.stack(parallel_map(render, range(len(pairs))))
    return HeldOutSounds(head.directions, statistics, _frame_noise(statistics, layout))


def relative_responses(cues: Array, layout: CueLayout) -> Array:
    """Return responses (N, 2, window) of two ears that have the mean cues (N, D).

    The left response is an impulse. Level differences outside the measured band are those at its
    edge, and phase differences outside theirs are those of the mean delay.
    """
    f, ild, ipd = layout.frequencies_hz, layout.ild_frequencies, layout.ipd_frequencies
    levels, phases = np.zeros((2, len(cues), len(f)))
    if len(ild):
        levels[:] = [np.interp(f, f[ild], row) for row in cues[:, : len(ild)]]
    if len(ipd):
        cos, sin = np.split(cues[:, len(ild) :], 2, axis=1)
        measured = np.unwrap(np.arctan2(sin, cos), axis=1)
        centred = f[ipd] - f[ipd].mean()
        slopes = (measured @ centred) / max(float(centred @ centred), 1e-12)
        offsets = measured.mean(axis=1) - slopes * f[ipd].mean()
        offsets = 2 * np.pi * np.rint(offsets / (2 * np.pi))  # the phase is 0 at 0 Hz
        phases = slopes[:, None] * f + offsets[:, None]
        phases[:, ipd] = measured
    ratio = np.concatenate([10 ** (levels[:, :1] / 20), 10 ** (levels / 20) * np.exp(1j * phases)],
                           axis=1)  # fmt: skip
    responses = np.zeros((len(cues), 2, layout.window))
    responses[:, 0, layout.window // 2] = 1.0
    responses[:, 1] = np.roll(np.fft.irfft(ratio, layout.window), layout.window // 2, axis=1)
    return responses


def _statistics(dry: Array, responses: Array, layout: CueLayout) -> CueStatistics:
    """Compute the statistics of a dry sound (n,) convolved with two responses (2, taps)."""
    return whole_statistics(convolve(dry, responses), layout)


def _frame_noise(statistics: CueStatistics, layout: CueLayout) -> Array:
    """Return the variance (D,) of the cue of a single frame around the mean of its sound.

    Cues that were not observed often enough get the median of their kind.
    """
    Q = statistics.counts
    noise: Array = statistics.scatter.sum(axis=0) / np.maximum(Q.sum(axis=0), 1.0)
    for kind, typical in TYPICAL_FRAME_NOISE.items():
        of_kind = layout.cue_kinds == kind
        reliable = of_kind & (Q.sum(axis=0) > 20) & (noise > 0)
        noise[of_kind & ~reliable] = np.median(noise[reliable]) if reliable.any() else typical
    return noise


def fit_calibration(models: Sequence[PPAM], held_out: HeldOutSounds) -> Calibration:
    """Fit the kernel and the largest usual normalized residual to held-out sounds.

    `models[n]` must not have been trained on the direction of sound n.
    """
    tempered = Calibration(
        temperature=float(
            max(round(len(held_out.frame_noise) / _SETTINGS.cues_per_temperature), 1)
        ),
        # Rounded to float32, as everything that an atlas stores.
        frame_noise=held_out.frame_noise.astype(np.float32).astype(np.float64),
    )

    sounds: dict[int, list[int]] = {}  # of each model
    for n, model in enumerate(models):
        sounds.setdefault(id(model), []).append(n)

    def infer(rows: list[int]) -> tuple[list[DirectionPosterior], Array]:
        # A copy, so that the charts of one model at a time are in memory.
        model = replace(models[rows[0]])
        effective = tempered.effective_statistics(held_out.statistics[np.array(rows)], model.noise)
        posteriors = model.posteriors(effective)
        return list(posteriors), model.normalized_residuals(effective, posteriors.best())

    parts = parallel_map(infer, sounds.values())
    order = np.argsort([n for rows in sounds.values() for n in rows])
    inferred = [posterior for posteriors, _ in parts for posterior in posteriors]
    residuals = np.concatenate([part for _, part in parts])
    widths, weights, _ = Calibration.kernel([inferred[n] for n in order], held_out.directions)
    return replace(
        tempered,
        kernel_widths=tuple(map(float, widths)),
        kernel_weights=tuple(map(float, weights)),
        max_residual=2 * float(np.median(residuals)),
    )
