"""PPAM against the loops of `oracles`, its invariants, and maps that it must recover."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import numpy as np
import oracles
import pytest

from earatlas.errors import InputError
from earatlas.features.statistics import CueStatistics
from earatlas.geometry.angles import great_circle_error
from earatlas.geometry.spaces import Circle, Cylinder, Plane, Space, Sphere
from earatlas.ppam.em import EM, Learning
from earatlas.ppam.model import PPAM

N, K, D, L, T = 7, 3, 5, 2, 4
PLANE = Plane(((-60.0, 60.0), (-40.0, 40.0)))
EXACT: dict[str, Any] = {"rtol": 1e-9, "atol": 1e-11}
PAPER = Learning(temperature=1.0, spread_prior=None, starts=1, tolerance=1e-9)


def some_model(latent: int, *, space: Space = PLANE, spread: bool = False, seed: int = 3) -> PPAM:
    """A model with nothing round about it: correlated, unequal, every axis of its own size."""
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


def some_data(n: int = N, seed: int = 4) -> tuple[np.ndarray, np.ndarray]:
    """Directions and cues that have nothing to do with each other."""
    rng = np.random.default_rng(seed)
    return rng.uniform(-25, 25, (n, L)), rng.normal(size=(n, D)) * 4 + 10


def em_of(
    x: np.ndarray, y: np.ndarray, latent: int = 0, how: Learning = PAPER, constrained: bool = True
) -> EM:
    """EM on the plane that drops nothing."""
    return EM(PLANE, x, y, replace(how, least_samples=0.0), latent, constrained)


def piecewise(space: Space, x: np.ndarray, noise: float, seed: int = 0) -> np.ndarray:
    """Smooth cues of 60 channels on a sphere or a part of it."""
    rng = np.random.default_rng(seed)
    az, el = np.radians(x).T
    v = np.stack([np.cos(az) * np.cos(el), np.sin(az) * np.cos(el), np.sin(el)], axis=1)
    curved = np.tanh(v @ rng.normal(size=(3, 60)) * 1.5 + rng.normal(size=60) * 0.3)
    return 5 * curved + noise * rng.normal(size=(len(x), 60))


@pytest.mark.parametrize("latent", [0, 2])
@pytest.mark.parametrize("temperature", [1.0, 3.5])
def test_e_step_is_the_loop(latent: int, temperature: float) -> None:
    """Responsibilities and log-likelihood equal the dense ones, latent coordinates or not."""
    (x, y), model = some_data(), some_model(latent)
    em = em_of(x, y, latent, replace(PAPER, temperature=temperature))
    local = replace(model, b=model.b - em.offset)
    r, likelihood = oracles.e_step(model, x, y, temperature)
    blocks = list(em.responsibilities(local))
    np.testing.assert_allclose(np.concatenate([block.r for block in blocks]), r, **EXACT)
    np.testing.assert_allclose(em.moments(local).log_likelihood, likelihood, rtol=1e-9)


@pytest.mark.parametrize("constrained", [True, False])
def test_m_step_is_the_loop(constrained: bool) -> None:
    """Centres, volumes, maps and noise equal weighted least squares done one by one."""
    (x, y), model = some_data(23), some_model(0)
    em = em_of(x, y, constrained=constrained)
    local = replace(model, b=model.b - em.offset)
    new = em.maximize(model.centres, em.moments(local), (model.noise, model.latent))
    r, _ = oracles.e_step(model, x, y)
    expected = oracles.m_step(x, y, r, constrained=constrained)
    for name in ("centres", "weights", "A"):
        np.testing.assert_allclose(getattr(new, name), expected[name], rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(new.b + em.offset, expected["b"], rtol=1e-9)
    np.testing.assert_allclose(new.noise, np.diag(expected["residual"]), rtol=1e-9)
    # The floor that keeps Γ from determinant zero is a millionth.
    np.testing.assert_allclose(new.gammas, expected["gammas"], rtol=1e-4, atol=1e-4)


def test_m_step_carries_the_map_to_the_new_chart() -> None:
    """Near a pole, where east at the old centre is not east at the new one, the map still fits."""
    sphere, rng = Sphere(), np.random.default_rng(11)
    old, middle = np.array([[0.0, 88.0]]), np.array([90.0, 88.0])
    x = sphere.exp(middle, rng.uniform(-1, 1, (50, 2)))
    y = sphere.log(middle, x) @ rng.normal(size=(2, D)) + 3.0
    em = EM(sphere, x, y, replace(PAPER, least_samples=0.0), 0, True)
    moments = em.summed(em.assigned(old, np.zeros(50, dtype=np.intp)), 1)
    model = em.maximize(old, moments, None)
    assert great_circle_error(model.centres[0], middle) < 0.5
    np.testing.assert_allclose(PPAM.of(model).forward_map(x) + em.offset, y, atol=5e-3)


def test_spread_is_the_loop() -> None:
    """g = (prior + Σ_n r e² / (σ² + |B_d|²)) / (prior + r̄), as if of `prior` samples more."""
    (x, y), model = some_data(23), some_model(2)
    prior = 3.0
    spread = em_of(x, y, 2).with_spread(model, prior).spread
    r, _ = oracles.e_step(model, x, y)
    for k in range(K):
        e = y - (x - model.centres[k]) @ model.A[k].T - model.b[k]
        own = (r[:, k, None] * e**2).sum(axis=0) / (model.noise + (model.latent**2).sum(axis=1))
        np.testing.assert_allclose(spread[k], (prior + own) / (prior + r[:, k].sum()), rtol=1e-8)


def test_latent_m_step_is_dense_factor_analysis() -> None:
    """Noise and B equal an EM step on the residual scatter W, which the code never forms."""
    (x, y), model = some_data(23), some_model(2)
    em = em_of(x, y, latent=2)
    local = replace(model, b=model.b - em.offset)
    new = em.maximize(model.centres, em.moments(local), (model.noise, model.latent))
    r, _ = oracles.e_step(model, x, y)
    residual = oracles.m_step(x, y, r, constrained=True)["residual"]
    noise, latent = oracles.factor_step(residual, model.noise, model.latent)
    np.testing.assert_allclose(new.noise, noise, rtol=1e-8)
    np.testing.assert_allclose(new.latent, latent, rtol=1e-8)


@pytest.mark.parametrize(("latent", "spread"), [(0, False), (0, True), (2, False), (2, True)])
def test_posterior_is_the_dense_joint(latent: int, spread: bool) -> None:
    """With missing data, from Q, R, E alone: weights, means, covariances of the whole joint."""
    model = some_model(latent, spread=spread)
    rng = np.random.default_rng(8)
    y, seen = rng.normal(size=(D, T)) * 3, rng.random((D, T)) < 0.6
    seen[2] = False
    y[~seen] = np.nan
    Q, R, E = (np.where(seen, y**power, 0.0).sum(axis=1) for power in (0, 1, 2))
    R[2] = E[2] = np.nan
    posterior = model.posterior(CueStatistics(Q, R, E))
    weights, means, covariances = oracles.posterior(model, y, seen)
    np.testing.assert_allclose(posterior.weights, weights, **EXACT)
    np.testing.assert_allclose(posterior.means, means, **EXACT)
    np.testing.assert_allclose(posterior.covariances, covariances, **EXACT)


def test_posterior_is_the_design_formula_with_extended_coordinates() -> None:
    """The formula of docs/method.md with L' = L + L_w, for weights w_dt that are no counts."""
    model, rng = some_model(2), np.random.default_rng(9)
    y, w = rng.normal(size=(D, T)) * 3, rng.uniform(0.1, 2.0, (D, T))
    Q, R, E = w.sum(axis=1), (w * y).sum(axis=1), (w * y**2).sum(axis=1)
    posterior = model.posterior(CueStatistics(Q, R, E))
    weights, means, covariances = oracles.extended_posterior(model, Q, R, E)
    np.testing.assert_allclose(posterior.weights, weights, **EXACT)
    np.testing.assert_allclose(posterior.means, means, **EXACT)
    np.testing.assert_allclose(posterior.covariances, covariances, **EXACT)


