"""Which head made a recording? The fit of a recording to several learned heads.

Input: the cue statistics of a recording and learned heads. Output: `AtlasFit`s, best first.

    fit = RMS over observed cues of (ȳ - E[y | x̂]) / t_d       x̂: best direction of that head
    t_d² = mean over the heads of their noise variance in cue d

t_d is the same for all heads, so that fits are comparable; a head's own noise would favour heads
with much of it. Whether a head fits at all is decided by its fit, also relative to the best one,
and by the evidence of another head (`earatlas.localization.head_mismatch`), as in the doubts of a
localization.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from earatlas.features.statistics import CueStatistics
from earatlas.localization.learned_head import LearnedHead
from earatlas.types import Array

__all__ = ["AtlasFit", "ComparisonSettings", "compare_learned_heads"]


@dataclass(frozen=True)
class ComparisonSettings:
    """Settings of the comparison. Evidence: docs/figures/settings/population.md, "comparison"."""

    candidates: int = 40  # most probable charts of which the best direction is the best fit
    max_fit: float = 2.0  # above, a head does not fit; the own head exceeds it in 5 %
    max_relative_fit: float = 1.3  # fit over that of the best head, above which it does not fit


@dataclass(frozen=True)
class AtlasFit:
    """The fit of a recording to one learned head.

    Attributes
    ----------
    index : int
        Position of the head in the given sequence.
    name : str
        Name of the head.
    fit : float
        RMS of the normalized residuals, smallest for the own head.
    direction : tuple of float
        Azimuth and elevation in degrees where it fits best.
    fits : bool
        Whether the residuals are as small as those of the own head usually are, and neither an
        unknown head nor another one of the sequence explains the recording clearly better.

    Examples
    --------
    >>> import earatlas as ea
    >>> scene = ea.render_scene(ea.simulated_head([[40, 0]]), [ea.synthetic_speech(1.0)], [[40, 0]])
    >>> ea.compare_heads(scene.mixture, [ea.people_atlas(), ea.example_atlas()])[0].name
    'simulated'
    """

    index: int  # of the head in the given sequence
    name: str
    fit: float  # RMS of normalized residuals, smallest for the own head
    direction: tuple[float, float]  # degrees, where it fits best
    fits: bool


def compare_learned_heads(
    statistics: CueStatistics,
    heads: Sequence[LearnedHead],
    settings: ComparisonSettings | None = None,
) -> list[AtlasFit]:
    """Return the fit of a recording (D,) to each head, best first."""
    settings = settings or ComparisonSettings()
    variances = [head.model.noise + (head.model.latent**2).sum(axis=1) for head in heads]
    tolerance = np.sqrt(np.mean(variances, axis=0))
    measured = [_fit(statistics, head, tolerance, settings) for head in heads]
    best = min(fit for fit, _ in measured)
    limit = min(settings.max_fit, settings.max_relative_fit * best)
    found = []
    for index, (head, (fit, direction)) in enumerate(zip(heads, measured, strict=True)):
        name = str(head.about.get("head", "?"))
        where = (float(direction[0]), float(direction[-1]))
        fits = fit <= limit and not _is_other_head(statistics, head)
        found.append(AtlasFit(index, name, fit, where, fits))
    return sorted(found, key=lambda one: one.fit)


def _is_other_head(statistics: CueStatistics, head: LearnedHead) -> bool:
    """Whether a head that deviates from the learned one explains a recording better."""
    heads = head.deviating_heads
    if heads is None:
        return False
    return not heads.fits(head.calibration.effective_statistics(statistics, head.model.noise))


def _fit(
    statistics: CueStatistics, head: LearnedHead, tolerance: Array, settings: ComparisonSettings
) -> tuple[float, Array]:
    """Return the smallest RMS residual over the most probable charts, and its direction."""
    effective = head.calibration.effective_statistics(statistics, tolerance**2)
    Q = effective.counts
    tempered = head.calibration.effective_statistics(statistics, head.model.noise)
    posterior = head.model.posterior(tempered)
    top = np.argsort(-posterior.weights)[: settings.candidates]
    points = head.space.exp(posterior.centres[top], posterior.means[top])
    residuals = (statistics.means - head.model.forward_map(points)) / tolerance
    fits = np.sqrt(residuals**2 @ Q / max(float(Q.sum()), 1e-300))
    best = int(np.argmin(fits))
    return float(fits[best]), points[best]
