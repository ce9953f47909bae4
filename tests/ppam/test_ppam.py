"""Tests of PPAM: loop oracles, invariants, and maps that must be recovered."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import oracles
import pytest

from earatlas.errors import InputError
from earatlas.features.statistics import CueStatistics
from earatlas.geometry.angles import great_circle_error
from earatlas.geometry.spaces import Circle, Cylinder, Plane, Space, Sphere
from earatlas.ppam.data_blocks import BlockSettings
from earatlas.ppam.e_step import SufficientStatistics
from earatlas.ppam.em import EM, EMSettings
from earatlas.ppam.model import PPAM

N, K, D, L, T = 7, 3, 5, 2, 4
PLANE = Plane(((-60.0, 60.0), (-40.0, 40.0)))
EXACT: dict[str, Any] = {"rtol": 1e-9, "atol": 1e-11}
PAPER = EMSettings(temperature=1.0, spread_prior=None, n_starts=1, tolerance=1e-9)


def random_model(latent: int, *, space: Space = PLANE, spread: bool = False, seed: int = 3) -> PPAM:
    """Return an asymmetric model: correlated covariances, unequal weights, axes of unequal size."""
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(K, L, L)) + 3 * np.eye(L)
    weights = rng.uniform(0.5, 2.0, K)
    return PPAM(
        space=space,
        centres=rng.uniform(-20, 20, (K, L)),
        weights=weights / weights.sum(),
        gammas=root @ root.mT,
        A=rng.normal(size=(K, D, L)),
        b=rng.normal(size=(K, D)) * 3,
        noise=rng.uniform(0.5, 2.0, D),
        latent=rng.normal(size=(D, latent)),
        spread=rng.uniform(0.4, 3.0, (K, D)) if spread else np.ones((K, D)),
    )


def random_data(n: int = N, seed: int = 4) -> tuple[np.ndarray, np.ndarray]:
    """Return random directions and cues that are independent of each other."""
    rng = np.random.default_rng(seed)
    return rng.uniform(-25, 25, (n, L)), rng.normal(size=(n, D)) * 4 + 10


def plane_em(
    x: np.ndarray,
    y: np.ndarray,
    latent: int = 0,
    settings: EMSettings = PAPER,
    constrained: bool = True,
) -> EM:
    """Return EM on the plane that drops no component."""
    return EM(PLANE, x, y, replace(settings, min_samples=0.0), latent, constrained)


def smooth_cues(space: Space, x: np.ndarray, noise: float, seed: int = 0) -> np.ndarray:
    """Return smooth cues of 60 channels at directions on a sphere."""
    rng = np.random.default_rng(seed)
    az, el = np.radians(x).T
    v = np.stack([np.cos(az) * np.cos(el), np.sin(az) * np.cos(el), np.sin(el)], axis=1)
    curved = np.tanh(v @ rng.normal(size=(3, 60)) * 1.5 + rng.normal(size=60) * 0.3)
    return 5 * curved + noise * rng.normal(size=(len(x), 60))


@pytest.mark.parametrize("latent", [0, 2])
@pytest.mark.parametrize("temperature", [1.0, 3.5])
def test_e_step_equals_loop_oracle(latent: int, temperature: float) -> None:
    """Responsibilities and log-likelihood equal the dense ones, with and without latent part."""
    (x, y), model = random_data(), random_model(latent)
    em = plane_em(x, y, latent, replace(PAPER, temperature=temperature))
    local = replace(model, b=model.b - em.data.offset)
    r, likelihood = oracles.e_step(model, x, y, temperature)
    blocks = list(em.responsibilities(local))
    np.testing.assert_allclose(np.concatenate([block.r for block in blocks]), r, **EXACT)
    np.testing.assert_allclose(em.e_step(local).log_likelihood, likelihood, rtol=1e-9)


@pytest.mark.parametrize("constrained", [True, False])
def test_m_step_equals_loop_oracle(constrained: bool) -> None:
    """Centres, volumes, maps and noise equal weighted least squares, component by component."""
    (x, y), model = random_data(23), random_model(0)
    em = plane_em(x, y, constrained=constrained)
    local = replace(model, b=model.b - em.data.offset)
    new = em.m_step(model.centres, em.e_step(local), (model.noise, model.latent))
    r, _ = oracles.e_step(model, x, y)
    expected = oracles.m_step(x, y, r, constrained=constrained)
    for name in ("centres", "weights", "A"):
        np.testing.assert_allclose(getattr(new, name), expected[name], rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(new.b + em.data.offset, expected["b"], rtol=1e-9)
    np.testing.assert_allclose(new.noise, np.diag(expected["residual"]), rtol=1e-9)
    # Γ has a relative floor of 1e-6, which keeps its determinant above zero.
    np.testing.assert_allclose(new.gammas, expected["gammas"], rtol=1e-4, atol=1e-4)


def test_m_step_transforms_maps_to_new_chart() -> None:
    """Near a pole, where the axes of the old and the new chart differ, the map still fits."""
    sphere, rng = Sphere(), np.random.default_rng(11)
    old, middle = np.array([[0.0, 88.0]]), np.array([90.0, 88.0])
    x = sphere.exp(middle, rng.uniform(-1, 1, (50, 2)))
    y = sphere.log(middle, x) @ rng.normal(size=(2, D)) + 3.0
    em = EM(sphere, x, y, replace(PAPER, min_samples=0.0), 0, True)
    blocks = em.hard_assignments(old, np.zeros(50, dtype=np.intp))
    model = em.m_step(old, SufficientStatistics.of(blocks, (1, D, 2)), None)
    assert great_circle_error(model.centres[0], middle) < 0.5
    found = PPAM.from_parameters(model).forward_map(x) + em.data.offset
    np.testing.assert_allclose(found, y, atol=5e-3)


def test_spread_equals_loop_oracle() -> None:
    """g = (prior + Σ_n r e² / (σ² + |B_d|²)) / (prior + Σ_n r), with `prior` pseudo-samples."""
    (x, y), model = random_data(23), random_model(2)
    prior = 3.0
    spread = plane_em(x, y, 2).estimate_spread(model, prior).spread
    r, _ = oracles.e_step(model, x, y)
    for k in range(K):
        e = y - (x - model.centres[k]) @ model.A[k].T - model.b[k]
        ratio = (r[:, k, None] * e**2).sum(axis=0) / (model.noise + (model.latent**2).sum(axis=1))
        np.testing.assert_allclose(spread[k], (prior + ratio) / (prior + r[:, k].sum()), rtol=1e-8)


def test_latent_m_step_equals_dense_factor_analysis() -> None:
    """Noise and B equal an EM step on the dense residual covariance W."""
    (x, y), model = random_data(23), random_model(2)
    em = plane_em(x, y, latent=2)
    local = replace(model, b=model.b - em.data.offset)
    new = em.m_step(model.centres, em.e_step(local), (model.noise, model.latent))
    r, _ = oracles.e_step(model, x, y)
    residual = oracles.m_step(x, y, r, constrained=True)["residual"]
    noise, latent = oracles.factor_step(residual, model.noise, model.latent)
    np.testing.assert_allclose(new.noise, noise, rtol=1e-8)
    np.testing.assert_allclose(new.latent, latent, rtol=1e-8)


@pytest.mark.parametrize(("latent", "spread"), [(0, False), (0, True), (2, False), (2, True)])
def test_posterior_equals_dense_joint(latent: int, spread: bool) -> None:
    """With missing data, weights, means and covariances equal those of the dense joint."""
    model = random_model(latent, spread=spread)
    rng = np.random.default_rng(8)
    y, observed = rng.normal(size=(D, T)) * 3, rng.random((D, T)) < 0.6
    observed[2] = False
    y[~observed] = np.nan
    Q, R, E = (np.where(observed, y**power, 0.0).sum(axis=1) for power in (0, 1, 2))
    R[2] = E[2] = np.nan
    posterior = model.posterior(CueStatistics(Q, R, E))
    weights, means, covariances = oracles.posterior(model, y, observed)
    np.testing.assert_allclose(posterior.weights, weights, **EXACT)
    np.testing.assert_allclose(posterior.means, means, **EXACT)
    np.testing.assert_allclose(posterior.covariances, covariances, **EXACT)


def test_posterior_equals_formula_with_extended_coordinates() -> None:
    """The posterior equals the formula of docs/method.md with L' = L + L_w, for real weights."""
    model, rng = random_model(2), np.random.default_rng(9)
    y, w = rng.normal(size=(D, T)) * 3, rng.uniform(0.1, 2.0, (D, T))
    Q, R, E = w.sum(axis=1), (w * y).sum(axis=1), (w * y**2).sum(axis=1)
    posterior = model.posterior(CueStatistics(Q, R, E))
    weights, means, covariances = oracles.extended_posterior(model, Q, R, E)
    np.testing.assert_allclose(posterior.weights, weights, **EXACT)
    np.testing.assert_allclose(posterior.means, means, **EXACT)
    np.testing.assert_allclose(posterior.covariances, covariances, **EXACT)


