"""VESSL against the loops and dense matrices of `oracles`, its lower bound, its invariants."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import oracles
import pytest

from earatlas.features.layout import CueLayout
from earatlas.features.tf_bins import ObservedBins, full_band_layout
from earatlas.geometry.spaces import Plane
from earatlas.ppam.model import PPAM
from earatlas.separation.bin_assignment import CueDensities, responsibilities
from earatlas.separation.source_model import SourceModel, VESSLSettings
from earatlas.separation.vessl import VESSL, VESSLState, cue_moments

K, L, L_W = 3, 2, 2
PLANE = Plane(((-60.0, 60.0), (-40.0, 40.0)))
# F=8; ILD on bins 0-6 and IPD on 2-4: D=13, or 24 with phase at all bins. Bin 7 has neither.
LAYOUT = CueLayout(rate=16, window=16, hop=2, ild_band_hz=(0.0, 7.0), ipd_band_hz=(2.0, 5.0))
EXACT: dict[str, Any] = {"rtol": 1e-9, "atol": 1e-10}
PAPER = VESSLSettings.paper()
SETTINGS = {
    "default": VESSLSettings(),
    "paper": PAPER,
    "independent frames": VESSLSettings(frame_weight=1.0),
    "learned phases only": VESSLSettings(
        unlearned_phases=False, weight_bands=2, offset_variance=0.3, weight_prior_bins=0.7
    ),
}
every_setting = pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS.keys())


def make_model(
    layout: CueLayout = LAYOUT, *, charts: int = K, latent: int = L_W, spread: bool = True
) -> PPAM:
    """Return a model without symmetries, whose charts are ambiguous given a few bins."""
    rng = np.random.default_rng(3)
    D = layout.n_cues
    scale = np.where(layout.cue_kinds == "ild", 1.0, 0.3)
    root = rng.normal(size=(charts, L, L)) + 3 * np.eye(L)
    weights = rng.uniform(0.5, 2.0, charts)
    return PPAM(
        space=PLANE,
        centres=rng.uniform(-20, 20, (charts, L)),
        weights=weights / weights.sum(),
        gammas=root @ root.mT,
        A=0.3 * scale[:, None] * rng.normal(size=(charts, D, L)),
        b=0.5 * scale * rng.normal(size=(charts, D)),
        noise=scale**2 * rng.uniform(0.5, 2.0, D),
        latent=0.5 * scale[:, None] * rng.normal(size=(D, latent)),
        spread=rng.uniform(0.4, 3.0, (charts, D)) if spread else np.ones((charts, D)),
    )


def make_source_model(
    settings: VESSLSettings, layout: CueLayout = LAYOUT, **options: object
) -> SourceModel:
    """Return a source model with different noise in every cue."""
    model = make_model(layout, **options)  # type: ignore[arg-type]
    noise = model.noise * np.random.default_rng(8).uniform(0.5, 1.5, layout.n_cues)
    return SourceModel.from_ppam(model, layout, noise, settings)


def make_problem(
    settings: VESSLSettings, *, frames: int = 5, n_prior: int = 0, charts: int = K, seed: int = 2
) -> VESSL:
    """Return random cues in random bins, with prior statistics of `n_prior` sources."""
    source, rng = make_source_model(settings, charts=charts), np.random.default_rng(6)
    bins = oracles.random_bins(source.layout, frames, seed)
    if not n_prior:
        return VESSL(source, bins)
    earlier = oracles.random_bins(source.layout, 3, 9)
    prior_statistics = earlier.statistics(rng.dirichlet(np.ones(n_prior), len(earlier)).T)
    return VESSL(
        source, bins, prior_statistics=prior_statistics.scaled(rng.uniform(0.5, 2.0, n_prior))
    )


def random_state(problem: VESSL, sources: int, seed: int = 5) -> VESSLState:
    """Return a state with random assignments."""
    rng = np.random.default_rng(seed)
    return problem.initialize_with(rng.dirichlet(np.ones(sources), len(problem.bins)).T)


# --- against the oracles ---------------------------------------------------------------------


@every_setting
@pytest.mark.parametrize(("latent", "spread"), [(L_W, True), (0, False)])
def test_posterior_against_the_dense_joint(
    settings: VESSLSettings, latent: int, spread: bool
) -> None:
    """Posterior, cue moments and KL divergence equal the dense ones, with unobserved cues."""
    source = make_source_model(settings, latent=latent, spread=spread)
    bins, rng = oracles.random_bins(source.layout, 4, 11), np.random.default_rng(12)
    observed = bins.statistics(rng.uniform(0.0, 1.0, (1, len(bins))))[0]
    v = source.noise * rng.uniform(0.5, 2.0, len(observed.counts))
    assert (observed.counts == 0).any()
    found = source.posterior(observed, v)
    true = oracles.source_posterior(source, *oracles.moments(observed), v, source.frame_weight)
    assert true.weights.max() < 0.999, "a single chart would be a weak test"
    np.testing.assert_allclose(found.posterior.weights, true.weights, **EXACT)
    np.testing.assert_allclose(found.posterior.means, true.means, **EXACT)
    np.testing.assert_allclose(found.posterior.covariances, true.covariances, **EXACT)
    np.testing.assert_allclose(found.cues, true.cues, **EXACT)
    np.testing.assert_allclose(found.squares, true.squares, **EXACT)
    np.testing.assert_allclose(found.kl_divergence, true.divergence, **EXACT)


@every_setting
@pytest.mark.parametrize(("sources", "n_prior"), [(2, False), (3, True)])
def test_step_against_loops(settings: VESSLSettings, sources: int, n_prior: bool) -> None:
    """Assignments, noise, mixing weights and free energy equal loops, with and without prior."""
    # Charts that are left out change results by 1e-9.
    settings = replace(settings, negligible_weight=0.0)
    problem = make_problem(settings, n_prior=sources * n_prior)
    state = random_state(problem, sources)
    for _ in range(2):
        true = oracles.vessl_step(
            problem.source_model, problem.bins, state, problem.prior_statistics
        )
        state = problem.step(state, all_charts=True)
        f, t = problem.bins.f, problem.bins.t
        np.testing.assert_allclose(state.assignments, true.assignments[:, f, t], **EXACT)
        np.testing.assert_allclose(state.noise, true.noise, **EXACT)
        np.testing.assert_allclose(
            state.mixing_weights[:, problem.cell], true.mixing_weights[:, f, t], **EXACT
        )
        np.testing.assert_allclose(state.free_energy, true.free_energy, **EXACT)
        for found, expected in zip(state.sources, true.sources, strict=True):
            np.testing.assert_allclose(found.posterior.weights, expected.weights, **EXACT)
            np.testing.assert_allclose(found.cues, expected.cues, **EXACT)


@pytest.mark.parametrize("latent", [0, L_W])
def test_without_offsets_posterior_equals_ppam(latent: int) -> None:
    """With the paper's settings, the posterior is `PPAM.posterior` with noise v."""
    source = make_source_model(PAPER, latent=latent, spread=False)
    bins, rng = oracles.random_bins(source.layout, 4, 11), np.random.default_rng(12)
    observed = bins.statistics(rng.uniform(0.0, 1.0, (1, len(bins))))[0]
    v = source.noise * rng.uniform(0.5, 2.0, len(observed.counts))
    found = source.posterior(observed, v).posterior
    true = replace(source.model, noise=v).posterior(observed)
    np.testing.assert_allclose(found.weights, true.weights, **EXACT)
    np.testing.assert_allclose(found.means, true.means, **EXACT)
    np.testing.assert_allclose(found.covariances, true.covariances, **EXACT)


