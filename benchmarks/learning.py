"""Speed of EM as ratios within one run: to its matrix products alone, and to a loop over k.

    python benchmarks/learning.py

One EM iteration at N=9600, D=730, K=128 on the sphere is compared with the two products
(N × D)(D × K(L+1)) and (K(L+1) × N)(N × D) that it needs (target: at most 2 times as long), and
with E and M steps written component by component, as in the paper (target: at least 10 times as
fast). The posterior of one recording is timed as well. Each time is the minimum of several runs.
"""

from __future__ import annotations

import numpy as np
from protocol import min_seconds
from scipy.special import logsumexp

from earatlas.features.statistics import CueStatistics
from earatlas.geometry.spaces import Sphere
from earatlas.ppam.em import EM, EMSettings
from earatlas.ppam.model import PPAM
from earatlas.ppam.parameters import PPAMParameters
from earatlas.types import Array

N, D, K, L = 9600, 730, 128, 2


def iteration_by_components(
    model: PPAMParameters, x: Array, y: Array
) -> tuple[Array, Array, Array]:
    """Run E and M steps with one (N, D) array of residuals per component, as in the paper."""
    sphere, count = Sphere(), len(model.weights)
    logs = np.empty((len(x), count))
    for k in range(count):
        u = sphere.log(model.centres[k], x)
        residual = y - u @ model.A[k].T - model.b[k]
        logs[:, k] = -0.5 * (residual**2 / model.noise).sum(axis=1)
        logs[:, k] -= 0.5 * np.einsum("nl,lm,nm->n", u, np.linalg.inv(model.gammas[k]), u)
    # Without the floor, subnormal numbers slow down the products and make the comparison unfair.
    r = np.exp(np.maximum(logs - logsumexp(logs, axis=1, keepdims=True), -200.0))
    A, b, noise = np.empty_like(model.A), np.empty_like(model.b), np.zeros(y.shape[1])
    for k in range(count):
        u = sphere.log(model.centres[k], x)
        regressors = np.column_stack([u, np.ones(len(x))])
        weighted = r[:, k, None] * regressors
        solution = np.linalg.solve(weighted.T @ regressors + 1e-9 * np.eye(L + 1), weighted.T @ y)
        A[k], b[k] = solution[:L].T, solution[L]
        noise += (r[:, k, None] * (y - regressors @ solution) ** 2).sum(axis=0)
    return A, b, noise / len(x)


def main() -> None:
    """Print the ratios."""
    rng = np.random.default_rng(0)
    sphere = Sphere()
    x = sphere.grid(np.sqrt(sphere.area / N))[:N]
    y = np.tanh(sphere.charts(x[:40], x).reshape(N, -1) @ rng.normal(size=(80, D)) / 400)
    y += 0.05 * rng.normal(size=y.shape)
    wide, left = rng.normal(size=(D, K * (L + 1))), rng.normal(size=(N, K * (L + 1)))
    products = min_seconds(lambda: (y @ wide, left.T @ y))
    print(f"N={len(x)} D={D} K={K}: the two matrix products alone {products * 1e3:.0f} ms")
    em_seconds = 0.0
    for latent in (0, 10):
        em = EM(sphere, x, y, EMSettings(), latent, constrained=True)
        model = em.initialize(K, rng)

        def iterate(em: EM = em, model: PPAMParameters = model) -> PPAMParameters:
            return em.m_step(model.centres, em.e_step(model), (model.noise, model.latent))

        seconds = min_seconds(iterate)
        print(
            f"EM iteration, L_w={latent}: {seconds * 1e3:.0f} ms, "
            f"{seconds / products:.2f} times the products (target: at most 2)"
        )
        if latent == 0:
            em_seconds = seconds
    n_looped = N // 8
    loop = (
        min_seconds(lambda: iteration_by_components(model, x[:n_looped], y[:n_looped]), 1)
        * N
        / n_looped
    )
    print(
        f"loop over k, no latent: {loop:.1f} s, "
        f"{loop / em_seconds:.0f} times EM (target: at least 10)"
    )
    count = rng.integers(0, 60, D).astype(float)
    statistics = CueStatistics(count, count * y[0], count * (y[0] ** 2 + 0.01))
    learned = PPAM.from_parameters(model)
    learned.posterior(statistics)
    posterior_seconds = min_seconds(lambda: learned.posterior(statistics), 20)
    print(f"posterior of one recording, K={K}, L_w=10: {posterior_seconds * 1e3:.1f} ms")


if __name__ == "__main__":
    main()