def test_posterior_of_one_frame_equals_inverse_map() -> None:
    """For one complete frame, `posterior` and the batched inverse agree."""
    model, (_, y) = random_model(2, spread=True), random_data()
    weights, means, covariances = model.inverse_batch(y)
    for n in range(N):
        posterior = model.inverse_density(y[n])
        np.testing.assert_allclose(weights[n], posterior.weights, **EXACT)
        np.testing.assert_allclose(means[n], posterior.means, **EXACT)
        np.testing.assert_allclose(covariances, posterior.covariances, **EXACT)
        np.testing.assert_allclose(model.inverse_map(y[n : n + 1])[0], posterior.best, **EXACT)


def test_forward_density_and_map_equal_loop_oracle() -> None:
    """p(y | x) equals the gated sum of dense Gaussians, and E[y | x] is its mean."""
    model, (x, y) = random_model(2, spread=True), random_data()
    _, joint = oracles.e_step(model, x[:1], y[:1])
    logs, u = model.log_gating(x[:1])
    gating = np.exp(logs[0])
    np.testing.assert_allclose(
        model.forward_log_density(x[:1], y[:1])[0], joint - np.log(gating.sum()), rtol=1e-9
    )
    mean = sum(g * (model.A[k] @ u[0, k] + model.b[k]) for k, g in enumerate(gating / gating.sum()))
    np.testing.assert_allclose(model.forward_map(x[:1])[0], mean, rtol=1e-9)