# --- the bound -------------------------------------------------------------------------------


@every_setting
@pytest.mark.parametrize("tau", [None, 0.25, 1.0])
@pytest.mark.parametrize("n_prior", [False, True])
def test_free_energy_never_decreases(
    settings: VESSLSettings, tau: float | None, n_prior: bool
) -> None:
    """It increases over 15 iterations from random assignments, evaluating active charts only."""
    settings = settings if tau is None else replace(settings, frame_weight=tau)
    for seed in range(3):
        problem = make_problem(settings, frames=9, n_prior=3 * n_prior, charts=5, seed=seed)
        state = random_state(problem, 3, seed)
        for _ in range(15):
            state = problem.step(state)
        energies = np.array(state.free_energies)
        assert np.diff(energies).min() > -1e-9 * abs(energies[-1])
        assert energies[-1] - energies[0] > 5.0


@pytest.mark.parametrize(
    "settings", [PAPER, VESSLSettings(frame_weight=1.0)], ids=["paper", "independent frames"]
)
def test_free_energy_is_a_lower_bound(settings: VESSLSettings) -> None:
    """The free energy is below the log evidence of all assignments and charts, and approaches it.

    K=2, M=2, T=2, D=3 (6 with phase at all bins). The prior densities of noise and mixing weights
    are part of both sides.
    """
    layout = CueLayout(rate=4, window=4, hop=1, ild_band_hz=(0.0, 1.0), ipd_band_hz=(1.0, 2.0))
    assert layout.n_cues == 3
    source = make_source_model(settings, layout, charts=2)
    rng = np.random.default_rng(1)
    f, t = np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1])
    counts = [
        np.isin(f, band).sum()
        for band in (source.layout.ild_frequencies, source.layout.ipd_frequencies)
    ]
    values = (rng.normal(0, 3, counts[0]), *rng.normal(0, 0.7, (2, counts[1])))
    problem = VESSL(source, ObservedBins(source.layout, 2, f, t, np.zeros(4), values))
    state = random_state(problem, 2)
    gaps = []
    for _ in range(8):
        weights = state.mixing_weights
        state = problem.step(state)
        v, n0 = state.noise, settings.noise_prior_frames
        priors = -0.5 * n0 * (np.log(v) + source.noise / v).sum()
        used = np.unique(problem.cell)  # empty cells have no prior term
        priors += (
            settings.weight_prior_bins * np.log(weights[:, used]).sum()
            if settings.weight_prior_bins
            else 0.0
        )
        # A weight may become 0; the floor keeps its logarithm finite and has the same limit.
        own = np.maximum(weights, 1e-300)[:, problem.cell]
        exact = oracles.log_evidence(source, problem.bins, v, own) + priors
        gaps.append(exact - state.free_energy)
    assert min(gaps) > -1e-9
    assert gaps[-1] < gaps[0] < 3.0


