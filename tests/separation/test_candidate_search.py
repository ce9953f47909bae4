"""The scout: its likelihoods, its convex problem and its choice of sets against plain loops."""

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
from earatlas.features.tf_bins import HeardBins, wide_layout
from earatlas.geometry.angles import great_circle_error
from earatlas.geometry.spaces import Circle, Sphere
from earatlas.ppam.model import PPAM
from earatlas.separation.candidate_search import (
    Scout,
    Scouting,
    Sighting,
    _likelihoods,
    _log_likelihoods,
    convex_weights,
    loudest,
)

LAYOUT = CueLayout(rate=16, window=16, hop=2, ild_band_hz=(0.0, 7.0), ipd_band_hz=(2.0, 5.0))
SINGLE: dict[str, Any] = {"rtol": 1e-4, "atol": 2e-4}  # likelihoods are float32


def some_model(space: Sphere | Circle | None = None) -> PPAM:
    """Four charts on the sphere or circle with nothing round about them."""
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


def some_likelihoods(G: int = 7, N: int = 40) -> tuple[np.ndarray, np.ndarray]:
    """p (G, N) and p_0 (N,) over the largest of each bin, from bins of a few of the directions."""
    rng = np.random.default_rng(2)
    near = rng.choice([1, 4, 5], N)
    logs = -0.5 * ((np.arange(G)[:, None] - near + rng.normal(0, 0.5, N)) / 0.7) ** 2
    nowhere = np.full(N, -3.0)
    top = np.maximum(logs.max(axis=0), nowhere)
    return np.exp(logs - top).astype(np.float32), np.exp(nowhere - top).astype(np.float32)


def em(
    p: np.ndarray, nowhere: np.ndarray, share: float, iterations: int
) -> tuple[list[float], float]:
    """Plain EM: responsibilities of every bin, then their means."""
    G, N = p.shape
    w = [(1 - share) / G] * G + [share]
    for _ in range(iterations):
        new = [0.0] * (G + 1)
        for n in range(N):
            joint = [w[g] * float(p[g, n]) for g in range(G)] + [w[G] * float(nowhere[n])]
            for g in range(G + 1):
                new[g] += joint[g] / sum(joint) / N
        w = new
    fit = sum(
        np.log(sum(w[g] * float(p[g, n]) for g in range(G)) + w[G] * float(nowhere[n]))
        for n in range(N)
    )
    return w, float(fit)


@pytest.mark.parametrize("iterations", [1, 2, 3])
def test_convex_weights_are_those_of_plain_em(iterations: int) -> None:
    """Before any direction is left out."""
    p, nowhere = some_likelihoods()
    w, fit = convex_weights(p, nowhere, 0.1, iterations)
    expected, likelihood = em(p, nowhere, 0.1, iterations)
    np.testing.assert_allclose(w, expected[:-1], rtol=1e-5)
    np.testing.assert_allclose(fit, likelihood, rtol=1e-5)


def test_convex_weights_find_the_maximum() -> None:
    """Losers are left out on the way, but the answer is plain EM's: a convex problem has one."""
    p, nowhere = some_likelihoods()
    w, fit = convex_weights(p, nowhere, 0.1, 200)
    expected, likelihood = em(p, nowhere, 0.1, 200)
    assert (w == 0).any()
    np.testing.assert_allclose(w, expected[:-1], atol=2e-3)
    np.testing.assert_allclose(fit, likelihood, rtol=1e-4)
    # At the maximum no direction would gain from more weight: Σ_n p_gn / p_n <= N.
    gain = (p / (w @ p + (1 - w.sum()) * nowhere)).sum(axis=1) / p.shape[1]
    assert gain.max() < 1.02
    np.testing.assert_allclose(gain[w > 0.05], 1.0, atol=0.01)


def test_likelihood_never_falls(monkeypatch: pytest.MonkeyPatch) -> None:
    """More iterations never explain the bins worse; what is left out costs next to nothing."""
    p, nowhere = some_likelihoods()
    pruned = [convex_weights(p, nowhere, 0.1, i)[1] for i in range(1, 40)]
    monkeypatch.setattr("earatlas.separation.candidate_search._PRUNE_EVERY", 1000)
    fits = []
    for iterations in range(1, 40):
        w, fit = convex_weights(p, nowhere, 0.1, iterations)
        assert w.min() >= 0
        assert w.sum() < 1 + 1e-6
        fits.append(fit)
    assert np.diff(fits).min() > -1e-4
    assert fits[-1] > fits[0] + 5
    np.testing.assert_allclose(pruned, fits, atol=2e-3 * p.shape[1])


