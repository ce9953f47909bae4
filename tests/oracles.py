"""Loop oracles: the formulas of docs/method.md with slow loops and dense matrices."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import numpy as np
from scipy.stats import multivariate_normal, norm

from earatlas.features.layout import CueLayout
from earatlas.features.statistics import CueStatistics
from earatlas.features.tf_bins import ObservedBins
from earatlas.ppam.model import PPAM
from earatlas.separation.source_model import SourceModel
from earatlas.separation.vessl import VESSLState
from earatlas.types import Array, Indices, Mask


def dense_covariance(model: PPAM, k: int) -> Array:
    """Return S_k = √g_k (Σ + B Bᵀ) √g_k as a dense matrix (D, D)."""
    root = np.diag(np.sqrt(model.spread[k]))
    return root @ (np.diag(model.noise) + model.latent @ model.latent.T) @ root


def e_step(model: PPAM, x: Array, y: Array, temperature: float = 1.0) -> tuple[Array, float]:
    """Return responsibilities (N, K) and the log-likelihood, pair by pair."""
    N, K = len(x), len(model.weights)
    r, total = np.empty((N, K)), 0.0
    for n in range(N):
        p = np.empty(K)
        for k in range(K):
            u = model.space.log(model.centres[k], x[n])
            zero = np.zeros(len(u))
            log_x = multivariate_normal(zero, model.gammas[k]).logpdf(u)
            expected = model.A[k] @ u + model.b[k]
            log_y = multivariate_normal(expected, dense_covariance(model, k)).logpdf(y[n])
            p[k] = np.log(model.weights[k]) + log_x + log_y / temperature
        top = p.max()
        total += top + np.log(np.exp(p - top).sum())
        r[n] = np.exp(p - top) / np.exp(p - top).sum()
    return r, float(total)


def m_step(x: Array, y: Array, r: Array, *, constrained: bool) -> dict[str, Array]:
    """Return the M-step on the plane; `residual` is W = (1/N) Σ_nk r_nk e eᵀ with diagonal σ²."""
    (N, L), D, K = x.shape, y.shape[1], r.shape[1]
    centres, scatters = np.empty((K, L)), np.empty((K, L, L))
    A, b, residual = np.empty((K, D, L)), np.empty((K, D)), np.zeros((D, D))
    for k in range(K):
        total = sum(r[n, k] for n in range(N))
        centres[k] = sum(r[n, k] * x[n] for n in range(N)) / total
        u = x - centres[k]
        scatters[k] = sum(r[n, k] * np.outer(u[n], u[n]) for n in range(N)) / total
        root = np.sqrt(r[:, k])[:, None]
        regressors = np.hstack([u, np.ones((N, 1))])
        solution = np.linalg.lstsq(root * regressors, root * y, rcond=None)[0]
        A[k], b[k] = solution[:L].T, solution[L]
        for n in range(N):
            e = y[n] - A[k] @ u[n] - b[k]
            residual += r[n, k] * np.outer(e, e) / N
    weights = r.sum(axis=0) / N
    gammas = scatters.copy()
    if constrained:
        volume = sum(weights[j] * np.linalg.det(scatters[j]) ** (1 / L) for j in range(K))
        for k in range(K):
            gammas[k] = scatters[k] / np.linalg.det(scatters[k]) ** (1 / L) * volume
        weights = np.full(K, 1 / K)
    return {
        "centres": centres,
        "weights": weights,
        "gammas": gammas,
        "A": A,
        "b": b,
        "residual": residual,
    }


def factor_step(residual: Array, noise: Array, latent: Array) -> tuple[Array, Array]:
    """Return one EM step of factor analysis of W (D, D), with the dense inverse of Σ + B Bᵀ."""
    gain = latent.T @ np.linalg.inv(np.diag(noise) + latent @ latent.T)
    second = np.eye(latent.shape[1]) - gain @ latent + gain @ residual @ gain.T
    new = residual @ gain.T @ np.linalg.inv(second)
    return np.diag(residual - new @ gain @ residual).copy(), new


def posterior(model: PPAM, y: Array, observed: Mask) -> tuple[Array, Array, Array]:
    """Return weights, means and covariances of frames (D, T), by the dense joint of all frames.

    The observed entries are jointly N(b, Σ_e + A Γ Aᵀ + B Bᵀ), with u and w common to all frames.
    """
    K, _, L = model.A.shape
    d, _ = np.nonzero(observed)
    values = y[observed]
    logs, means, covariances = np.empty(K), np.empty((K, L)), np.empty((K, L, L))
    for k in range(K):
        A, root = model.A[k][d], np.sqrt(model.spread[k])
        B = (root[:, None] * model.latent)[d]
        noise = np.diag((model.spread[k] * model.noise)[d])
        common = A @ model.gammas[k] @ A.T + noise + B @ B.T
        logs[k] = multivariate_normal(model.b[k][d], common).logpdf(values)
        gain = model.gammas[k] @ A.T @ np.linalg.inv(common)
        means[k] = gain @ (values - model.b[k][d])
        covariances[k] = model.gammas[k] - gain @ A @ model.gammas[k]
    logs += np.log(model.weights)
    weights = np.exp(logs - logs.max())
    return weights / weights.sum(), means, covariances


def extended_posterior(model: PPAM, Q: Array, R: Array, E: Array) -> tuple[Array, Array, Array]:
    """Return the posterior of docs/method.md with L' = L + L_w coordinates, for spread 1."""
    K, D, L = model.A.shape
    J = L + model.latent.shape[1]
    logs, means, covariances = np.empty(K), np.empty((K, J)), np.empty((K, J, J))
    for k in range(K):
        gamma = np.eye(J)
        gamma[:L, :L] = model.gammas[k]
        precision, linear, constant = np.linalg.inv(gamma), np.zeros(J), 0.0
        for d in range(D):
            a = np.concatenate([model.A[k, d], model.latent[d]])
            b = model.b[k, d]
            precision = precision + Q[d] / model.noise[d] * np.outer(a, a)
            linear = linear + (R[d] - b * Q[d]) / model.noise[d] * a
            constant += (E[d] - 2 * b * R[d] + b**2 * Q[d]) / model.noise[d]
        covariances[k] = np.linalg.inv(precision)
        means[k] = covariances[k] @ linear
        volume = np.linalg.slogdet(covariances[k])[1] - np.linalg.slogdet(gamma)[1]
        logs[k] = 0.5 * volume - 0.5 * (constant - means[k] @ precision @ means[k])
    logs += np.log(model.weights)
    weights = np.exp(logs - logs.max())
    return weights / weights.sum(), means[:, :L], covariances[:, :L, :L]