def test_free_energy_of_one_source_is_the_evidence() -> None:
    """With one source the bound is exact once the noise has converged."""
    source = make_source_model(VESSLSettings(frame_weight=1.0), charts=2)
    problem = VESSL(source, oracles.random_bins(source.layout, 3, 4))
    state = problem.initialize_with(np.ones((1, len(problem.bins))))
    for _ in range(400):
        state = problem.step(state)
    observed = oracles.moments(problem.bins.statistics(state.assignments)[0])
    exact = oracles.source_posterior(source, *observed, state.noise, 1.0).evidence
    exact -= (
        0.5
        * source.settings.noise_prior_frames
        * (np.log(state.noise) + source.noise / state.noise).sum()
    )
    np.testing.assert_allclose(state.free_energy, exact, rtol=1e-9)


# --- invariants ------------------------------------------------------------------------------


@every_setting
def test_relabelling_sources_relabels_the_result(settings: VESSLSettings) -> None:
    """Permuted initial assignments permute all results and change nothing else."""
    problem, order = make_problem(settings), [2, 0, 1]
    q = np.random.default_rng(3).dirichlet(np.ones(3), len(problem.bins)).T
    one, other = problem.initialize_with(q), problem.initialize_with(q[order])
    for _ in range(6):
        one, other = problem.step(one), problem.step(other)
    np.testing.assert_allclose(other.assignments, one.assignments[order], **EXACT)
    np.testing.assert_allclose(other.mixing_weights, one.mixing_weights[order], **EXACT)
    np.testing.assert_allclose(other.noise, one.noise, **EXACT)
    np.testing.assert_allclose(other.free_energy, one.free_energy, **EXACT)
    for m, source in zip(order, other.sources, strict=True):
        np.testing.assert_allclose(source.cues, one.sources[m].cues, **EXACT)
        weights = one.sources[m].posterior.weights
        np.testing.assert_allclose(source.posterior.weights, weights, **EXACT)