def test_log_likelihoods_are_those_of_independent_channels() -> None:
    """Normal densities with the map's variance and the frame's, bin by bin, channel by channel."""
    how = Scouting(spacing_degrees=40.0, noises=((0.7, 0.02), (5.0, 0.3)))
    scout, bins = Scout(some_model(), LAYOUT, how), oracles.ragged_bins(LAYOUT, 5, 3)
    means, variances = some_model().expected_cues(scout.grid)
    y = oracles.spread_cues(bins)
    for forms, (ild, ipd) in zip(scout._forms, how.noises, strict=True):
        expected = np.zeros((len(scout.grid), len(bins)))
        for g in range(len(scout.grid)):
            for n, (f, t) in enumerate(zip(bins.f, bins.t, strict=True)):
                for d in np.flatnonzero(LAYOUT.cue_frequencies == f):
                    noise = ild if LAYOUT.cue_kinds[d] == "ild" else ipd
                    deviation = np.sqrt(variances[g, d] + noise)
                    expected[g, n] += norm(means[g, d], deviation).logpdf(y[d, t])
        np.testing.assert_allclose(_log_likelihoods(bins, forms), expected, **SINGLE)
        rows = np.array([1, 4, 5, 11])
        p, nowhere, scale = _likelihoods(bins, forms, rows)
        anywhere = bins.anywhere_log_likelihood()
        top = np.maximum(expected[rows].max(axis=0), anywhere)
        np.testing.assert_allclose(p, np.exp(expected[rows] - top), **SINGLE)
        np.testing.assert_allclose(nowhere, np.exp(anywhere - top), **SINGLE)
        np.testing.assert_allclose(scale, top.sum(), rtol=1e-4)


@pytest.mark.parametrize("sources", [1, 2, 3])
def test_best_sets_are_those_of_brute_force(sources: int) -> None:
    """All sets of candidates, the most probable first."""
    p, nowhere = some_likelihoods()
    places = np.random.default_rng(4).uniform(-80, 80, (len(p), 2))
    sighting = Sighting(places, p, nowhere, np.ones(9) / 9, 0.1)
    scores = {}
    for chosen in combinations(range(len(p)), sources):
        scores[chosen] = sum(
            np.log(0.9 / sources * sum(float(p[g, n]) for g in chosen) + 0.1 * float(nowhere[n]))
            for n in range(len(nowhere))
        )
    order = sorted(scores, key=lambda chosen: -scores[chosen])
    assert len(sighting.best_sets(sources, 4)) == 4
    for directions, chosen in zip(sighting.best_sets(sources, 1000), order, strict=True):
        np.testing.assert_array_equal(directions, places[list(chosen)])


def test_many_sources_choose_among_fewer_candidates(monkeypatch: pytest.MonkeyPatch) -> None:
    """The heaviest candidates, as many as may be compared."""
    monkeypatch.setattr("earatlas.separation.candidate_search._MOST_SETS", 10)
    p, nowhere = some_likelihoods()
    places = np.arange(14.0).reshape(7, 2)
    sighting = Sighting(places, p, nowhere, np.ones(9) / 9, 0.1)
    assert len(sighting.best_sets(3, 100)) == 10  # of five candidates
    assert max(place.max() for place in sighting.best_sets(3, 100)) == places[4].max()