def test_one_complete_frame_is_the_inverse_map() -> None:
    """T = 1 with all observed: `posterior` and the batched inverse agree."""
    model, (_, y) = some_model(2, spread=True), some_data()
    weights, means, covariances = model.inverse_batch(y)
    for n in range(N):
        posterior = model.inverse_density(y[n])
        np.testing.assert_allclose(weights[n], posterior.weights, **EXACT)
        np.testing.assert_allclose(means[n], posterior.means, **EXACT)
        np.testing.assert_allclose(covariances, posterior.covariances, **EXACT)
        np.testing.assert_allclose(model.inverse_map(y[n : n + 1])[0], posterior.best, **EXACT)


def test_forward_density_and_map_are_the_loop() -> None:
    """p(y | x) is the gated sum of dense Gaussians, E[y | x] its mean."""
    model, (x, y) = some_model(2, spread=True), some_data()
    _, joint = oracles.e_step(model, x[:1], y[:1])
    logs, u = model.gates(x[:1])
    gate = np.exp(logs[0])
    np.testing.assert_allclose(
        model.forward_log_density(x[:1], y[:1])[0], joint - np.log(gate.sum()), rtol=1e-9
    )
    mean = sum(g * (model.A[k] @ u[0, k] + model.b[k]) for k, g in enumerate(gate / gate.sum()))
    np.testing.assert_allclose(model.forward_map(x[:1])[0], mean, rtol=1e-9)


