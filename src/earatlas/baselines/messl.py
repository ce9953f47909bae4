"""MESSL-G: separation by EM on interaural phase and level differences, without training data.

This is the most complex form of the model (Θ_ΩΩ) with garbage source and ILD prior. The inputs are
a recording and the number of sources. The outputs are a soft mask and a delay per source.

The phase difference of a bin is that of a delay τ plus a residual, and its level difference is that
of the source. Both are Gaussian with parameters per frequency; those of the residual also depend on
the delay. Delay (on a grid) and source are hidden. The garbage source has a uniform phase:

    p(φ_ft, α_ft) = Σ_iτ ψ_iτ N(φ̂_ftτ; ξ_fiτ, σ²_fiτ) N(α_ft; μ_fi, η²_fi)
                  + ψ_0 N(α_ft; μ_f0, η²_f0),      φ̂_ftτ = φ_ft + f τ modulo 1, next to ξ_fiτ

    φ, ξ, σ         in turns (1 = 2π), so that the uniform density is 1
    ψ (I, J)        joint prior of source and delay; with ψ_0 it sums to 1
    ξ, σ² (F, I, J) mean and variance of the phase residual
    μ, η² (F, I)    mean and variance of the ILD in dB, right over left
    ν (F, T, I, J)  responsibilities, computed in blocks of bins

Initialization: delays from the PHAT histogram, μ from the typical ILD of a head at such a delay,
which also remains as a prior worth a few frames. ξ and σ are at first common to all frequencies;
then the number of bands with separate values grows to F (`band_counts`), so that the delays, which
only all frequencies together determine, are found first.

There are four deviations from [1]_: the ILD has a minimum deviation; the residual is taken next to
its mean and not next to 0, so that the likelihood cannot decrease; improbable delays of a source
are pruned, and EM uses every second frame of the layout (the frames of the authors), both for
speed. Their effects are in docs/figures/settings/baselines.md.

References
----------
.. [1] M. I. Mandel, R. J. Weiss and D. P. W. Ellis, "Model-based expectation-maximization source
   separation and localization", IEEE Trans. Audio, Speech, Lang. Process., 18(2), 2010.

"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from earatlas.baselines.masking import MaskedMixture, Separation, check_n_sources
from earatlas.baselines.phat import (
    delay_grid,
    histogram_peaks,
    phat_histogram,
    whitened_cross_spectrum,
)
from earatlas.errors import InputError
from earatlas.features.audio import Audio
from earatlas.features.layout import CueLayout, level_differences
from earatlas.features.stft import squared_magnitude
from earatlas.types import Array, Indices, Single

__all__ = ["MESSLSettings", "band_counts", "ild_prior", "separate"]


# Evidence: docs/figures/settings/baselines.md, "messl".
@dataclass(frozen=True, slots=True)
class MESSLSettings:
    """Parameters of MESSL-G."""

    initial_sigma: float = 1 / (2 * math.pi)  # deviation of the phase: one radian, in turns
    initial_eta_db: float = 10.0  # deviation of the ILD, also of the garbage source
    min_sigma: float = 1e-3  # turns; without it a single frame could have an infinite likelihood
    min_eta_db: float = 2.0
    prior_ratio: float = 0.03  # weight of the ILD prior over the number of frames
    pruning_ratio: float = 1e-3  # delays below this ratio to their source's best ψ are removed


_DEFAULTS = MESSLSettings()


def ild_prior(delays_seconds: ArrayLike, frequencies_hz: ArrayLike) -> Array:
    """Return the typical ILD (M, F) in dB of a head for sources with delays (M,).

    ILD = Σ_pq c_pq itd^p f^q with itd in ms, up to 0.8 ms, and f in kHz, up to 8 kHz; odd in the
    delay. It was fitted to a head: docs/figures/settings/baselines.md, "messl".
    """
    c = {
        (1, 1): -35.14, (1, 2): 17.24, (1, 3): -3.138, (1, 4): 0.1753,
        (3, 1): 37.91, (3, 2): -19.45, (3, 3): 3.187, (3, 4): -0.1543,
    }  # fmt: skip
    itd = np.clip(1e3 * np.asarray(delays_seconds, dtype=np.float64)[:, None], -0.8, 0.8)
    f = np.minimum(1e-3 * np.asarray(frequencies_hz, dtype=np.float64), 8.0)
    prior: Array = np.sum([c_pq * itd**p * f**q for (p, q), c_pq in c.items()], axis=0)
    return prior


def band_counts(frequencies: int, iterations: int) -> Indices:
    """Return the number of bands with separate parameters per iteration: 1 four times, up to F.

    >>> band_counts(512, 16).tolist()
    [1, 1, 1, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 512, 512, 512]
    """
    lead = min(4, max(iterations // 4, 1))
    growing = np.geomspace(1, frequencies, max(iterations - 2 * lead + 2, 2))
    counts = np.concatenate([np.ones(lead - 1), growing, np.full(lead - 1, frequencies)])
    bands: Indices = np.rint(counts[-iterations:]).astype(np.intp)
    return bands


@dataclass(frozen=True, eq=False, slots=True)
class Observations:
    """Phase and level differences of a mixture; phases are in turns (1 = 2π)."""

    phase: Single  # (F, T) φ, turns
    level: Single  # (F, T) α, dB
    active: Single  # (F, T) 1, or 0 in digital silence
    frequencies_hz: Array  # (F,)

    def frames(self, step: int) -> Observations:
        """Return every `step`-th frame."""
        return replace(
            self,
            phase=np.ascontiguousarray(self.phase[:, ::step]),
            level=np.ascontiguousarray(self.level[:, ::step]),
            active=np.ascontiguousarray(self.active[:, ::step]),
        )


@dataclass(frozen=True, eq=False, slots=True)
class Parameters:
    """Parameters of the density for the P remaining pairs of source and delay."""

    source: Indices  # (P,) source of each pair, ascending
    delay: Array  # (P,) seconds
    psi: Array  # (P,) with `garbage` it sums to 1
    garbage: float  # ψ_0
    xi: Array  # (P, F) turns
    phase_variance: Array  # (P, F) σ², square turns
    mu: Array  # (M + 1, F) dB, the garbage source last
    level_variance: Array  # (M + 1, F) η², square dB

    @property
    def starts(self) -> Indices:
        """Index (M,) of the first pair of each source."""
        return np.searchsorted(self.source, np.arange(len(self.mu) - 1))

    def pruned(self, ratio: float) -> Parameters:
        """Return the parameters without delays whose ψ is below `ratio` times the best."""
        best = np.maximum.reduceat(self.psi, self.starts)
        keep = self.psi > ratio * best[self.source]
        return replace(
            self,
            source=self.source[keep],
            delay=self.delay[keep],
            psi=self.psi[keep],
            xi=self.xi[keep],
            phase_variance=self.phase_variance[keep],
        )


@dataclass(frozen=True, eq=False, slots=True)
class Statistics:
    """Sufficient statistics: weighted sums over frames, relative to the current parameters."""

    phase: Array  # (3, P, F) Σ_t ν, Σ_t ν d, Σ_t ν d² with d = φ̂ - ξ
    level: Array  # (3, M + 1, F) Σ_t ν, Σ_t ν (α - μ), Σ_t ν (α - μ)²
    log_likelihood: float


def observe(mixture: MaskedMixture) -> Observations:
    """Return phase and level differences of all bins; no bin is omitted as too weak."""
    power = squared_magnitude(mixture.spectra[:, 1:])
    active = power.min(axis=0) > 1e-24 * power.max()
    level = np.where(active, level_differences(power[0], power[1]), 0.0)
    phases = whitened_cross_spectrum(mixture.spectra)
    return Observations(
        phase=(np.angle(phases) / (2 * np.pi)).astype(np.float32),
        level=level.astype(np.float32),
        active=active.astype(np.float32),
        frequencies_hz=mixture.layout.frequencies_hz,
    )


def initial_parameters(
    observations: Observations,
    delays: Array,
    candidates: Array,
    settings: MESSLSettings = _DEFAULTS,
) -> Parameters:
    """Return parameters of sources at delays (M,) seconds, ascending, within about a sample."""
    F, M, J = len(observations.phase), len(delays), len(candidates)
    width = np.full(M, 1 / 16_000)
    if M > 1:  # at most a fifth of the distance to the next source
        gaps = np.maximum(np.diff(delays), 1e-6)
        width[:-1] = np.minimum(width[:-1], 0.2 * gaps)
        width[1:] = np.minimum(width[1:], 0.2 * gaps)
    psi = np.exp(-0.5 * ((candidates - delays[:, None]) / width[:, None]) ** 2) + 1e-6
    psi /= psi.sum(axis=1, keepdims=True) * (M + 1)
    mu = np.vstack([ild_prior(delays, observations.frequencies_hz), np.zeros(F)])
    return Parameters(
        source=np.repeat(np.arange(M), J),
        delay=np.tile(candidates, M),
        psi=psi.reshape(-1),
        garbage=1 / (M + 1),
        xi=np.zeros((M * J, F)),
        phase_variance=np.full((M * J, F), settings.initial_sigma**2),
        mu=mu,
        level_variance=np.full((M + 1, F), settings.initial_eta_db**2),
    ).pruned(settings.pruning_ratio)


class _Block:
    """Densities of a block of f frequencies.

    d (P, f, T)  phase residuals      e = ψ N(d; 0, σ²) (P, f, T)      and their sums
    """

    def __init__(self, observations: Observations, p: Parameters, rows: slice) -> None:
        turn = np.outer(p.delay, observations.frequencies_hz[rows]) - p.xi[:, rows]
        self.d = observations.phase[rows] + (turn - np.rint(turn)).astype(np.float32)[..., None]
        self.d -= np.rint(self.d)
        variance = p.phase_variance[:, rows]
        log_scale = np.log(p.psi)[:, None] - 0.5 * np.log(2 * np.pi * variance)
        self.e = self.d * self.d
        self.e *= (-0.5 / variance).astype(np.float32)[..., None]
        self.e += log_scale.astype(np.float32)[..., None]
        np.exp(self.e, out=self.e)
        self.phase = np.add.reduceat(self.e, p.starts, axis=0)  # (M, f, T)
        self.phase += 1e-16  # if all phases are improbable, the ILD decides
        mean, level_variance = p.mu[:, rows, None], p.level_variance[:, rows, None]
        self.a = observations.level[rows] - mean.astype(np.float32)  # (M + 1, f, T)
        level = self.a * self.a
        level *= (-0.5 / level_variance).astype(np.float32)
        level -= (0.5 * np.log(2 * np.pi * level_variance)).astype(np.float32)
        self.top = level.max(axis=0)  # (f, T), subtracted to avoid underflow
        level -= self.top
        self.level = np.exp(level, out=level)
        self.joint = self.level.copy()  # (M + 1, f, T)
        self.joint[:-1] *= self.phase
        self.joint[-1] *= p.garbage
        self.total = np.maximum(self.joint.sum(axis=0), 1e-30)


def _blocks(pairs: int, F: int, T: int, numbers: int = 2**18) -> list[slice]:
    """Return slices of frequencies whose work arrays, of about so many `numbers`, fit the cache."""
    size = max(numbers // (pairs * T), 1)
    return [slice(f, min(f + size, F)) for f in range(0, F, size)]


def e_step(observations: Observations, p: Parameters) -> Statistics:
    """Compute the responsibilities block by block and return the statistics for the M-step."""
    F, T = observations.phase.shape
    P, M = len(p.psi), len(p.mu) - 1
    phase, level = np.empty((3, P, F)), np.empty((3, M + 1, F))
    log_likelihood = 0.0
    ends = [*p.starts[1:], P]
    for rows in _blocks(P, F, T):
        b = _Block(observations, p, rows)
        active = observations.active[rows]
        weight = active / b.total
        for m, (first, end) in enumerate(zip(p.starts, ends, strict=True)):
            b.e[first:end] *= b.level[m] * weight
        phase[0, :, rows] = b.e.sum(axis=-1)
        b.e *= b.d
        phase[1, :, rows] = b.e.sum(axis=-1)
        phase[2, :, rows] = np.einsum("pft,pft->pf", b.e, b.d)
        b.joint *= weight
        level[0, :, rows] = b.joint.sum(axis=-1)
        b.joint *= b.a
        level[1, :, rows] = b.joint.sum(axis=-1)
        level[2, :, rows] = np.einsum("mft,mft->mf", b.joint, b.a)
        log_likelihood += float(((np.log(b.total) + b.top) * active).sum(dtype=np.float64))
    return Statistics(phase, level, log_likelihood)


def m_step(
    p: Parameters,
    s: Statistics,
    *,
    bands: int,
    prior: Array,
    prior_frames: float,
    settings: MESSLSettings = _DEFAULTS,
) -> Parameters:
    """Return the parameters that maximize the expected likelihood, ξ and σ² common to a band."""
    count, first, second = s.phase
    first, second = (  # moments about 0 instead of ξ, which may differ within a band
        first + count * p.xi,
        second + 2 * first * p.xi + count * p.xi**2,
    )
    edges = np.rint(np.linspace(0, p.xi.shape[1], bands + 1)).astype(np.intp)
    # A pair without any weight keeps its initial variance instead of 0.
    regularizer = 1e-30 * np.array([1.0, 0.0, settings.initial_sigma**2])[:, None, None]
    sums = np.add.reduceat(np.stack([count, first, second]), edges[:-1], axis=-1) + regularizer
    xi = sums[1] / sums[0]
    variance = np.maximum(sums[2] / sums[0] - xi**2, settings.min_sigma**2)
    xi, variance = (np.repeat(a, np.diff(edges), axis=-1) for a in (xi, variance))
    total = float(s.level[0].sum())
    # The prior counts like `prior_frames` frames with its ILD; the garbage source has no prior.
    prior_weight = np.full(len(p.mu), prior_frames)
    prior_weight[-1] = 0.0
    offset = np.vstack([prior, np.zeros(prior.shape[1])]) - p.mu
    n = s.level[0] + prior_weight[:, None] + 1e-30
    step = (s.level[1] + prior_weight[:, None] * offset) / n
    level_variance = (s.level[2] + prior_weight[:, None] * offset**2) / n - step**2
    return Parameters(
        source=p.source,
        delay=p.delay,
        psi=np.maximum(count.sum(axis=1) / total, 1e-30),
        garbage=float(s.level[0, -1].sum()) / total,
        xi=xi,
        phase_variance=variance,
        mu=p.mu + step,
        level_variance=np.maximum(level_variance, settings.min_eta_db**2),
    ).pruned(settings.pruning_ratio)


def masks(observations: Observations, p: Parameters) -> Array:
    """Return p(source | bin) (M, F, T); the remainder to 1 belongs to the garbage source."""
    F, T = observations.phase.shape
    out = np.empty((len(p.mu) - 1, F, T))
    for rows in _blocks(len(p.psi), F, T):
        b = _Block(observations, p, rows)
        out[:, rows] = b.joint[:-1] / b.total
    return out


def separate(
    audio: Audio,
    n_sources: int,
    *,
    layout: CueLayout | None = None,
    iterations: int = 16,
    delays: int = 61,
    settings: MESSLSettings = _DEFAULTS,
) -> Separation:
    """Separate a mixture with MESSL-G.

    EM uses frames a quarter of a window apart, as the authors do; the masks are for all frames.

    Parameters
    ----------
    audio : Audio
        Two-channel recording.
    n_sources : int
        Number of sources.
    layout : CueLayout, optional
        Window and hop of the short-time Fourier transform.
    iterations : int
        Number of EM iterations.
    delays : int
        Number of candidate delays.
    settings : MESSLSettings, optional
        Initial and minimum deviations, prior and pruning.

    Returns
    -------
    separation : Separation
        Soft masks and delays of the sources, in ascending order of delay (right to left).

    Raises
    ------
    InputError
        If `n_sources` or `iterations` is less than 1, or if a channel is silent.

    References
    ----------
    .. [1] M. I. Mandel, R. J. Weiss and D. P. W. Ellis, "Model-based expectation-maximization
       source separation and localization", IEEE Trans. Audio, Speech, Lang. Process., 18(2), 2010.

    Examples
    --------
    >>> import earatlas as ea
    >>> import numpy as np
    >>> speech = ea.synthetic_speech(0.3, seed=0)
    >>> audio = ea.Audio(np.stack([speech, np.roll(speech, 4)]), 16_000)
    >>> separate(audio, 1, iterations=4).masks.shape
    (1, 512, 38)

    """
    check_n_sources(n_sources)
    if iterations < 1:
        raise InputError(f"iterations must be at least 1, got {iterations}. The authors use 16.")
    mixture = MaskedMixture.of(audio, layout)
    observations = observe(mixture)
    candidates = delay_grid(delays)
    histogram = phat_histogram(
        whitened_cross_spectrum(mixture.spectra), observations.frequencies_hz, candidates
    )
    initial_delays = histogram_peaks(histogram, candidates, n_sources)
    p = initial_parameters(observations, initial_delays, candidates, settings)
    prior = p.mu[:-1]
    subset = observations.frames(max(mixture.layout.window // 4 // mixture.layout.hop, 1))
    for bands in band_counts(len(observations.phase), iterations):
        statistics = e_step(subset, p)
        p = m_step(
            p,
            statistics,
            bands=int(bands),
            prior=prior,
            prior_frames=settings.prior_ratio * subset.phase.shape[1],
            settings=settings,
        )
    best = [int(np.argmax(np.where(p.source == m, p.psi, -1.0))) for m in range(n_sources)]
    return Separation(masks(observations, p), p.delay[best], mixture)
