"""VESSL against the loops and dense matrices of `oracles`, its bound, and its invariants."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import oracles
import pytest

from earatlas.features.layout import CueLayout
from earatlas.features.tf_bins import HeardBins, wide_layout
from earatlas.geometry.spaces import Plane
from earatlas.ppam.model import PPAM
from earatlas.separation.dense_masks import masks_everywhere
from earatlas.separation.source_model import Inference, SourceModel
from earatlas.separation.vessl import VESSL, State

K, L, L_W = 3, 2, 2
PLANE = Plane(((-60.0, 60.0), (-40.0, 40.0)))
# F=8; ILD on bins 0-6 and IPD on 2-4: D=13, and 24 with phase everywhere. Bin 7 has neither.
LAYOUT = CueLayout(rate=16, window=16, hop=2, ild_band_hz=(0.0, 7.0), ipd_band_hz=(2.0, 5.0))
EXACT: dict[str, Any] = {"rtol": 1e-9, "atol": 1e-10}
PAPER = Inference.paper()
SETTINGS = {
    "default": Inference(),
    "paper": PAPER,
    "whole frames": Inference(frame_share=1.0),
    "learned phases only": Inference(phases=False, bands=2, offsets=0.3, share_bins=0.7),
    "garbage": Inference(garbage=0.15, bands=3),
    "paper with garbage": replace(PAPER, garbage=0.2, noise_frames=0.5),
}
every_setting = pytest.mark.parametrize("how", SETTINGS.values(), ids=SETTINGS.keys())


def some_model(
    layout: CueLayout = LAYOUT, *, charts: int = K, latent: int = L_W, spread: bool = True
) -> PPAM:
    """A model with nothing round about it, whose charts a few bins do not tell apart for sure."""
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


def some_source(how: Inference, layout: CueLayout = LAYOUT, **options: object) -> SourceModel:
    """The model made ready, with another noise in every channel."""
    model = some_model(layout, **options)  # type: ignore[arg-type]
    noise = model.noise * np.random.default_rng(8).uniform(0.5, 1.5, layout.n_cues)
    return SourceModel.of(model, layout, noise, how)


def some_mixture(
    how: Inference, *, frames: int = 5, anchored: int = 0, charts: int = K, seed: int = 2
) -> VESSL:
    """Random cues in random bins; `anchored` sources sounded like something before."""
    source, rng = some_source(how, charts=charts), np.random.default_rng(6)
    bins = oracles.ragged_bins(source.layout, frames, seed)
    if not anchored:
        return VESSL(source, bins)
    before = oracles.ragged_bins(source.layout, 3, 9)
    anchor = before.statistics(rng.dirichlet(np.ones(anchored), len(before)).T)
    return VESSL(source, bins, anchor=anchor.scaled(rng.uniform(0.5, 2.0, anchored)))


def start(mixture: VESSL, sources: int, seed: int = 5) -> State:
    """Random assignments."""
    rng = np.random.default_rng(seed)
    return mixture.start_with(rng.dirichlet(np.ones(sources), len(mixture.bins)).T)


# --- against the oracles ---------------------------------------------------------------------


@every_setting
@pytest.mark.parametrize(("latent", "spread"), [(L_W, True), (0, False)])
def test_posterior_is_that_of_the_dense_joint(how: Inference, latent: int, spread: bool) -> None:
    """Belief, cues, their squares and the divergence, with channels that were never heard."""
    source = some_source(how, latent=latent, spread=spread)
    bins, rng = oracles.ragged_bins(source.layout, 4, 11), np.random.default_rng(12)
    heard = bins.statistics(rng.uniform(0.0, 1.0, (1, len(bins))))[0]
    v = source.noise * rng.uniform(0.5, 2.0, len(heard.counts))
    assert (heard.counts == 0).any()
    found = source.posterior(heard, v)
    true = oracles.source_posterior(source, *oracles.moments(heard), v, source.frame_share)
    assert true.weights.max() < 0.999, "one chart alone would test little"
    np.testing.assert_allclose(found.posterior.weights, true.weights, **EXACT)
    np.testing.assert_allclose(found.posterior.means, true.means, **EXACT)
    np.testing.assert_allclose(found.posterior.covariances, true.covariances, **EXACT)
    np.testing.assert_allclose(found.cues, true.cues, **EXACT)
    np.testing.assert_allclose(found.squares, true.squares, **EXACT)
    np.testing.assert_allclose(found.divergence, true.divergence, **EXACT)


@every_setting
@pytest.mark.parametrize(("sources", "anchored"), [(2, False), (3, True)])
def test_steps_are_those_of_the_loops(
    how: Inference, sources: int, anchored: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two steps: assignments, noise, shares and free energy, with and without an anchor."""
    monkeypatch.setattr(
        "earatlas.separation.source_model._NEGLIGIBLE", 0.0
    )  # charts left out cost 1e-9
    mixture = some_mixture(how, anchored=sources * anchored)
    state = start(mixture, sources)
    for _ in range(2):
        true = oracles.vessl_step(mixture.source_model, mixture.bins, state, mixture.anchor)
        cells = mixture.cells
        state = mixture.step(state, all_charts=True)
        f, t = mixture.bins.f, mixture.bins.t
        np.testing.assert_allclose(state.assignments, true.assignments[:, f, t], **EXACT)
        np.testing.assert_allclose(state.noise, true.noise, **EXACT)
        np.testing.assert_allclose(state.shares[:, cells], true.shares[:, f, t], **EXACT)
        np.testing.assert_allclose(state.free_energy, true.free_energy, **EXACT)
        for found, expected in zip(state.sources, true.sources, strict=True):
            np.testing.assert_allclose(found.posterior.weights, expected.weights, **EXACT)
            np.testing.assert_allclose(found.cues, expected.cues, **EXACT)


