"""The formulas of DESIGN §3 as slow loops and dense matrices, to check the fast code against."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.stats import multivariate_normal

from earatlas.ppam import PPAM

Array = NDArray[np.float64]


def dense_covariance(model: PPAM, k: int) -> Array:
    """S_k = √g_k (Σ + B Bᵀ) √g_k, written out (D, D)."""
    root = np.diag(np.sqrt(model.spread[k]))
    return root @ (np.diag(model.noise) + model.latent @ model.latent.T) @ root


def e_step(model: PPAM, x: Array, y: Array, temperature: float = 1.0) -> tuple[Array, float]:
    """Responsibilities (N, K) and the log-likelihood, pair by pair."""
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
    """The M-step on the plane; `residual` is W = (1/N) Σ_nk r_nk e eᵀ, whose diagonal is σ²."""
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
    shares = r.sum(axis=0) / N
    gammas = scatters.copy()
    if constrained:
        volume = sum(shares[j] * np.linalg.det(scatters[j]) ** (1 / L) for j in range(K))
        for k in range(K):
            gammas[k] = scatters[k] / np.linalg.det(scatters[k]) ** (1 / L) * volume
        shares = np.full(K, 1 / K)
    return {
        "centres": centres,
        "weights": shares,
        "gammas": gammas,
        "A": A,
        "b": b,
        "residual": residual,
    }


def factor_step(residual: Array, noise: Array, latent: Array) -> tuple[Array, Array]:
    """One EM step of factor analysis of W (D, D), with the dense inverse of Σ + B Bᵀ."""
    gain = latent.T @ np.linalg.inv(np.diag(noise) + latent @ latent.T)
    second = np.eye(latent.shape[1]) - gain @ latent + gain @ residual @ gain.T
    new = residual @ gain.T @ np.linalg.inv(second)
    return np.diag(residual - new @ gain @ residual).copy(), new


def posterior(model: PPAM, y: Array, seen: NDArray[np.bool_]) -> tuple[Array, Array, Array]:
    """Weights, means and covariances from frames (D, T), by the dense joint of all of them.

    The observed entries together are N(b, Σ_e + A Γ Aᵀ + B Bᵀ), u and w common to all frames.
    """
    K, _, L = model.A.shape
    d, _ = np.nonzero(seen)
    values = y[seen]
    logs, means, covariances = np.empty(K), np.empty((K, L)), np.empty((K, L, L))
    for k in range(K):
        A, root = model.A[k][d], np.sqrt(model.spread[k])
        B = (root[:, None] * model.latent)[d]
        own = np.diag((model.spread[k] * model.noise)[d])
        common = A @ model.gammas[k] @ A.T + own + B @ B.T
        logs[k] = multivariate_normal(model.b[k][d], common).logpdf(values)
        gain = model.gammas[k] @ A.T @ np.linalg.inv(common)
        means[k] = gain @ (values - model.b[k][d])
        covariances[k] = model.gammas[k] - gain @ A @ model.gammas[k]
    logs += np.log(model.weights)
    weights = np.exp(logs - logs.max())
    return weights / weights.sum(), means, covariances


def extended_posterior(model: PPAM, Q: Array, R: Array, E: Array) -> tuple[Array, Array, Array]:
    """DESIGN §3's posterior with L' = L + L_w coordinates, channel by channel; spread 1."""
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