def test_loudest_bins() -> None:
    """One bin of a frequency in every three frames, its loudest; of these the loudest."""
    bins = oracles.ragged_bins(LAYOUT, 11, 5)
    best: dict[tuple[int, int], int] = {}
    for n, (f, t) in enumerate(zip(bins.f.tolist(), bins.t.tolist(), strict=True)):
        cell = (f, t // 3)
        if cell not in best or bins.level_db[n] > bins.level_db[best[cell]]:
            best[cell] = n
    everything = sorted(best.values())
    assert len(everything) < len(bins)
    np.testing.assert_array_equal(loudest(bins, 1000, 3), everything)
    few = sorted(sorted(everything, key=lambda n: -bins.level_db[n])[:9])
    np.testing.assert_array_equal(loudest(bins, 9, 3), few)
    np.testing.assert_array_equal(loudest(bins, 1000, 1), np.arange(len(bins)))
    assert len(loudest(bins, 0, 3)) == 0
    assert len(loudest(bins.subset(np.arange(0)), 9, 3)) == 0


@pytest.fixture(scope="module")
def heard(atlas: Atlas) -> HeardBins:
    """Bins of murmurs from the left and from the right."""
    places = np.array([[55.0, 10.0], [-40.0, -5.0]])
    scene = ea.render_scene(
        ea.simulated_head(places),
        [ea.synthetic_speech(2.0, seed=1), ea.synthetic_speech(2.0, seed=2)],
        places,
    )
    layout = wide_layout(atlas.layout)
    spectra = ea.stft(scene.mixture.samples, layout.window, layout.hop)
    return HeardBins.of_spectra(spectra, layout, np.full(layout.n_frequencies, -50.0))


def test_candidates_are_apart_and_hold_the_sources(atlas: Atlas, heard: HeardBins) -> None:
    """Sixteen of them, ten degrees apart; the best pair of them is near the truth, not on it."""
    sighting = Scout(atlas.model, atlas.layout).look(heard)
    assert sighting.candidates.shape == (16, 2)
    assert sighting.likelihoods.shape == (16, len(sighting.nowhere))
    apart = great_circle_error(sighting.candidates[:, None], sighting.candidates[None])
    assert apart[~np.eye(16, dtype=bool)].min() >= 10.0
    assert 0.3 < sighting.weights.sum() < 1 + 1e-6
    pair = sighting.best_sets(2, 1)[0]
    truth = np.array([[55.0, 10.0], [-40.0, -5.0]])
    errors = great_circle_error(truth[:, None], pair[None]).min(axis=1)
    assert 0.05 < errors.max() < 12.0


def test_fewer_places_than_candidates_are_filled_up(atlas: Atlas, heard: HeardBins) -> None:
    """With a handful of bins few directions stay alive: the rest are far from them."""
    scout = Scout(atlas.model, atlas.layout)
    few = heard.subset(np.arange(0, len(heard), len(heard) // 6))
    sighting = scout.look(few)
    assert sighting.candidates.shape == (16, 2)
    apart = great_circle_error(sighting.candidates[:, None], sighting.candidates[None])
    assert apart[~np.eye(16, dtype=bool)].min() >= 10.0
    coarse = Scout(atlas.model, atlas.layout, Scouting(spacing_degrees=60.0))
    assert len(coarse.grid) < 16
    assert len(coarse.look(heard).candidates) == len(coarse.grid)


def test_grid_of_a_circle_is_where_it_was_measured() -> None:
    """A circle knows no elevation: its grid lies in the middle of the charts."""
    scout = Scout(some_model(Circle()), LAYOUT, Scouting(spacing_degrees=30.0))
    assert scout.grid.shape[1] == 2
    np.testing.assert_array_equal(scout.grid[:, 1], 12.0)
    assert len(np.unique(scout.grid[:, 0])) == len(scout.grid) == 12


@pytest.mark.parametrize("scatter", [0.2, 4.0])
def test_the_noise_that_explains_more_is_chosen(scatter: float) -> None:
    """Bins that keep to a direction or scatter widely around it, whichever noise stands first."""
    model, bins = some_model(), oracles.ragged_bins(LAYOUT, 40, 6)
    model = replace(model, A=0.2 * model.A)  # no direction explains a scatter of 4 dB
    cues, rng = model.forward_map([[30.0, 10.0]])[0], np.random.default_rng(7)
    values: list[np.ndarray] = []
    for kind in bins.kinds:
        d = np.repeat(np.arange(kind.cues.start, kind.cues.stop), kind.counts)
        values.append(cues[d] + rng.normal(0, scatter if len(values) == 0 else 0.1, len(d)))
    bins = replace(bins, values=tuple(values))
    small, large = (0.01, 0.001), (16.0, 0.01)
    own = small if scatter < 1 else large
    sightings = [
        Scout(model, LAYOUT, Scouting(spacing_degrees=30.0, noises=noises)).look(bins)
        for noises in ((own,), (small, large), (large, small))
    ]
    for sighting in sightings[1:]:
        np.testing.assert_array_equal(sighting.weights, sightings[0].weights)
        np.testing.assert_array_equal(sighting.likelihoods, sightings[0].likelihoods)