@pytest.mark.parametrize("latent", [0, 3])
@pytest.mark.parametrize("temperature", [1.0, 4.0])
@pytest.mark.parametrize("constrained", [True, False])
def test_likelihood_never_falls(latent: int, temperature: float, constrained: bool) -> None:
    """On the plane, while no component is dropped, every iteration gains."""
    rng = np.random.default_rng(1)
    x = rng.uniform((-60, -40), (60, 40), (300, 2))
    how = replace(PAPER, temperature=temperature, iterations=25, least_samples=0.5)
    model = PPAM.fit(
        PLANE, x, piecewise(PLANE, x, 0.3), components=6, latent=latent,
        constrained=constrained, learning=how,
    )  # fmt: skip
    history = np.array(model.log_likelihoods)
    assert len(history) > 5
    assert len(model.weights) == 6
    assert np.diff(history).min() > -1e-6 * np.abs(history).max()


def test_a_fall_is_not_convergence(monkeypatch: pytest.MonkeyPatch) -> None:
    """A likelihood that falls a little runs on to the last iteration."""
    x, y = some_data(40)
    em = em_of(x, y, how=replace(PAPER, tolerance=1e3))
    falling = iter(np.linspace(0.0, -1.0, 10))
    real = em.moments
    monkeypatch.setattr(
        EM, "moments", lambda _, model: replace(real(model), log_likelihood=next(falling))
    )
    model = em.run(em.start(2, np.random.default_rng(0)), 6)
    assert not model.converged
    assert len(model.log_likelihoods) == 7


