"""Look-up, SIR, MPLR and PHAT: against their definitions, and on maps that they must recover."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.linalg import eigh
from scipy.stats import multivariate_normal

pytest.importorskip("sklearn", reason="scikit-learn is an extra")

from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture

import earatlas as ea
from earatlas.baselines import mplr
from earatlas.baselines.lookup import LookUp
from earatlas.baselines.low_rank_gaussians import fit_low_rank_gaussians
from earatlas.baselines.mapping import InverseMap
from earatlas.baselines.mplr import MPLR
from earatlas.baselines.phat import PHAT, delay_grid
from earatlas.baselines.sir import SIR, covariance_spectrum, sliced_axes

PLANE = ea.Plane(((-60.0, 60.0), (-40.0, 40.0)))
PHASES = ea.CueLayout(ild_band_hz=None, ipd_band_hz=(0.0, 8000.0))


def affine_data(n: int, noise: float, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return directions, and 12 cues that are affine functions of them."""
    rng = np.random.default_rng(seed)
    x = rng.uniform((-60, -40), (60, 40), (n, 2))
    slopes, offset = np.random.default_rng(1).normal(size=(2, 12)), np.arange(12.0)
    return x, x @ slopes / 20 + offset + noise * rng.normal(size=(n, 12))


# --- look-up -------------------------------------------------------------------------------------


def test_look_up_returns_the_nearest_vector(rng: np.random.Generator) -> None:
    """The result equals the definition, also far from the origin and over several blocks."""
    spread = np.array([1.0, 5.0, 0.2, 0.0])  # the last cue is constant
    x, y = rng.uniform(-30, 30, (50, 2)), 1e4 + rng.normal(size=(50, 4)) * spread
    held_out = 1e4 + rng.normal(size=(1500, 4)) * spread
    model = LookUp.fit(PLANE, x, y)
    far = (((held_out[:, None, :3] - y[None, :, :3]) / y[:, :3].std(axis=0)) ** 2).sum(axis=-1)
    np.testing.assert_array_equal(model.inverse_map(held_out), x[np.argmin(far, axis=1)])
    np.testing.assert_array_equal(model.inverse_map(y), x)
    assert repr(model) == "LookUp(Plane, N=50, D=4)"


# --- SIR -----------------------------------------------------------------------------------------


def test_sir_axes_solve_the_eigenproblem(rng: np.random.Generator) -> None:
    """The axes solve Γ v = λ (S + ridge) v, computed with dense matrices."""
    N, D, H, ridge = 70, 6, 7, 0.03
    y = rng.normal(size=(N, D)) @ rng.normal(size=(D, D)) + 5
    target = y[:, 0] - 2 * y[:, 3] + rng.normal(size=N)
    centred = y - y.mean(axis=0)
    gamma = np.zeros((D, D))
    for part in np.array_split(np.argsort(target), H):
        mean = centred[part].mean(axis=0)
        gamma += len(part) / N * np.outer(mean, mean)
    S = centred.T @ centred / N
    _, vectors = eigh(gamma, S + ridge * np.trace(S) / D * np.eye(D))
    expected = vectors[:, ::-1][:, :2] / np.linalg.norm(vectors[:, ::-1][:, :2], axis=0)
    spectrum = covariance_spectrum(centred)
    found = sliced_axes(target, centred, spectrum, axes=2, slices=H, ridge=ridge)
    np.testing.assert_allclose(np.abs((found * expected).sum(axis=0)), 1.0, rtol=1e-9)


def test_sir_finds_the_relevant_axis(rng: np.random.Generator) -> None:
    """A monotone function of one axis of Gaussian data is recovered, as in Li (1991)."""
    y = rng.normal(size=(3000, 8)) * np.arange(1, 9)
    axis = np.array([3.0, -1, 0, 0, 1, 0, 0, 0.5])
    z = y @ axis / 10
    x = np.stack([z + 0.2 * z**3, -z], axis=1) * 5
    model = SIR.fit(PLANE, x[:2000], y[:2000], axes=1)
    found = model.axes[0, :, 0] / np.linalg.norm(model.axes[0])
    assert abs(found @ axis) / np.linalg.norm(axis) > 0.995
    error = np.abs(model.inverse_map(y[2000:]) - x[2000:])
    assert np.median(error) < 0.05 * x.std()
    far = model.inverse_map(1e3 * y[:5])  # a cubic polynomial would diverge
    assert (far >= x[:2000].min(axis=0)).all()
    assert (far <= x[:2000].max(axis=0)).all()
    assert repr(model) == "SIR-1(Plane, D=8, L=2)"