@pytest.mark.parametrize("latent", [0, 3])
@pytest.mark.parametrize("temperature", [1.0, 4.0])
@pytest.mark.parametrize("constrained", [True, False])
def test_likelihood_never_decreases(latent: int, temperature: float, constrained: bool) -> None:
    """On the plane every iteration increases the likelihood while no component is dropped."""
    rng = np.random.default_rng(1)
    x = rng.uniform((-60, -40), (60, 40), (300, 2))
    settings = replace(PAPER, temperature=temperature, max_iterations=25, min_samples=0.5)
    model = PPAM.fit(
        PLANE, x, smooth_cues(PLANE, x, 0.3), components=6, latent=latent,
        constrained=constrained, settings=settings,
    )  # fmt: skip
    history = np.array(model.log_likelihoods)
    assert len(history) > 5
    assert len(model.weights) == 6
    assert np.diff(history).min() > -1e-6 * np.abs(history).max()


def test_decreasing_likelihood_is_not_convergence(monkeypatch: pytest.MonkeyPatch) -> None:
    """EM with a slightly decreasing likelihood runs until the last iteration."""
    x, y = random_data(40)
    em = plane_em(x, y, settings=replace(PAPER, tolerance=1e3))
    decreasing = iter(np.linspace(0.0, -1.0, 10))
    e_step = em.e_step
    monkeypatch.setattr(
        EM, "e_step", lambda _, model: replace(e_step(model), log_likelihood=next(decreasing))
    )
    model, _ = em.run(em.initialize(2, np.random.default_rng(0)), 6)
    assert not model.converged
    assert len(model.log_likelihoods) == 7


def test_best_start_continues() -> None:
    """The start with the largest likelihood after the warm-up goes on as without interruption."""
    x, y = random_data(60)
    settings = replace(PAPER, n_starts=3, warm_up=2, max_iterations=4, min_samples=0.0, tolerance=0)
    model = PPAM.fit(PLANE, x, y, components=4, latent=2, settings=settings, seed=9)
    em, rng = plane_em(x, y, 2, settings), np.random.default_rng(9)
    starts = [em.initialize(4, rng) for _ in range(3)]
    histories = [em.run(start, 6)[0].log_likelihoods for start in starts]
    assert np.ptp([history[2] for history in histories]) > 1
    assert model.log_likelihoods == max(histories, key=lambda history: history[2])


