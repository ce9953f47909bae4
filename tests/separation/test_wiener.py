"""The Wiener post-filter against loops over bins, written from its formulas."""

from __future__ import annotations

import numpy as np
import pytest

from earatlas.separation.demixing import wiener
from earatlas.separation.demixing.determined import SecondMoments
from earatlas.types import Array, Complex


def random_spectra(rng: np.random.Generator, F: int, T: int) -> Complex:
    """Return spectra (2, F, T)."""
    return np.asarray(rng.normal(size=(2, F, T)) + 1j * rng.normal(size=(2, F, T)))


def test_wiener_against_matrices() -> None:
    """The filter is v_m R_m (Σ v R)⁻¹ x in every bin."""
    rng = np.random.default_rng(3)
    M, F, T = 3, 4, 5
    X = rng.normal(size=(2, F, T)) + 1j * rng.normal(size=(2, F, T))
    A = rng.normal(size=(F, 2, M)) + 1j * rng.normal(size=(F, 2, M))
    v = rng.uniform(0.1, 2.0, size=(M, F, T))
    images = wiener.multichannel_wiener_filter(X, A, v, 0.3)
    for f in range(F):
        for t in range(T):
            R = [np.outer(A[f, :, m], A[f, :, m].conj()) + 0.3 * np.eye(2) for m in range(M)]
            total = sum(v[m, f, t] * R[m] for m in range(M))
            for m in range(M):
                expected = v[m, f, t] * R[m] @ np.linalg.solve(total, X[:, f, t])
                np.testing.assert_allclose(images[m, :, f, t], expected, rtol=1e-9)


def test_covariances_of_the_sum_against_matrices() -> None:
    """The inverse of S = Σ v R, and y = S⁻¹ x, in every bin."""
    rng = np.random.default_rng(5)
    M, F, T = 3, 4, 2
    X = random_spectra(rng, F, T)
    A = rng.normal(size=(F, 2, M)) + 1j * rng.normal(size=(F, 2, M))
    v = rng.uniform(0.1, 2.0, size=(M, F, T))
    R = wiener.SourceCovariances.from_steering_vectors(A, 0.2)
    inverse = R.inverse(v)
    left, right = R.whiten(X, inverse)
    for f in range(F):
        for t in range(T):
            S = sum(
                v[m, f, t] * (np.outer(A[f, :, m], A[f, :, m].conj()) + 0.2 * np.eye(2))
                for m in range(M)
            )
            P = np.linalg.inv(S)
            np.testing.assert_allclose(
                [part[f, t] for part in inverse], [P[0, 0], P[1, 1], P[0, 1]], rtol=1e-9
            )
            np.testing.assert_allclose([left[f, t], right[f, t]], P @ X[:, f, t], rtol=1e-9)


@pytest.mark.parametrize("M", [2, 3])
def test_source_powers_against_loops(M: int) -> None:
    """v = c |x|² with c = q + u r, or the geometric mean with the fractions of the filters."""
    rng = np.random.default_rng(M)
    F, T = 4, 7
    X = random_spectra(rng, F, T)
    moments, settings = SecondMoments.from_spectra(X), wiener.WienerSettings()
    q = rng.dirichlet(np.ones(M), (F, T)).transpose(2, 0, 1)
    A = rng.normal(size=(F, 2, 2)) + 1j * rng.normal(size=(F, 2, 2))
    fractions = moments.power_fractions(A) if M == 2 else None
    power = np.array([[np.sum(np.abs(X[:, f, t]) ** 2) for t in range(T)] for f in range(F)])
    floor = 1e-9 * power.max()
    activity = wiener.source_activity(q, power, 3.0)
    found = wiener.source_powers(moments, q, activity, settings, fractions=fractions)
    for t in range(1, T - 1):  # the moving average is mirrored at the ends
        near = (t - 1, t, t + 1)
        energy = np.array([sum(q[m, :, i] @ power[:, i] for i in near) for m in range(M)])
        r = np.clip((energy / energy.sum() - 0.01) / 0.09, 0, 1)
        for f in range(F):
            for m in range(M):
                c = q[m, f, t] + 0.1 * r[m]
                if M == 2:
                    y = np.linalg.solve(A[f], X[:, f, t])
                    own = [np.sum(np.abs(A[f, :, i] * y[i]) ** 2) for i in (0, 1)]
                    c = np.sqrt(c * (own[m] / (sum(own) + floor) + 0.02))
                assert found[m, f, t] == pytest.approx(c * power[f, t] + floor, rel=1e-9)


def test_activity_of_silent_and_soft_sources() -> None:
    """A source below 1 % of the energy is inactive, above 10 % active; silence has no activity."""
    energy: Array = np.array([[0.995, 0.9, 0.0], [0.005, 0.1, 0.0]])
    np.testing.assert_allclose(wiener.relative_activity(energy), [[1, 1, 0], [0, 1, 0]])


def test_diffuse_to_direct_ratio_follows_the_diffuse_level() -> None:
    """ε increases with the energy of diffuse noise."""
    rng = np.random.default_rng(5)
    A = rng.normal(size=(6, 2, 2)) + 1j * rng.normal(size=(6, 2, 2))
    A /= np.sqrt((np.abs(A) ** 2).sum(axis=1, keepdims=True))
    y = rng.normal(size=(2, 6, 400)) + 1j * rng.normal(size=(2, 6, 400))
    y[0, :, ::2], y[1, :, 1::2] = 0, 0  # one source at a time
    direct = np.einsum("fam,mft->aft", A, y)
    fractions = np.broadcast_to(
        np.stack([np.arange(400) % 2, 1 - np.arange(400) % 2])[:, None], y.shape
    )
    estimates = []
    for diffuse in (1e-3, 1e-2, 1e-1):
        noise = rng.normal(size=direct.shape) + 1j * rng.normal(size=direct.shape)
        estimates.append(
            wiener.estimate_diffuse_to_direct(
                SecondMoments.from_spectra(direct + diffuse * noise),
                A,
                fractions.astype(float),
                wiener.WienerSettings(),
            )
        )
    assert estimates[0] < estimates[1] < estimates[2] < 0.31
    assert estimates[0] < 1e-5
    assert estimates[2] > 1e-3


def test_diffuse_to_direct_ratio_against_loops() -> None:
    """ε is a scaled quantile of the best-fitting bins in which a source dominates."""
    rng = np.random.default_rng(9)
    F, T, M = 3, 60, 2
    X = random_spectra(rng, F, T)
    A = rng.normal(size=(F, 2, M)) + 1j * rng.normal(size=(F, 2, M))
    A /= np.linalg.norm(A, axis=1, keepdims=True)
    fractions = rng.dirichlet(np.ones(M), (F, T)).transpose(2, 0, 1)
    best = []
    for m in range(M):
        for f in range(F):
            own = sorted(
                1 - abs(np.vdot(A[f, :, m], X[:, f, t])) ** 2 / np.sum(np.abs(X[:, f, t]) ** 2)
                for t in range(T)
                if fractions[m, f, t] > 0.5
            )
            best.append(own[int(0.05 * (len(own) - 1))])
    settings = wiener.WienerSettings(max_diffuse_to_direct=100.0)
    for quantile in (0.1, 0.5):
        found = wiener.estimate_diffuse_to_direct(
            SecondMoments.from_spectra(X), A, fractions, settings, quantile=quantile
        )
        assert found == pytest.approx(16 * np.quantile(best, quantile), rel=1e-9)