def test_sir_with_two_axes_is_better_than_one(small_head: ea.Head) -> None:
    """On the sphere two axes are better than one, but far from accurate, as in the paper."""
    y = small_head.cues()
    errors = []
    for axes in (1, 2):
        model = SIR.fit(ea.Sphere(), small_head.directions, y, axes=axes)
        found = model.inverse_map(y)
        errors.append(ea.great_circle_error(small_head.directions, found).mean())
    assert 2 < errors[1] < errors[0] < 80


# --- MPLR ----------------------------------------------------------------------------------------


def test_mplr_equals_the_conditional_expectation() -> None:
    """The result equals E[x | y] of Gaussians on [x; reduced y], from dense densities."""
    x, y = affine_data(60, noise=2.0)
    centred = (y - y.mean(axis=0)) / y.std(axis=0)
    _, sizes, axes = np.linalg.svd(centred, full_matrices=False)
    z = centred @ axes[:4].T / (sizes[0] / np.sqrt(59))
    pairs = np.hstack([(x - x.mean(axis=0)) / x.std(axis=0), z])
    joint = GaussianMixture(3, reg_covar=1e-2, max_iter=50, random_state=0).fit(pairs)
    expected = np.zeros((60, 2))
    for n in range(60):
        densities, values = np.empty(3), np.empty((3, 2))
        for k in range(3):
            mean, S = joint.means_[k], joint.covariances_[k]
            densities[k] = joint.weights_[k] * multivariate_normal(mean[2:], S[2:, 2:]).pdf(z[n])
            values[k] = mean[:2] + S[:2, 2:] @ np.linalg.inv(S[2:, 2:]) @ (z[n] - mean[2:])
        expected[n] = densities @ values / densities.sum() * x.std(axis=0) + x.mean(axis=0)
    model = MPLR.fit(PLANE, x, y, components=3, reduced=4, ridge=1e-2)
    np.testing.assert_allclose(model.inverse_map(y), expected, rtol=1e-6, atol=1e-6)
    assert repr(model) == "MPLR(Plane, K=3, D=12 as 4, L=2)"