@pytest.mark.parametrize("latent", [0, L_W])
def test_without_offsets_it_is_the_posterior_of_ppam(latent: int) -> None:
    """The paper's settings: `PPAM.posterior` with the noise v."""
    source = some_source(PAPER, latent=latent, spread=False)
    bins, rng = oracles.ragged_bins(source.layout, 4, 11), np.random.default_rng(12)
    heard = bins.statistics(rng.uniform(0.0, 1.0, (1, len(bins))))[0]
    v = source.noise * rng.uniform(0.5, 2.0, len(heard.counts))
    found = source.posterior(heard, v).posterior
    true = replace(source.model, noise=v).posterior(heard)
    np.testing.assert_allclose(found.weights, true.weights, **EXACT)
    np.testing.assert_allclose(found.means, true.means, **EXACT)
    np.testing.assert_allclose(found.covariances, true.covariances, **EXACT)


# --- the bound -------------------------------------------------------------------------------


@every_setting
@pytest.mark.parametrize("tau", [None, 0.25, 1.0])
@pytest.mark.parametrize("anchored", [False, True])
def test_free_energy_never_falls(how: Inference, tau: float | None, anchored: bool) -> None:
    """From random assignments, over 15 steps that look only at the charts within reach."""
    how = how if tau is None else replace(how, frame_share=tau)
    for seed in range(3):
        mixture = some_mixture(how, frames=9, anchored=3 * anchored, charts=5, seed=seed)
        state = start(mixture, 3, seed)
        for _ in range(15):
            state = mixture.step(state)
        energies = np.array(state.free_energies)
        assert np.diff(energies).min() > -1e-9 * abs(energies[-1])
        assert energies[-1] - energies[0] > 5.0


@pytest.mark.parametrize("how", [PAPER, Inference(frame_share=1.0)], ids=["paper", "whole frames"])
def test_free_energy_is_a_lower_bound(how: Inference) -> None:
    """Below the log evidence of all assignments and charts, by little and ever less.

    K=2, M=2, T=2, D=3 (6 with phase everywhere). The terms that only noise and shares have are
    prior densities: they stand on both sides.
    """
    layout = CueLayout(rate=4, window=4, hop=1, ild_band_hz=(0.0, 1.0), ipd_band_hz=(1.0, 2.0))
    assert layout.n_cues == 3
    source = some_source(how, layout, charts=2)
    rng = np.random.default_rng(1)
    f, t = np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1])
    heard = [
        np.isin(f, band).sum()
        for band in (source.layout.ild_frequencies, source.layout.ipd_frequencies)
    ]
    values = (rng.normal(0, 3, heard[0]), *rng.normal(0, 0.7, (2, heard[1])))
    mixture = VESSL(source, HeardBins(source.layout, 2, f, t, np.zeros(4), values))
    state = start(mixture, 2)
    gaps = []
    for _ in range(8):
        shares = state.shares
        state = mixture.step(state)
        v, n0 = state.noise, how.noise_frames
        priors = -0.5 * n0 * (np.log(v) + source.noise / v).sum()
        used = np.unique(mixture.cells)  # an empty cell says nothing
        priors += how.share_bins * np.log(shares[:, used]).sum() if how.share_bins else 0.0
        # A share may end at 0, and its logarithm nowhere: the limit is the same.
        own = np.maximum(shares, 1e-300)[:, mixture.cells]
        exact = oracles.log_evidence(source, mixture.bins, v, own) + priors
        gaps.append(exact - state.free_energy)
    assert min(gaps) > -1e-9
    assert gaps[-1] < gaps[0] < 3.0


