"""Onset mixture: mixing weights, one more source and model order, against loops over the bins."""

from dataclasses import replace

import numpy as np
import pytest

from earatlas.geometry.angles import to_vectors
from earatlas.localization.onset_mixture import (
    MIXTURE_SETTINGS,
    OnsetMixture,
    SourceMixture,
    alternation,
    fit_mixing_weights,
    source_log_likelihoods,
)

SAME_CONE = MIXTURE_SETTINGS.same_cone_nats
SECOND = MIXTURE_SETTINGS.min_gain_nats[0]
# Left in front, its mirror image behind, the right, above, and far left.
DIRECTIONS = np.array([[40.0, 0.0], [140.0, 0.0], [-50.0, 10.0], [0.0, 80.0], [85.0, 0.0]])
# The same with all directions on different cones.
ON_OTHER_CONES = np.array([[40.0, 0.0], [-140.0, 0.0], [-85.0, 10.0], [0.0, 80.0], [85.0, 0.0]])


def random_bins(seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return densities (17, 3), weights and windows (of four, one without bins) of 17 bins."""
    rng = np.random.default_rng(seed)
    return np.exp(rng.normal(size=(17, 3))), rng.uniform(0.2, 1, 17), rng.choice([0, 1, 3], 17)


@pytest.mark.parametrize("min_weight", [0.0, 0.12])
@pytest.mark.parametrize("n_windows", [1, 4])
def test_mixing_weights_equal_a_loop(n_windows: int, min_weight: float) -> None:
    """The E- and M-steps equal loops over bins and components, with any number of windows."""
    g, v, window = random_bins()
    settings = replace(MIXTURE_SETTINGS, em_iterations=6, min_weight=min_weight)
    if n_windows == 1:
        found = fit_mixing_weights(g, v, settings)
        window = np.zeros(17, dtype=int)
    else:
        found = fit_mixing_weights(g, v, settings, window, n_windows)
    expected = np.array([[0.3] * n_windows] * 3 + [[0.1] * n_windows])
    for _ in range(6):
        counts = np.zeros_like(expected)
        for n, w in enumerate(window):
            terms = [expected[m, w] * (g[n, m] if m < 3 else 1.0) for m in range(4)]
            for m in range(4):
                counts[m, w] += v[n] * terms[m] / sum(terms)
        for w in range(n_windows):
            raw = [
                counts[m, w] + settings.window_prior_bins * counts[m].sum() / v.sum()
                for m in range(4)
            ]
            floored = [max(value / sum(raw), min_weight) for value in raw]
            expected[:, w] = np.array(floored) / sum(floored)
    np.testing.assert_allclose(found, expected, rtol=1e-9)
    assert (found > 0).all()


def test_one_window_is_the_static_case() -> None:
    """Bins that are all in one window have the weights of a mixture without windows."""
    g, v, _ = random_bins(1)
    static = fit_mixing_weights(g, v, MIXTURE_SETTINGS)
    windowed = fit_mixing_weights(g, v, MIXTURE_SETTINGS, np.zeros(17, dtype=int), 1)
    np.testing.assert_allclose(static, windowed, rtol=1e-9)
    np.testing.assert_array_equal(fit_mixing_weights(g[:, :0], v, MIXTURE_SETTINGS), [[1.0]])


def test_weights_increase_the_likelihood_in_every_iteration() -> None:
    """L never decreases, and no nearby weights are better at convergence."""
    g, v, _ = random_bins(2)
    p = np.concatenate([g, np.ones((17, 1))], axis=1)

    def likelihood(pi: np.ndarray) -> float:
        return float(v @ np.log(p @ pi))

    steps = [
        fit_mixing_weights(g, v, replace(MIXTURE_SETTINGS, em_iterations=n, min_weight=0.0))[:, 0]
        for n in (0, 1, 2, 5, 400)
    ]
    values = [likelihood(pi) for pi in steps]
    assert np.diff(values).min() > 0
    for a, b in ((0, 1), (1, 0), (3, 1), (1, 3)):
        changed = steps[-1].copy()
        step = min(0.01, changed[a])
        changed[a], changed[b] = changed[a] - step, changed[b] + step
        assert likelihood(changed) <= values[-1] + 1e-9


@pytest.mark.parametrize("bins", [1, 64, 301])
def test_log_likelihoods_of_one_more_source_equal_a_loop(bins: int) -> None:
    """L of each cell equals a loop over the bins, for whole and partial blocks."""
    rng = np.random.default_rng(bins)
    g = np.exp(rng.normal(size=(bins, 5))).astype(np.float32)
    v, e = rng.uniform(0.2, 1.0, bins), rng.uniform(0.1, 3.0, bins)
    expected = [
        sum(v[n] * np.log(0.3 * float(g[n, x]) + e[n]) for n in range(bins)) for x in range(5)
    ]
    np.testing.assert_allclose(source_log_likelihoods(g, v, e, 0.3), expected, rtol=2e-5, atol=1e-5)


def test_log_likelihoods_per_window_equal_those_of_the_bins_in_it() -> None:
    """Each window has the sum over its own bins and its own mixing weight; an empty one has 0."""
    g, v, window = random_bins(3)
    window = np.sort(window)
    mixture = OnsetMixture(
        g.astype(np.float32), v, to_vectors(DIRECTIONS[:3]), MIXTURE_SETTINGS, window, 4
    )
    e, pi = np.linspace(0.2, 2.0, 17), np.array([0.1, 0.5, 0.3, 0.8])
    L = mixture.log_likelihoods(e, pi)
    for w in range(4):
        for x in range(3):
            expected = sum(
                v[n] * np.log(pi[w] * g[n, x] + e[n]) for n in range(17) if window[n] == w
            )
            assert L[w, x] == pytest.approx(expected, rel=1e-5, abs=1e-6)


def make_mixture(
    shares: dict[int, float], density: float = 4.0, directions: np.ndarray = DIRECTIONS
) -> OnsetMixture:
    """Return a mixture of 400 bins that each fit one direction well, in the given shares."""
    rng = np.random.default_rng(3)
    source = rng.choice(list(shares), size=400, p=list(shares.values()))
    densities = rng.uniform(0.2, 0.5, size=(400, len(directions)))
    densities[np.arange(400), source] = density
    weights = rng.uniform(0.3, 0.6, 400)
    return OnsetMixture(densities.astype(np.float32), weights, to_vectors(directions))


def counted(mixture: OnsetMixture, max_sources: int = 6) -> list[int]:
    """Return the sorted cells of the counted sources."""
    return sorted(mixture.count_sources(max_sources).cells[:, 0].tolist())


def nats_per_bin(mixture: OnsetMixture, cells: list[int]) -> float:
    """Return the log-likelihood per bin of static sources."""
    return mixture.fit_static(cells).log_likelihood / mixture.total


@pytest.mark.parametrize(
    "shares", [{2: 1.0}, {0: 0.7, 2: 0.3}, {4: 0.2, 2: 0.5, 0: 0.3}, {0: 0.3, 3: 0.7}]
)
def test_count_equals_the_number_of_sources(shares: dict[int, float]) -> None:
    """One to three sources on different cones are counted, some with few bins, up to a limit."""
    mixture = make_mixture(shares)
    assert counted(mixture) == sorted(shares)
    assert len(counted(mixture, 1)) == 1


def test_source_on_the_same_cone_must_gain_more() -> None:
    """The same bins are one source with reflections on its cone, and two on different cones."""
    shares = {0: 0.75, 1: 0.25}
    other_cones = make_mixture(shares, directions=ON_OTHER_CONES)
    both = nats_per_bin(other_cones, [0, 1]) - nats_per_bin(other_cones, [0])
    assert SECOND < both < SECOND + SAME_CONE
    assert counted(other_cones) == [0, 1]
    assert counted(make_mixture(shares)) == [0]
    assert counted(make_mixture(shares, density=40.0)) == [0, 1]


def test_alternation_equals_a_loop_over_bands() -> None:
    """Δ compares labels of single bins with labels of bands; other sources are in both."""
    rng = np.random.default_rng(8)
    g, f = np.exp(rng.normal(size=(40, 3))), rng.integers(0, 14, 40)
    pi = np.array([0.35, 0.2, 0.3, 0.15])
    for m, j in ((1, 0), (2, 1)):
        (rest,) = {0, 1, 2} - {m, j}
        single = bands = 0.0
        for band in range(5):
            products = {m: pi[m] / (pi[m] + pi[j]), j: pi[j] / (pi[m] + pi[j])}
            for n in np.flatnonzero(f // 3 == band):
                others = pi[rest] * g[n, rest] + pi[3]
                single += np.log(pi[m] * g[n, m] + pi[j] * g[n, j] + others)
                for k in (m, j):
                    products[k] *= (pi[m] + pi[j]) * g[n, k] + others
            bands += np.log(sum(products.values()))
        found = alternation(g, pi, (m, j), f)
        assert found == pytest.approx((single - bands) / 40, rel=1e-9)


@pytest.mark.parametrize(("alternates", "cells"), [(True, [0, 2]), (False, [0])])
def test_source_with_frequencies_of_its_own_is_not_counted(
    alternates: bool, cells: list[int]
) -> None:
    """Two talkers have onsets at the same frequencies; one with another head resembles two."""
    n = np.arange(600)
    f, time = n // 20, n % 20
    second = (time if alternates else f // 3) % 3 == 0
    densities = np.random.default_rng(3).uniform(0.2, 0.5, size=(600, len(DIRECTIONS)))
    densities[n, np.where(second, 2, 0)] = 3.0
    g, v, vectors = densities.astype(np.float32), np.full(600, 0.5), to_vectors(DIRECTIONS)
    mixture = OnsetMixture(g, v, vectors, frequencies=f)
    assert counted(mixture, 2) == cells
    assert counted(OnsetMixture(g, v, vectors), 2) == [0, 2]
    pair = mixture.fit_static([0, 2])
    assert (mixture.gain(pair, 1) > mixture.band_excess(pair, 1)) == alternates
    assert (mixture.next_source_ratio(mixture.fit_static([0])) >= 1) == alternates


def test_band_excess_is_subtracted_from_the_gain() -> None:
    """A source is counted up to the excess that leaves the required gain; others do not matter."""
    n = np.arange(600)
    f, time = n // 20, n % 20
    own = np.where(f // 3 % 3 == 0, time % 5 > 0, time % 7 == 0)  # mostly frequencies of its own
    densities = np.full((600, len(DIRECTIONS)), 0.4, dtype=np.float32)
    densities[n, np.where(own, 2, 0)] = 3.0
    v = np.full(600, 0.5)
    mixture = OnsetMixture(densities, v, to_vectors(DIRECTIONS), frequencies=f)
    one, pair = mixture.fit_static([0]), mixture.fit_static([0, 2])
    components, pi = mixture.components(pair), pair.mixing_weights[:, 0]
    excess = -alternation(components.densities, pi, (1, 0), f)
    gain = mixture.score(pair) - mixture.score(one)
    assert 0.1 < excess == mixture.band_excess(pair, 1) < gain
    for margin, count in ((1e-6, 2), (-1e-6, 1)):
        required = replace(MIXTURE_SETTINGS, min_gain_nats=(gain - excess - margin,))
        limited = OnsetMixture(densities, v, to_vectors(DIRECTIONS), required, frequencies=f)
        assert len(limited.count_sources(2)) == count
    clear = SourceMixture.fit(np.array([[3.0, 0.3], [0.3, 3.0]] * 9), np.ones(18), MIXTURE_SETTINGS)
    assert clear.band_excess(1, [0, 1], np.zeros(18, dtype=int), MIXTURE_SETTINGS) == 0


def test_known_number_is_found_on_one_cone() -> None:
    """With a given number there is no cost of sources on one cone; all smaller fits are given."""
    mixture = make_mixture({0: 0.75, 1: 0.25})
    assert [sorted(fit.cells[:, 0].tolist()) for fit in mixture.search(2)] == [[0], [0, 1]]


def test_quiet_source_is_preferred_to_a_mirror_image_of_the_loud_one() -> None:
    """It is preferred although the mirror image on the same cone has the larger likelihood."""
    mixture = make_mixture({0: 0.45, 1: 0.29, 2: 0.26}, density=6.0)
    mirrored, other = nats_per_bin(mixture, [0, 1]), nats_per_bin(mixture, [0, 2])
    assert other < mirrored < other + SAME_CONE
    assert counted(mixture, 2) == [0, 2]


def test_next_source_ratio_is_relative_to_the_required_gain() -> None:
    """Off all cones the requirement is that of the second source, on a cone it is larger."""
    shares = {0: 0.75, 1: 0.25}
    one_cone, other_cones = make_mixture(shares), make_mixture(shares, directions=ON_OTHER_CONES)
    gained = nats_per_bin(one_cone, [0, 1]) - nats_per_bin(one_cone, [0])
    ratio = one_cone.next_source_ratio(one_cone.fit_static([0]))
    assert ratio == pytest.approx(gained / (SECOND + SAME_CONE), rel=1e-6)
    assert ratio < 1
    ratio = other_cones.next_source_ratio(other_cones.fit_static([0]))
    assert ratio == pytest.approx(gained / SECOND, rel=1e-6)
    assert ratio > 1
    assert other_cones.next_source_ratio(other_cones.fit_static([0, 1])) < 0.1


def test_fit_equals_the_formula() -> None:
    """Likelihood, responsibilities and gain equal loops over the bins."""
    mixture = make_mixture({0: 0.6, 2: 0.4})
    fit = mixture.fit_static([0, 2])
    pi, total, responsibilities = fit.mixing_weights[:, 0], 0.0, np.zeros((2, 400))
    for n, (v, g) in enumerate(zip(mixture.weights, mixture.densities, strict=True)):
        own = [pi[0] * float(g[0]), pi[1] * float(g[2])]
        total += float(v) * np.log(sum(own) + pi[2])
        responsibilities[:, n] = np.array(own) / (sum(own) + pi[2])
    assert fit.log_likelihood == pytest.approx(total, rel=1e-9)
    components = mixture.components(fit)
    for m in range(2):
        found = components.responsibilities(m)
        np.testing.assert_allclose(found, responsibilities[m], rtol=1e-6)
    gain = nats_per_bin(mixture, [0, 2]) - nats_per_bin(mixture, [0])
    assert mixture.gain(fit, 1) == pytest.approx(gain, rel=1e-9)
    assert gain > 0.1


@pytest.mark.parametrize("windows", [1, 3])
def test_components_equal_the_formulas(rng: np.random.Generator, windows: int) -> None:
    """Likelihoods, gains and one more source equal loops over the bins, for any windows."""
    g, v = rng.gamma(1.0, 1.0, (11, 2)), rng.uniform(0.1, 1.0, 11)
    pi = rng.dirichlet(np.ones(3), windows).T
    window = None if windows == 1 else np.sort(rng.integers(0, windows, 11))
    own = [pi[:, 0] if window is None else pi[:, window[n]] for n in range(11)]
    mixture = SourceMixture(g, pi, v, window)
    elsewhere, new = rng.gamma(1.0, 1.0, 11), rng.gamma(1.0, 1.0, (11, 4))
    relocated = mixture.relocated(1, elsewhere)
    log_likelihood = one_more = 0.0
    for n in range(11):
        first, second, diffuse = own[n] * np.append(g[n], 1.0)
        total = first + second + diffuse
        assert mixture.total[n] == pytest.approx(total, rel=1e-12)
        assert mixture.without(0)[n] == pytest.approx(second + diffuse, rel=1e-12)
        assert mixture.responsibilities(1)[n] == pytest.approx(second / total, rel=1e-12)
        without = (first + diffuse) / (1 - own[n][1])
        assert mixture.gains(1)[n] == pytest.approx(v[n] * np.log(total / without), rel=1e-9)
        assert relocated.total[n] == pytest.approx(first + own[n][1] * elsewhere[n] + diffuse)
        log_likelihood += v[n] * np.log(total)
        one_more += v[n] * np.log((0.7 * total + 0.3 * new[n]) / total)
    assert mixture.log_likelihood == pytest.approx(log_likelihood, rel=1e-12)
    np.testing.assert_allclose(
        mixture.one_more(new.astype(np.float32), 0.3), one_more, rtol=1e-5, atol=1e-5
    )
    some = np.array([1, 4, 9])
    np.testing.assert_allclose(mixture.subset(some, v[some]).total, mixture.total[some])


def test_score_does_not_decrease_in_a_search() -> None:
    """Placing the sources again never lowers J; a bad start is left."""
    mixture = make_mixture({0: 0.5, 2: 0.3, 4: 0.2})
    bad = mixture.fit_static([1, 3, 4])
    refined = mixture._refine(bad, SAME_CONE)
    assert mixture.score(refined) > mixture.score(bad) + 0.1
    assert sorted(refined.cells[:, 0].tolist()) == [0, 2, 4]