@every_setting
def test_probabilities_sum_to_one(settings: VESSLSettings) -> None:
    """Assignments and mixing weights sum to 1."""
    problem = make_problem(settings)
    directions = np.array([[-30.0, 5.0], [20.0, -15.0], [45.0, 30.0]])
    for state in (random_state(problem, 3), problem.initialize_at(directions)):
        for stepped in (state, problem.step(state)):
            np.testing.assert_allclose(stepped.assignments.sum(axis=0), 1.0, **EXACT)
            np.testing.assert_allclose(stepped.mixing_weights.sum(axis=0), 1.0, **EXACT)
            assert stepped.assignments.min() >= 0


@every_setting
def test_masks_use_the_moments_of_the_state(settings: VESSLSettings) -> None:
    """Masks of all bins are the responsibilities for the state's cues, noise and weights."""
    T, rng = 70, np.random.default_rng(21)
    problem = make_problem(settings, frames=T)
    state = problem.step(random_state(problem, 3))
    spectra = np.empty((2, 9, T), dtype=np.complex128)
    spectra.real, spectra.imag = 1e-3 * rng.normal(size=(2, 2, 9, T))
    f, t = (index.ravel() for index in np.indices((8, T)))
    bins = ObservedBins.at(spectra, problem.bins.layout, f, t)
    logs = CueDensities.from_moments(*cue_moments(state.sources), state.noise).of_bins(bins)
    log_weights = np.log(np.maximum(state.mixing_weights, 1e-300))
    expected, _ = responsibilities(logs + log_weights[:, problem.cells.of(f, t)])
    masks = problem.masks(state, spectra)
    np.testing.assert_allclose(masks, expected.reshape(3, 8, T), atol=1e-4)
    alone = problem.step(random_state(problem, 1))
    np.testing.assert_array_equal(problem.masks(alone, spectra), np.ones((1, 8, T)))


def test_responsibilities_of_a_converged_state_are_its_assignments() -> None:
    """In a converged state, the E-W step of the observed bins changes nothing."""
    problem = make_problem(VESSLSettings())
    state = random_state(problem, 2)
    for _ in range(300):
        state = problem.step(state)
    logs = CueDensities.from_moments(*cue_moments(state.sources), state.noise)
    q, _ = responsibilities(
        logs.of_bins(problem.bins) + np.log(state.mixing_weights)[:, problem.cell]
    )
    np.testing.assert_allclose(q, state.assignments, atol=1e-5)


def test_unobserved_bins_have_no_effect() -> None:
    """Even NaN in unobserved bins changes nothing."""
    layout, rng = full_band_layout(LAYOUT), np.random.default_rng(0)
    spectra = rng.normal(size=(2, 9, 6)) + 1j * rng.normal(size=(2, 9, 6))
    floors = np.full(layout.n_frequencies, 10 * np.log10(0.03))
    bins = ObservedBins.from_spectra(spectra, layout, floors)
    unobserved = np.ones((9, 6), dtype=bool)
    unobserved[bins.f + 1, bins.t] = False
    assert 10 < len(bins) < 40
    with_nan = np.where(unobserved, np.nan, spectra)
    source = make_source_model(VESSLSettings())
    states = []
    for observed in (bins, ObservedBins.from_spectra(with_nan, layout, floors)):
        problem = VESSL(source, observed)
        state = problem.step(problem.step(random_state(problem, 2)))
        states.append(state)
    np.testing.assert_array_equal(states[0].assignments, states[1].assignments)
    assert states[0].free_energy == states[1].free_energy