def test_plain_mplr_uses_all_cues(monkeypatch: pytest.MonkeyPatch) -> None:
    """The result equals E[x | y] of Gaussians on [x; all cues], for any block size."""
    x, y = affine_data(90, noise=2.0)
    z = (y - y.mean(axis=0)) / y.std(axis=0)
    joint = GaussianMixture(3, reg_covar=1e-3, max_iter=5, random_state=4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        joint.fit(np.hstack([x, z]))
    expected = np.zeros((90, 2))
    for n in range(90):
        densities, values = np.empty(3), np.empty((3, 2))
        for k in range(3):
            mean, S = joint.means_[k], joint.covariances_[k]
            densities[k] = joint.weights_[k] * multivariate_normal(mean[2:], S[2:, 2:]).pdf(z[n])
            values[k] = mean[:2] + S[:2, 2:] @ np.linalg.inv(S[2:, 2:]) @ (z[n] - mean[2:])
        expected[n] = densities @ values / densities.sum()
    model = MPLR.fit_plain(PLANE, x, y, components=3, seed=4)
    for numbers in (2**22, 36 * 7, 1):
        monkeypatch.setattr(mplr, "_BLOCK_NUMBERS", numbers)
        np.testing.assert_allclose(model.inverse_map(y), expected, rtol=1e-9, atol=1e-9)
    assert repr(model) == "MPLR(Plane, K=3, D=12 as 12, L=2)"


def test_low_rank_gaussians_equal_dense_ones() -> None:
    """With about six samples per component of 14 dimensions, EM gives scikit-learn's densities."""
    x, y = affine_data(30, noise=0.5)
    z = np.hstack([x / 20, y])
    dense = GaussianMixture(5, reg_covar=1e-2, max_iter=3, random_state=2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        dense.fit(z)
    thin = fit_low_rank_gaussians(z, 5, ridge=1e-2, iterations=3, seed=2)
    assert min(factor.shape[1] for factor in thin.factors) < 14
    found = np.exp(thin.log_densities(z + 0.1)).sum(axis=0)
    np.testing.assert_allclose(np.log(found), dense.score_samples(z + 0.1), rtol=1e-9, atol=1e-9)


def test_mplr_with_one_component_is_linear_regression() -> None:
    """One Gaussian with a tiny ridge equals least squares on the reduced cues."""
    x, y = affine_data(80, noise=0.5)
    model = MPLR.fit(PLANE, x, y, components=1, reduced=5, ridge=1e-12)
    design = np.hstack([(y - model.offset) @ model.projection, np.ones((80, 1))])
    line = design @ np.linalg.lstsq(design, x, rcond=None)[0]
    np.testing.assert_allclose(model.inverse_map(y), line, rtol=1e-7, atol=1e-7)


def test_mplr_recovers_an_affine_map() -> None:
    """Held-out directions have errors below one degree with an automatically selected ridge."""
    x, y = affine_data(300, noise=0.01)
    model = MPLR.fit(PLANE, x[:200], y[:200], components=4)
    error = np.abs(model.inverse_map(y[200:]) - x[200:])
    assert 1e-3 < error.mean() < 1.0
    assert model.ridge in (1e-6, 3e-6, 1e-5, 3e-5, 1e-4, 1e-3)


def test_mplr_works_behind_the_head(small_head: ea.Head) -> None:
    """On the sphere the rear is as accurate as the front, because targets are unit vectors."""
    rear = np.abs(small_head.directions[:, 0]) > 150
    y = small_head.cues()
    model = MPLR.fit(ea.Sphere(), small_head.directions, y, components=8, reduced=12, ridge=1e-4)
    found = model.inverse_map(y)
    assert ea.great_circle_error(small_head.directions, found)[rear].mean() < 10
    assert model.means.shape == (8, 3)


# --- PHAT ----------------------------------------------------------------------------------------


def delay_cues(delays_seconds: np.ndarray, layout: ea.CueLayout) -> np.ndarray:
    """Return cue vectors of pure delays."""
    phase = -2 * np.pi * np.outer(delays_seconds, layout.frequencies_hz[layout.ipd_frequencies])
    ild = np.zeros((len(phase), len(layout.ild_frequencies)))
    return np.hstack([ild, np.cos(phase), np.sin(phase)])


@pytest.mark.parametrize("layout", [PHASES, ea.CueLayout()])
def test_phat_learns_azimuth_from_delay(layout: ea.CueLayout) -> None:
    """Delays proportional to frontal azimuths are learned; rear directions are left out."""
    azimuth = np.linspace(-170, 170, 41)
    folded = np.where(np.abs(azimuth) > 90, np.sign(azimuth) * 180 - azimuth, azimuth)
    x = np.stack([azimuth, np.zeros(41)], axis=1)
    y = delay_cues(folded / 90 * 7e-4, layout)
    model = PHAT.fit(PLANE, x, y, layout=layout)
    np.testing.assert_allclose(model.coefficients, [90 / 0.7, 0.0], atol=0.3)
    found = model.inverse_map(y)
    np.testing.assert_allclose(found[:, 0], folded, atol=0.4)
    assert np.isnan(found[:, 1]).all()


def test_phat_localizes_one_and_two_sources(small_head: ea.Head, rng: np.random.Generator) -> None:
    """Noise from the left, and then also from the right, is localized in ascending order."""
    layout = PHASES
    x = small_head.directions
    level = np.abs(x[:, 1]) <= 20
    model = PHAT.fit(ea.Sphere(), x[level], small_head.cues(layout)[level], layout=layout)
    sounds = [rng.normal(size=16_000), rng.normal(size=16_000)]
    one = ea.render_scene(small_head, sounds[:1], [(45.0, 0.0)])
    truth = one.directions[0, 0]
    assert model.localize(one.mixture)[0] == pytest.approx(truth, abs=7)
    active = (np.arange(16_000) // 2000 % 2).astype(float)  # the sources alternate
    two = ea.render_scene(
        small_head, [sounds[0] * active, sounds[1] * (1 - active)], [(45.0, 0.0), (-45.0, 0.0)]
    )
    right, left = model.localize(two.mixture, 2)
    assert right == pytest.approx(two.directions[1, 0], abs=7)
    assert left == pytest.approx(two.directions[0, 0], abs=7)


def test_delay_grid_has_half_sample_steps() -> None:
    """The default grid has 61 delays around 0."""
    np.testing.assert_allclose(delay_grid() * 16_000, np.arange(-15, 15.5, 0.5), atol=1e-12)


# --- all methods ---------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:.*not UTF-8")  # KU100 file
def test_errors_on_a_measured_head(data: Path) -> None:
    """Errors on the plane of KU100 are within bounds; none is so small that the truth leaked."""
    head = ea.read_sofa(data / "heads" / "ku100.sofa")
    azimuth, elevation = np.abs(head.directions).T
    head = head.subset((azimuth <= 160) & (elevation <= 60))
    order = np.random.default_rng(0).permutation(len(head))
    x, y, cut = head.directions, head.cues(), int(0.8 * len(head))
    training, held_out = order[:cut], order[cut:]
    space = ea.Plane()
    models: dict[str, tuple[InverseMap, float, float]] = {
        "look-up": (LookUp.fit(space, x[training], y[training]), 1.5, 4.0),
        "SIR-1": (SIR.fit(space, x[training], y[training], axes=1, ridge=1e-4), 20.0, 45.0),
        "SIR-2": (SIR.fit(space, x[training], y[training], axes=2, ridge=1e-4), 8.0, 25.0),
        "MPLR": (MPLR.fit(space, x[training], y[training], ridge=1e-5), 0.5, 3.0),
    }
    for name, (model, least, most) in models.items():
        error = ea.azimuth_error(x[held_out], model.inverse_map(y[held_out])).mean()
        assert least < error < most, name


@pytest.mark.parametrize("kind", [LookUp, SIR, MPLR, PHAT])
def test_invalid_pairs_raise(kind: Any) -> None:
    """All methods raise the same error, and following its remedy works."""
    more = {"layout": PHASES} if kind is PHAT else {}
    x, y = affine_data(40, noise=0.1)
    with pytest.raises(ea.InputError, match=r"y must be finite numbers of shape \(N, D\) with N"):
        kind.fit(PLANE, x, y[:-1], **more)
    with pytest.raises(ea.InputError, match=r"x must be an array of shape \(N, 2\)"):
        kind.fit(PLANE, x[:, :1], y, **more)
    if kind is PHAT:
        return
    few = {"components": 2} if kind is MPLR else {}
    model = kind.fit(PLANE, x, y, **few)
    with pytest.raises(ea.InputError, match=r"y must be finite numbers of shape \(N, 12\), got"):
        model.inverse_map(y[:, :5])
    with pytest.raises(ea.InputError, match="y must be finite"):
        model.inverse_map(np.full((1, 12), np.nan))
    assert model.inverse_map(y[:1]).shape == (1, 2)


def test_invalid_settings_raise() -> None:
    """Each error names the valid range."""
    x, y = affine_data(40, noise=0.1)
    with pytest.raises(ea.InputError, match=r"components must be between 1 and 20 for 40"):
        MPLR.fit(PLANE, x, y, components=64)
    with pytest.raises(ea.InputError, match=r"components must be between 1 and 20 for 40"):
        MPLR.fit_plain(PLANE, x, y, components=21)
    with pytest.raises(ea.InputError, match="reduced must be at least 1"):
        MPLR.fit(PLANE, x, y, components=2, reduced=0)
    with pytest.raises(ea.InputError, match="ridge must be positive"):
        MPLR.fit(PLANE, x, y, components=2, ridge=0.0)
    with pytest.raises(ea.InputError, match="slices must be between 2 and the 40"):
        SIR.fit(PLANE, x, y, slices=41)
    with pytest.raises(ea.InputError, match="axes must be between 1 and 4"):
        SIR.fit(PLANE, x, y, slices=5, axes=5)
    with pytest.raises(ea.InputError, match="degree must be at least 1"):
        SIR.fit(PLANE, x, y, degree=0)
    with pytest.raises(ea.InputError, match="ridge must be positive"):
        SIR.fit(PLANE, x, y, ridge=-1.0)
    with pytest.raises(ea.InputError, match="layout must be that of y"):
        PHAT.fit(PLANE, x, y, layout=PHASES)
    wide = delay_cues(np.zeros(3), PHASES)
    with pytest.raises(ea.InputError, match="x must have more than 1 frontal directions, got 1"):
        PHAT.fit(PLANE, [(0.0, 0.0), (100.0, 0.0), (120.0, 0.0)], wide, layout=PHASES)