# --- several sources: docs/method.md and the docstring of `earatlas.separation.vessl` -------------


def random_bins(layout: CueLayout, frames: int, seed: int, share: float = 0.6) -> ObservedBins:
    """Return random observed bins; one frequency in four has none."""
    rng = np.random.default_rng(seed)
    observed = rng.random((layout.n_frequencies, frames)) < share
    observed[1::4] = False
    f, t = np.nonzero(observed)
    values = [
        rng.normal(0.0, spread, np.isin(f, band).sum())
        for spread, band in (
            (3.0, layout.ild_frequencies),
            (0.7, layout.ipd_frequencies),
            (0.7, layout.ipd_frequencies),
        )
    ]  # fmt: skip
    return ObservedBins(layout, frames, f, t, rng.uniform(-60, 0, len(f)), tuple(values))


def dense_cues(bins: ObservedBins) -> Array:
    """Return the cues as a spectrogram y_dt (D, T); NaN where nothing was observed."""
    y = np.full((bins.layout.n_cues, bins.frames), np.nan)
    remaining = [list(values) for values in bins.values]
    kinds = ("ild", "ipd_cos", "ipd_sin")
    for f, t in zip(bins.f, bins.t, strict=True):
        for d, (cue_f, kind) in enumerate(
            zip(bins.layout.cue_frequencies, bins.layout.cue_kinds, strict=True)
        ):
            if cue_f == f:
                y[d, t] = remaining[kinds.index(kind)].pop(0)
    assert not any(remaining)
    return y


