"""Candidate search: likelihoods, convex weights and choice of sets against plain loops."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
import oracles
import pytest
from scipy.stats import norm

import earatlas as ea
from earatlas.atlas import Atlas
from earatlas.features.layout import CueLayout
from earatlas.features.tf_bins import ObservedBins, full_band_layout
from earatlas.geometry.angles import great_circle_error
from earatlas.geometry.spaces import Circle, Sphere
from earatlas.ppam.model import PPAM
from earatlas.separation.candidate_search import (
    CandidateSearch,
    CandidateSearchSettings,
    SourceCandidates,
    _likelihoods,
    _log_likelihoods,
    convex_weights,
    loudest,
)

DEFAULTS = CandidateSearchSettings()  # w_0 = 0.1
LAYOUT = CueLayout(rate=16, window=16, hop=2, ild_band_hz=(0.0, 7.0), ipd_band_hz=(2.0, 5.0))
SINGLE: dict[str, Any] = {"rtol": 1e-4, "atol": 2e-4}  # likelihoods are float32


def make_model(space: Sphere | Circle | None = None) -> PPAM:
    """Return a model without symmetries with four charts on the sphere or circle."""
    space = space or Sphere()
    rng, K, D, L = np.random.default_rng(1), 4, LAYOUT.n_cues, space.dims
    root = 10 * rng.normal(size=(K, L, L)) + 40 * np.eye(L)
    return PPAM(
        space=space,
        centres=np.stack([rng.uniform(-180, 180, K), np.full(K, 12.0)], axis=1),
        weights=np.array([0.4, 0.3, 0.2, 0.1]),
        gammas=root @ root.mT,
        A=0.05 * rng.normal(size=(K, D, L)),
        b=rng.normal(size=(K, D)),
        noise=rng.uniform(0.2, 1.0, D),
        latent=0.3 * rng.normal(size=(D, 2)),
        spread=rng.uniform(0.5, 2.0, (K, D)),
    )


def make_likelihoods(G: int = 7, N: int = 40) -> tuple[np.ndarray, np.ndarray]:
    """Return scaled p (G, N) and p_0 (N,) of bins from three of the directions."""
    rng = np.random.default_rng(2)
    sources = rng.choice([1, 4, 5], N)
    logs = -0.5 * ((np.arange(G)[:, None] - sources + rng.normal(0, 0.5, N)) / 0.7) ** 2
    diffuse = np.full(N, -3.0)
    top = np.maximum(logs.max(axis=0), diffuse)
    return np.exp(logs - top).astype(np.float32), np.exp(diffuse - top).astype(np.float32)


def plain_em(
    p: np.ndarray, diffuse: np.ndarray, diffuse_weight: float, iterations: int
) -> tuple[list[float], float]:
    """Return weights and log-likelihood by plain EM over loops."""
    G, N = p.shape
    w = [(1 - diffuse_weight) / G] * G + [diffuse_weight]
    for _ in range(iterations):
        new = [0.0] * (G + 1)
        for n in range(N):
            joint = [w[g] * float(p[g, n]) for g in range(G)] + [w[G] * float(diffuse[n])]
            for g in range(G + 1):
                new[g] += joint[g] / sum(joint) / N
        w = new
    fit = sum(
        np.log(sum(w[g] * float(p[g, n]) for g in range(G)) + w[G] * float(diffuse[n]))
        for n in range(N)
    )
    return w, float(fit)


@pytest.mark.parametrize("iterations", [1, 2, 3])
def test_convex_weights_equal_plain_em(iterations: int) -> None:
    """The weights equal those of plain EM before the first pruning."""
    p, diffuse = make_likelihoods()
    w, fit = convex_weights(p, diffuse, DEFAULTS, iterations)
    expected, likelihood = plain_em(p, diffuse, 0.1, iterations)
    np.testing.assert_allclose(w, expected[:-1], rtol=1e-5)
    np.testing.assert_allclose(fit, likelihood, rtol=1e-5)


def test_convex_weights_find_the_maximum() -> None:
    """With pruning, the result is still the unique maximum of the convex problem."""
    p, diffuse = make_likelihoods()
    w, fit = convex_weights(p, diffuse, DEFAULTS, 200)
    expected, likelihood = plain_em(p, diffuse, 0.1, 200)
    assert (w == 0).any()
    np.testing.assert_allclose(w, expected[:-1], atol=2e-3)
    np.testing.assert_allclose(fit, likelihood, rtol=1e-4)
    # At the maximum no weight can be increased with a gain: Σ_n p_gn / p_n <= N.
    gain = (p / (w @ p + (1 - w.sum()) * diffuse)).sum(axis=1) / p.shape[1]
    assert gain.max() < 1.02
    np.testing.assert_allclose(gain[w > 0.05], 1.0, atol=0.01)


def test_likelihood_never_decreases() -> None:
    """The likelihood never decreases with more iterations, and pruning hardly lowers it."""
    p, diffuse = make_likelihoods()
    pruned = [convex_weights(p, diffuse, DEFAULTS, i)[1] for i in range(1, 40)]
    unpruned, fits = CandidateSearchSettings(prune_interval=1000), []
    for iterations in range(1, 40):
        w, fit = convex_weights(p, diffuse, unpruned, iterations)
        assert w.min() >= 0
        assert w.sum() < 1 + 1e-6
        fits.append(fit)
    assert np.diff(fits).min() > -1e-4
    assert fits[-1] > fits[0] + 5
    np.testing.assert_allclose(pruned, fits, atol=2e-3 * p.shape[1])


def test_log_likelihoods_against_loops() -> None:
    """They are sums of normal log densities with the variances of the map and of the frame."""
    settings = CandidateSearchSettings(spacing_degrees=40.0, noises=((0.7, 0.02), (5.0, 0.3)))
    search, bins = (
        CandidateSearch(make_model(), LAYOUT, settings),
        oracles.random_bins(LAYOUT, 5, 3),
    )
    means, variances = make_model().expected_cues(search.grid)
    y = oracles.dense_cues(bins)
    for coefficients, (ild, ipd) in zip(search._coefficients, settings.noises, strict=True):
        expected = np.zeros((len(search.grid), len(bins)))
        for g in range(len(search.grid)):
            for n, (f, t) in enumerate(zip(bins.f, bins.t, strict=True)):
                for d in np.flatnonzero(LAYOUT.cue_frequencies == f):
                    noise = ild if LAYOUT.cue_kinds[d] == "ild" else ipd
                    deviation = np.sqrt(variances[g, d] + noise)
                    expected[g, n] += norm(means[g, d], deviation).logpdf(y[d, t])
        np.testing.assert_allclose(_log_likelihoods(bins, coefficients), expected, **SINGLE)
        rows = np.array([1, 4, 5, 11])
        p, diffuse, scale = _likelihoods(bins, coefficients, rows)
        unscaled_diffuse = bins.diffuse_log_likelihood()
        top = np.maximum(expected[rows].max(axis=0), unscaled_diffuse)
        np.testing.assert_allclose(p, np.exp(expected[rows] - top), **SINGLE)
        np.testing.assert_allclose(diffuse, np.exp(unscaled_diffuse - top), **SINGLE)
        np.testing.assert_allclose(scale, top.sum(), rtol=1e-4)


@pytest.mark.parametrize("sources", [1, 2, 3])
def test_best_sets_equal_brute_force(sources: int) -> None:
    """The best sets are the first of all sets in order of their likelihood."""
    p, diffuse = make_likelihoods()
    directions = np.random.default_rng(4).uniform(-80, 80, (len(p), 2))
    candidates = SourceCandidates(directions, p, diffuse, np.ones(9) / 9, DEFAULTS)
    scores = {}
    for chosen in combinations(range(len(p)), sources):
        scores[chosen] = sum(
            np.log(0.9 / sources * sum(float(p[g, n]) for g in chosen) + 0.1 * float(diffuse[n]))
            for n in range(len(diffuse))
        )
    order = sorted(scores, key=lambda chosen: -scores[chosen])
    assert len(candidates.best_sets(sources, 4)) == 4
    for found, chosen in zip(candidates.best_sets(sources, 1000), order, strict=True):
        np.testing.assert_array_equal(found, directions[list(chosen)])


def test_number_of_compared_sets_is_bounded() -> None:
    """Only the candidates with the largest weights are combined."""
    few = CandidateSearchSettings(max_sets=10)
    p, diffuse = make_likelihoods()
    directions = np.arange(14.0).reshape(7, 2)
    candidates = SourceCandidates(directions, p, diffuse, np.ones(9) / 9, few)
    assert len(candidates.best_sets(3, 100)) == 10  # three of five candidates
    assert max(chosen.max() for chosen in candidates.best_sets(3, 100)) == directions[4].max()


def test_loudest_bins_against_loops() -> None:
    """The loudest bins are selected among the loudest of each frequency per three frames."""
    bins = oracles.random_bins(LAYOUT, 11, 5)
    best: dict[tuple[int, int], int] = {}
    for n, (f, t) in enumerate(zip(bins.f.tolist(), bins.t.tolist(), strict=True)):
        cell = (f, t // 3)
        if cell not in best or bins.level_db[n] > bins.level_db[best[cell]]:
            best[cell] = n
    expected = sorted(best.values())
    assert len(expected) < len(bins)
    np.testing.assert_array_equal(loudest(bins, 1000, 3), expected)
    few = sorted(sorted(expected, key=lambda n: -bins.level_db[n])[:9])
    np.testing.assert_array_equal(loudest(bins, 9, 3), few)
    np.testing.assert_array_equal(loudest(bins, 1000, 1), np.arange(len(bins)))
    assert len(loudest(bins, 0, 3)) == 0
    assert len(loudest(bins.subset(np.arange(0)), 9, 3)) == 0


@pytest.fixture(scope="module")
def observed(atlas: Atlas) -> ObservedBins:
    """Return the observed bins of two synthetic talkers, left and right."""
    directions = np.array([[55.0, 10.0], [-40.0, -5.0]])
    scene = ea.render_scene(
        ea.simulated_head(directions),
        [ea.synthetic_speech(2.0, seed=1), ea.synthetic_speech(2.0, seed=2)],
        directions,
    )
    layout = full_band_layout(atlas.layout)
    spectra = ea.stft(scene.mixture.samples, layout.window, layout.hop)
    return ObservedBins.from_spectra(spectra, layout, np.full(layout.n_frequencies, -50.0))


def test_candidates_are_apart_and_include_the_sources(atlas: Atlas, observed: ObservedBins) -> None:
    """There are 16 candidates at least 10 degrees apart; the best pair is near the truth."""
    candidates = CandidateSearch(atlas.model, atlas.layout).search(observed)
    assert candidates.candidates.shape == (16, 2)
    assert candidates.likelihoods.shape == (16, len(candidates.diffuse_likelihood))
    distances = great_circle_error(candidates.candidates[:, None], candidates.candidates[None])
    assert distances[~np.eye(16, dtype=bool)].min() >= 10.0
    assert 0.3 < candidates.weights.sum() < 1 + 1e-6
    pair = candidates.best_sets(2, 1)[0]
    truth = np.array([[55.0, 10.0], [-40.0, -5.0]])
    errors = great_circle_error(truth[:, None], pair[None]).min(axis=1)
    assert 0.05 < errors.max() < 12.0


def test_missing_candidates_are_filled_up(atlas: Atlas, observed: ObservedBins) -> None:
    """With few bins few directions stay active; distant directions complete the candidates."""
    search = CandidateSearch(atlas.model, atlas.layout)
    few = observed.subset(np.arange(0, len(observed), len(observed) // 6))
    candidates = search.search(few)
    assert candidates.candidates.shape == (16, 2)
    distances = great_circle_error(candidates.candidates[:, None], candidates.candidates[None])
    assert distances[~np.eye(16, dtype=bool)].min() >= 10.0
    coarse = CandidateSearch(
        atlas.model, atlas.layout, CandidateSearchSettings(spacing_degrees=60.0)
    )
    assert len(coarse.grid) < 16
    assert len(coarse.search(observed).candidates) == len(coarse.grid)


def test_grid_of_a_circle_has_the_measured_elevation() -> None:
    """A circle has no elevation: its grid has the median elevation of the charts."""
    search = CandidateSearch(
        make_model(Circle()), LAYOUT, CandidateSearchSettings(spacing_degrees=30.0)
    )
    assert search.grid.shape[1] == 2
    np.testing.assert_array_equal(search.grid[:, 1], 12.0)
    assert len(np.unique(search.grid[:, 0])) == len(search.grid) == 12


@pytest.mark.parametrize("scatter", [0.2, 4.0])
def test_noise_with_the_higher_likelihood_is_chosen(scatter: float) -> None:
    """The choice is right for small and large scatter, in any order of the noises."""
    model, bins = make_model(), oracles.random_bins(LAYOUT, 40, 6)
    model = replace(model, A=0.2 * model.A)  # no direction explains a scatter of 4 dB
    cues, rng = model.forward_map([[30.0, 10.0]])[0], np.random.default_rng(7)
    values: list[np.ndarray] = []
    for kind in bins.kinds:
        d = np.repeat(np.arange(kind.cues.start, kind.cues.stop), kind.counts)
        values.append(cues[d] + rng.normal(0, scatter if len(values) == 0 else 0.1, len(d)))
    bins = replace(bins, values=tuple(values))
    small, large = (0.01, 0.001), (16.0, 0.01)
    own = small if scatter < 1 else large
    results = [
        CandidateSearch(
            model, LAYOUT, CandidateSearchSettings(spacing_degrees=30.0, noises=noises)
        ).search(bins)
        for noises in ((own,), (small, large), (large, small))
    ]
    for candidates in results[1:]:
        np.testing.assert_array_equal(candidates.weights, results[0].weights)
        np.testing.assert_array_equal(candidates.likelihoods, results[0].likelihoods)