def test_bound_of_one_source_is_the_evidence() -> None:
    """With one source nothing is approximate: once the noise stands still, the bound is exact."""
    source = some_source(Inference(frame_share=1.0), charts=2)
    mixture = VESSL(source, oracles.ragged_bins(source.layout, 3, 4))
    state = mixture.start_with(np.ones((1, len(mixture.bins))))
    for _ in range(400):
        state = mixture.step(state)
    heard = oracles.moments(mixture.bins.statistics(state.assignments)[0])
    exact = oracles.source_posterior(source, *heard, state.noise, 1.0).evidence
    exact -= (
        0.5 * source.how.noise_frames * (np.log(state.noise) + source.noise / state.noise).sum()
    )
    np.testing.assert_allclose(state.free_energy, exact, rtol=1e-9)


# --- invariants ------------------------------------------------------------------------------


@every_setting
def test_relabelling_sources_relabels_the_answer(how: Inference) -> None:
    """Another order of the start is another order of everything, and nothing else."""
    mixture, order = some_mixture(how), [2, 0, 1]
    q = np.random.default_rng(3).dirichlet(np.ones(3), len(mixture.bins)).T
    one, other = mixture.start_with(q), mixture.start_with(q[order])
    for _ in range(6):
        one, other = mixture.step(one), mixture.step(other)
    np.testing.assert_allclose(other.assignments[:3], one.assignments[order], **EXACT)
    np.testing.assert_allclose(other.shares[:3], one.shares[order], **EXACT)
    np.testing.assert_allclose(other.noise, one.noise, **EXACT)
    np.testing.assert_allclose(other.free_energy, one.free_energy, **EXACT)
    for m, source in zip(order, other.sources, strict=True):
        np.testing.assert_allclose(source.cues, one.sources[m].cues, **EXACT)
        weights = one.sources[m].posterior.weights
        np.testing.assert_allclose(source.posterior.weights, weights, **EXACT)


@every_setting
def test_probabilities_sum_to_one(how: Inference) -> None:
    """Assignments, shares and masks of any bins; a garbage class keeps its prior share."""
    mixture = some_mixture(how)
    directions = np.array([[-30.0, 5.0], [20.0, -15.0], [45.0, 30.0]])
    for state in (start(mixture, 3), mixture.start_at(directions)):
        for stepped in (state, mixture.step(state)):
            np.testing.assert_allclose(stepped.assignments.sum(axis=0), 1.0, **EXACT)
            np.testing.assert_allclose(stepped.shares.sum(axis=0), 1.0, **EXACT)
            assert stepped.assignments.min() >= 0
            if how.garbage:
                np.testing.assert_allclose(stepped.shares[3], how.garbage)
        anywhere = oracles.ragged_bins(mixture.bins.layout, mixture.bins.frames, 17)
        masks = mixture.posterior_masks(stepped, anywhere)
        assert masks.shape == (3, len(anywhere))
        np.testing.assert_allclose(masks.sum(axis=0), 1.0, **EXACT)


def test_masks_of_heard_bins_are_what_a_step_would_assign() -> None:
    """`posterior_masks` on the bins that inference saw, from a state that no longer moves."""
    mixture = some_mixture(Inference())
    state = start(mixture, 2)
    for _ in range(300):
        state = mixture.step(state)
    masks = mixture.posterior_masks(state, mixture.bins)
    np.testing.assert_allclose(masks, state.assignments, atol=1e-5)


@every_setting
def test_masks_everywhere_are_those_of_a_list_of_all_bins(how: Inference) -> None:
    """At any level, in more frames than are done at once, and whole where an ear is silent."""
    T, rng = 70, np.random.default_rng(21)
    mixture = some_mixture(how, frames=T)
    state = mixture.step(start(mixture, 3))
    spectra = np.empty((2, 9, T), dtype=np.complex128)
    spectra.real, spectra.imag = 1e-3 * rng.normal(size=(2, 2, 9, T))
    spectra[:, 3, 5], spectra[1, 4, 6] = 0.0, 0.0
    masks = masks_everywhere(mixture, state, spectra)
    np.testing.assert_allclose(masks.sum(axis=0), 1.0, rtol=1e-6)
    assert np.isfinite(masks).all()
    f, t = (index.ravel() for index in np.indices((8, T)))
    bins = HeardBins.at(spectra, mixture.bins.layout, f, t)
    expected = mixture.posterior_masks(state, bins).reshape(3, 8, T)
    expected /= expected.sum(axis=0)
    both = (np.abs(spectra[:, 1:]) > 0).all(axis=0)
    np.testing.assert_allclose(masks[:, both], expected[:, both], atol=1e-4)