def dense_weights(bins: ObservedBins, w: Array) -> Array:
    """Return weights (M, N) as spectrograms (M, F, T); 0 where nothing was observed."""
    out = np.zeros((len(w), bins.layout.n_frequencies, bins.frames))
    out[:, bins.f, bins.t] = w
    return out


@dataclass(frozen=True)
class DenseSource:
    """Posterior of one source, and log ∫ p(u, w, s, z) Π p(y | s)^τ."""

    weights: Array  # (K,)
    means: Array  # (K, L)
    covariances: Array  # (K, L, L)
    cues: Array  # (D,)
    squares: Array  # (D,)
    divergence: float
    evidence: float


def source_posterior(
    source: SourceModel, Q: Array, R: Array, E: Array, v: Array, tau: float
) -> DenseSource:
    """Return the E-XZ step by the joint Gaussian of (u, w, s) in every chart.

    Each observation is a factor N(y; s, v)^τ; all those of a cue are one factor N(R/Q; s, v/τQ).
    """
    model, omega = source.model, source.settings.offset_variance
    (K, _, L), L_w, D = model.A.shape, model.latent.shape[1], len(Q)
    learned = {
        (int(f), str(kind)): i for f, kind, i in zip(
            source.layout.cue_frequencies[source.learned],
            source.layout.cue_kinds[source.learned], range(len(model.noise)), strict=True)
    }  # fmt: skip
    J, logs, parts = L + L_w, np.empty(K), []
    for k in range(K):
        maps, offsets, own = np.zeros((D, J)), np.zeros(D), np.full(D, 0.5)
        for d in range(D):
            i = learned.get((int(source.layout.cue_frequencies[d]), source.layout.cue_kinds[d]))
            if i is not None:
                root = np.sqrt(model.spread[k, i])
                maps[d] = [*model.A[k, i], *(root * model.latent[i])]
                offsets[d] = model.b[k, i]
                own[d] = omega * model.noise[i] * model.spread[k, i]
        # (u, w, s) = G (u, w, e) + m with independent u, w and e.
        G = np.eye(J + D)
        G[J:, :J] = maps
        independent = np.zeros((J + D, J + D))
        independent[:L, :L], independent[L:J, L:J] = model.gammas[k], np.eye(L_w)
        independent[J:, J:] = np.diag(own)
        prior, m = G @ independent @ G.T, np.concatenate([np.zeros(J), offsets])
        observed = J + np.flatnonzero(Q > 0)
        q, r, e, n = (a[observed - J] for a in (Q, R, E, v))
        marginal = prior[np.ix_(observed, observed)] + np.diag(n / (tau * q))
        gain = prior[:, observed] @ np.linalg.inv(marginal)
        mean = m + gain @ (r / q - m[observed])
        covariance = prior - gain @ prior[observed]
        log_p = multivariate_normal(m[observed], marginal).logpdf(r / q) if len(observed) else 0.0
        rest = -0.5 * tau * (q * np.log(2 * np.pi * n) + (e - r**2 / q) / n)
        logs[k] = np.log(model.weights[k]) + log_p
        logs[k] += (rest + 0.5 * np.log(2 * np.pi * n / (tau * q))).sum()
        # Without offsets s is a function of u and w, and only the free coordinates have a density.
        free = np.flatnonzero(np.concatenate([np.ones(J), own]) > 0)
        parts.append((mean, covariance, _divergence(mean, covariance, m, prior, free)))
    evidence = float(np.log(np.exp(logs - logs.max()).sum()) + logs.max())
    alpha = np.exp(logs - evidence)
    cues = sum(a * mean[J:] for a, (mean, _, _) in zip(alpha, parts, strict=True))
    squares = sum(
        a * (mean[J:] ** 2 + np.diag(covariance)[J:])
        for a, (mean, covariance, _) in zip(alpha, parts, strict=True)
    )
    divergence = sum(
        a * (np.log(a / weight) + part[2])
        for a, weight, part in zip(alpha, model.weights, parts, strict=True)
        if a > 0
    )
    return DenseSource(
        alpha,
        np.stack([mean[:L] for mean, _, _ in parts]),
        np.stack([covariance[:L, :L] for _, covariance, _ in parts]),
        np.asarray(cues),
        np.asarray(squares),
        float(divergence),
        evidence,
    )