def test_blocks_change_nothing() -> None:
    """A memory setting of a few rows a block gives the same model."""
    x = np.random.default_rng(2).uniform((-60, -40), (60, 40), (120, 2))
    y = piecewise(PLANE, x, 0.2)
    whole, pieces = (
        PPAM.fit(PLANE, x, y, components=4, learning=Learning(block_megabytes=mb, iterations=5))
        for mb in (100.0, 0.005)
    )
    np.testing.assert_allclose(pieces.A, whole.A, rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(pieces.spread, whole.spread, rtol=1e-7)


@pytest.mark.parametrize("start", ["directions", "joint"])
def test_recovers_a_piecewise_affine_map(start: Literal["directions", "joint"]) -> None:
    """Two half-planes with their own maps: both are found, exactly, and the noise with them."""
    rng = np.random.default_rng(5)
    x = rng.uniform((-60, -40), (60, 40), (400, 2))
    maps, offsets = rng.normal(size=(2, 6, 2)), rng.normal(size=(2, 6)) * 40
    side = (x[:, 0] > 5).astype(int)
    clean = np.einsum("ndl,nl->nd", maps[side], x) + offsets[side]
    y = clean + 0.1 * rng.normal(size=clean.shape)
    how = replace(PAPER, start=start, starts=4)
    model = PPAM.fit(PLANE, x, y, components=2, latent=0, constrained=False, learning=how)
    assert model.converged
    order = np.argsort(model.centres[:, 0])
    np.testing.assert_allclose(model.A[order], maps, atol=2e-3)
    left = np.mean((y - clean) ** 2, axis=0)  # a little is lost to what was fitted
    np.testing.assert_allclose(model.noise, left, rtol=0.03)
    assert (model.noise < left).all()
    assert np.abs(model.inverse_map(clean) - x).max() < 0.05


@pytest.mark.parametrize("constrained", [True, False])
def test_refit_is_one_step_on_the_other_pairs(constrained: bool) -> None:
    """Maps and noise are the M-step of the model's own responsibilities, spread or not."""
    (x, y), model = some_data(23), some_model(0, spread=True)
    how = replace(PAPER, least_samples=0.0)
    refit = model.refitted(x, y, constrained=constrained, learning=how)
    r, _ = oracles.e_step(replace(model, spread=np.ones((K, D))), x, y)
    expected = oracles.m_step(x, y, r, constrained=constrained)
    for name in ("centres", "weights", "A", "b"):
        np.testing.assert_allclose(getattr(refit, name), expected[name], rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(refit.noise, np.diag(expected["residual"]), rtol=1e-9)
    np.testing.assert_allclose(refit.gammas, expected["gammas"], rtol=1e-4)  # there is a floor
    own = model.refitted(x, y, learning=replace(how, spread_prior=3.0)).spread
    assert own.shape == (K, D)
    assert own.min() < 0.9 < 1.1 < own.max()


def test_refit_does_not_know_what_was_left_out() -> None:
    """A tenth with cues of its own: a model that learned it knows it, its refit does not."""
    rng = np.random.default_rng(5)
    x = Sphere().grid(8.3)
    y = piecewise(Sphere(), x, 0.05)
    out = rng.permutation(len(x))[: len(x) // 10]
    y[out] += rng.normal(size=(len(out), 60))
    model = PPAM.fit(Sphere(), x, y, components=len(x) // 10, latent=0, seed=0)
    refit = model.refitted(np.delete(x, out, axis=0), np.delete(y, out, axis=0))
    rest = PPAM.fit(
        Sphere(), np.delete(x, out, axis=0), np.delete(y, out, axis=0),
        components=len(x) // 10, latent=0, seed=0,
    )  # fmt: skip
    seen, unseen, never = (
        np.mean((m.forward_map(x[out]) - y[out]) ** 2) for m in (model, refit, rest)
    )
    assert seen < 0.9 * never
    assert unseen == pytest.approx(never, rel=0.05)


def test_relabelling_components_relabels_the_answer() -> None:
    """The order of components is no part of the model."""
    model, (_, y) = some_model(2, spread=True), some_data()
    order = [2, 0, 1]
    fields = ("centres", "weights", "gammas", "A", "b", "spread")
    turned = replace(model, **{name: getattr(model, name)[order] for name in fields})
    weights = model.inverse_batch(y)[0]
    np.testing.assert_allclose(turned.inverse_batch(y)[0], weights[:, order], **EXACT)
    np.testing.assert_allclose(turned.inverse_map(y), model.inverse_map(y), **EXACT)


def test_components_with_too_few_samples_are_dropped() -> None:
    """Of 112 directions only two components can have 45 each: of three, at least one goes."""
    x = np.random.default_rng(6).uniform((-60, -40), (60, 40), (112, 2))
    how = replace(PAPER, least_samples=45.0)
    model = PPAM.fit(PLANE, x, piecewise(PLANE, x, 0.1), components=3, learning=how)
    assert 1 <= len(model.weights) <= 2
    np.testing.assert_allclose(model.weights.sum(), 1.0)
    assert np.isfinite(model.forward_log_density(x, piecewise(PLANE, x, 0.1))).all()


@pytest.mark.parametrize("place", [(180.0, 0.0), (0.0, 90.0), (40.0, -90.0)])
def test_seam_and_poles_cost_nothing(place: tuple[float, float]) -> None:
    """Turned to the seam or a pole, the same data give the same errors as ahead of the head."""
    sphere = Sphere()
    rng = np.random.default_rng(7)
    u = rng.uniform(-20, 20, (300, 2))
    maps = rng.normal(size=(2, 12))
    y = np.tanh(u @ maps / 25) * 10 + 0.05 * rng.normal(size=(300, 12))
    errors = []
    for centre in ((0.0, 0.0), place):
        x = sphere.exp(np.array(centre), u)
        model = PPAM.fit(sphere, x[:240], y[:240], components=8)
        errors.append(great_circle_error(x[240:], model.inverse_map(y[240:])).mean())
    assert 0.01 < errors[1] < 1.0
    assert errors[1] < 2 * errors[0]


@pytest.mark.parametrize("space", [Sphere(), Cylinder((-90.0, 90.0)), Circle()])
def test_learns_on_every_space(space: Space) -> None:
    """Held-out directions all round are found, from as few as 37 on the circle."""
    rng = np.random.default_rng(10)
    if isinstance(space, Circle):
        x = np.stack([np.arange(37) * 360 / 37 - 179, np.zeros(37)], axis=1)
        ask, components = x + np.array([3.0, 0.0]), 9
    else:
        ask, components = space.grid(20.0), 40
        ask = ask[np.abs(ask[:, 1]) < 70]
        x = space.grid(7.0) + rng.uniform(-0.2, 0.2, (len(space.grid(7.0)), 2))
        x = x[np.abs(x[:, 1]) < 89]
    model = PPAM.fit(space, x, piecewise(space, x, 0.02), components=components)
    error = great_circle_error(ask, model.inverse_map(piecewise(space, ask, 0.0)))
    assert 0.01 < np.median(error) < 2.0


def test_equal_points_and_constant_channels_are_survived() -> None:
    """Repeated directions, points on a line, a channel that never varies: finite, no warning."""
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
def test_bad_input_is_named(change: dict[str, Any], message: str) -> None:
    """The message names the argument, and its remedy works."""
    x, y = some_data()
    with pytest.raises(InputError, match=message):
        PPAM.fit(PLANE, **{"x": x, "y": y, "components": 1, **change})
    PPAM.fit(PLANE, x, y, components=1, latent=0)