def test_what_stands_in_unheard_bins_changes_nothing() -> None:
    """Not even NaN: such bins are not there."""
    layout, rng = wide_layout(LAYOUT), np.random.default_rng(0)
    spectra = rng.normal(size=(2, 9, 6)) + 1j * rng.normal(size=(2, 9, 6))
    floors = np.full(layout.n_frequencies, 10 * np.log10(0.03))
    bins = HeardBins.of_spectra(spectra, layout, floors)
    unheard = np.ones((9, 6), dtype=bool)
    unheard[bins.f + 1, bins.t] = False
    assert 10 < len(bins) < 40
    spoilt = np.where(unheard, np.nan, spectra)
    source = some_source(Inference())
    states = []
    for heard in (bins, HeardBins.of_spectra(spoilt, layout, floors)):
        mixture = VESSL(source, heard)
        state = mixture.step(mixture.step(start(mixture, 2)))
        states.append(state)
    np.testing.assert_array_equal(states[0].assignments, states[1].assignments)
    assert states[0].free_energy == states[1].free_energy


@pytest.mark.parametrize("blocks", [1, 2, 3, 8])
def test_bins_of_a_block_are_assigned_together(blocks: int) -> None:
    """Progressive masking: the product over a block of a frame; with F blocks, bin by bin."""
    mixture = some_mixture(PAPER)
    begin, bins = start(mixture, 2), mixture.bins
    tied, free = mixture.step(begin, blocks=blocks), mixture.step(begin)
    F = bins.layout.n_frequencies
    # What is summed is what a step without blocks has: log q up to a constant a bin.
    with np.errstate(divide="ignore"):
        odds = np.log(free.assignments[0]) - np.log(free.assignments[1])
    total = 0
    for t in range(bins.frames):
        for block in range(blocks):
            own = (bins.t == t) & (bins.f * blocks // F == block)
            total += own.sum()
            together = 1 / (1 + np.exp(-odds[own].sum()))
            np.testing.assert_allclose(tied.assignments[0, own], together, rtol=1e-7, atol=1e-12)
    assert total == len(bins)
    if blocks == F:
        np.testing.assert_allclose(tied.free_energy, free.free_energy, **EXACT)
    else:
        assert tied.free_energy < free.free_energy


def test_free_energy_never_falls_with_blocks() -> None:
    """As long as their number stays the same."""
    mixture = some_mixture(Inference(), frames=9)
    state = start(mixture, 3)
    for _ in range(12):
        state = mixture.step(state, blocks=2)
    assert np.diff(state.free_energies).min() > -1e-9 * abs(state.free_energy)


def test_run_stops_and_ends_with_all_charts() -> None:
    """No more steps than allowed, fewer once nothing is gained, and a posterior over all charts."""
    mixture = some_mixture(Inference(most_steps=7, tolerance=0.0))
    assert len(mixture.run(start(mixture, 2)).free_energies) == 7
    assert len(mixture.run(start(mixture, 2), 3).free_energies) == 3
    patient = some_mixture(Inference(most_steps=100, tolerance=1.0))
    state = patient.run(start(patient, 2))
    assert 3 <= len(state.free_energies) < 10
    for source in state.sources:
        assert (source.posterior.weights > 0).all()


def test_sources_are_recovered() -> None:
    """Bins drawn from two sources of the model, from a start that is right by three in five."""
    source = some_source(Inference(frame_share=1.0))
    layout, rng = source.layout, np.random.default_rng(2)
    bins = oracles.ragged_bins(layout, 40, 3, share=0.9)
    truth = rng.integers(0, 2, len(bins))
    cues = np.where(np.arange(layout.n_cues) % 2, 1.0, -1.0) * np.array([[1.5], [-1.5]])
    values = []
    for kind in bins.kinds:
        d = np.repeat(np.arange(kind.cues.start, kind.cues.stop), kind.counts)
        values.append(cues[truth[kind.bins], d] + rng.normal(0, 1.6, len(d)))
    mixture = VESSL(source, replace(bins, values=tuple(values)))
    q = np.full((2, len(bins)), 0.4)
    q[truth, np.arange(len(bins))] = 0.6
    state = mixture.run(mixture.start_with(q))
    right = state.assignments[truth, np.arange(len(bins))].mean()
    assert 0.85 < right < 0.98