def _divergence(mean: Array, S: Array, prior_mean: Array, prior: Array, rows: Indices) -> float:
    """Return the Kullback-Leibler divergence of two Gaussians in some of their coordinates."""
    square = np.ix_(rows, rows)
    inverse, gap = np.linalg.inv(prior[square]), (mean - prior_mean)[rows]
    volume = np.linalg.slogdet(prior[square])[1] - np.linalg.slogdet(S[square])[1]
    return float(0.5 * (np.trace(inverse @ S[square]) + gap @ inverse @ gap - len(rows) + volume))


@dataclass(frozen=True)
class DenseStep:
    """Result of one step of VESSL on all bins (F, T); 0 where nothing was observed."""

    assignments: Array  # (M, F, T)
    noise: Array  # (D,)
    mixing_weights: Array  # (M, F, T) λ of the cell of each bin
    sources: list[DenseSource]
    free_energy: float


def diffuse_log_density(layout: CueLayout, y: Array, f: int) -> float:
    """Return log p(y) of the cues (D,) of a bin of the diffuse component: N(0, 12²), any phase.

    A phase is a point on the circle; its two cues also have the density of the radius at its mean,
    with variance 0.05.
    """
    log_p = 0.0
    for d in range(layout.n_cues):
        if layout.cue_frequencies[d] == f and layout.cue_kinds[d] == "ild":
            log_p += norm(0.0, 12.0).logpdf(y[d])
        if layout.cue_frequencies[d] == f and layout.cue_kinds[d] == "ipd_cos":
            log_p += -np.log(2 * np.pi) + norm(0.0, np.sqrt(0.05)).logpdf(0.0)
    return float(log_p)