@pytest.mark.parametrize("blocks", [1, 2, 3, 8])
def test_bins_of_a_block_are_assigned_together(blocks: int) -> None:
    """Likelihoods are multiplied within a block, λ counts once; F blocks are single bins."""
    problem = make_problem(PAPER)
    state, bins = random_state(problem, 2), problem.bins
    in_blocks, free = problem.step(state, blocks=blocks), problem.step(state)
    F = bins.layout.n_frequencies
    # The sums are over log q of a step without blocks, up to a constant per bin.
    with np.errstate(divide="ignore"):
        odds = np.log(free.assignments[0]) - np.log(free.assignments[1])
    prior = np.diff(np.log(state.mixing_weights[::-1, problem.cell]), axis=0)[0]
    total = 0
    for t in range(bins.frames):
        for block in range(blocks):
            own = (bins.t == t) & (bins.f * blocks // F == block)
            total += own.sum()
            evidence = (odds - prior)[own].sum() + (prior[own].mean() if own.any() else 0.0)
            together = 1 / (1 + np.exp(-evidence))
            np.testing.assert_allclose(
                in_blocks.assignments[0, own], together, rtol=1e-7, atol=1e-12
            )
    assert total == len(bins)
    if blocks == F:
        np.testing.assert_allclose(in_blocks.free_energy, free.free_energy, **EXACT)
    else:
        assert in_blocks.free_energy < free.free_energy


def test_free_energy_never_decreases_with_blocks() -> None:
    """The free energy never decreases with a constant number of blocks."""
    problem = make_problem(VESSLSettings(), frames=9)
    state = random_state(problem, 3)
    for _ in range(12):
        state = problem.step(state, blocks=2)
    assert np.diff(state.free_energies).min() > -1e-9 * abs(state.free_energy)


def test_run_converges_and_evaluates_all_charts_last() -> None:
    """A run ends after convergence or the allowed iterations, and evaluates all charts last."""
    problem = make_problem(VESSLSettings(max_iterations=7, tolerance=0.0))
    assert len(problem.run(random_state(problem, 2)).free_energies) == 7
    assert len(problem.run(random_state(problem, 2), 3).free_energies) == 3
    converging = make_problem(VESSLSettings(max_iterations=100, tolerance=1.0))
    state = converging.run(random_state(converging, 2))
    assert 3 <= len(state.free_energies) < 10
    for source in state.sources:
        assert (source.posterior.weights > 0).all()


def test_sources_are_recovered() -> None:
    """Two sources of the model are recovered from assignments with probability 0.6."""
    source = make_source_model(VESSLSettings(frame_weight=1.0))
    layout, rng = source.layout, np.random.default_rng(2)
    bins = oracles.random_bins(layout, 40, 3, share=0.9)
    truth = rng.integers(0, 2, len(bins))
    cues = np.where(np.arange(layout.n_cues) % 2, 1.0, -1.0) * np.array([[1.5], [-1.5]])
    values = []
    for kind in bins.kinds:
        d = np.repeat(np.arange(kind.cues.start, kind.cues.stop), kind.counts)
        values.append(cues[truth[kind.bins], d] + rng.normal(0, 1.6, len(d)))
    problem = VESSL(source, replace(bins, values=tuple(values)))
    q = np.full((2, len(bins)), 0.4)
    q[truth, np.arange(len(bins))] = 0.6
    state = problem.run(problem.initialize_with(q))
    right = state.assignments[truth, np.arange(len(bins))].mean()
    assert 0.85 < right < 0.98
