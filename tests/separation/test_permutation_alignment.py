"""Permutation alignment: the order of two sources is the same at all frequencies."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from earatlas.separation.demixing import permutation_alignment
from earatlas.types import Array

FREQUENCIES_HZ = 15.625 * np.arange(1.0, 513.0)


def objective(pairwise: Array, unary: Array, s: Array) -> float:
    """J(s) by loops over bands; the diagonal of `pairwise` is constant and left out."""
    n = len(unary)
    coupling = sum(s[i] * s[j] * pairwise[i, j] for i in range(n) for j in range(n) if i != j)
    return float(coupling + sum(s[i] * unary[i] for i in range(n)))


def two_voices(frames: int = 120, seed: int = 0) -> Array:
    """Return powers (2, F, T) of two voices whose envelopes vary slowly with frequency."""
    rng = np.random.default_rng(seed)
    knots = rng.normal(size=(2, 5, frames))
    pitch = np.log2(1 + FREQUENCIES_HZ / 1000)
    weights = np.maximum(1 - np.abs(pitch[:, None] - np.linspace(0, pitch[-1], 5)), 0)
    envelopes = np.einsum("fk,mkt->mft", weights, knots)
    powers: Array = np.exp(2 * envelopes) * rng.exponential(size=(2, len(FREQUENCIES_HZ), frames))
    return powers


@pytest.mark.parametrize("seed", range(20))
def test_no_run_of_flips_increases_the_objective(seed: int) -> None:
    """No run of neighbours can be flipped to increase J, and J is not below its start."""
    rng = np.random.default_rng(seed)
    n = 7
    root = rng.normal(size=(n, 3))
    pairwise, unary = root @ root.T, rng.normal(size=n)
    s = permutation_alignment._best_signs(pairwise, unary)
    reached = objective(pairwise, unary, s)
    assert reached >= objective(pairwise, unary, np.ones(n)) - 1e-9
    for i, j in product(range(n), range(1, n + 1)):
        if i < j:
            other = s.copy()
            other[i:j] *= -1
            assert objective(pairwise, unary, other) <= reached + 1e-9


def test_result_is_the_global_maximum() -> None:
    """One swapped run among consistent bands is found: the maximum over all 2^n sign vectors."""
    true = np.array([1, 1, -1, -1, -1, 1, 1, 1.0])
    pairwise = np.outer(true, true) * np.exp(-np.abs(np.subtract.outer(np.arange(8), np.arange(8))))
    unary = 0.1 * np.ones(8)
    candidates = [np.array(s) for s in product((1.0, -1.0), repeat=8)]
    best = max(candidates, key=lambda s: objective(pairwise, unary, s))
    np.testing.assert_array_equal(permutation_alignment._best_signs(pairwise, unary), best)
    np.testing.assert_array_equal(best, true)


@pytest.mark.parametrize("band", [slice(130, 512), slice(200, 260), slice(0, 20)])
def test_swapped_band_is_found(band: slice) -> None:
    """Powers and masks are swapped in a high, middle or low band, where masks are unreliable."""
    powers = two_voices()
    masks = powers / powers.sum(axis=0)
    powers[:, band] = powers[::-1, band]
    masks[:, band] = 0.5 + 0.1 * (masks[::-1, band] - 0.5)
    true = np.zeros(512, dtype=bool)
    true[band] = True
    found = permutation_alignment.align_permutation(powers, masks, FREQUENCIES_HZ)
    assert np.mean(found == true) > 0.97


def test_fine_settings_find_swapped_harmonics() -> None:
    """Every third bin of 4 Hz is swapped below 400 Hz; bands of 8 Hz hold two or three bins."""
    powers = two_voices()
    masks = np.full_like(powers, 0.5)
    frequencies_hz = 3.90625 * np.arange(1.0, len(FREQUENCIES_HZ) + 1)
    true = (
        (np.arange(len(frequencies_hz)) % 3 == 1) & (frequencies_hz > 100) & (frequencies_hz < 400)
    )
    powers[:, true] = powers[::-1, true]
    fine = permutation_alignment.align_permutation(
        powers, masks, frequencies_hz, settings=permutation_alignment.FINE_PERMUTATION
    )
    coarse = permutation_alignment.align_permutation(powers, masks, frequencies_hz)
    correct = [
        float(
            np.mean(((found ^ found[0]) == true)[(frequencies_hz > 100) & (frequencies_hz < 400)])
        )
        for found in (fine, coarse)
    ]
    assert correct[0] > 0.8 > correct[1]


def test_distant_bands_align_across_an_uninformative_band() -> None:
    """Low bands are swapped, and noise up to 2.5 kHz separates them from informative bands."""
    rng = np.random.default_rng(4)
    envelopes = np.exp(2 * rng.normal(size=(2, 1, 200)))
    powers = envelopes * rng.exponential(size=(2, len(FREQUENCIES_HZ), 200))
    low, noise = FREQUENCIES_HZ < 300, (FREQUENCIES_HZ >= 300) & (FREQUENCIES_HZ < 2500)
    powers[:, low] = powers[::-1, low]
    powers[:, noise] = rng.exponential(size=(2, int(noise.sum()), 200))
    masks = powers / powers.sum(axis=0)
    masks[:, FREQUENCIES_HZ < 2500] = 0.5 + 0.05 * (
        masks[:, FREQUENCIES_HZ < 2500] - 0.5
    )  # wrong, with little weight
    settings = permutation_alignment.PermutationSettings(far_weight=0.03)
    found = permutation_alignment.align_permutation(
        powers, masks, FREQUENCIES_HZ, settings=settings
    )
    assert found[low].all()
    assert not found[FREQUENCIES_HZ >= 2500].any()
    assert not permutation_alignment.align_permutation(powers, masks, FREQUENCIES_HZ)[low].all()


def test_coupling_decays_with_distance_in_pitch() -> None:
    """The coupling is exp(-|p_i - p_j| / reach)."""
    pitch = np.sort(np.random.default_rng(2).uniform(0.1, 3.2, size=9))
    expected = np.exp(-np.abs(pitch[:, None] - pitch) / 0.25)
    np.testing.assert_allclose(
        permutation_alignment._exponential_coupling(pitch, 0.25), expected, rtol=1e-9
    )


def test_correct_order_is_kept() -> None:
    """No frequency is swapped if masks and powers agree."""
    powers = two_voices(seed=1)
    assert not permutation_alignment.align_permutation(
        powers, powers / powers.sum(axis=0), FREQUENCIES_HZ
    ).any()


def test_silent_sources_are_not_swapped() -> None:
    """A silent mixture and a single active source cause no errors."""
    assert not permutation_alignment.align_permutation(
        np.zeros((2, 512, 9)), np.full((2, 512, 9), 0.5), FREQUENCIES_HZ
    ).any()
    one = two_voices(frames=9)
    one[1] = 0.0
    assert permutation_alignment.align_permutation(
        one, np.full((2, 512, 9), 0.5), FREQUENCIES_HZ
    ).shape == (512,)


def test_prior_overrides_contradicting_envelopes() -> None:
    """With a prior, a band whose envelopes match the other source is not swapped."""
    powers, masks = two_voices(), np.full((2, len(FREQUENCIES_HZ), 120), 0.5)
    band = (FREQUENCIES_HZ > 600) & (FREQUENCIES_HZ < 800)
    powers[:, band] = powers[::-1, band]
    without_prior = permutation_alignment.align_permutation(powers, masks, FREQUENCIES_HZ)
    assert without_prior[band].mean() > 0.9
    agreement = np.where(FREQUENCIES_HZ < 1700, 1.0, 0.0)
    heavy = permutation_alignment.PermutationSettings(expected_weight=200.0)  # more than couplings
    with_prior = permutation_alignment.align_permutation(
        powers, masks, FREQUENCIES_HZ, agreement, heavy
    )
    assert not with_prior[band].any()


def test_agreement_against_loops() -> None:
    """g changes its sign for swapped vectors, and is 0 where both expected vectors coincide."""
    rng = np.random.default_rng(4)
    level, phase = 6 * rng.normal(size=(2, 5)), rng.normal(size=(2, 5))
    level[:, 3], phase[:, 3] = 2.0, 0.5  # the same cues of both sources
    ear_levels = rng.uniform(0.5, 2.0, size=(2, 5))
    A = rng.normal(size=(5, 2, 2)) + 1j * rng.normal(size=(5, 2, 2))
    A /= np.linalg.norm(A, axis=1, keepdims=True)
    cues = permutation_alignment.ExpectedCues(level, phase).at(np.arange(5), ear_levels)
    g = cues.agreement(A)
    for f in range(5):
        ratios = 10 ** (level[:, f] / 20) * np.exp(1j * phase[:, f])
        vectors = [np.array([1.0, ratio]) / ear_levels[:, f] for ratio in ratios]
        e = [vector / np.linalg.norm(vector) for vector in vectors]
        match = [[abs(np.vdot(A[f, :, m], e[n])) ** 2 for n in (0, 1)] for m in (0, 1)]
        excess = match[0][0] + match[1][1] - match[0][1] - match[1][0]
        collinearity = abs(np.vdot(e[0], e[1])) ** 2
        expected = np.clip(0.5 * excess / (1 - collinearity + 0.02), -1, 1)
        assert g[f] == pytest.approx(expected, rel=1e-9, abs=1e-12)
    assert g[3] == pytest.approx(0, abs=1e-12)
    np.testing.assert_allclose(cues.agreement(A[..., ::-1]), -g, atol=1e-12)


def test_expected_cues_determine_the_order() -> None:
    """Phases or levels decide; there is no decision where nothing is known."""
    level = np.array([[6.0, 6.0, np.nan, 3.0], [-4.0, -4.0, np.nan, 3.0]])
    phase = np.array([[0.3, np.nan, np.nan, 0.5], [1.4, np.nan, np.nan, 0.5]])
    ear_levels = np.array([[1.0, 2.0, 1.0, 3.0], [2.0, 1.0, 5.0, 1.0]])
    any_phase = np.where(np.isnan(phase), [[2.0], [-1.0]], phase)  # arbitrary where it is not known
    ratios = 10 ** (np.nan_to_num(level) / 20) * np.exp(1j * any_phase)
    A = np.stack([np.ones_like(ratios), ratios]).transpose(2, 0, 1) / ear_levels.T[:, :, None]
    A /= np.linalg.norm(A, axis=1, keepdims=True)
    cues = permutation_alignment.ExpectedCues(level, phase)
    rows = np.arange(4)
    expected = cues.at(rows, ear_levels)
    agreement, reversed_order = expected.agreement(A), expected.agreement(A[..., ::-1])
    assert (agreement[:2] > 0.25).all()
    assert (reversed_order[:2] < -0.25).all()
    np.testing.assert_allclose(agreement[2:], 0.0, atol=1e-12)
    rows = np.array([3, 0])
    np.testing.assert_allclose(
        cues.at(rows, ear_levels[:, rows]).agreement(A[rows]), agreement[rows]
    )