def moments(statistics: CueStatistics) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return Q, R and E."""
    return statistics.counts, statistics.sums, statistics.squares


def vessl_step(
    source: SourceModel,
    bins: ObservedBins,
    state: VESSLState,
    prior_statistics: CueStatistics | None = None,
) -> DenseStep:
    """Return one step (E-XZ, noise, E-W, λ) and the free energy, by loops over cues and bins."""
    settings, layout, y = source.settings, bins.layout, dense_cues(bins)
    F, T, D = layout.n_frequencies, bins.frames, layout.n_cues
    observed = list(zip(bins.f.tolist(), bins.t.tolist(), strict=True))
    M = len(state.assignments)
    old = dense_weights(bins, state.assignments)
    Q, R, E = (np.zeros((M, D)) for _ in range(3))
    for m in range(M):
        for d in range(D):
            for t in range(T):
                f = layout.cue_frequencies[d]
                if (f, t) in observed:
                    Q[m, d] += old[m, f, t]
                    R[m, d] += old[m, f, t] * y[d, t]
                    E[m, d] += old[m, f, t] * y[d, t] ** 2
            if prior_statistics is not None:
                Q[m, d] += prior_statistics.counts[m, d]
                R[m, d] += prior_statistics.sums[m, d]
                E[m, d] += prior_statistics.squares[m, d]
    tau = source.frame_weight
    sources = [source_posterior(source, Q[m], R[m], E[m], state.noise, tau) for m in range(M)]
    v = np.empty(D)
    for d in range(D):
        residual, weight = (
            settings.noise_prior_frames * source.noise[d],
            settings.noise_prior_frames,
        )
        for m, s in enumerate(sources):
            residual += E[m, d] - 2 * s.cues[d] * R[m, d] + s.squares[d] * Q[m, d]
            weight += Q[m, d]
        v[d] = residual / weight if weight > 0 else source.noise[d]

    def cell(f: int, t: int) -> int:
        return (
            f
            if settings.weight_bands is None
            else t * settings.weight_bands + f * settings.weight_bands // F
        )

    q, total = np.zeros((M, F, T)), 0.0
    for f, t in observed:
        logs = np.empty(M)
        for m in range(M):
            logs[m] = np.log(state.mixing_weights[m, cell(f, t)])
            for d in np.flatnonzero(layout.cue_frequencies == f).tolist():
                square = y[d, t] ** 2 - 2 * y[d, t] * sources[m].cues[d] + sources[m].squares[d]
                logs[m] += -0.5 * np.log(2 * np.pi * v[d]) - 0.5 * square / v[d]
        q[:, f, t] = np.exp(logs - logs.max()) / np.exp(logs - logs.max()).sum()
        for m in range(M):
            if q[m, f, t] > 0:
                total += q[m, f, t] * (logs[m] - np.log(q[m, f, t]))
    for s in sources:
        total -= s.divergence / tau
    for d in range(D):
        total -= 0.5 * settings.noise_prior_frames * (np.log(v[d]) + source.noise[d] / v[d])
    for c in {cell(f, t) for f, t in observed}:  # empty cells have no prior term
        for m in range(M):
            total += (
                settings.weight_prior_bins * np.log(state.mixing_weights[m, c])
                if settings.weight_prior_bins
                else 0.0
            )
    if prior_statistics is not None:
        for m, s in enumerate(sources):
            for d in range(D):
                square = (
                    prior_statistics.squares[m, d] - 2 * s.cues[d] * prior_statistics.sums[m, d]
                )
                square += s.squares[d] * prior_statistics.counts[m, d]
                total -= 0.5 * (
                    prior_statistics.counts[m, d] * np.log(2 * np.pi * v[d]) + square / v[d]
                )
    mixing_weights = np.zeros((M, F, T))
    for f, t in observed:
        cell_bins = [(i, j) for i, j in observed if cell(i, j) == cell(f, t)]
        own = np.array(
            [sum(q[m, i, j] for i, j in cell_bins) + settings.weight_prior_bins for m in range(M)]
        )
        mixing_weights[:, f, t] = own / own.sum()
    return DenseStep(q, v, mixing_weights, sources, float(total))


def log_evidence(source: SourceModel, bins: ObservedBins, v: Array, mixing_weights: Array) -> float:
    """Return log p(y | v, λ) for τ = 1, summed over all assignments of bins to sources.

    The mixing weights λ have shape (M, N). Bins are independent given λ, and so are sources; charts
    are summed, and u, w and s are integrated out.
    """
    M, N = mixing_weights.shape
    y = dense_cues(bins)
    total = []
    for assignment in product(range(M), repeat=N):
        log_p = sum(np.log(mixing_weights[m, n]) for n, m in enumerate(assignment))
        for m in range(M):
            Q, R, E = (np.zeros(bins.layout.n_cues) for _ in range(3))
            for n in range(N):
                for d in np.flatnonzero(bins.layout.cue_frequencies == bins.f[n]):
                    if assignment[n] == m:
                        Q[d] += 1
                        R[d] += y[d, bins.t[n]]
                        E[d] += y[d, bins.t[n]] ** 2
            log_p += source_posterior(source, Q, R, E, v, 1.0).evidence
        total.append(log_p)
    top = max(total)
    return float(top + np.log(np.exp(np.array(total) - top).sum()))