def test_block_size_does_not_change_result() -> None:
    """A memory setting of a few rows per block gives the same model."""
    x = np.random.default_rng(2).uniform((-60, -40), (60, 40), (120, 2))
    y = smooth_cues(PLANE, x, 0.2)
    whole, pieces = (
        PPAM.fit(
            PLANE,
            x,
            y,
            components=4,
            settings=EMSettings(blocks=BlockSettings(megabytes=mb), max_iterations=5),
        )
        for mb in (100.0, 0.005)
    )
    np.testing.assert_allclose(pieces.A, whole.A, rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(pieces.spread, whole.spread, rtol=1e-7)


def test_recovers_piecewise_affine_map() -> None:
    """The maps of two half-planes are recovered, and so is the noise."""
    rng = np.random.default_rng(5)
    x = rng.uniform((-60, -40), (60, 40), (400, 2))
    maps, offsets = rng.normal(size=(2, 6, 2)), rng.normal(size=(2, 6)) * 40
    side = (x[:, 0] > 5).astype(int)
    clean = np.einsum("ndl,nl->nd", maps[side], x) + offsets[side]
    y = clean + 0.1 * rng.normal(size=clean.shape)
    settings = replace(PAPER, n_starts=4)
    model = PPAM.fit(PLANE, x, y, components=2, latent=0, constrained=False, settings=settings)
    assert model.converged
    order = np.argsort(model.centres[:, 0])
    np.testing.assert_allclose(model.A[order], maps, atol=2e-3)
    expected = np.mean((y - clean) ** 2, axis=0)  # the fit absorbs a little of the noise
    np.testing.assert_allclose(model.noise, expected, rtol=0.03)
    assert (model.noise < expected).all()
    assert np.abs(model.inverse_map(clean) - x).max() < 0.05


@pytest.mark.parametrize("constrained", [True, False])
def test_refit_is_one_em_iteration(constrained: bool) -> None:
    """Maps and noise equal an M-step with responsibilities of the model with spread 1."""
    (x, y), model = random_data(23), random_model(0, spread=True)
    settings = replace(PAPER, min_samples=0.0)
    refit = model.refit(x, y, constrained=constrained, settings=settings)
    r, _ = oracles.e_step(replace(model, spread=np.ones((K, D))), x, y)
    expected = oracles.m_step(x, y, r, constrained=constrained)
    for name in ("centres", "weights", "A", "b"):
        np.testing.assert_allclose(getattr(refit, name), expected[name], rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(refit.noise, np.diag(expected["residual"]), rtol=1e-9)
    np.testing.assert_allclose(refit.gammas, expected["gammas"], rtol=1e-4)  # Γ has a floor
    prior = 3.0
    spread = model.refit(
        x, y, constrained=constrained, settings=replace(settings, spread_prior=prior)
    ).spread
    # As in a fit, the spread comes from a last E-step, with the new parameters.
    r, _ = oracles.e_step(refit, x, y)
    for k in range(K):
        e = y - (x - expected["centres"][k]) @ expected["A"][k].T - expected["b"][k]
        ratio = (r[:, k, None] * e**2).sum(axis=0) / refit.noise
        np.testing.assert_allclose(spread[k], (prior + ratio) / (prior + r[:, k].sum()), rtol=1e-8)


def test_refits_leave_out_their_folds() -> None:
    """One E-step for all folds gives the same models as a refit to the other rows of each."""
    x = Sphere().grid(12.0)
    y = smooth_cues(Sphere(), x, 0.5)
    model = PPAM.fit(Sphere(), x, y, components=12, latent=2, seed=0)
    order = np.random.default_rng(1).permutation(len(x))
    folds = [order[:20], order[20:60], order[60:61]]
    refits = list(model.refits(x, y, folds))
    assert len(refits) == len(folds)
    for fold, refit in zip(folds, refits, strict=True):
        alone = model.refit(np.delete(x, fold, axis=0), np.delete(y, fold, axis=0))
        for name in ("centres", "weights", "gammas", "A", "b", "noise", "latent", "spread"):
            np.testing.assert_allclose(
                getattr(refit, name), getattr(alone, name), rtol=1e-7, atol=1e-9, err_msg=name
            )
        assert np.abs(refit.b - model.b).max() > 1e-3


def test_refit_forgets_held_out_data() -> None:
    """The refit without a tenth of the data predicts it as badly as a new model."""
    rng = np.random.default_rng(5)
    x = Sphere().grid(8.3)
    y = smooth_cues(Sphere(), x, 0.05)
    held_out = rng.permutation(len(x))[: len(x) // 10]
    y[held_out] += rng.normal(size=(len(held_out), 60))
    model = PPAM.fit(Sphere(), x, y, components=len(x) // 10, latent=0, seed=0)
    refit = model.refit(np.delete(x, held_out, axis=0), np.delete(y, held_out, axis=0))
    new = PPAM.fit(
        Sphere(), np.delete(x, held_out, axis=0), np.delete(y, held_out, axis=0),
        components=len(x) // 10, latent=0, seed=0,
    )  # fmt: skip
    trained, refitted, untrained = (
        np.mean((m.forward_map(x[held_out]) - y[held_out]) ** 2) for m in (model, refit, new)
    )
    assert trained < 0.9 * untrained
    assert refitted == pytest.approx(untrained, rel=0.05)


def test_permuting_components_permutes_result() -> None:
    """Weights are permuted with the components, and directions do not change."""
    model, (_, y) = random_model(2, spread=True), random_data()
    order = [2, 0, 1]
    fields = ("centres", "weights", "gammas", "A", "b", "spread")
    permuted = replace(model, **{name: getattr(model, name)[order] for name in fields})
    weights = model.inverse_batch(y)[0]
    np.testing.assert_allclose(permuted.inverse_batch(y)[0], weights[:, order], **EXACT)
    np.testing.assert_allclose(permuted.inverse_map(y), model.inverse_map(y), **EXACT)


def test_components_with_too_few_samples_are_dropped() -> None:
    """With 112 directions at most two components can have 45 each; others are dropped."""
    x = np.random.default_rng(6).uniform((-60, -40), (60, 40), (112, 2))
    settings = replace(PAPER, min_samples=45.0)
    model = PPAM.fit(PLANE, x, smooth_cues(PLANE, x, 0.1), components=3, settings=settings)
    assert 1 <= len(model.weights) <= 2
    np.testing.assert_allclose(model.weights.sum(), 1.0)
    assert np.isfinite(model.forward_log_density(x, smooth_cues(PLANE, x, 0.1))).all()


@pytest.mark.parametrize("centre", [(180.0, 0.0), (0.0, 90.0), (40.0, -90.0)])
def test_accuracy_is_equal_at_seam_and_poles(centre: tuple[float, float]) -> None:
    """Data around the seam or a pole give the same errors as data in front of the head."""
    sphere = Sphere()
    rng = np.random.default_rng(7)
    u = rng.uniform(-20, 20, (300, 2))
    maps = rng.normal(size=(2, 12))
    y = np.tanh(u @ maps / 25) * 10 + 0.05 * rng.normal(size=(300, 12))
    errors = []
    for middle in ((0.0, 0.0), centre):
        x = sphere.exp(np.array(middle), u)
        model = PPAM.fit(sphere, x[:240], y[:240], components=8)
        errors.append(great_circle_error(x[240:], model.inverse_map(y[240:])).mean())
    assert 0.01 < errors[1] < 1.0
    assert errors[1] < 2 * errors[0]


@pytest.mark.parametrize("space", [Sphere(), Cylinder((-90.0, 90.0)), Circle()])
def test_learns_on_every_space(space: Space) -> None:
    """Held-out directions are localized, with as few as 37 training directions on the circle."""
    rng = np.random.default_rng(10)
    if isinstance(space, Circle):
        x = np.stack([np.arange(37) * 360 / 37 - 179, np.zeros(37)], axis=1)
        test, components = x + np.array([3.0, 0.0]), 9
    else:
        test, components = space.grid(20.0), 40
        test = test[np.abs(test[:, 1]) < 70]
        x = space.grid(7.0) + rng.uniform(-0.2, 0.2, (len(space.grid(7.0)), 2))
        x = x[np.abs(x[:, 1]) < 89]
    model = PPAM.fit(space, x, smooth_cues(space, x, 0.02), components=components)
    error = great_circle_error(test, model.inverse_map(smooth_cues(space, test, 0.0)))
    assert 0.01 < np.median(error) < 2.0


def test_degenerate_data_give_finite_models() -> None:
    """Repeated directions, directions on a line and a constant cue give finite numbers."""
    x = np.repeat(np.stack([np.linspace(-50, 50, 10), np.zeros(10)], axis=1), 4, axis=0)
    y = np.stack([x[:, 0], np.ones(40), x[:, 0] ** 2], axis=1)
    model = PPAM.fit(PLANE, x, y, components=3)
    for name in ("A", "b", "gammas", "noise", "spread"):
        assert np.isfinite(getattr(model, name)).all()
    assert np.isfinite(model.inverse_map(y)).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"components": 0}, "components must be between"),
        ({"components": 9}, "components must be between"),
        ({"latent": 5}, "latent must be from 0"),
        ({"y": np.full((N, D), np.nan)}, "y must be finite"),
        ({"y": np.ones((N + 1, D))}, "y must be finite numbers of shape"),
        ({"x": np.ones((N, 3))}, "x must be an array of shape"),
    ],
)
def test_invalid_input_is_reported(change: dict[str, Any], message: str) -> None:
    """The message names the argument, and valid input works."""
    x, y = random_data()
    with pytest.raises(InputError, match=message):
        PPAM.fit(PLANE, **{"x": x, "y": y, "components": 1, **change})
    PPAM.fit(PLANE, x, y, components=1, latent=0)
