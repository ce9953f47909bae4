"""Onset templates of a listener who is only partly known, for rooms.

Input: the direct-sound model of the expected head, a `Population`, and what is known about a
listener. Output: `ListenerDirectSound`, whose templates are those of the listener, and whose
log-likelihood integrates over the deviations of the listener that are not known.

    f  frequencies (F)    h(f)  band of f (H)    g  template directions (G)    j  coordinates (J)
    δ_gh = β_gh·z + ε_gh      deviation of the level template in dB, z ~ N(0, I), ε_gh ~ N(0, ψ_gh)
    ℓ_gh(δ)                   log-likelihood of the onsets of band h with templates shifted by δ

    E_g = log ∫ Π_h exp(α ℓ_gh(δ_h)) p(δ | g) dδ

Each factor is replaced by the Gaussian exp(c + b δ - a δ² / 2) with the same mass, mean and
variance under N(0, β_gh·β_gh + ψ_gh); then the integral is elementary. Without it, onsets are
compared with the mean of people, and the cone of confusion is resolved badly
(docs/figures/settings/population.md, "listener templates").
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from earatlas.features.layout import CueLayout
from earatlas.features.onset_detector import OnsetBins
from earatlas.localization.onset_likelihood import (
    DirectionLogLikelihood,
    DirectSoundModel,
    LeaveOneOutTemplates,
    bin_weights,
)
from earatlas.localization.reverberant_localizer import ReverberantLocalizer
from earatlas.numerics import distinct
from earatlas.population.deviation_information import DeviationInformation
from earatlas.population.population import Listener, Population
from earatlas.types import Array, Indices, Mask, Single

__all__ = [
    "ListenerDirectSound",
    "ListenerTemplateSettings",
    "expected_localizer",
    "gaussian_factors",
    "listener_localizer",
]


@dataclass(frozen=True)
class ListenerTemplateSettings:
    """Settings of the integral over deviations.

    Evidence: docs/figures/settings/population.md, "listener templates".
    """

    inverse_temperature: float = 0.35  # α; neighbouring bands err together
    steps_db: tuple[float, ...] = (-9.0, -6.0, -3.0, 0.0, 3.0, 6.0, 9.0)  # evaluated δ
    unexplained_ratio: float = 0.25  # ψ over β·β, that of the population (0.2 to 0.8)
    min_variance: float = 0.5  # of δ given the onsets in dB²; the steps resolve no less
    candidates: int = 400  # template directions that are evaluated, the most probable ones
    min_gate: float = 1e-3  # charts of less weight at a direction are left out
    # Percentile of nats per onset that is typical. At 85, as for a measured head, 16 % of people
    # were doubted: docs/figures/settings/population.md, "direct sound".
    anechoic_percentile: float = 70.0


@dataclass(frozen=True, eq=False, repr=False)
class ListenerDirectSound(DirectSoundModel):
    """Direct-sound model of a listener of a population."""

    expected: DirectSoundModel = field(kw_only=True)  # of the expected head
    population: Population = field(kw_only=True)
    layout: CueLayout = field(kw_only=True)
    listener: Listener | None = field(kw_only=True)  # None: an unknown listener
    listener_settings: ListenerTemplateSettings = field(
        default_factory=ListenerTemplateSettings, kw_only=True
    )

    @classmethod
    def of(
        cls,
        expected: DirectSoundModel,
        population: Population,
        layout: CueLayout,
        listener: Listener | None = None,
    ) -> ListenerDirectSound:
        """Return the model of a listener, with templates that deviate by E[w]."""
        model = cls(
            expected.space, expected.templates, expected.spacing_degrees, expected.whitening,
            expected.log_densities, expected.onset_settings, expected.settings,
            expected=expected, population=population, layout=layout, listener=listener,
        )  # fmt: skip
        if listener is None:
            return model
        templates, gates = expected.templates, model._gates
        shift = gates @ (population.deviations[:, model._level_bands] @ listener.mean)
        delays = gates @ _delay_shifts(population, layout, listener)
        return replace(
            model,
            templates=replace(
                templates,
                level_db=templates.level_db + shift[:, model._band],
                delay_seconds=templates.delay_seconds + delays,
            ),
        )

    def log_likelihood(
        self, bins: OnsetBins, leave_one_out: LeaveOneOutTemplates | None = None
    ) -> DirectionLogLikelihood:
        """Return the log-likelihood of directions, with deviations of the head integrated out.

        L of the templates is increased by what the integral gains, E_g / α - L_g, interpolated. The
        scale, and the features of the recording, remain those of the templates.
        """
        known = np.full(len(self.grid), np.nan)  # L of the templates, where it is evaluated

        def of_templates(rows: Indices, fine: bool) -> Array:
            missing = rows[np.isnan(known[rows])]
            if len(missing):
                points = self.points(missing) if fine else self.coarse_points
                known[missing] = self.log_likelihood_at(bins, points)
            values: Array = known[rows]
            return values

        if leave_one_out is None:
            expected = self._coarse_to_fine(bins, of_templates)
        else:
            expected = super().log_likelihood(bins, leave_one_out)
        gains = self._gains(bins)

        def integrated(rows: Indices, fine: bool) -> Array:
            at = self.interpolation[rows]
            weights = np.maximum(at.weights, 0.0)
            gain = (weights * gains[at.rows]).sum(axis=1) / weights.sum(axis=1)
            values: Array = of_templates(rows, fine) + gain
            return values

        return replace(self._coarse_to_fine(bins, integrated), features=expected.features)

    def log_likelihood_batch(self, sounds: Sequence[OnsetBins]) -> list[DirectionLogLikelihood]:
        """Return the log-likelihood of each of many sounds."""
        return [self.log_likelihood(bins) for bins in sounds]

    def _gains(self, bins: OnsetBins) -> Array:
        """Return E_g / α - L_g (G,); where L_g is small, the smallest of the others."""
        found, rows, at_templates = self._deviation_information(bins)
        gains = found.log_evidence() / self.listener_settings.inverse_temperature
        gains = gains - at_templates[rows]
        every = np.full(len(at_templates), gains.min())
        every[rows] = gains
        return every

    def _deviation_information(
        self, bins: OnsetBins
    ) -> tuple[DeviationInformation, Indices, Array]:
        """Return the information about z, its template rows, and L (G,) of the templates."""
        settings, weights = self.listener_settings, bin_weights(bins.f)
        L = self.log_likelihood_at(bins, self._template_points, weights)
        count = min(settings.candidates, len(L))
        rows = np.sort(np.argpartition(-L, count - 1)[:count])
        S, H = len(settings.steps_db), len(self._level_bands)
        points = self._shifted_points(rows).reshape(len(self.whitening), 3, -1)
        tables = np.zeros((H, S * count), dtype=np.float32)
        band, v = self._band[bins.f], weights.astype(np.float32)
        for own, values in self.iter_table_values(self.log_densities, self.observed(bins), points):
            used = distinct(band[own])
            tables[used] += (v[own] * (band[own] == used[:, None])) @ values
        beta, psi = self._loadings_at(rows), self._template_unexplained[rows]
        a, b, c = gaussian_factors(
            settings.inverse_temperature
            * tables.reshape(H, S, count).transpose(2, 0, 1).astype(np.float64),
            np.array(settings.steps_db),
            (beta**2).sum(axis=-1) + psi,
            settings.min_variance,
        )
        # ε is integrated out in each band.
        f = 1 + a * psi
        constants = (c + 0.5 * b**2 * psi / f - 0.5 * np.log(f)).sum(axis=1)
        information = np.einsum("ghj,gh->gj", beta, b / f)
        precisions = beta.mT @ ((a / f)[..., None] * beta)
        directions = self.templates.directions[rows]
        return DeviationInformation(directions, constants, information, precisions), rows, L

    @cached_property
    def _level_cues(self) -> Indices:
        """Cue (F,) of the level difference that is nearest to each frequency."""
        layout = self.layout
        ild = np.flatnonzero(layout.cue_kinds == "ild")
        hz = layout.cue_frequencies[ild] * (layout.rate / layout.window)
        nearest = np.abs(hz - self.onset_settings.frequencies_hz[:, None]).argmin(axis=1)
        return np.asarray(ild[nearest], dtype=np.intp)

    @cached_property
    def _level_bands(self) -> Indices:
        """Bands (H,) of the population that the frequencies have."""
        return distinct(self.population.bands.band[self._level_cues])

    @cached_property
    def _band(self) -> Indices:
        """h(f) (F,), an index into the level bands."""
        return np.searchsorted(self._level_bands, self.population.bands.band[self._level_cues])

    @cached_property
    def _gates(self) -> Array:
        """Weights (G, K) of the charts at the template directions."""
        gates, _ = self.population.charts.gating(self.templates.directions)
        gates[gates < self.listener_settings.min_gate] = 0.0
        normalized: Array = gates / gates.sum(axis=1, keepdims=True)
        return normalized

    @cached_property
    def _chart_loadings(self) -> Array:
        """β_kh (K, H, J): loadings of what is not known about the listener."""
        return self.population.local_loadings(self.listener)[:, self._level_bands]

    @cached_property
    def _template_loadings(self) -> tuple[Array, Mask]:
        """β_gh (G, H, J), filled on demand, and which (G,) are filled."""
        G = len(self._gates)
        return np.empty((G, *self._chart_loadings.shape[1:])), np.zeros(G, dtype=bool)

    def _loadings_at(self, rows: Indices) -> Array:
        """Return β_gh (rows, H, J) of some templates."""
        loadings, filled = self._template_loadings
        missing = rows[~filled[rows]]
        if len(missing):
            gates = self._gates[missing]
            charts = np.flatnonzero(gates.any(axis=0))  # the other products are zero
            local = self._chart_loadings[charts]
            loadings[missing] = np.tensordot(gates[:, charts], local, axes=1)
            filled[missing] = True
        return loadings[rows]

    @cached_property
    def _template_unexplained(self) -> Array:
        """ψ_gh (G, H), relative to β·β of an unknown listener."""
        explained = (self.population.loadings[:, self._level_bands] ** 2).sum(axis=-1)
        psi: Array = self.listener_settings.unexplained_ratio * (self._gates @ explained)
        return psi

    @cached_property
    def _template_points(self) -> Single:
        """s_g (F, 3, G) of the templates."""
        return self.points_of_ratios(self.templates.measured_ratios).astype(np.float32)

    @cached_property
    def _shifted(self) -> tuple[Single, Mask]:
        """s_g (F, 3, S, G), filled on demand, and which (G,) are filled."""
        F, G = len(self.whitening), len(self.templates.directions)
        points = np.empty((F, 3, len(self.listener_settings.steps_db), G), dtype=np.float32)
        return points, np.zeros(G, dtype=bool)

    def _shifted_points(self, rows: Indices) -> Single:
        """Return s_g (F, 3, S, rows) of some templates with shifted levels."""
        points, filled = self._shifted
        missing = rows[~filled[rows]]
        if len(missing):
            ratios = self.templates.measured_ratios[missing]
            for step, shift_db in enumerate(self.listener_settings.steps_db):
                points[:, :, step, missing] = self.points_of_ratios(10 ** (shift_db / 20) * ratios)
            filled[missing] = True
        return np.take(points, rows, axis=3)


def listener_localizer(
    localizer: ReverberantLocalizer,
    population: Population,
    layout: CueLayout,
    listener: Listener | None = None,
) -> ReverberantLocalizer:
    """Return the localizer of a listener, given that of the expected head or of a listener.

    It expects the onsets of people, which fit mean templates less well than own ones.
    """
    sound = ListenerDirectSound.of(
        expected_localizer(localizer).direct_sound, population, layout, listener
    )
    scores, percentile = localizer.score_calibration, sound.listener_settings.anechoic_percentile
    use = replace(scores.settings, anechoic_percentile=percentile)
    return replace(localizer, direct_sound=sound, score_calibration=replace(scores, settings=use))


def expected_localizer(localizer: ReverberantLocalizer) -> ReverberantLocalizer:
    """Return the localizer of the expected head, which an atlas stores."""
    sound = localizer.direct_sound
    if isinstance(sound, ListenerDirectSound):
        return replace(localizer, direct_sound=sound.expected)
    return localizer


def gaussian_factors(
    logs: Array, steps: Array, variances: Array, min_variance: float
) -> tuple[Array, Array, Array]:
    """Return a, b and c (n, H) of Gaussians with the moments of exp(logs) under N(0, variances).

    `logs` (n, H, S) are values at the steps (S,), and `variances` (n, H) those of the prior.
    """
    prior = -0.5 * steps**2 / variances[..., None]
    prior -= np.log(np.exp(prior).sum(axis=-1, keepdims=True))
    joint = logs + prior
    peak = joint.max(axis=-1, keepdims=True)
    p = np.exp(joint - peak)
    mass = p.sum(axis=-1, keepdims=True)
    p /= mass
    mean = p @ steps
    variance = np.maximum(p @ steps**2 - mean**2, min_variance)
    # The variance of the prior on the steps, so that flat logs give a = b = 0.
    before = np.exp(prior) @ steps**2
    a = np.maximum(1 / variance - 1 / before, 0.0)
    b = mean * (a + 1 / before)
    c = (peak + np.log(mass))[..., 0] - 0.5 * b**2 / (a + 1 / before)
    return a, b, c + 0.5 * np.log1p(a * before)


def _delay_shifts(population: Population, layout: CueLayout, listener: Listener) -> Array:
    """Return how the interaural delay of a listener deviates in each chart (K,), in seconds.

    The weighted least-squares slope of the change of phase over frequency.
    """
    before, after = population.model().b, population.model(listener).b
    cos, sin = layout.cue_kinds == "ipd_cos", layout.cue_kinds == "ipd_sin"
    if not cos.any():
        return np.zeros(len(before))
    hz = layout.cue_frequencies[cos] * (layout.rate / layout.window)
    cross = (after[:, cos] + 1j * after[:, sin]) * (before[:, cos] - 1j * before[:, sin])
    phase, weights = np.angle(cross), np.abs(cross)
    slope = (weights * hz * phase).sum(axis=1) / np.maximum((weights * hz**2).sum(axis=1), 1e-300)
    shifts: Array = -slope / (2 * np.pi)
    return shifts
